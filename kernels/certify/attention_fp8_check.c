/* Rows of FP8 attention in f64, from the very codes. Its roundings are defined (attention_fwd_args,
 * attention_bwd_args), so a probability and a score's gradient have one code each. Another code is
 * accepted only if an error that the arithmetic can make reaches it. cuDNN rounds probabilities
 * before it divides them by their sum: there one rounding of each is accepted, wherever it is. */
#include <float.h>
#include <math.h>

#include "kernels/certify/attention_rows.h"

/* ---- scales ---- */

/* Where a scale is used: an operand's factor has several uses. */
enum use { USE_SCORES, USE_VALUES, USE_KEYS, USE_D_OUT, USE_O, USE_P, USE_P_FACTOR, USE_DS,
           USE_DS_FACTOR };

static const char *mistake(struct attention_trial *t, int i) {
    static const struct { unsigned uses; const char *words; } MISTAKES[] = {
        { 1 << USE_SCORES, "the scales of q and k in the scores" },
        { 1 << USE_VALUES, "the scale of v" },
        { 1 << USE_KEYS, "the scales of q and k in their gradients" },
        { 1 << USE_D_OUT, "the scale of the output's gradient" },
        { 1 << USE_O, "the scale of the output" },
        { 1 << USE_P | 1 << USE_P_FACTOR, "the scales of the probabilities" },
        { 1 << USE_P_FACTOR, "the factor of the probabilities" },
        { 1 << USE_DS | 1 << USE_DS_FACTOR, "the scales of the scores' gradient" },
        { 1 << USE_DS_FACTOR, "the factor of the scores' gradient" },
    };
    bool is_one = i >= 0 && i < (int)(sizeof MISTAKES / sizeof *MISTAKES);
    t->ignored = is_one ? MISTAKES[i].uses : 0;
    return is_one ? MISTAKES[i].words : NULL;
}

static double scale_for(const struct attention_trial *t, enum use use) {
    static const enum attention_scale OF[] = {
        [USE_SCORES] = FACTOR_QKV, [USE_VALUES] = FACTOR_QKV, [USE_KEYS] = FACTOR_QKV,
        [USE_D_OUT] = FACTOR_D_OUT, [USE_O] = FACTOR_O, [USE_P] = MULTIPLIER_P,
        [USE_P_FACTOR] = FACTOR_P, [USE_DS] = MULTIPLIER_DS, [USE_DS_FACTOR] = FACTOR_DS,
    };
    return t->ignored >> use & 1 ? 1.0 : (double)t->scale[OF[use]];
}

static double score_scale(const struct attention_trial *t) {
    double f = scale_for(t, USE_SCORES);
    return f * f / sqrt((double)t->dim);
}

/* ---- numbers with errors ---- */

/* x, and how far a right device may be from it. */
struct around { double x, error; };

/* A sum of products on a device whose arithmetic is not known: as for a GEMM, each group of
 * products is cut below its largest term, which may be twice the largest partial sum. */
enum { GROUP = 16 };
struct sum { double cut, x, error, largest, highest; int64_t terms; };

static void sum_close(struct sum *s) {
    double top = 2 * s->highest > s->largest ? 2 * s->highest : s->largest;
    s->error += (GROUP + 2) * s->cut * top;
    s->largest = 0;
}

/* error: of the product itself. */
static inline void sum_add(struct sum *s, double product, double error) {
    s->x += product;
    s->error += error;
    s->largest = fabs(product) > s->largest ? fabs(product) : s->largest;
    s->highest = fabs(s->x) > s->highest ? fabs(s->x) : s->highest;
    if (++s->terms % GROUP == 0) sum_close(s);
}

static struct around sum_end(struct sum *s, double factor) {
    if (s->terms % GROUP) sum_close(s);
    return (struct around){ s->x * factor, s->error * fabs(factor) };
}

static struct around dot(const float *x, const float *y, int64_t n, double cut, double factor) {
    struct sum s = { .cut = cut };
    for (int64_t d = 0; d < n; d++) sum_add(&s, (double)x[d] * (double)y[d], 0);
    return sum_end(&s, factor);
}

