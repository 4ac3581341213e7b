/* The progress line of a run, on stderr: rewritten on a terminal, otherwise a new line every few
 * seconds. Nothing under -q. */
#ifndef FP8LAB_RUNNER_RUN_PROGRESS_H
#define FP8LAB_RUNNER_RUN_PROGRESS_H

#include "runner/base/cli.h"

struct json_t;

struct progress {
    const struct cli *cli;
    const char *name;            /* of the run; borrowed */
    bool terminal, line_open;    /* line_open: the cursor is at the end of a progress line */
    int64_t steps, step, first_step; /* in all; done; done before this attempt */
    int64_t begin_ms, shown_ms;  /* of the start event; of the last line (clock.h) */
    int64_t shown_step;
    double loss, tokens_per_s;   /* of the last step; smoothed */
    double mfu;                  /* of the last step, against the peak; 0: not known */
    double eval_loss;            /* of the last evaluation, NaN before */
};

void progress_begin(struct progress *p, const struct cli *cli, const char *name, int64_t steps);
/* Takes an event of rank 0. */
void progress_event(struct progress *p, const struct json_t *event);
/* Prints the line if it is due. */
void progress_tick(struct progress *p);
/* Prints a message on a line of its own. */
void progress_say(struct progress *p, const char *text);
/* Shows the last state and ends the line. */
void progress_end(struct progress *p);

#endif
