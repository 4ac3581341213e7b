/* The statistics of compare, deterministic to the bit. */
#ifndef FP8LAB_RUNNER_COMPARE_STATS_H
#define FP8LAB_RUNNER_COMPARE_STATS_H

#include "kernels/base.h"

/* Median of n values, which are sorted in place; NaN for n = 0. */
double stats_median(double *values, int64_t n);

/* Two-sided p-value of the Mann-Whitney U test for two independent samples: that neither tends to
 * larger values. Exact without ties and for n + m <= 64; otherwise the normal approximation with
 * correction for ties and continuity. n, m >= 1. *u is U of the first sample: the pairs in which x
 * is larger, ties counted half. */
NODISCARD enum status stats_mann_whitney(const double *x, int64_t n, const double *y, int64_t m,
                                         double *u, double *p, struct err *e);

/* The 95 % bootstrap interval of median(y)/median(x) - 1: 10,000 resamples of each side, drawn
 * from a fixed seed. */
NODISCARD enum status stats_bootstrap_ratio(const double *x, int64_t n, const double *y, int64_t m,
                                            double *low, double *high, struct err *e);

/* Half the width of the 95 % interval of mean(y) - mean(x): Welch's t, for independent samples with
 * different variances; degrees of freedom rounded down. NaN if a side has one value. */
double stats_welch_half(const double *x, int64_t n, const double *y, int64_t m);

/* The same for mean(y - x) of n pairs: Student's t, n - 1 degrees of freedom. NaN for n < 2. */
double stats_paired_half(const double *x, const double *y, int64_t n);

double stats_mean(const double *values, int64_t n); /* NaN for n = 0 */

#endif
