/* Monotonic time, for intervals only: its zero is some fixed moment in the past. */
#ifndef FP8LAB_RUNNER_BASE_CLOCK_H
#define FP8LAB_RUNNER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static inline int64_t clock_ms(void) { return clock_us() / 1000; }

#endif
