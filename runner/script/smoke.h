/* --smoke: any experiment, small enough to rehearse in seconds on a CPU. */
#ifndef FP8LAB_RUNNER_SCRIPT_SMOKE_H
#define FP8LAB_RUNNER_SCRIPT_SMOKE_H

#include "runner/base/value.h"

/* Shrinks sizes and steps of a normalised experiment and leaves the rest: the recipe with its
 * BF16 layers, the kinds of norm, activation and positions, the schedule's shape. What it must
 * exercise it adds: accumulation over two micro-batches, one evaluation, one checkpoint half-way
 * from which the runner resumes. Data that is not there becomes synthetic. */
void smoke_shrink(struct pool *p, struct value *experiment);

#endif
