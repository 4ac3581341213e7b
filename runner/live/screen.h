/* A few lines at the end of a terminal's text that are redrawn in place. No state of the terminal
 * is changed: no alternate screen, no hidden cursor, no modes. So a program that dies leaves the
 * terminal as it was, with the last lines visible. The cursor is below the block between two
 * draws; what the user types or another program prints appears there. */
#ifndef FP8LAB_RUNNER_LIVE_SCREEN_H
#define FP8LAB_RUNNER_LIVE_SCREEN_H

#include <stdio.h>

#include "runner/base/canonical.h"
#include "runner/live/live_text.h"

struct screen {
    int fd;
    bool ascii, color;
    bool reflows; /* the terminal breaks long lines again if it becomes narrower */
    int64_t columns, rows;         /* at the last draw; 0: the block is not drawn */
    struct live_lines lines;       /* of the last draw */
    int64_t seen_columns, seen_rows, looked_ms; /* of the last screen_size() */
};

/* Prepares the terminal of `fd`. `variable` reads an environment variable, as screen_variable()
 * does for that of this process. False if the view is not
 * possible there: no terminal, TERM unset or "dumb", or under Open MPI's mpirun, whose pipes look
 * like a terminal. */
const char *screen_variable(const char *name);
bool screen_open(struct screen *s, int fd, const char *(*variable)(const char *name));

/* Whether the view may be drawn now, and the size for it. False while the user changes the size,
 * while the program is in the background, and while the terminal takes no text (Ctrl-S). After a
 * pause (Ctrl-Z, a blocked disk) a fresh block begins, because others may have printed below. */
bool screen_size(struct screen *s, int64_t now_ms, int64_t *columns, int64_t *rows);

/* Draws the lines over those of the last draw; writes nothing if they are the same. */
void screen_draw(struct screen *s, const struct live_lines *lines, int64_t columns, int64_t rows);
/* Lays the state out for the terminal's size, and draws it behind `out`, which writes to the same
 * terminal. False: screen_size() says not now. */
bool screen_show(struct screen *s, const struct live *l, FILE *out);
/* Removes the block, so that a message can be printed in its place. */
void screen_erase(struct screen *s);
/* Leaves the block as it is; the next draw begins a new one below. */
void screen_leave(struct screen *s);

/* ---- the parts without a terminal, for tests ---- */

/* Whether the environment's locale has UTF-8. */
bool screen_locale_is_utf8(const char *(*variable)(const char *name));
/* What a draw writes, for a terminal that has this size now; `lines` NULL: what erases the block.
 * Changes the state as the draw does. */
void screen_compose(struct screen *s, const struct live_lines *lines, int64_t columns,
                    int64_t rows, struct text *out);

#endif
