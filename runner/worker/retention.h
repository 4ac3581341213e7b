/* Decides which checkpoints stay on disk: the newest `keep`, that of the best evaluation, and that
 * of step 0. */
#ifndef FP8LAB_RUNNER_WORKER_RETENTION_H
#define FP8LAB_RUNNER_WORKER_RETENTION_H

#include "kernels/base.h"

struct retention {
    int64_t keep; /* newest checkpoints to keep; at least 1, to resume from */
    bool keep_best, keep_init;
    int64_t best_step; /* 0: no evaluation yet */
    double best_loss;
};

/* Reads the best evaluation so far from the records of the run at `run_path`. */
NODISCARD enum status retention_open(const char *run_path, int64_t keep, bool keep_best,
                                     bool keep_init, struct retention *out, struct err *e);

/* Takes an evaluation; true if it is the best so far and its checkpoint is to be kept. */
bool retention_evaluated(struct retention *r, int64_t step, double loss);

/* Deletes the other checkpoints from `parent` (data/checkpoints). The last saved one is of step
 * `saved`. A checkpoint of a later step is deleted: it was skipped as damaged when the run resumed
 * from an earlier step. */
NODISCARD enum status retention_prune(const struct retention *r, const char *parent, int64_t saved,
                                      struct err *e);

#endif