/* The kernel that served: where it cuts sums, and whether it rounds where the reference does. */
struct kernel { double cut; bool one_rounding; };

static struct kernel kernel_of(const char *name) {
    if (!strcmp(name, "cudnn")) return (struct kernel){ 0x1p-13, true };
    return (struct kernel){ 0x1p-23, false };
}

static double decoded(enum dtype code, double x) {
    return (double)fp8_decode(code, fp8_encode(code, (float)x));
}

/* The code of y * multiplier as a number. */
static struct around rounded(const struct kernel *k, enum dtype code, struct around y,
                             double multiplier) {
    double x = y.x * multiplier, error = y.error * fabs(multiplier) + fabs(x) * 0x1p-22;
    bool wide = code == DTYPE_E5M2; /* fractions of 2 or 3 bits; the distance of the least codes */
    if (k->one_rounding)
        return (struct around){ x, error + (fabs(x) + error) * (wide ? 0x1p-3 : 0x1p-4) +
                                   (wide ? 0x1p-17 : 0x1p-10) };
    double c = decoded(code, x), low = decoded(code, x - error), high = decoded(code, x + error);
    return (struct around){ c, fmax(high - c, c - low) };
}

/* exp(x - y) for numbers in f32, whose scale was rounded a few times. */
static struct around power(struct around x, double y) {
    double p = exp(x.x - y);
    return (struct around){ p, p * expm1(x.error + (fabs(x.x) + fabs(y)) * 0x1p-21 + 0x1p-19) };
}

/* ---- the forward ---- */

static struct around score(const struct attention_trial *t, const struct kernel *k, int64_t s,
                           int64_t token, int64_t head, int64_t key) {
    return dot(attention_qkv_at(t, s, token, head),
               attention_qkv_at(t, s, key, attention_key_head(t, head)), t->dim, k->cut,
               score_scale(t));
}

static bool near_bf16(struct certificate *out, const char *what, int64_t token, int64_t head,
                      uint16_t bits, struct around want) {
    double error = want.error + (fabs(want.x) + want.error) * 0x1p-8;
    return attention_near(out, what, token, head, (double)bf16_decode(bits), want.x,
                          error + 0x1p-120);
}

/* x[d] += weight * v[d], for the terms of a row. */
static void add_terms(struct sum *sums, const float *v, int64_t n, struct around weight) {
    for (int64_t d = 0; d < n; d++)
        sum_add(&sums[d], weight.x * (double)v[d], weight.error * fabs((double)v[d]));
}

static void open_sums(struct sum *sums, int64_t n, double cut) {
    for (int64_t d = 0; d < n; d++) sums[d] = (struct sum){ .cut = cut };
}

static bool check_forward(struct attention_trial *t, const struct kernel *k, int64_t s,
                          int64_t token, int64_t head, struct certificate *out) {
    struct sum sums[HEAD_DIM_MAX];
    int64_t low = attention_low(t, s, token), values = t->groups + attention_key_head(t, head);
    double most = -INFINITY, total = 0, worst = 0;
    double factor = scale_for(t, USE_P_FACTOR) * scale_for(t, USE_VALUES);
#pragma omp parallel for schedule(static) if (token - low >= ATTENTION_LONG)
    for (int64_t j = low; j <= token; j++) {
        struct around x = score(t, k, s, token, head, j);
        t->p[j] = x.x;
        t->q[j] = x.error;
    }
    for (int64_t j = low; j <= token; j++) most = fmax(most, t->p[j]);
    for (int64_t j = low; j <= token; j++) {
        struct around p = power((struct around){ t->p[j], t->q[j] }, most);
        total += p.x;
        worst = fmax(worst, p.error / p.x);
    }
    worst += (double)(token - low + 1) * 0x1p-24; /* of the sum of probabilities */
    if (!attention_near(out, "log-sum-exp", token, head,
                        (double)t->lse[head * t->length + token], most + log(total),
                        worst + 0x1p-18 * fabs(most) + 0x1p-16))
        return false;
    open_sums(sums, t->dim, k->cut);
    for (int64_t j = low; j <= token; j++) {
        struct around p = power((struct around){ t->p[j], t->q[j] }, most);
        p.error = (p.error + p.x * worst) / total;
        p.x /= total;
        add_terms(sums, attention_qkv_at(t, s, j, values), t->dim,
                  rounded(k, DTYPE_E4M3, p, scale_for(t, USE_P)));
    }
    for (int64_t d = 0; d < t->dim; d++)
        if (!near_bf16(out, "the output", token, head, attention_o_at(t, token, head)[d],
                       sum_end(&sums[d], factor)))
            return false;
    return true;
}

