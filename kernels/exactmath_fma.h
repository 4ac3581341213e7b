/* exp, the logistic function, and activations made of it: the same bits on a GPU and on a CPU, at
 * little more cost on a GPU than its approximations. They use fma, so a CPU without it is slow;
 * exactmath_f32.h has the reference's functions.
 *
 * Operators of a GPU use these when its forms must be exact (backend.h, set_exact), and the CPU's
 * under an arithmetic that `follows`. Text for both: plain C without contraction. */
#ifndef FP8LAB_KERNELS_EXACTMATH_FMA_H
#define FP8LAB_KERNELS_EXACTMATH_FMA_H

#include <math.h> /* fmaf, which rounds once, and fabsf */

#include "kernels/f32_bits.h"

#ifdef __cplusplus
extern "C" {
#endif

/* e^x for x <= 88. 0 where the result is below 2^-126.5: no subnormal result. Relative error below
 * 2^-23 + |x| 2^-25. NaN stays NaN, of any bits.
 *
 * x log2 e = n + f, n an integer. 2^f by a minimax polynomial of degree 6 on [-1/2, 1/2], which
 * is 1 at 0. */
HOST_DEVICE static inline float fma_expf(float x) {
    /* Adding 1.5 * 2^23 + 127 rounds to an integer and leaves n + 127 in the low mantissa bits. */
    const float magic = 12583039.0f;
    float c = x < -88.0f ? -88.0f : x;
    float t = fmaf(c, 1.44269504f, magic);
    float f = fmaf(c, 1.44269504f, magic - t);
    float p = 0.000155946778f;
    p = fmaf(p, f, 0.00134066434f);
    p = fmaf(p, f, 0.00961769279f);
    p = fmaf(p, f, 0.0555031039f);
    p = fmaf(p, f, 0.240226522f);
    p = fmaf(p, f, 0.693147242f);
    p = fmaf(p, f, 1.0f);
    return p * f32_from_bits(f32_bits(t) << 23); /* 2^n; 0 for n = -127 */
}

/* 1 / (1 + e^-x), by e^-|x|, so that neither side overflows. */
HOST_DEVICE static inline float fma_sigmoidf(float x) {
    float e = fma_expf(-fabsf(x));
    float r = 1.0f / (1.0f + e);
    return x < 0.0f ? e * r : r;
}

/* ---- SwiGLU, with s = sigmoid(gate) ---- */

HOST_DEVICE static inline float swiglu_of(float gate, float up, float s) { return (gate * s) * up; }
HOST_DEVICE static inline float swiglu_d_gate(float gate, float up, float dh, float s) {
    return (dh * up) * (s * (1.0f + gate * (1.0f - s)));
}
HOST_DEVICE static inline float swiglu_d_up(float gate, float dh, float s) {
    return dh * (gate * s);
}

/* ---- GELU: with u = sqrt(2/pi) (x + 0.044715 x^3) and s = sigmoid(2u), which is (1 + tanh u) / 2
 * without its cancellation:  h = x s,   h' = s + 2 x s (1 - s) u' ---- */

HOST_DEVICE static inline float fma_gelu_sigmoid(float x) {
    return fma_sigmoidf(x * fmaf(0.0713548163f, x * x, 1.59576912f));
}
HOST_DEVICE static inline float fma_gelu(float x) { return x * fma_gelu_sigmoid(x); }
HOST_DEVICE static inline float fma_gelu_slope(float x) {
    float s = fma_gelu_sigmoid(x), d = s * (1.0f - s);
    /* d vanishes long before x^2 overflows: this avoids 0 * infinity. */
    return d == 0.0f ? s : fmaf(x * d, fmaf(0.214064449f, x * x, 1.59576912f), s);
}

#ifdef __cplusplus
}
#endif
#endif
