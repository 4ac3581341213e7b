/* What a trial's product must be, and what a wrong one looks like: private to kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_GEMM_CHECK_H
#define FP8LAB_KERNELS_CERTIFY_GEMM_CHECK_H

#include "kernels/certify/gemm_trial.h"

/* Runs a trial of whole numbers twice, over different garbage. Adds the outputs that it compared to
 * out->outputs. The first fault that it finds is in `out`, named by the mistake that explains
 * all wrong outputs. */
NODISCARD enum status gemm_check_whole(struct gemm_trial *t, struct certificate *out,
                                       struct err *e);
/* Runs a trial of noise. known: the device's arithmetic, whose bits are demanded if the backend
 * states the order along K, or EXACT.md knows it; NULL, or an unknown order: the bound alone. Fills
 * out->agreed with every published arithmetic that has the bits. native: the device multiplies the
 * FP8 codes; otherwise it widens them. */
NODISCARD enum status gemm_check_noise(struct gemm_trial *t, const struct arithmetic *known,
                                       bool native, struct certificate *out, struct err *e);

/* The sum of a's and w's products at (row, col) with factors, without addends, in f64. */
double gemm_sum(const struct gemm_trial *t, int64_t row, int64_t col);

#endif
