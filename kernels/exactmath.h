/* exp, log, pow, tanh, sin, cos with the same bits on every machine, compiler and thread count.
 *
 * They use only +, -, *, / and integer operations, whose results IEEE 754 defines to the bit. The
 * build uses -ffp-contract=off. The C library's functions differ between versions and
 * architectures, so every result uses these instead: softmax, activations, schedules, bias
 * correction, RoPE tables, initialisation. Accuracy is tested against the C library: f32 functions
 * within 2 ulp (sigmoid 2.5), f64 within 2 ulp over the ranges stated. NaN in, NaN out. */
#ifndef FP8LAB_KERNELS_EXACTMATH_H
#define FP8LAB_KERNELS_EXACTMATH_H

#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f32, inline in exactmath_f32.h for the operators' loops: exact_expf (0 below -104, infinity
 * above 88.8), exact_logf (x > 0), exact_tanhf, exact_sigmoidf, exact_normalf (Box-Muller from
 * 64 bits); and exact_exp2f, within 2^-18. */

/* f64, for host-side tables and schedules. */
double exact_exp(double x);
double exact_log(double x);            /* x > 0 */
double exact_pow(double x, double y);  /* x > 0 */
double exact_sin(double x);            /* |x| <= 2^20, the largest RoPE angle */
double exact_cos(double x);

#ifdef __cplusplus
}
#endif
#endif
