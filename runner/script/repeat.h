/* The rows of a command that runs each of them several times (`run --repeat`). */
#ifndef FP8LAB_RUNNER_SCRIPT_REPEAT_H
#define FP8LAB_RUNNER_SCRIPT_REPEAT_H

#include "runner/script/resolve.h"

enum { REPEAT_MAX = 100 };

/* Appends `times` - 1 copies of all runs, in turns: row 1, row 2, row 1, row 2. So a GPU that warms
 * up slows all rows alike. An experiment becomes a suite, which is compared at its end. 1 changes
 * nothing. */
NODISCARD enum status resolution_repeat(struct resolution *r, int64_t times, struct err *e);

#endif
