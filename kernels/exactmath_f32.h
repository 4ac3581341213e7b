/* The f32 half of exactmath.h: inline, so that the operators' loops vectorise around them.
 *
 * Each function is straight-line code: special values are selected at the end, without branches. So
 * a compiler can run 4, 8 or 16 lanes with the bits of one. Polynomials are Taylor series
 * (and one Pade fraction) cut where the next term is below a tenth of an ulp; exact_exp2f has the
 * polynomial with the least largest error. Only +, -, *, /, sqrt, fma where it is written, and
 * integer operations; the build forbids contraction into fma. */
#ifndef FP8LAB_KERNELS_EXACTMATH_F32_H
#define FP8LAB_KERNELS_EXACTMATH_F32_H

#include <math.h> /* sqrtf and fmaf alone, which IEEE 754 rounds correctly */

#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

HOST_DEVICE static inline float exact_absf(float x) {
    return f32_from_bits(f32_bits(x) & 0x7FFFFFFFu);
}

/* 2^n for -126 <= n <= 127. */
HOST_DEVICE static inline float exact_pow2f(int32_t n) {
    return f32_from_bits((uint32_t)(n + 127) << 23);
}

/* e^x. Below -104 it is 0 and above 88.8 infinity; subnormal results are rounded once. */
HOST_DEVICE static inline float exact_expf(float x) {
    /* Adding 1.5 * 2^23 rounds to an integer and leaves it in the low mantissa bits. */
    const float magic = 12582912.0f;
    float c = x > 90.0f ? 90.0f : x;
    c = c < -105.0f ? -105.0f : c;
    float t = c * 1.44269504f + magic;
    float n = t - magic;
    /* ln 2 = 355/512 - 2.12194440e-4; n * 355/512 is exact. */
    float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = (p * (r * r) + r) + 1.0f;
    /* Two factors, since 2^-151 and 2^129 are not floats; the first product is exact. */
    int32_t k = (int32_t)(f32_bits(t) - 0x4B400000u);
    int32_t half = k >> 1;
    float y = p * f32_from_bits((uint32_t)(half + 127) << 23);
    y = y * f32_from_bits((uint32_t)(k - half + 127) << 23);
    return x == x ? y : f32_from_bits(0x7FC00000u);
}

/* The larger of x and low; NaN if x is. */
HOST_DEVICE static inline float exact_at_leastf(float x, float low) {
#ifdef __CUDA_ARCH__
    float y; /* one instruction, where a comparison and a select are two */
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(low));
    return y;
#else
    return x < low ? low : x;
#endif
}

/* 2^x for x <= 127, relative error below 2^-18: for kernels whose time it decides, and whose
 * results are rounded to BF16. 2^0 is 1. Below -126.5 it is 0; results between are subnormal. Above
 * 127 it has the same bits everywhere, but no meaning. NaN stays NaN, of any bits. */
HOST_DEVICE static inline float exact_exp2f(float x) {
    const float magic = 12583039.0f; /* as in exact_expf, plus 127: the exponent's bits */
    float c = exact_at_leastf(x, -127.0f);
    float t = c + magic;
    float f = c - (t - magic); /* exact, in [-1/2, 1/2] */
    float p = fmaf(0.00978291221f, f, 0.0559768826f);
    p = fmaf(p, f, 0.240207106f);
    p = fmaf(p, f, 0.693113625f);
    p = fmaf(p, f, 1.0f);
    return p * f32_from_bits(f32_bits(t) << 23);
}

