/* The progress of a run, on stderr: the live view (runner/live) on a terminal, otherwise a line
 * every few seconds. Nothing under -q. Both come from the run's directory, as `fp8lab watch` reads
 * it. A failure to read or to show it never fails the run. */
#ifndef FP8LAB_RUNNER_RUN_PROGRESS_H
#define FP8LAB_RUNNER_RUN_PROGRESS_H

#include "runner/base/cli.h"
#include "runner/live/live_reader.h"
#include "runner/live/screen.h"

struct progress {
    const struct cli *cli;
    const char *name;      /* of the run; borrowed */
    bool shown, terminal;  /* shown: something is printed at all */
    struct live_reader reader;
    struct screen screen;
    int64_t read_ms, line_ms; /* of the last poll and of the last line (clock.h) */
    int64_t line_step;        /* of the last line; -1: none */
};

/* Follows the run's directory `path`. */
void progress_begin(struct progress *p, const struct cli *cli, const char *name, const char *path);
/* Shows the state if that is due. */
void progress_tick(struct progress *p);
/* Prints a message on a line of its own, above the view. */
void progress_say(struct progress *p, const char *text);
/* Shows the last state, and ends. */
void progress_end(struct progress *p);

#endif
