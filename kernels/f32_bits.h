/* An f32 as its bits, on host and device. */
#ifndef FP8LAB_KERNELS_F32_BITS_H
#define FP8LAB_KERNELS_F32_BITS_H

#include <string.h>

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

HOST_DEVICE static inline uint32_t f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
HOST_DEVICE static inline float f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }
/* The one NaN; every other value unchanged. */
HOST_DEVICE static inline float f32_canonical(float x) {
    return x == x ? x : f32_from_bits(0x7FC00000u);
}

#ifdef __cplusplus
}
#endif
#endif
