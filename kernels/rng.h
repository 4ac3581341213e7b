/* Counter-based randomness: a draw is a pure function of (seed, purpose, step, tensor, element). So
 * it is the same on every backend, for any sharding and thread count, and a run saves no state.
 *
 * The mixer is SplitMix64's finaliser (Steele, Lea, Flood 2014). It is applied once to the key and
 * once to key + golden*element: a Weyl sequence through a strong 64-bit mixer. */
#ifndef FP8LAB_KERNELS_RNG_H
#define FP8LAB_KERNELS_RNG_H

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rng_purpose { /* the values are part of every draw */
    RNG_INIT = 0,           /* weight initialisation; step 0 */
    RNG_ROUND = 1,          /* stochastic rounding in AdamW: rng_round.h */
    RNG_DATA_ORDER = 3,     /* the order of sequences; step = part, tensor = epoch */
    RNG_DATA_SYNTHETIC = 4, /* synthetic tokens */
    RNG_DOCUMENT_ORDER = 5, /* the order of documents; step = part, tensor = epoch */
    RNG_SAMPLE = 6,         /* generated tokens; tensor = prompt, element = place of the token */
    RNG_GRADIENT = 7,       /* stochastic rounding of FP4 gradients: nvfp4.h */
    RNG_AUDIT = 8           /* what an audit compares; tensor = rank */
};

HOST_DEVICE static inline uint64_t rng_mix(uint64_t x) {
    x ^= x >> 30; x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27; x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

HOST_DEVICE static inline uint64_t rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t step,
                                           uint64_t tensor) {
    uint64_t k = rng_mix(seed + 0x9E3779B97F4A7C15u);
    k = rng_mix(k ^ ((uint64_t)purpose << 56) ^ step);
    return rng_mix(k ^ (tensor * 0xD1342543DE82EF95u));
}

/* 64 random bits of element i under a key: those of rng_input(). The input of element i + n is
 * n * RNG_STRIDE larger, so a loop needs no multiplication. */
#define RNG_STRIDE 0x9E3779B97F4A7C15u
HOST_DEVICE static inline uint64_t rng_input(uint64_t key, uint64_t i) {
    return key + RNG_STRIDE * (i + 1);
}
HOST_DEVICE static inline uint64_t rng_bits(uint64_t key, uint64_t i) {
    return rng_mix(rng_input(key, i));
}

/* Uniform in [0, 1): the top 24 bits, exact in f32. */
HOST_DEVICE static inline float rng_uniform(uint64_t bits) {
    return (float)(bits >> 40) * (1.0f / 16777216.0f);
}

/* Uniform integer in [0, n), n < 2^32, by the high half of a product (Lemire 2019, without the
 * rejection: the bias is below n / 2^32). */
HOST_DEVICE static inline uint32_t rng_below(uint64_t bits, uint32_t n) {
    return (uint32_t)(((bits >> 32) * (uint64_t)n) >> 32);
}

#ifdef __cplusplus
}
#endif
#endif
