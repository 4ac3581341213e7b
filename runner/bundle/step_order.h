/* Checks the steps of a stream's records. All readers of records count on them: they look for a
 * step by halving, walk over the steps of two runs side by side, and take the last record for the
 * end. */
#ifndef FP8LAB_RUNNER_BUNDLE_STEP_ORDER_H
#define FP8LAB_RUNNER_BUNDLE_STEP_ORDER_H

#include "runner/bundle/columns.h"

/* Checks that each record of the stream has a step, a whole number from 0 to 2^53, and that no step
 * is less than the one before, in training also not equal. The records of several ranks
 * (telemetry, audit) may come in any order. `c` may be NULL: no records. `name` is for the message.
 * ERR_FORMAT names the first record that is wrong. */
NODISCARD enum status step_order_check(int stream, const struct columns *c, const char *name,
                                       struct err *e);

#endif
