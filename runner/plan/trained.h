/* What of a model a configuration trains: train.freeze and train.lr_scale, in a line. */
#ifndef FP8LAB_RUNNER_PLAN_TRAINED_H
#define FP8LAB_RUNNER_PLAN_TRAINED_H

#include "kernels/base.h"
#include "runner/base/canonical.h"

struct json_t;

/* "12 of 345 parameters; frozen: embed, layers.0-3; learning rate: head x 0.5", with every name.
 * Its bytes are NULL if a resolved configuration has neither key. On OK the caller frees it. */
NODISCARD enum status trained_text(const struct json_t *config, struct text *out, struct err *e);

#endif
