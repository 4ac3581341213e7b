/* Monotonic time, for intervals only: its zero is some fixed moment in the past. */
#ifndef FP8LAB_MODEL_GROUND_CLOCK_H
#define FP8LAB_MODEL_GROUND_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Returns the time since *since, which becomes now. */
static inline int64_t clock_lap_us(int64_t *since) {
    int64_t begin = *since;
    *since = clock_us();
    return *since - begin;
}

#endif
