/* NVFP4: E2M1 codes in blocks of 16, an E4M3 scale a block, an f32 amax a tensor. The scalar rules,
 * to the operation those of TransformerEngine's casts (common/cast/nvfp4, pytorch's
 * reference_nvfp4). Inline: loops of the CPU and of a device share them.
 *
 *   S = 2688 / amax                       the tensor: 2688 = 6 * 448
 *   d = E4M3(block amax * (S * (1/6)))    the block's stored scale
 *   m = 1 / (d * (1/S))                   what the block's values are multiplied by
 *   code = E2M1(x * m)                    value = code * d * amax/2688 */
#ifndef FP8LAB_KERNELS_NVFP4_H
#define FP8LAB_KERNELS_NVFP4_H

#include "kernels/fp8_inline.h"
#include "kernels/rng.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { NVFP4_BLOCK = 16 };

/* ---- scales ---- */

/* S. 1 for an amax of zero or infinity; a NaN stays. */
HOST_DEVICE static inline float nvfp4_tensor_multiplier(float amax) {
    const float largest = 3.402823466e+38f;
    float s = 2688.0f / amax;
    if (s > largest) s = largest;
    return amax == 0.0f || s == 0.0f ? 1.0f : s;
}

/* d, as its code. Saturates at 448; a NaN stays. */
HOST_DEVICE static inline uint8_t nvfp4_block_scale(float s, float block_amax) {
    return e4m3_encode_inline(block_amax * (s * (1.0f / 6.0f)));
}

/* m. The largest f32 for a block whose d is 0; its codes do not matter, since d makes them 0. */
HOST_DEVICE static inline float nvfp4_block_multiplier(float s, uint8_t d) {
    const float largest = 3.402823466e+38f;
    float m = 1.0f / (e4m3_decode_inline(d) * (1.0f / s));
    return m > largest ? largest : m;
}

/* 1/S for a GEMM, from the amax. */
HOST_DEVICE static inline float nvfp4_tensor_factor(float amax) { return amax * (1.0f / 2688.0f); }

/* Both tensors' factors, for the sum of a product of them. */
HOST_DEVICE static inline float nvfp4_product_factor(float amax_a, float amax_b) {
    return amax_a * amax_b * (1.0f / (36.0f * 448.0f * 448.0f));
}

/* ---- stochastic rounding ---- */

/* E2M1 with 8 random bits: random/256 of the grid's step at |x| is added, and the sum rounded down.
 * NaN -> 6. The random integer becomes a float below 2^23, where the step of f32 is 1. */
HOST_DEVICE static inline uint8_t e2m1_round_stochastic(float x, uint32_t random) {
    uint32_t u = f32_bits(x), abs = u & 0x7FFFFFFFu;
    float a = f32_from_bits(abs);
    float step = a < 2.0f ? 0.5f / 256.0f : a < 4.0f ? 1.0f / 256.0f : 2.0f / 256.0f;
    float t = a + (f32_from_bits(0x4B000000u | (random & 0xFFu)) - 8388608.0f) * step;
    uint32_t large = (f32_bits(t) >> 22) - 252u; /* the exponent, and one bit of the mantissa */
    uint32_t code = t < 1.0f ? (uint32_t)(t >= 0.5f) : large < 7u ? large : 7u;
    return (uint8_t)(abs > 0x7F800000u ? 7u : code | (u >> 28 & 8u));
}

enum nvfp4_copy { NVFP4_CODES, NVFP4_TWIN };

/* The key of a tensor's copy in a step. */
HOST_DEVICE static inline uint64_t nvfp4_key(uint64_t seed, int32_t step, uint32_t tensor,
                                             enum nvfp4_copy copy) {
    return rng_key(seed, RNG_GRADIENT, (uint64_t)(uint32_t)step, 2 * (uint64_t)tensor + copy);
}

/* One draw of 64 bits serves eight neighbours along the K of its copy, a byte each. `row` counts in
 * the global batch; cols: of the gradient. */
HOST_DEVICE static inline uint64_t nvfp4_draw_of_codes(uint64_t key, int64_t row, int64_t col,
                                                       int64_t cols) {
    return rng_bits(key, (uint64_t)(row * ((cols + 7) / 8) + col / 8));
}
HOST_DEVICE static inline uint64_t nvfp4_draw_of_twin(uint64_t key, int64_t row, int64_t col,
                                                      int64_t cols) {
    return rng_bits(key, (uint64_t)(row / 8 * cols + col));
}
/* The byte of row or column i. */
HOST_DEVICE static inline uint32_t nvfp4_byte(uint64_t draw, int64_t i) {
    return (uint32_t)(draw >> 8 * (i & 7)) & 0xFFu;
}

/* ---- rotation ---- */

/* The random Hadamard transform of 16 values: x' = (x * sign) H, H[i][j] = (-1)^popcount(i&j) / 4.
 * First the products with sign/4, then sums and differences of places 1, 2, 4 and 8 apart, in f32.
 * The caller rounds to BF16. The transform is orthogonal: rotated alike, the two operands of a
 * product have the same product. */
enum { NVFP4_SIGNS = 0xD7E8 }; /* bit i: value i is negated */

HOST_DEVICE static inline float nvfp4_sign(int i) {
    return NVFP4_SIGNS >> i & 1 ? -0.25f : 0.25f;
}

#ifdef __cplusplus
}
#endif
#endif
