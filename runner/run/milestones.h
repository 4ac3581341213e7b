/* The events of a worker that stand in runner.log: where the attempt began, how its GEMMs are made,
 * losses every half a minute, evaluations, checkpoints, and what the worker says. */
#ifndef FP8LAB_RUNNER_RUN_MILESTONES_H
#define FP8LAB_RUNNER_RUN_MILESTONES_H

#include "runner/record/run_dir.h"

struct milestones {
    const struct run_dir *dir; /* borrowed */
    int64_t steps;             /* of the whole run, as "start" says */
    int64_t said_ms;           /* when a step was logged last; 0: none of this attempt */
    bool pending;              /* a later step was not */
    int64_t step;
    double loss, tokens_per_s; /* of that step; a loss that is not finite is NAN */
};

/* Begins an attempt. */
void milestones_begin(struct milestones *m, const struct run_dir *dir);
/* An event of a rank; those that are none of the above are passed over. */
void milestones_event(struct milestones *m, int64_t rank, const json_t *event);
/* Ends an attempt: its last step is logged. */
void milestones_end(struct milestones *m);

#endif
