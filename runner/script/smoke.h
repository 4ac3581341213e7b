/* --smoke: any experiment, small enough to rehearse in seconds on a CPU. */
#ifndef FP8LAB_RUNNER_SCRIPT_SMOKE_H
#define FP8LAB_RUNNER_SCRIPT_SMOKE_H

#include <stdint.h>

#include "runner/base/value.h"

/* Shrinks sizes and steps of a normalised experiment and leaves the rest: the recipe with its
 * BF16 layers, the kinds of norm, activation and positions, the schedule's shape. What it must
 * exercise it adds: accumulation over two micro-batches, one evaluation, one checkpoint half-way
 * from which the runner resumes. Data that is not there becomes synthetic. `ends`: the most
 * smoke_ends() of any row of the script. Every row gets two layers more than that, so that rows
 * differ small in what they differ in large. */
void smoke_shrink(struct pool *p, struct value *experiment, int64_t ends);

/* How many layers at both ends the recipe of a normalised experiment leaves in BF16. */
int64_t smoke_ends(const struct value *experiment);

#endif