/* ---- the backward ---- */

static struct around delta_of(const struct attention_trial *t, const struct kernel *k, int64_t s,
                              int64_t token, int64_t head) {
    const float *d_o = attention_line_at(t, OPERAND_D_OUT, s, token, head);
    double factor = scale_for(t, USE_D_OUT);
    float o[HEAD_DIM_MAX];
    if (t->lines[OPERAND_O].value)
        return dot(d_o, attention_line_at(t, OPERAND_O, s, token, head), t->dim, k->cut,
                   factor * scale_for(t, USE_O));
    for (int64_t d = 0; d < t->dim; d++) o[d] = bf16_decode(attention_o_at(t, token, head)[d]);
    return dot(d_o, o, t->dim, k->cut, factor);
}

/* P and dS of a query and a key, before they are rounded. */
struct pair { struct around p, ds; };

static struct pair pair_of(const struct attention_trial *t, const struct kernel *k, int64_t s,
                           int64_t token, int64_t head, int64_t key, struct around delta) {
    struct pair pair;
    double scale = 1 / sqrt((double)t->dim);
    struct around dp = dot(attention_line_at(t, OPERAND_D_OUT, s, token, head),
                           attention_qkv_at(t, s, key, t->groups + attention_key_head(t, head)),
                           t->dim, k->cut, scale_for(t, USE_D_OUT) * scale_for(t, USE_VALUES));
    pair.p = power(score(t, k, s, token, head, key), (double)t->lse[head * t->length + token]);
    double difference = dp.x - delta.x, rounding = (fabs(dp.x) + fabs(delta.x)) * 0x1p-21;
    pair.ds.x = pair.p.x * difference * scale;
    pair.ds.error = scale * (pair.p.error * fabs(difference) +
                             (pair.p.x + pair.p.error) * (dp.error + delta.error + rounding));
    return pair;
}

static struct around ds_code(const struct attention_trial *t, const struct kernel *k,
                             struct around ds) {
    return rounded(k, t->way->b, ds, scale_for(t, USE_DS));
}

/* The amax of dS is at least that of a sampled pair. */
static bool check_ds_amax(const struct attention_trial *t, double least, struct certificate *out) {
    double got = (double)t->amax[AMAX_DS];
    if (got >= least && isfinite(got)) return true;
    certify_fail(out, "wrong amax", "the amax of the scores' gradient is %.6g, and a sampled one "
                 "is %.6g", got, least);
    return false;
}

static bool check_query(struct attention_trial *t, const struct kernel *k, int64_t s,
                        int64_t token, int64_t head, struct certificate *out) {
    struct sum sums[HEAD_DIM_MAX];
    int64_t low = attention_low(t, s, token), group = attention_key_head(t, head);
    struct around delta = delta_of(t, k, s, token, head);
    double factor = scale_for(t, USE_DS_FACTOR) * scale_for(t, USE_KEYS), least = 0;
#pragma omp parallel for schedule(static) if (token - low >= ATTENTION_LONG)
    for (int64_t j = low; j <= token; j++) {
        struct around ds = pair_of(t, k, s, token, head, j, delta).ds;
        t->p[j] = ds.x;
        t->q[j] = ds.error;
    }
    open_sums(sums, t->dim, k->cut);
    for (int64_t j = low; j <= token; j++) {
        struct around ds = { t->p[j], t->q[j] };
        least = fmax(least, fabs(ds.x) - ds.error);
        add_terms(sums, attention_qkv_at(t, s, j, group), t->dim, ds_code(t, k, ds));
    }
    for (int64_t d = 0; d < t->dim; d++)
        if (!near_bf16(out, "the gradient of a query", token, head,
                       attention_gradient_at(t, token, head)[d], sum_end(&sums[d], factor)))
            return false;
    return check_ds_amax(t, least, out);
}

