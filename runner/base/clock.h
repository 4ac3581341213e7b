/* Monotonic time in milliseconds too. */
#ifndef FP8LAB_RUNNER_BASE_CLOCK_H
#define FP8LAB_RUNNER_BASE_CLOCK_H

#include "model/ground/clock.h"

static inline int64_t clock_ms(void) { return clock_us() / 1000; }

#endif
