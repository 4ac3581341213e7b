#include <math.h>

#include "kernels/certify/attention_rows.h"

static double scale_of(const struct attention_trial *t) { return 1.0 / sqrt((double)t->dim); }

/* The sum of x * y in f64, and the sum of magnitudes. Four sums: additions do not wait. */
static double dot(const float *x, const float *y, int64_t n, double *all) {
    double sum[4] = { 0 }, size[4] = { 0 };
    for (int64_t d = 0; d < n; d++) {
        double term = (double)x[d] * (double)y[d];
        sum[d & 3] += term;
        size[d & 3] += fabs(term);
    }
    *all = size[0] + size[1] + size[2] + size[3];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static double score(const struct attention_trial *t, int64_t s, int64_t token, int64_t head,
                    int64_t key) {
    const float *q = attention_qkv_at(t, s, token, head);
    const float *k = attention_qkv_at(t, s, key, attention_key_head(t, head));
    double all;
    return dot(q, k, t->dim, &all) * scale_of(t);
}

/* One row of the forward. Probabilities may be rounded to BF16: 2^-8 of each term. */
static bool check_forward(struct attention_trial *t, int64_t s, int64_t token, int64_t head,
                          struct certificate *out) {
    int64_t values = t->groups + attention_key_head(t, head), low = attention_low(t, s, token);
    double got_lse = (double)t->lse[head * t->length + token];
    double most = -INFINITY, sum = 0, x[HEAD_DIM_MAX] = { 0 }, all[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token - low >= ATTENTION_LONG)
    for (int64_t j = low; j <= token; j++) t->p[j] = score(t, s, token, head, j);
    for (int64_t j = low; j <= token; j++)
        if (t->p[j] > most) most = t->p[j];
    for (int64_t j = low; j <= token; j++) sum += t->p[j] = exp(t->p[j] - most);
    double lse = most + log(sum);
    if (!attention_near(out, "log-sum-exp", token, head, got_lse, lse,
                        0x1p-9 + 0x1p-16 * fabs(most)))
        return false;
    for (int64_t j = low; j <= token; j++)
        attention_add_row(attention_qkv_at(t, s, j, values), t->dim, t->p[j] / sum,
                          t->p[j] / sum, x, all);
    for (int64_t d = 0; d < t->dim; d++) {
        double got = (double)bf16_decode(attention_o_at(t, token, head)[d]);
        if (!attention_near(out, "the output", token, head, got, x[d],
                            0x1p-7 * all[d] + 0x1p-8 * fabs(x[d])))
            return false;
    }
    return true;
}

/* The sum of d_o * o over a row, and the sum of magnitudes. */
static double delta_of(const struct attention_trial *t, int64_t s, int64_t token, int64_t head,
                       double *all) {
    float o[HEAD_DIM_MAX];
    for (int64_t d = 0; d < t->dim; d++)
        o[d] = bf16_decode(attention_o_at(t, token, head)[d]);
    return dot(attention_line_at(t, OPERAND_D_OUT, s, token, head), o, t->dim, all);
}

/* p and ds of one query and key. *size: ds with all its terms positive, for bounds. */
static double pair_of(const struct attention_trial *t, int64_t s, int64_t token, int64_t head,
                      int64_t key, double delta, double delta_all, double *p, double *size) {
    const float *d_o = attention_line_at(t, OPERAND_D_OUT, s, token, head);
    const float *v = attention_qkv_at(t, s, key, t->groups + attention_key_head(t, head));
    double all, dp = dot(d_o, v, t->dim, &all);
    *p = exp(score(t, s, token, head, key) - (double)t->lse[head * t->length + token]);
    *size = *p * (all + delta_all) * scale_of(t);
    return *p * (dp - delta) * scale_of(t);
}

static double gradient(const struct attention_trial *t, int64_t token, int64_t head, int64_t d) {
    return (double)bf16_decode(attention_gradient_at(t, token, head)[d]);
}

/* The gradient of one query. */
static bool check_query(struct attention_trial *t, int64_t s, int64_t token, int64_t head,
                        struct certificate *out) {
    int64_t group = attention_key_head(t, head), low = attention_low(t, s, token);
    double all, delta = delta_of(t, s, token, head, &all);
    double x[HEAD_DIM_MAX] = { 0 }, size[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token - low >= ATTENTION_LONG)
    for (int64_t j = low; j <= token; j++)
        t->p[j] = pair_of(t, s, token, head, j, delta, all, &t->other[j], &t->q[j]);
    for (int64_t j = low; j <= token; j++)
        attention_add_row(attention_qkv_at(t, s, j, group), t->dim, t->p[j], t->q[j], x, size);
    for (int64_t d = 0; d < t->dim; d++)
        if (!attention_near(out, "the gradient of a query", token, head,
                            gradient(t, token, head, d), x[d],
                            0x1p-6 * size[d] + 0x1p-8 * fabs(x[d]) + 0x1p-30))
            return false;
    return true;
}

/* The gradients of one key and its value, over the queries of its heads. */
static bool check_key(struct attention_trial *t, int64_t s, int64_t key, int64_t group,
                      struct certificate *out) {
    double dk[HEAD_DIM_MAX] = { 0 }, dv[HEAD_DIM_MAX] = { 0 };
    double dk_all[HEAD_DIM_MAX] = { 0 }, dv_all[HEAD_DIM_MAX] = { 0 };
    int64_t each = t->heads / t->groups, end = attention_mask_end(&t->mask, t->mistake, s, key);
    for (int64_t head = group * each; head < (group + 1) * each; head++) {
#pragma omp parallel for schedule(static) if (end - key >= ATTENTION_LONG)
        for (int64_t i = key; i < end; i++) {
            double all, delta = delta_of(t, s, i, head, &all);
            t->other[i] = pair_of(t, s, i, head, key, delta, all, &t->p[i], &t->q[i]);
        }
        for (int64_t i = key; i < end; i++) {
            attention_add_row(attention_qkv_at(t, s, i, head), t->dim, t->other[i], t->q[i], dk,
                              dk_all);
            attention_add_row(attention_line_at(t, OPERAND_D_OUT, s, i, head), t->dim, t->p[i],
                              t->p[i], dv, dv_all);
        }
    }
    for (int64_t d = 0; d < t->dim; d++)
        if (!attention_near(out, "the gradient of a key", key, group,
                  gradient(t, key, t->heads + group, d), dk[d],
                  0x1p-6 * dk_all[d] + 0x1p-8 * fabs(dk[d]) + 0x1p-30) ||
            !attention_near(out, "the gradient of a value", key, group,
                  gradient(t, key, t->heads + t->groups + group, d), dv[d],
                  0x1p-6 * dv_all[d] + 0x1p-8 * fabs(dv[d]) + 0x1p-30))
            return false;
    return true;
}

static bool check(struct attention_trial *t, enum attention_sample what, const char *kernel,
                  int64_t s, int64_t token, int64_t head, struct certificate *out) {
    switch (what) {
    case SAMPLE_OUTPUT: return check_forward(t, s, token, head, out);
    case SAMPLE_QUERY: return check_query(t, s, token, head, out);
    default: return check_key(t, s, token, head, out);
    }
}

const struct attention_rows ATTENTION_BF16 = {
    .check = check,
    .reason = "probabilities and their gradients may be rounded to BF16: 2^-7 of the terms' "
              "magnitudes forward, 2^-6 backward",
};
