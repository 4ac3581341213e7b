/* What a user sees while a run goes on: one line that is rewritten on a terminal, else a line every
 * few seconds. Messages, so stderr; nothing under -q. */
#ifndef FP8LAB_RUNNER_RUN_PROGRESS_H
#define FP8LAB_RUNNER_RUN_PROGRESS_H

#include "runner/base/cli.h"

struct json_t;

struct progress {
    const struct cli *cli;
    const char *name;            /* of the run; borrowed */
    bool terminal, line_open;    /* line_open: the cursor stands behind a progress line */
    int64_t steps, step, first_step; /* wanted; done; done when this attempt began */
    int64_t begin_ms, shown_ms;  /* of the first step's event; of the last line */
    int64_t shown_step;
    double loss, tokens_per_s;   /* of the last step; smoothed */
    double mfu;                  /* of the last step, against the peak; 0: not known */
    double eval_loss;            /* of the last evaluation, NaN before */
};

void progress_begin(struct progress *p, const struct cli *cli, const char *name, int64_t steps);
/* Takes note of an event of rank 0. */
void progress_event(struct progress *p, const struct json_t *event);
/* Prints where it is time to. */
void progress_tick(struct progress *p);
/* A message of its own line. */
void progress_say(struct progress *p, const char *text);
/* Shows the last state and ends the line. */
void progress_end(struct progress *p);

#endif
