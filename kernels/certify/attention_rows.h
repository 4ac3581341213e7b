/* Rows of attention computed again in f64, by the kind of its operands: private to
 * kernels/certify. */
#ifndef FP8LAB_KERNELS_CERTIFY_ATTENTION_ROWS_H
#define FP8LAB_KERNELS_CERTIFY_ATTENTION_ROWS_H

#include "kernels/certify/attention_trial.h"

/* What is sampled: a row of o with its log-sum-exp; a query's gradient; those of a key and its
 * value, whose head is a key/value head. */
enum attention_sample { SAMPLE_OUTPUT, SAMPLE_QUERY, SAMPLE_KEY };

struct attention_rows {
    /* Whether a sample of the fetched sequence s is right; if not, the certificate has failed.
     * kernel: that served it. */
    bool (*check)(struct attention_trial *t, enum attention_sample what, const char *kernel,
                  int64_t s, int64_t token, int64_t head, struct certificate *out);
    /* Lets check() make the i-th mistake of scales; its words, or NULL after the last. i < 0: none.
     * The slot is NULL without scales. */
    const char *(*mistake)(struct attention_trial *t, int i);
    /* Whether each amax is right; `all`: of a short sequence whose pairs are all computed. The slot
     * is NULL without amaxes. */
    bool (*check_amax)(struct attention_trial *t, bool all, struct certificate *out);
    const char *reason; /* of the bound */
};

extern const struct attention_rows ATTENTION_BF16, ATTENTION_FP8;

/* Adds x * weight to sum, and its magnitude for `size` to all. */
static inline void attention_add_row(const float *x, int64_t n, double weight, double size,
                                     double *sum, double *all) {
    for (int64_t d = 0; d < n; d++) {
        sum[d] += weight * (double)x[d];
        all[d] += size * (double)(x[d] < 0 ? -x[d] : x[d]);
    }
}

#endif