/* ln x for x > 0; -infinity at 0, NaN below. */
HOST_DEVICE static inline float exact_logf(float x) {
    bool small = x < 1.17549435e-38f;
    uint32_t u = f32_bits(small ? x * 8388608.0f : x);
    /* x = 2^k * m with m in [1/sqrt 2, sqrt 2). */
    uint32_t v = u - 0x3F3504F3u;
    int32_t k = (int32_t)v >> 23;
    float m = f32_from_bits((v & 0x007FFFFFu) + 0x3F3504F3u);
    float e = (float)k - (small ? 23.0f : 0.0f);
    /* ln(1+f) = 2 atanh(s), s = f/(2+f); written f - (f^2/2 - s (f^2/2 + R)) to keep f exact. */
    float f = m - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s;
    float r = 2.0f / 11.0f;
    r = r * z + 2.0f / 9.0f;
    r = r * z + 2.0f / 7.0f;
    r = r * z + 2.0f / 5.0f;
    r = r * z + 2.0f / 3.0f;
    r = r * z;
    float h = 0.5f * (f * f);
    float y = e * 0.693359375f + (f - (h - (s * (h + r) - e * 2.12194440e-4f)));
    y = u == 0x7F800000u ? x : y;
    y = x == 0.0f ? f32_from_bits(0xFF800000u) : y;
    y = x < 0.0f ? f32_from_bits(0x7FC00000u) : y;
    return x == x ? y : f32_from_bits(0x7FC00000u);
}

/* tanh x. Near 0 by the [5/4] Pade fraction, x - x * z (315 + 14 z) / (945 + 420 z + 15 z^2) with
 * z = x^2; elsewhere 1 - 2 / (e^2|x| + 1). One division serves both. */
HOST_DEVICE static inline float exact_tanhf(float x) {
    float a = exact_absf(x);
    float c = a > 10.0f ? 10.0f : a;
    float z = c * c;
    float e = exact_expf(2.0f * c);
    bool near = a < 0.625f;
    float num = near ? z * (315.0f + 14.0f * z) : 2.0f;
    float den = near ? 945.0f + z * (420.0f + 15.0f * z) : e + 1.0f;
    float q = num / den;
    float y = near ? a - a * q : 1.0f - q;
    y = f32_from_bits(f32_bits(y) | (f32_bits(x) & 0x80000000u));
    return x == x ? y : f32_from_bits(0x7FC00000u);
}

/* 1 / (1 + e^-x), by e^-|x|, so that neither side overflows. */
HOST_DEVICE static inline float exact_sigmoidf(float x) {
    float e = exact_expf(-exact_absf(x));
    float num = x < 0.0f ? e : 1.0f;
    return num / (1.0f + e);
}

/* cos(2 pi turns / 2^24), turns in [0, 2^24): the angle is reduced in integers, so exactly. */
HOST_DEVICE static inline float exact_cos_turns(uint32_t turns) {
    uint32_t quadrant = (turns + 0x200000u) >> 22;
    int32_t rest = (int32_t)turns - (int32_t)(quadrant << 22);
    float a = (float)rest * 3.74507028e-7f; /* 2 pi / 2^24; |a| <= pi/4 */
    float z = a * a;
    float s = 1.0f / 362880.0f;
    s = s * z - 1.0f / 5040.0f;
    s = s * z + 1.0f / 120.0f;
    s = s * z - 1.0f / 6.0f;
    s = a + a * (z * s);
    float c = -1.0f / 3628800.0f;
    c = c * z + 1.0f / 40320.0f;
    c = c * z - 1.0f / 720.0f;
    c = c * z + 1.0f / 24.0f;
    c = (1.0f - 0.5f * z) + z * z * c;
    /* Quadrants 0..4: cos, -sin, -cos, sin, cos. */
    float y = quadrant & 1u ? s : c;
    uint32_t negative = ((quadrant + 1u) & 2u) << 30;
    return f32_from_bits(f32_bits(y) ^ negative);
}

/* One draw from N(0,1) by Box-Muller: bits 63-40 make the radius (at most 5.77), 31-8 the angle.
 * `bits` as rng_bits() gives them. */
HOST_DEVICE static inline float exact_normalf(uint64_t bits) {
    int32_t u = (int32_t)(bits >> 40) + 1; /* 1 .. 2^24: (0, 1] in steps of 2^-24, exact in f32 */
    float radius = sqrtf(-2.0f * exact_logf((float)u * (1.0f / 16777216.0f)));
    return radius * exact_cos_turns((uint32_t)bits >> 8);
}

#ifdef __cplusplus
}
#endif
#endif
