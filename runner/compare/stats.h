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

/* The scatter behind a difference of two means: variances of single values. In pairs, y is the
 * variance of the differences. NaN with fewer than two values a side. */
struct stats_scatter {
    double x, y;
    int64_t n, m; /* values of each side */
    bool pairs;
    int64_t tests; /* of which this is one: their 5 % are divided among them (Bonferroni); 0: 1 */
};
/* Of two independent samples: Welch's t. */
struct stats_scatter stats_scatter_apart(const double *x, int64_t n, const double *y, int64_t m);
/* Of n pairs: Student's t of y - x. */
NODISCARD enum status stats_scatter_pairs(const double *x, const double *y, int64_t n,
                                          struct stats_scatter *out, struct err *e);

/* The distance from mean(y) - mean(x) to each of its one-sided 95 % bounds; of one of N tests, to
 * those at 1 - 0.05 / N. Degrees of freedom are
 * rounded down: n - 1 in pairs, else Welch's. NaN if the scatter is unknown. */
double stats_half(const struct stats_scatter *s);

/* The least number of values a side for which that distance is at most `margin`, with the same
 * scatter; -1: more than STATS_SEEDS_MAX. */
enum { STATS_SEEDS_MAX = 1000 };
int64_t stats_seeds_for(const struct stats_scatter *s, double margin);

double stats_mean(const double *values, int64_t n); /* NaN for n = 0 */

#endif
