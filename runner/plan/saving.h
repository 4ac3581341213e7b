/* Settings with which a run needs less memory. */
#ifndef FP8LAB_RUNNER_PLAN_SAVING_H
#define FP8LAB_RUNNER_PLAN_SAVING_H

#include "model/train.h"

/* Saving i is 0 to SAVINGS - 1. */
enum { SAVINGS = 8 };

/* Changes `t`, of a run on `ranks` ranks; false if it has the setting already, or if that frees
 * nothing. one_memory: CPU and GPU share it, so that offloading frees nothing. */
bool saving_apply(int i, struct train_options *t, int ranks, bool one_memory);
/* Whether the run computes the same numbers with it, but for the order in which sharding adds
 * several micro-batches. */
bool saving_is_exact(int i);
/* Appends " --set KEY=VALUE". */
void saving_add(int i, char *text, size_t size);

/* Those that `t` does not have, as --set flags, each after a space; "" if there are none. */
void fit_less_memory(const struct train_options *t, int ranks, bool one_memory, char *text,
                     size_t size);

#endif
