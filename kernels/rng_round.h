/* Stochastic rounding: up with the probability that makes the expected result equal to the value.
 * Equal on every backend.
 *
 * One draw of 64 bits serves all roundings of an element, because a draw costs more than a
 * rounding. `random` is round_random() of the rounded part: BF16 uses the low 16 bits, E4M3 the low
 * 20. No bit is used twice. */
#ifndef FP8LAB_KERNELS_RNG_ROUND_H
#define FP8LAB_KERNELS_RNG_ROUND_H

#include "kernels/dtype.h"
#include "kernels/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

enum round_part { ROUND_M, ROUND_V, ROUND_WEIGHT };

HOST_DEVICE static inline uint32_t round_random(uint64_t bits, enum round_part part) {
    return (uint32_t)(bits >> 24 * part);
}

/* f32 -> bf16 by the low 16 random bits: exact, because bf16 drops 16 bits. A value above
 * the largest finite bf16 may become infinity; infinity stays, NaN is canonical. */
HOST_DEVICE static inline uint16_t bf16_round_stochastic(float x, uint32_t random) {
    uint32_t u = f32_bits(x);
    uint32_t up = (u & 0x7F800000u) == 0x7F800000u ? 0 : random & 0xFFFFu;
    return (u & 0x7FFFFFFFu) > 0x7F800000u ? (uint16_t)0x7FC0 : (uint16_t)((u + up) >> 16);
}

/* f32 -> E4M3 by the low 20 random bits: a normal E4M3 drops 20 bits. Beyond 448 it saturates;
 * NaN -> 0x7F. Below 2^-6 the value is first truncated to a multiple of 2^-29: a bias of less than
 * 2^-20 of the smallest subnormal. */
HOST_DEVICE static inline uint8_t e4m3_round_stochastic(float x, uint32_t random) {
    uint32_t u = f32_bits(x), magnitude = u & 0x7FFFFFFFu, sign = u >> 24 & 0x80u;
    bool tiny = magnitude < 0x3C800000u; /* 2^-6, the smallest normal */
    /* Subnormals are fixed point: 2^29 * |x| < 2^23, so the conversion is exact up to its cut. */
    uint32_t fixed = (uint32_t)(int32_t)(tiny ? f32_from_bits(magnitude) * 536870912.0f : 0.0f);
    uint32_t wide = tiny ? fixed : magnitude - 0x3C000000u; /* rebias the exponent: 127 to 7 */
    uint32_t code = (wide + (random & 0xFFFFFu)) >> 20;
    code = magnitude >= 0x43E00000u ? 0x7Eu : code; /* 448 */
    return magnitude > 0x7F800000u ? (uint8_t)0x7F : (uint8_t)(sign | code);
}

#ifdef __cplusplus
}
#endif
#endif
