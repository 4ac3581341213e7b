/* A record in shared memory. Another process may read it at any time, also after the writer was
 * killed. A read never mixes two records.
 *
 * There are two copies. `writes` counts the records so far; copy writes % 2 holds the last one.
 * The writer fills the other copy, then increments `writes`. If a reader finds the same count
 * before and after, its copy was not written meanwhile. One thread writes at a time. */
#ifndef FP8LAB_KERNELS_SHARED_RECORD_H
#define FP8LAB_KERNELS_SHARED_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `copies` has room for two records of `bytes`. */
static inline void shared_write(uint64_t *writes, void *copies, const void *record, size_t bytes) {
    uint64_t next = *writes + 1;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the last count before the first byte */
    memcpy((char *)copies + (next % 2) * bytes, record, bytes);
    __atomic_store_n(writes, next, __ATOMIC_RELEASE);
}

enum { SHARED_READ_TRIES = 1000 };

/* False, and zeros, if the writer was faster in every attempt. */
static inline bool shared_read(const uint64_t *writes, const void *copies, void *record,
                               size_t bytes) {
    for (int i = 0; i < SHARED_READ_TRIES; i++) {
        uint64_t before = __atomic_load_n(writes, __ATOMIC_ACQUIRE);
        memcpy(record, (const char *)copies + (before % 2) * bytes, bytes);
        __atomic_thread_fence(__ATOMIC_ACQUIRE); /* the last byte before the count */
        if (__atomic_load_n(writes, __ATOMIC_RELAXED) == before) return true;
    }
    memset(record, 0, bytes);
    return false;
}

#ifdef __cplusplus
}
#endif
#endif
