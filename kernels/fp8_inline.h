/* The FP8 encoders and decoders of dtype.h as branch-light inline functions, so that vector loops
 * and device code can share the arithmetic that dtype.c exports. Integer operations and one exact
 * f32 addition: the same bits everywhere. */
#ifndef FP8LAB_KERNELS_FP8_INLINE_H
#define FP8LAB_KERNELS_FP8_INLINE_H

#include "kernels/f32_bits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Below the format's smallest normal number the format has a fixed step, and one ulp of `magic` is
 * that step. So the low bits of x + magic are x rounded (nearest even) to the step. Above, integer
 * addition rounds the mantissa in place. Its carry may run into the exponent. */
HOST_DEVICE static inline uint32_t fp8_encode_bits(float x, uint32_t max_bits, uint32_t normal_bits,
                                                   float magic, int shift, uint32_t bias) {
    uint32_t u = f32_bits(x), abs = u & 0x7FFFFFFFu, sign = (u >> 24) & 0x80u;
    uint32_t clamped = abs < max_bits ? abs : max_bits;
    uint32_t half = ((uint32_t)1 << (shift - 1)) - 1;
    uint32_t normal = ((clamped + half + ((clamped >> shift) & 1u)) >> shift) - bias;
    uint32_t small = f32_bits(f32_from_bits(clamped) + magic) - f32_bits(magic);
    uint32_t code = (clamped < normal_bits ? small : normal) | sign;
    return abs > 0x7F800000u ? 0x7Fu : code;
}

/* E4M3: max 448, smallest normal 2^-6, step below it 2^-9 = ulp(2^14), exponent bias 7. */
HOST_DEVICE static inline uint8_t e4m3_encode_inline(float x) {
    return (uint8_t)fp8_encode_bits(x, 0x43E00000u, 0x3C800000u, 16384.0f, 20, 120u << 3);
}
/* E5M2: max 57344, smallest normal 2^-14, step below it 2^-16 = ulp(2^7), exponent bias 15. */
HOST_DEVICE static inline uint8_t e5m2_encode_inline(float x) {
    return (uint8_t)fp8_encode_bits(x, 0x47600000u, 0x38800000u, 128.0f, 21, 112u << 2);
}

/* E2M1: 0 .5 1 1.5 2 3 4 6, bit 3 the sign. A tie goes to the even code; NaN is given 6. Above 1 a
 * code is the exponent and one bit of the mantissa, so the f32's bits are rounded there. Below 1
 * the step is 1/2: that of f32 at 2^22. */
HOST_DEVICE static inline uint8_t e2m1_encode_inline(float x) {
    uint32_t u = f32_bits(x), abs = u & 0x7FFFFFFFu;
    float a = f32_from_bits(abs) < 6.0f ? f32_from_bits(abs) : 6.0f;
    uint32_t v = f32_bits(a), small = f32_bits(a + 4194304.0f) & 7u;
    uint32_t large = ((v + 0x1FFFFFu + (v >> 22 & 1u)) >> 22) - 252u;
    uint32_t code = a < 1.0f ? small : large;
    return (uint8_t)(abs > 0x7F800000u ? 7u : code | (u >> 28 & 8u));
}

/* Exponent field 0 is decoded as 1 and 2^(1-bias) is taken off again: exact, and free of f32
 * subnormals, which some machines handle slowly. */
HOST_DEVICE static inline float fp8_decode_bits(uint32_t magnitude, int mantissa, uint32_t rebias,
                                                float smallest) {
    bool subnormal = magnitude >> mantissa == 0;
    uint32_t u = (magnitude << (23 - mantissa)) + (rebias << 23);
    float x = f32_from_bits(u + (subnormal ? 0x00800000u : 0u));
    return x - (subnormal ? smallest : 0.0f);
}
HOST_DEVICE static inline float e4m3_decode_inline(uint8_t code) {
    uint32_t magnitude = code & 0x7Fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t u = f32_bits(fp8_decode_bits(magnitude, 3, 120, 0.015625f)) | sign; /* 2^-6 */
    return f32_from_bits(magnitude == 0x7Fu ? 0x7FC00000u : u);
}
HOST_DEVICE static inline float e5m2_decode_inline(uint8_t code) {
    uint32_t magnitude = code & 0x7Fu, sign = (uint32_t)(code & 0x80u) << 24;
    uint32_t u = f32_bits(fp8_decode_bits(magnitude, 2, 112, 6.103515625e-05f)); /* 2^-14 */
    u = (magnitude == 0x7Cu ? 0x7F800000u : u) | sign;
    return f32_from_bits(magnitude > 0x7Cu ? 0x7FC00000u : u);
}

HOST_DEVICE static inline float e2m1_decode_inline(uint8_t code) {
    uint32_t sign = (uint32_t)(code & 8u) << 28;
    return f32_from_bits(f32_bits(fp8_decode_bits(code & 7u, 1, 126, 1.0f)) | sign);
}

/* E8M0: dtype.h says what each does. */
HOST_DEVICE static inline uint8_t e8m0_encode_up_inline(float x) {
    uint32_t u = f32_bits(x), exponent = (u >> 23) & 0xFFu, mantissa = u & 0x7FFFFFu;
    if (exponent == 0xFF) return mantissa ? 0xFF : 0xFE;
    /* An f32 subnormal up to 2^-127 (mantissa 0x400000) is code 0; the rest round up. */
    bool up = mantissa > 0 && exponent != 0xFE && !(exponent == 0 && mantissa <= 0x400000u);
    return (uint8_t)(exponent + (up ? 1u : 0u));
}
HOST_DEVICE static inline float e8m0_decode_inline(uint8_t e) {
    if (e == 0xFF) return f32_from_bits(0x7FC00000u);
    return f32_from_bits(e ? (uint32_t)e << 23 : 0x00400000u); /* 2^-127 is subnormal */
}
HOST_DEVICE static inline float e8m0_decode_inverse_inline(uint8_t e) {
    if (e == 0xFF) return f32_from_bits(0x7FC00000u);
    return f32_from_bits(e == 0xFE ? 0x00400000u : (uint32_t)(254 - e) << 23);
}

#ifdef __cplusplus
}
#endif
#endif
