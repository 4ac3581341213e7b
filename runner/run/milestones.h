/* The worker events that go to runner.log: start of the attempt, implementations of the GEMMs,
 * losses every 30 s, evaluations, checkpoints, and the worker's own log lines. */
#ifndef FP8LAB_RUNNER_RUN_MILESTONES_H
#define FP8LAB_RUNNER_RUN_MILESTONES_H

#include <jansson.h>

#include "runner/record/run_dir.h"

struct milestones {
    const struct run_dir *dir; /* borrowed */
    int64_t steps;             /* of the whole run, as "start" says */
    int64_t said_ms;           /* when a step was last logged (clock.h); 0: not in this attempt */
    bool pending;              /* the latest step is not logged yet */
    int64_t step;
    double loss, tokens_per_s; /* of the latest step; a loss that is not finite is NAN */
    bool lacks_loss;           /* no token of it has loss */
    json_t *sets;              /* names of the sets of eval.also, or NULL; owned */
};

/* Begins an attempt. */
void milestones_begin(struct milestones *m, const struct run_dir *dir);
/* Takes an event of a rank; ignores events of other kinds. */
void milestones_event(struct milestones *m, int64_t rank, const json_t *event);
/* Ends an attempt: its last step is logged. *m is released. */
void milestones_end(struct milestones *m);

#endif
