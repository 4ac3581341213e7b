/* Which checkpoints stay on disk: the newest `keep`, the one with the best evaluation, and the one
 * of step 0. */
#ifndef FP8LAB_RUNNER_WORKER_RETENTION_H
#define FP8LAB_RUNNER_WORKER_RETENTION_H

#include "kernels/base.h"

struct retention {
    int64_t keep; /* newest checkpoints to keep, at least 1: what a stopped run needs */
    bool keep_best, keep_init;
    int64_t best_step; /* 0: no evaluation yet */
    double best_loss;
};

/* Takes up where the records of the run at `run_path` end: the best evaluation so far. */
NODISCARD enum status retention_open(const char *run_path, int64_t keep, bool keep_best,
                                     bool keep_init, struct retention *out, struct err *e);

/* Notes an evaluation; true where it is the best and its checkpoint is wanted. */
bool retention_evaluated(struct retention *r, int64_t step, double loss);

/* Removes what need not stay from `parent` (data/checkpoints), the one of step `saved` being the
 * last that was saved. One of a later step was passed over when the run went on from before it:
 * it is not the run's any more. */
NODISCARD enum status retention_prune(const struct retention *r, const char *parent, int64_t saved,
                                      struct err *e);

#endif
