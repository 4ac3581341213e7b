/* Deletes checkpoints that no tier (runner/plan/tiers.h) needs. What stays follows from the
 * options, the recorded evaluations and the checkpoints on disk alone. So a run that was killed in
 * the middle of a clean-up goes on with it after its next checkpoint. The best checkpoint is that
 * of the best evaluation whose checkpoint was written: a write that fails frees no older one. */
#ifndef FP8LAB_RUNNER_WORKER_RETENTION_H
#define FP8LAB_RUNNER_WORKER_RETENTION_H

#include "runner/plan/tiers.h"

struct retention {
    struct tier_scene scene;
    double best_value;      /* of the metric, at scene.best_step */
    int64_t due_step;       /* of the last evaluation that is better; best once it is written */
    double due_value;
    int64_t evaluated_step; /* of the best evaluation, written or not; 0: none yet */
    double evaluated_value;
};

/* Reads the best evaluation so far from the records of the run at `run_path`. `sequences`: of an
 * epoch, 0: the data have no end. */
NODISCARD enum status retention_open(const char *run_path, const struct run_options *run,
                                     int64_t sequences, struct retention *out, struct err *e);

/* Takes the value of the metric that checkpoint.best names. True if it is better than that of the
 * best checkpoint and its own is to be written. The first of equal values is the best; a value that
 * is not finite never is. */
bool retention_evaluated(struct retention *r, int64_t step, double value);

/* Deletes the other checkpoints from `parent` (data/checkpoints). The last saved one is of step
 * `saved`; it becomes the best if its evaluation was better. A checkpoint of a later step is
 * deleted: it was skipped as damaged when the run resumed from an earlier step. */
NODISCARD enum status retention_prune(struct retention *r, const char *parent, int64_t saved,
                                      struct err *e);

/* The steps that have a checkpoint in `parent`, ascending. The caller frees *steps. */
NODISCARD enum status retention_list(const char *parent, int64_t **steps, int64_t *count,
                                     struct err *e);

#endif
