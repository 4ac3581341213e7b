/* What of a model a configuration trains: train.freeze and train.lr_scale, in a line. */
#ifndef FP8LAB_RUNNER_PLAN_TRAINED_H
#define FP8LAB_RUNNER_PLAN_TRAINED_H

#include "kernels/base.h"

struct json_t;

enum { TRAINED_TEXT_CAP = 400 };

/* "12 of 345 parameters; frozen: embed, layers.0-3; learning rate: head x 0.5". "" if a resolved
 * configuration has neither key. A long list ends with "...". */
NODISCARD enum status trained_text(const struct json_t *config, char out[TRAINED_TEXT_CAP],
                                   struct err *e);

#endif
