/* Settings with which a run needs less memory. */
#ifndef FP8LAB_RUNNER_PLAN_SAVING_H
#define FP8LAB_RUNNER_PLAN_SAVING_H

#include "model/train.h"

/* Saving i is 0 to SAVINGS - 1. */
enum { SAVINGS = 9 };

/* What settings mean to a run. codes: of saving_has_codes. one_memory: CPU and GPU share it, so
 * offloading frees nothing. */
struct saving_run { int64_t layers; int ranks; bool codes, one_memory; };

/* Whether weights have codes that train.weight_codes = "made" does not keep. It keeps those of a
 * tied head, and a recipe with param_gather rejects it. */
bool saving_has_codes(const struct recipe *r, bool tied);

/* Changes `t`; false if it has the setting already, or if that frees nothing. */
bool saving_apply(int i, struct train_options *t, const struct saving_run *run);
/* Whether it may be limited to some layers, by train.recompute_layers. */
bool saving_has_layers(int i);
/* Whether it takes so little of a step that fewer layers that recompute pay for it. */
bool saving_is_cheap(int i);
/* Whether the run computes the same numbers with it, but for the order in which sharding adds
 * several micro-batches. */
bool saving_is_exact(int i);
/* Appends " --set KEY=VALUE". `layers`: limited to so many; 0: to none. */
void saving_add(int i, int64_t layers, char *text, size_t size);

/* Those that `t` does not have, as --set flags, each after a space; "" if there are none. */
void fit_less_memory(const struct train_options *t, const struct saving_run *run, char *text,
                     size_t size);

#endif
