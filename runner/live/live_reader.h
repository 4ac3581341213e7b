/* Follows the directory of a run: each poll reads only what the files got since the last one. Polls
 * open the files anew, since a shared disk shows new bytes to new openings only. */
#ifndef FP8LAB_RUNNER_LIVE_LIVE_READER_H
#define FP8LAB_RUNNER_LIVE_LIVE_READER_H

#include "runner/base/run_files.h"
#include "runner/live/live.h"

/* A file as it was when it was read. */
struct live_stamp { int64_t inode, bytes, changed_ns; };

enum { LIVE_WIDE_COUNT = 2 }; /* streams of rows of which the last one is read */

struct live_reader {
    char path[PATH_CAP];
    struct live live;    /* what the records say; read it between polls */
    bool gone;           /* the directory is no longer there */
    bool own;            /* the caller holds the lock: it is not looked at */
    bool reread;         /* the records are not those that were read: begin again */
    bool first;          /* this poll reads the files from their beginning */
    int64_t inode[STREAM_COUNT], at[STREAM_COUNT]; /* of lines: the bytes that were taken */
    int64_t damaged;     /* lines that are no record, left out */
    struct live_stamp run, resolved, decisions, suite, log;
    struct live_wide { struct live_stamp stamp; json_t *labels; } wide[LIVE_WIDE_COUNT]; /* labels
                            owned, or NULL */
    char *buffer;        /* owned */
};

/* Begins to follow the directory `path`; reads nothing yet. ERR_MEMORY. */
NODISCARD enum status live_reader_open(struct live_reader *r, const char *path, struct err *e);
void live_reader_close(struct live_reader *r); /* safe to call twice */

/* Reads what is new into r->live. A record that is half written is read once it is whole. If the
 * files were cut back or replaced (a resume), everything is read again. If the directory is gone,
 * sets r->gone and keeps the last state. ERR_ARG: it is no run's directory. ERR_IO, ERR_FORMAT: a
 * file cannot be read; the text names it. */
NODISCARD enum status live_reader_poll(struct live_reader *r, struct err *e);

#endif
