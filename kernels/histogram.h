/* The buckets of a histogram, on host and device. Their edges are powers of two, so the bits of a
 * value name its bucket: no value is rounded into another one, on any machine.
 *
 *   bucket                          values
 *   HISTOGRAM_ZERO                  |x| < 2^-48: zeros, and what is as good as zero
 *   HISTOGRAM_ZERO + 1 + k          2^(k-48) <= x < 2^(k-47), 0 <= k < 64
 *   HISTOGRAM_ZERO - 1 - k          the same of -x
 *   HISTOGRAM_NAN                   NaN
 * The buckets of k = 63 also hold what is larger, infinity too. The first 129 are in the order of
 * their values. */
#ifndef FP8LAB_KERNELS_HISTOGRAM_H
#define FP8LAB_KERNELS_HISTOGRAM_H

#include "kernels/f32_bits.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HISTOGRAM_POWERS = 64, HISTOGRAM_LOWEST = -48, HISTOGRAM_ZERO = HISTOGRAM_POWERS,
       HISTOGRAM_NAN = 2 * HISTOGRAM_POWERS + 1, HISTOGRAM_COUNTS = HISTOGRAM_NAN + 1 };

/* The bucket of the f32 with these bits. */
HOST_DEVICE static inline int histogram_bucket(uint32_t bits) {
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    int k = (int)(magnitude >> 23) - 127 - HISTOGRAM_LOWEST;
    if (magnitude > 0x7F800000u) return HISTOGRAM_NAN;
    if (k < 0) return HISTOGRAM_ZERO;
    if (k >= HISTOGRAM_POWERS) k = HISTOGRAM_POWERS - 1;
    return bits >> 31 ? HISTOGRAM_ZERO - 1 - k : HISTOGRAM_ZERO + 1 + k;
}

/* The lower edge of bucket i, 0 <= i <= HISTOGRAM_NAN; that of HISTOGRAM_NAN is the upper edge of
 * the largest values' bucket. */
static inline double histogram_edge(int i) {
    int k = i <= HISTOGRAM_ZERO ? HISTOGRAM_ZERO - i : i - 1 - HISTOGRAM_ZERO;
    double power = 1;
    for (int p = k + HISTOGRAM_LOWEST; p > 0; p--) power *= 2;
    for (int p = k + HISTOGRAM_LOWEST; p < 0; p++) power /= 2;
    return i <= HISTOGRAM_ZERO ? -power : power;
}

#ifdef __cplusplus
}
#endif
#endif
