/* Time that only goes forward, in milliseconds since some moment before the machine's start. */
#ifndef FP8LAB_RUNNER_BASE_CLOCK_H
#define FP8LAB_RUNNER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#endif
