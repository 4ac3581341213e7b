/* The state of a run as text: the lines of the view, and one line where there is no terminal. */
#ifndef FP8LAB_RUNNER_LIVE_LIVE_TEXT_H
#define FP8LAB_RUNNER_LIVE_LIVE_TEXT_H

#include "runner/live/live.h"

/* A line never fills a terminal of 80 columns, so terminals wider than that need not wrap it again
 * when they are resized. */
enum { LIVE_COLUMNS_MAX = 79, LIVE_LINES_MAX = 32, LIVE_LINE_CAP = 512 };

struct live_lines {
    int64_t count;
    struct {
        char text[LIVE_LINE_CAP]; /* UTF-8, with the sequences of colours */
        int64_t columns;          /* that it takes on a terminal */
    } line[LIVE_LINES_MAX];
};

struct live_look {
    int64_t columns, rows; /* of the terminal */
    bool ascii, color;
    int64_t now;           /* s since 1970 */
};

/* Lays the view out in at most `rows` - 1 lines of less than `columns` columns. If the height does
 * not suffice, the least important lines are left out. */
void live_view(const struct live *l, const struct live_look *look, struct live_lines *out);

/* Without a terminal a line is printed this often. */
enum { LIVE_LINE_EVERY_MS = 5000 };

/* "step 120/1000  loss 3.412  lr 3.0e-04  grad 1.23  41.2 ms  99k tokens/s  eval 3.399 at step 100
 * ETA 0:36". */
void live_line(const struct live *l, int64_t now, char *out, size_t size);

/* Why nothing more comes, and what to do: "done", "its runner is gone, ...". "" while it lives. */
void live_end_text(const struct live *l, char *out, size_t size);

/* ---- for tests ---- */

/* Seconds as "0:42", "1:02:03" or "3 d 04:05"; "-" below 0. */
void live_format_time(double seconds, char *out, size_t size);
/* 950, 9.9k, 99k, 1.20M. */
void live_format_count(double value, char *out, size_t size);

#endif
