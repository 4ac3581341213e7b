/* Which row a slot of `run --side-by-side` takes next. */
#ifndef FP8LAB_RUNNER_RUN_SLOT_ORDER_H
#define FP8LAB_RUNNER_RUN_SLOT_ORDER_H

#include "kernels/base.h"

/* `waits`: for each of `count` rows, whether nobody has taken it. The rows are `repeat` times the
 * same ones, in turns (script/repeat.h). Slot k of `slots` takes the repeats k, k + slots, ...
 * first: so each of its GPUs runs every row, and no row is compared by the speed of its chip. It
 * begins with row k of each: so no row is always the first, on the coldest GPU. Then it helps with
 * the others'. -1: no row waits. */
int64_t slot_order_next(const bool *waits, int64_t count, int64_t repeat, int64_t slot,
                        int64_t slots);

#endif
