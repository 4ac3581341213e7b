/* The least time of a step by a GPU's data sheet: it needs no measurement. */
#ifndef FP8LAB_RUNNER_ADVISE_FLOOR_H
#define FP8LAB_RUNNER_ADVISE_FLOOR_H

#include "runner/bench/step_work.h"
#include "runner/hardware/peaks.h"

/* Microseconds: for each operator its FLOP at the dense peak of its operands, or its bytes at the
 * memory's rate, whichever takes longer. `native`: FP8 is multiplied as FP8, otherwise as BF16. No
 * step is faster; most take 1.3 to 3 times as long. */
double floor_step_us(const struct peak *peak, const struct step_works *works, bool native);

#endif
