/* Deletes checkpoints that no tier (runner/plan/tiers.h) needs. What stays follows from the
 * options, the recorded evaluations and the checkpoints on disk alone. So a run that was killed in
 * the middle of a clean-up goes on with it after its next checkpoint. */
#ifndef FP8LAB_RUNNER_WORKER_RETENTION_H
#define FP8LAB_RUNNER_WORKER_RETENTION_H

#include "runner/plan/tiers.h"

struct retention {
    struct tier_scene scene;
    double best_value; /* of the metric, at scene.best_step */
};

/* Reads the best evaluation so far from the records of the run at `run_path`. `sequences`: of an
 * epoch, 0: the data have no end. */
NODISCARD enum status retention_open(const char *run_path, const struct run_options *run,
                                     int64_t sequences, struct retention *out, struct err *e);

/* Takes the value of the metric that checkpoint.best names. True if it is the best so far and its
 * checkpoint is to be kept. The first of equal values is the best; a value that is not finite never
 * is. */
bool retention_evaluated(struct retention *r, int64_t step, double value);

/* Deletes the other checkpoints from `parent` (data/checkpoints). The last saved one is of step
 * `saved`. A checkpoint of a later step is deleted: it was skipped as damaged when the run resumed
 * from an earlier step. */
NODISCARD enum status retention_prune(const struct retention *r, const char *parent, int64_t saved,
                                      struct err *e);

/* The steps that have a checkpoint in `parent`, ascending. The caller frees *steps. */
NODISCARD enum status retention_list(const char *parent, int64_t **steps, int64_t *count,
                                     struct err *e);

#endif
