/* Noise by which algorithms of a GEMM are told apart (gemm_class.cu), for host and device. An
 * element is a function of its place alone, so the host computes sampled outputs again without
 * reading operands back. tests/ops/test_class_noise.c shows what it tells apart. */
#ifndef FP8LAB_KERNELS_CUDA_CLASS_NOISE_H
#define FP8LAB_KERNELS_CUDA_CLASS_NOISE_H

#include "kernels/dtype.h"
#include "kernels/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Words of random bits: the bits kept of each, and those set. */
struct noise_pattern { uint32_t keep, set; };

/* Values of either sign. BF16 from 2^-7 to 2; FP8 with a clear top bit of the exponent, subnormal
 * ones too. */
static inline struct noise_pattern noise_operand(enum dtype t) {
    const struct noise_pattern bf16 = { 0x83FF83FFu, 0x3C003C00u }, fp8 = { 0xBFBFBFBFu, 0 };
    return t == DTYPE_BF16 ? bf16 : fp8;
}
/* Addends from 2^-7 to 2, so that a rounding before them shows. */
static inline struct noise_pattern noise_addend(enum dtype t) {
    const struct noise_pattern f32 = { 0x83FFFFFFu, 0x3C000000u };
    return t == DTYPE_F32 ? f32 : noise_operand(DTYPE_BF16);
}
/* f32 in [1, 2). */
static inline struct noise_pattern noise_factors(void) {
    const struct noise_pattern n = { 0x007FFFFFu, 0x3F800000u };
    return n;
}

/* Element i of `size` bytes in memory that trial_noise (trial.cuh) filled. */
static inline uint32_t noise_at(struct noise_pattern n, int64_t i, int size) {
    uint32_t word = ((uint32_t)rng_mix((uint64_t)(i * size / 4)) & n.keep) | n.set;
    int shift = (int)(i * size % 4) * 8;
    return size == 4 ? word : word >> shift & ((1u << 8 * size) - 1);
}

/* ---- noise whose exact sums are 0 ----
 *
 * Along K the second half is the first with one operand's signs turned, and a rest is 0. So an
 * output is what truncation and rounding left. A half is no multiple of a group or a chain, so that
 * both halves are truncated in other places.
 *
 * FP8 whose chains are added in f32 needs more. The tensor cores keep some 13 bits of a chain, so
 * f32 adds chains of one size exactly, and their order does not show. With `levels` an operand's
 * exponents depend on the place along K: products are up to 2^24 apart, and f32 rounds the sums. */
struct cancel_noise {
    struct noise_pattern n;
    int64_t half; /* of K */
    int size;     /* bytes of an element */
    int mantissa; /* bits of an FP8 code */
    bool levels;
};

enum { NOISE_LEVELS = 4, NOISE_LEVEL_PLACES = 64 };

/* Of an operand of K elements a row; `fast`: FP8 is added in one chain. */
static inline struct cancel_noise cancel_noise(enum dtype t, int64_t k, bool fast) {
    bool bf16 = t == DTYPE_BF16;
    struct cancel_noise c = { noise_operand(t), k >= 32 ? k / 2 - 5 : k / 2, bf16 ? 2 : 1,
                              t == DTYPE_E5M2 ? 2 : 3, !bf16 && !fast };
    return c;
}

/* An FP8 code from 2^-7 to 2^9, of a level of four exponents. The mantissa ends in 0: never NaN. */
HOST_DEVICE static inline uint32_t noise_level_code(uint32_t bits, int64_t place, int mantissa) {
    const uint32_t least = mantissa == 2 ? 8 : 0; /* E5M2's exponents begin lower */
    uint32_t level = (uint32_t)rng_mix((uint64_t)(place / NOISE_LEVEL_PLACES)) % NOISE_LEVELS;
    uint32_t exponent = least + NOISE_LEVELS * level + (bits >> 3) % NOISE_LEVELS;
    return (bits & 0x80u) | exponent << mantissa | (bits & ((1u << mantissa) - 2));
}

/* Element i of a row. `turned`: of the operand whose signs turn. */
HOST_DEVICE static inline uint32_t cancel_noise_at(struct cancel_noise c, bool turned, int64_t row,
                                                   int64_t i) {
    if (i >= 2 * c.half) return 0;
    uint32_t sign = c.size == 2 ? 0x8000u : 0x80u, all = c.size == 2 ? 0xFFFFu : 0xFFu;
    int64_t place = i % c.half;
    uint32_t word = (uint32_t)rng_mix((uint64_t)(row * c.half + place));
    uint32_t bits = c.levels ? noise_level_code(word & all, place, c.mantissa)
                             : ((word & c.n.keep) | c.n.set) & all;
    return turned && i >= c.half ? bits ^ sign : bits;
}

#ifdef __cplusplus
}
#endif
#endif
