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

/* The variance of single values about their mean. */
static double variance_of(const double *value, int64_t n) {
    double middle = stats_mean(value, n), sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (value[i] - middle) * (value[i] - middle);
    return sum / (double)(n - 1);
}

/* Student's t about the normal quantile z of its level. */
static double t_expansion(double z, int64_t freedom) {
    const double f = (double)freedom, z3 = z * z * z, z5 = z3 * z * z;
    return z + (z3 + z) / (4 * f) + (5 * z5 + 16 * z3 + 3 * z) / (96 * f * f);
}

/* The 95 % quantile of Student's t. Up to 30 degrees of freedom it is a table. Above that it is
 * Cornish and Fisher's expansion about the normal quantile (error below 1e-5 there). */
static double t_quantile(int64_t freedom) {
    static const double TABLE[30] = {
        6.3138, 2.9200, 2.3534, 2.1318, 2.0150, 1.9432, 1.8946, 1.8595, 1.8331, 1.8125,
        1.7959, 1.7823, 1.7709, 1.7613, 1.7531, 1.7459, 1.7396, 1.7341, 1.7291, 1.7247,
        1.7207, 1.7171, 1.7139, 1.7109, 1.7081, 1.7056, 1.7033, 1.7011, 1.6991, 1.6973,
    };
    return freedom <= 30 ? TABLE[freedom - 1] : t_expansion(1.644854, freedom);
}

/* P(T <= t) of Student's t for t >= 0, by the finite sums for whole degrees of freedom (Abramowitz
 * and Stegun, 26.7.3 and 26.7.4). */
static double t_below(double t, int64_t freedom) {
    double angle = atan(t / sqrt((double)freedom)), c = cos(angle), term = 1, sum = 0;
    bool odd = freedom % 2;
    if (odd) term = c;
    for (int64_t k = odd ? 1 : 0; k <= freedom - 2; k += 2) {
        sum += term;
        term *= c * c * (double)(k + 1) / (double)(k + 2);
    }
    double inside = odd ? 2 / acos(-1) * (angle + sin(angle) * sum) : sin(angle) * sum;
    return 0.5 + 0.5 * inside;
}

/* The quantile at 1 - tail, by bisection: a table has one level only. Above 200 degrees of freedom
 * the expansion's error is below 1e-6. */
static double t_quantile_of(int64_t freedom, double tail) {
    bool normal = freedom > 200;
    double low = 0, high = 1e6;
    for (int i = 0; i < 200; i++) {
        double middle = low + 0.5 * (high - low);
        double above = normal ? 0.5 * erfc(middle / sqrt(2)) : 1 - t_below(middle, freedom);
        if (middle == low || middle == high) break;
        if (above > tail) low = middle;
        else high = middle;
    }
    return normal ? t_expansion(high, freedom) : high;
}

struct stats_scatter stats_scatter_apart(const double *x, int64_t n, const double *y, int64_t m) {
    bool known = n >= 2 && m >= 2;
    return (struct stats_scatter){ .x = known ? variance_of(x, n) : (double)NAN,
                                   .y = known ? variance_of(y, m) : (double)NAN, .n = n, .m = m };
}

enum status stats_scatter_pairs(const double *x, const double *y, int64_t n,
                                struct stats_scatter *out, struct err *e) {
    double *gap = malloc((size_t)(n + 1) * sizeof *gap);
    if (!gap) return FAIL(e, ERR_MEMORY, "%lld pairs", (long long)n);
    for (int64_t i = 0; i < n; i++) gap[i] = y[i] - x[i];
    *out = (struct stats_scatter){ .y = n >= 2 ? variance_of(gap, n) : (double)NAN, .n = n, .m = n,
                                   .pairs = true };
    free(gap);
    return OK;
}

double stats_half(const struct stats_scatter *s) {
    double a = s->pairs ? 0 : s->x / (double)s->n, b = s->y / (double)s->m, both = a + b;
    if (isnan(both)) return (double)NAN;
    if (both == 0) return 0;
    double freedom = (double)(s->n - 1);
    if (!s->pairs)
        freedom = both * both / (a * a / (double)(s->n - 1) + b * b / (double)(s->m - 1));
    int64_t whole = freedom < 1 ? 1 : (int64_t)freedom;
    double t = s->tests > 1 ? t_quantile_of(whole, 0.05 / (double)s->tests) : t_quantile(whole);
    return t * sqrt(both);
}

int64_t stats_seeds_for(const struct stats_scatter *s, double margin) {
    struct stats_scatter more = *s;
    for (int64_t n = 2; n <= STATS_SEEDS_MAX; n++) {
        more.n = more.m = n;
        if (stats_half(&more) <= margin) return n;
    }
    return -1;
}
