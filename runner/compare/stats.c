#include "runner/compare/stats.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXACT_MAX = 64, RESAMPLES = 10000 };

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_median(double *values, int64_t n) {
    if (n == 0) return (double)NAN;
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

/* ---- Mann-Whitney -------------------------------------------------------------------------- */

/* P(U <= u) under the null hypothesis. ways[i][s] counts the choices of i among the ranks so far
 * whose rank sum is s above the minimum. The classic recursion over ranks, in doubles: C(64,32)
 * < 2^61. */
static enum status exact_tail(int64_t n, int64_t m, int64_t u, double *out, struct err *e) {
    int64_t sums = n * m + 1;
    double *ways = calloc((size_t)((n + 1) * sums), sizeof *ways);
    if (!ways) return FAIL(e, ERR_MEMORY, "the distribution of U for %lld and %lld values",
                           (long long)n, (long long)m);
    ways[0] = 1;
    /* If rank r is the i-th smallest of x, r - i values of y are smaller. */
    for (int64_t r = 1; r <= n + m; r++)
        for (int64_t i = n < r ? n : r; i >= 1; i--)
            for (int64_t s = r - i; s < sums && r - i <= m; s++)
                ways[i * sums + s] += ways[(i - 1) * sums + s - (r - i)];
    double below = 0, all = 0;
    for (int64_t s = 0; s < sums; s++) {
        all += ways[n * sums + s];
        if (s <= u) below += ways[n * sums + s];
    }
    free(ways);
    *out = below / all;
    return OK;
}

/* Sum of t^3 - t over the groups of ties in the joint sample. */
static enum status tie_term(const double *x, int64_t n, const double *y, int64_t m, double *out,
                            struct err *e) {
    double *all = malloc((size_t)(n + m) * sizeof *all);
    if (!all) return FAIL(e, ERR_MEMORY, "%lld values", (long long)(n + m));
    memcpy(all, x, (size_t)n * sizeof *all);
    memcpy(all + n, y, (size_t)m * sizeof *all);
    qsort(all, (size_t)(n + m), sizeof *all, by_value);
    double sum = 0;
    for (int64_t i = 0, j; i < n + m; i = j) {
        for (j = i; j < n + m && all[j] == all[i]; j++) {}
        double t = (double)(j - i);
        sum += t * t * t - t;
    }
    free(all);
    *out = sum;
    return OK;
}

enum status stats_mann_whitney(const double *x, int64_t n, const double *y, int64_t m, double *u,
                               double *p, struct err *e) {
    assert(n >= 1 && m >= 1);
    double larger = 0, ties = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++) larger += x[i] > y[j] ? 1 : x[i] == y[j] ? 0.5 : 0;
    *u = larger;
    double least = larger < (double)(n * m) - larger ? larger : (double)(n * m) - larger;
    TRY(tie_term(x, n, y, m, &ties, e));
    if (ties == 0 && n + m <= EXACT_MAX) {
        double tail = 0;
        TRY(exact_tail(n, m, (int64_t)least, &tail, e));
        *p = fmin(1, 2 * tail);
        return OK;
    }
    double total = (double)(n + m);
    double variance = (double)(n * m) / 12 * (total + 1 - ties / (total * (total - 1)));
    if (variance <= 0) { /* all values equal */
        *p = 1;
        return OK;
    }
    double z = ((double)(n * m) / 2 - least - 0.5) / sqrt(variance);
    *p = fmin(1, erfc(fmax(z, 0) / sqrt(2)));
    return OK;
}

/* ---- bootstrap ----------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double resampled_median(const double *values, int64_t n, double *work, uint64_t *state) {
    for (int64_t i = 0; i < n; i++) work[i] = values[draw(state) % (uint64_t)n];
    return stats_median(work, n);
}

enum status stats_bootstrap_ratio(const double *x, int64_t n, const double *y, int64_t m,
                                  double *low, double *high, struct err *e) {
    assert(n >= 1 && m >= 1);
    uint64_t state = 1;
    double *ratio = malloc((size_t)(RESAMPLES + n + m) * sizeof *ratio);
    if (!ratio) return FAIL(e, ERR_MEMORY, "%d resamples", RESAMPLES);
    double *work = ratio + RESAMPLES;
    for (int i = 0; i < RESAMPLES; i++) {
        double a = resampled_median(x, n, work, &state), b = resampled_median(y, m, work, &state);
        ratio[i] = b / a - 1;
    }
    qsort(ratio, RESAMPLES, sizeof *ratio, by_value);
    *low = ratio[RESAMPLES / 40];
    *high = ratio[RESAMPLES - 1 - RESAMPLES / 40];
    free(ratio);
    return OK;
}

/* ---- means --------------------------------------------------------------------------------- */

double stats_mean(const double *values, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += values[i];
    return sum / (double)n;
}

/* The variance of the mean, from the scatter of its values. */
static double mean_variance(const double *value, int64_t n) {
    double middle = stats_mean(value, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (value[i] - middle) * (value[i] - middle);
    return sum / (double)(n - 1) / (double)n;
}

/* The 97.5 % quantile of Student's t. Up to 30 degrees of freedom it is a table. Above that it is
 * Cornish and Fisher's expansion about the normal quantile (error below 1e-5 there). */
static double t_quantile(int64_t freedom) {
    static const double TABLE[30] = {
        12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
        2.2010,  2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
        2.0796,  2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
    };
    if (freedom <= 30) return TABLE[freedom - 1];
    const double z = 1.959964, f = (double)freedom, z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * f) + (5 * z5 + 16 * z3 + 3 * z) / (96 * f * f);
}

double stats_welch_half(const double *x, int64_t n, const double *y, int64_t m) {
    if (n < 2 || m < 2) return (double)NAN;
    double a = mean_variance(x, n), b = mean_variance(y, m), both = a + b;
    if (both == 0) return 0;
    double freedom = both * both / (a * a / (double)(n - 1) + b * b / (double)(m - 1));
    return t_quantile(freedom < 1 ? 1 : (int64_t)freedom) * sqrt(both);
}

double stats_paired_half(const double *x, const double *y, int64_t n) {
    if (n < 2) return (double)NAN;
    double middle = stats_mean(y, n) - stats_mean(x, n), sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double off = y[i] - x[i] - middle;
        sum += off * off;
    }
    return t_quantile(n - 1) * sqrt(sum / (double)(n - 1) / (double)n);
}
