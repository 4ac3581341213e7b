/* How many steps a run has, and what depends on the number. */
#ifndef FP8LAB_RUNNER_PLAN_RUN_LENGTH_H
#define FP8LAB_RUNNER_PLAN_RUN_LENGTH_H

#include <jansson.h>

#include "kernels/base.h"

/* schedule.decay where the script gives none: all steps after the warm-up, with "wsd" a fifth of
 * them, 0 with "constant". */
int64_t default_decay(const char *schedule, int64_t steps, int64_t warmup);

/* schedule.warmup of a schedule.warmup_ratio, rounded up as in transformers (get_warmup_steps of
 * its training_args.py). */
int64_t warmup_of_ratio(double ratio, int64_t steps);

/* Sets train.steps of a configuration whose train.steps is null, and schedule.warmup and decay
 * where the script leaves them to the length of the run. Steps: epochs x sequences / global_batch,
 * rounded up. Any other configuration is unchanged. Text with a tokenizer is unchanged too, unless
 * known_steps says how many: its length is not known before it is tokenised (cache/cache.h).
 *
 * data_root: prefix of the data's paths, or NULL. known_steps: the number from a bundle, whose data
 * are not read; 0: count. The errors of data_open, naming train.epochs. ERR_CONFIG if the data are
 * generated, and so have no end, or if a warm-up is longer than the run. */
NODISCARD enum status epochs_resolve(json_t *config, const char *data_root, int64_t known_steps,
                                     struct err *e);

#endif
