/* --smoke: shrinks any experiment so that it runs in seconds on a CPU. */
#ifndef FP8LAB_RUNNER_SCRIPT_SMOKE_H
#define FP8LAB_RUNNER_SCRIPT_SMOKE_H

#include <stdint.h>

#include "runner/base/value.h"

/* Shrinks sizes and steps of a normalised experiment. The recipe with its BF16 layers, the kinds of
 * norm, activation and positions, and the schedule's shape stay. Adds accumulation over two
 * micro-batches, one evaluation, and one checkpoint half-way, from which the runner resumes.
 * Missing data become synthetic. `ends`: the largest smoke_ends() of the script's runs. Every run
 * gets two layers more than that, so that the small runs differ in the same options as the full
 * ones. */
void smoke_shrink(struct pool *p, struct value *experiment, int64_t ends);

/* Shrinks the steps of a recipe; smoke_shrink does so for the run's own. */
void smoke_shrink_recipe(struct pool *p, struct value *recipe);

/* The number of layers at both ends that the recipe of a normalised experiment keeps in BF16. */
int64_t smoke_ends(const struct value *experiment);

#endif