static bool check_key(struct attention_trial *t, const struct kernel *k, int64_t s, int64_t key,
                      int64_t group, struct certificate *out) {
    struct sum dk[HEAD_DIM_MAX], dv[HEAD_DIM_MAX];
    int64_t each = t->heads / t->groups, end = attention_mask_end(&t->mask, t->mistake, s, key);
    double key_factor = scale_for(t, USE_DS_FACTOR) * scale_for(t, USE_KEYS);
    double value_factor = scale_for(t, USE_P_FACTOR) * scale_for(t, USE_D_OUT);
    open_sums(dk, t->dim, k->cut);
    open_sums(dv, t->dim, k->cut);
    for (int64_t head = group * each; head < (group + 1) * each; head++)
        for (int64_t i = key; i < end; i++) {
            struct pair pair = pair_of(t, k, s, i, head, key, delta_of(t, k, s, i, head));
            add_terms(dk, attention_qkv_at(t, s, i, head), t->dim, ds_code(t, k, pair.ds));
            add_terms(dv, attention_line_at(t, OPERAND_D_OUT, s, i, head), t->dim,
                      rounded(k, DTYPE_E4M3, pair.p, scale_for(t, USE_P)));
        }
    for (int64_t d = 0; d < t->dim; d++)
        if (!near_bf16(out, "the gradient of a key", key, group,
                       attention_gradient_at(t, key, t->heads + group)[d],
                       sum_end(&dk[d], key_factor)) ||
            !near_bf16(out, "the gradient of a value", key, group,
                       attention_gradient_at(t, key, t->heads + t->groups + group)[d],
                       sum_end(&dv[d], value_factor)))
            return false;
    return true;
}

/* ---- amax ---- */

/* The first token sees itself alone, so the largest probability is 1. */
static bool check_p_amax(const struct attention_trial *t, struct certificate *out) {
    double got = (double)t->amax[AMAX_P];
    out->outputs++;
    if (fabs(got - 1) <= 0x1p-10) return true;
    certify_fail(out, "wrong amax", "the amax of the probabilities is %.6g, and 1 is exact", got);
    return false;
}

static bool check_amax(struct attention_trial *t, bool all, struct certificate *out) {
    const struct kernel k = kernel_of("");
    double least = 0, most = 0;
    if (!check_p_amax(t, out)) return false;
    if (!all) return true; /* check_query has seen what it can */
#pragma omp parallel for collapse(2) schedule(static) reduction(max : least, most)
    for (int64_t head = 0; head < t->heads; head++)
        for (int64_t i = 0; i < t->length; i++) {
            struct around delta = delta_of(t, &k, 0, i, head);
            for (int64_t j = attention_low(t, 0, i); j <= i; j++) {
                struct around ds = pair_of(t, &k, 0, i, head, j, delta).ds;
                least = fmax(least, fabs(ds.x) - ds.error);
                most = fmax(most, fabs(ds.x) + ds.error);
            }
        }
    double got = (double)t->amax[AMAX_DS];
    out->outputs++;
    if (got >= least && got <= most * (1 + 0x1p-22)) return true;
    certify_fail(out, "wrong amax", "the amax of the scores' gradient is %.6g, and %.6g to %.6g "
                 "is right", got, least, most);
    return false;
}

static bool check(struct attention_trial *t, enum attention_sample what, const char *kernel,
                  int64_t s, int64_t token, int64_t head, struct certificate *out) {
    const struct kernel k = kernel_of(kernel);
    switch (what) {
    case SAMPLE_OUTPUT: return check_forward(t, &k, s, token, head, out);
    case SAMPLE_QUERY: return check_query(t, &k, s, token, head, out);
    default: return check_key(t, &k, s, token, head, out);
    }
}

const struct attention_rows ATTENTION_FP8 = {
    .check = check,
    .mistake = mistake,
    .check_amax = check_amax,
    .reason = "codes as defined, neighbours where rounding of sums reaches them; by cuDNN one "
              "rounding to E4M3, 2^-4; sums cut 23 bits (cuDNN 13) below; o in BF16",
};
