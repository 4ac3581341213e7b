/* exp, the logistic function, and activations made of it: the same bits on a GPU and on a CPU, at
 * little more cost on a GPU than its approximations. They use fma, so a CPU without it is slow;
 * exactmath_f32.h has the reference's functions.
 *
 * Operators of a GPU use these when its forms must be exact (backend.h, set_exact), and the CPU's
 * under an arithmetic that `follows`. Text for both: plain C without contraction. */
#ifndef FP8LAB_KERNELS_EXACTMATH_FMA_H
#define FP8LAB_KERNELS_EXACTMATH_FMA_H

#include <math.h> /* fmaf alone, which rounds once */

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
    float e = fma_expf(x < 0.0f ? x : -x);
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

/* ---- GELU: with 2u = gelu_argument(x) and s = sigmoid(2u), which is (1 + tanh u) / 2 without its
 * cancellation:  h = x s,   h' = s + 2 x s (1 - s) u' ---- */

HOST_DEVICE static inline float gelu_argument(float x) {
    return 2.0f * (0.79788456f * (x + 0.044715f * (x * (x * x))));
}
HOST_DEVICE static inline float gelu_slope_of(float x, float s) {
    float square = x * x;
    float slope = 0.79788456f * (1.0f + (3.0f * 0.044715f) * square);
    /* s (1 - s) vanishes long before x^2 overflows: this avoids 0 * infinity. */
    float sigmoid_slope = s * (1.0f - s);
    float tail = sigmoid_slope == 0.0f ? 0.0f : ((2.0f * x) * sigmoid_slope) * slope;
    return s + tail;
}

#ifdef __cplusplus
}
#endif
#endif
