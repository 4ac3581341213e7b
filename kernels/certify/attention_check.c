#include "kernels/certify/attention_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/device_lines.h"

/* Lines of qkv repeat after LINES tokens, so that long sequences are made quickly. */
enum { LINES = 61, SAMPLES = 4, ODD_LENGTH = 130, HEAD_DIM_MAX = 1024 };
enum { LONG = 1024 /* from so many tokens on the host's threads share a row */ };
enum part { QKV, OUT, LSE, D_OUT, D_QKV, DELTA, PARTS };

struct trial {
    struct backend *b;
    int64_t batch, length, heads, groups, dim;
    int64_t width, out_width; /* elements of a token in qkv and in o */
    void *memory[PARTS];
    uint16_t *line[2];        /* of qkv and of d_o: LINES tokens, owned */
    float *value[2];          /* the same decoded, owned; of qkv the large token follows */
    uint16_t *o, *d_qkv;      /* of one sequence, owned */
    float *lse;               /* of one sequence [heads][length], owned */
    double *p, *q, *other;    /* scratch [length] */
    int64_t large; /* the token of sequence 0 with a large key */
};

static void trial_free(struct trial *t) {
    for (int i = 0; i < PARTS; i++)
        if (t->memory[i]) t->b->ops->memory_destroy(t->b, t->memory[i]);
    void *const owned[] = { t->line[0], t->line[1], t->value[0], t->value[1], t->o, t->d_qkv,
                           t->lse, t->p, t->q, t->other };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

/* ---- the operands ---- */

enum { LARGE = 24 };

/* Elements of head `head` (queries, keys, values in this order) of a token. */
static const float *qkv_at(const struct trial *t, int64_t sequence, int64_t token, int64_t head) {
    bool large = sequence == 0 && token == t->large;
    int64_t line = large ? LINES : (sequence * t->length + token) % LINES;
    return t->value[0] + line * t->width + head * t->dim;
}

static const float *d_out_at(const struct trial *t, int64_t sequence, int64_t token,
                             int64_t head) {
    int64_t line = (sequence * t->length + token) % LINES;
    return t->value[1] + line * t->out_width + head * t->dim;
}

/* Decodes the lines, and the one whose first key is large. */
static enum status open_values(struct trial *t, struct err *e) {
    const int64_t widths[2] = { t->width, t->out_width };
    for (int i = 0; i < 2; i++) {
        int64_t n = LINES * widths[i];
        t->value[i] = malloc((size_t)(n + widths[i]) * sizeof *t->value[i]);
        if (!t->value[i]) return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
        for (int64_t k = 0; k < n; k++) t->value[i][k] = bf16_decode(t->line[i][k]);
    }
    float *large = t->value[0] + LINES * t->width;
    memcpy(large, t->value[0] + t->large % LINES * t->width, (size_t)t->width * sizeof *large);
    large[t->heads * t->dim] = LARGE;
    return OK;
}

/* Writes one element of sequence 0. */
static enum status put(const struct trial *t, int64_t token, int64_t head, float x,
                       struct err *e) {
    uint16_t bits = bf16_encode(x);
    if (token < 0) return OK;
    int64_t at = token * t->width + head * t->dim;
    return t->b->ops->upload(t->b, LANE_COMPUTE, (char *)t->memory[QKV] + 2 * at, &bits, 2, e);
}

static enum status trial_open(struct trial *t, struct backend *b, const struct certify_way *way,
                              int64_t batch, int64_t length, struct err *e) {
    *t = (struct trial){ .b = b, .batch = batch, .length = length, .heads = way->heads,
                         .groups = way->kv_heads, .dim = way->head_dim, .large = length / 3 };
    t->width = (t->heads + 2 * t->groups) * t->dim;
    t->out_width = t->heads * t->dim;
    int64_t tokens = batch * length, widths[2] = { t->width, t->out_width };
    int64_t bytes[PARTS] = {
        [QKV] = 2 * tokens * t->width, [OUT] = 2 * tokens * t->out_width,
        [LSE] = 4 * tokens * t->heads, [D_OUT] = 2 * tokens * t->out_width,
        [D_QKV] = 2 * tokens * t->width, [DELTA] = 4 * tokens * t->heads,
    };
    for (int i = 0; i < 2; i++) {
        t->line[i] = malloc((size_t)(2 * LINES * widths[i]));
        for (int64_t k = 0; t->line[i] && k < LINES * widths[i]; k++) {
            uint64_t bits = rng_bits(77 + (uint64_t)i, (uint64_t)k);
            t->line[i][k] = bf16_encode((float)(int64_t)(bits & 65535) / 32768.0f - 1.0f);
        }
    }
    t->o = malloc((size_t)(2 * length * t->out_width));
    t->d_qkv = malloc((size_t)(2 * length * t->width));
    t->lse = malloc((size_t)(4 * length * t->heads));
    t->p = malloc((size_t)length * sizeof *t->p);
    t->q = malloc((size_t)length * sizeof *t->q);
    t->other = malloc((size_t)length * sizeof *t->other);
    if (!t->line[0] || !t->line[1] || !t->o || !t->d_qkv || !t->lse || !t->p || !t->q || !t->other)
        return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    TRY(open_values(t, e));
    for (int i = 0; i < PARTS; i++)
        TRY(b->ops->memory_create(b, "certify: attention", bytes[i], &t->memory[i], e));
    TRY(device_lines(b, t->memory[QKV], t->line[0], 2 * LINES * t->width, bytes[QKV], e));
    TRY(device_lines(b, t->memory[D_OUT], t->line[1], 2 * LINES * t->out_width, bytes[D_OUT], e));
    return put(t, t->large, t->heads, LARGE, e);
}

/* ---- running it ---- */

/* The first sequence's output holds `garbage` before. */
static enum status run(struct trial *t, bool backward, int garbage, struct err *e) {
    struct backend *b = t->b;
    int64_t tokens = t->batch * t->length;
    struct tensor qkv = tensor_make(t->memory[QKV], DTYPE_BF16, t->batch, t->length,
                                    t->heads + 2 * t->groups, t->dim);
    struct tensor o = tensor_2d(t->memory[OUT], DTYPE_BF16, tokens, t->out_width);
    struct tensor d_o = tensor_2d(t->memory[D_OUT], DTYPE_BF16, tokens, t->out_width);
    struct tensor d_qkv = tensor_2d(t->memory[D_QKV], DTYPE_BF16, tokens, t->width);
    struct tensor lse = tensor_make(t->memory[LSE], DTYPE_F32, t->batch, t->heads, t->length, 1);
    struct tensor delta = lse;
    delta.data = t->memory[DELTA];
    struct sink out = sink_value(&o, NULL), d_out = sink_value(&d_qkv, NULL);
    TRY(device_bytes(b, t->memory[OUT], garbage, 2 * t->length * t->out_width, e));
    TRY(device_bytes(b, t->memory[D_QKV], garbage, 2 * t->length * t->width, e));
    const struct attention_fwd_args fwd = { .o = &out, .lse = &lse, .qkv = &qkv,
                                            .heads = t->heads, .kv_heads = t->groups };
    TRY(b->ops->attention_fwd(b, LANE_COMPUTE, &fwd, e));
    if (!backward) return OK;
    const struct attention_bwd_args bwd = { .d_qkv = &d_out, .delta = &delta, .d_o = &d_o,
                                            .o = &o, .qkv = &qkv, .lse = &lse, .heads = t->heads,
                                            .kv_heads = t->groups };
    return b->ops->attention_bwd(b, LANE_COMPUTE, &bwd, e);
}

/* Reads one result of one sequence. */
static enum status fetch(struct trial *t, int64_t sequence, enum part part, struct err *e) {
    int64_t bytes = part == LSE ? 4 * t->length * t->heads
                                : 2 * t->length * (part == OUT ? t->out_width : t->width);
    void *host = part == OUT ? (void *)t->o : part == LSE ? (void *)t->lse : (void *)t->d_qkv;
    return t->b->ops->download(t->b, LANE_COMPUTE, host,
                               (const char *)t->memory[part] + sequence * bytes, bytes, e);
}

/* Those of the forward; of the backward too. */
static enum status fetch_all(struct trial *t, int64_t sequence, bool backward, struct err *e) {
    TRY(fetch(t, sequence, OUT, e));
    TRY(fetch(t, sequence, LSE, e));
    return backward ? fetch(t, sequence, D_QKV, e) : OK;
}

/* ---- the values ---- */

static double scale_of(const struct trial *t) { return 1.0 / sqrt((double)t->dim); }

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

static double score(const struct trial *t, int64_t s, int64_t token, int64_t head, int64_t key) {
    int64_t group = t->heads + head * t->groups / t->heads;
    double all;
    return dot(qkv_at(t, s, token, head), qkv_at(t, s, key, group), t->dim, &all) * scale_of(t);
}

/* Whether x is near: an error beyond the bound becomes the certificate's fault. */
static bool near(struct certificate *out, const char *what, int64_t token, int64_t head, double got,
                 double want, double bound) {
    double error = fabs(got - want);
    out->outputs++;
    if (out->bound == 0 || error / bound > out->error / out->bound) {
        out->error = error;
        out->bound = bound;
    }
    if (error <= bound) return true; /* NaN is not near */
    certify_fail(out, "beyond the bound", "%s of token %lld, head %lld is %.6g, and %.6g is exact; "
                 "the bound is %.3g", what, (long long)token, (long long)head, got, want, bound);
    return false;
}

/* Adds x * weight to sum, and its magnitude for `size` to all. */
static void add_row(const float *x, int64_t n, double weight, double size, double *sum,
                    double *all) {
    for (int64_t d = 0; d < n; d++) {
        sum[d] += weight * (double)x[d];
        all[d] += size * fabs((double)x[d]);
    }
}

/* One row of the forward. Probabilities may be rounded to BF16: 2^-8 of each term. */
static bool check_forward(struct trial *t, int64_t s, int64_t token, int64_t head,
                          struct certificate *out) {
    int64_t values = t->heads + t->groups + head * t->groups / t->heads;
    double most = -INFINITY, sum = 0, x[HEAD_DIM_MAX] = { 0 }, all[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token >= LONG)
    for (int64_t j = 0; j <= token; j++) t->p[j] = score(t, s, token, head, j);
    for (int64_t j = 0; j <= token; j++)
        if (t->p[j] > most) most = t->p[j];
    for (int64_t j = 0; j <= token; j++) sum += t->p[j] = exp(t->p[j] - most);
    double lse = most + log(sum);
    if (!near(out, "log-sum-exp", token, head, (double)t->lse[head * t->length + token], lse,
              0x1p-9 + 0x1p-16 * fabs(most)))
        return false;
    for (int64_t j = 0; j <= token; j++)
        add_row(qkv_at(t, s, j, values), t->dim, t->p[j] / sum, t->p[j] / sum, x, all);
    for (int64_t d = 0; d < t->dim; d++) {
        double got = (double)bf16_decode(t->o[token * t->out_width + head * t->dim + d]);
        if (!near(out, "the output", token, head, got, x[d], 0x1p-7 * all[d] + 0x1p-8 * fabs(x[d])))
            return false;
    }
    return true;
}

/* The sum of d_o * o over a row, and the sum of magnitudes. */
static double delta_of(const struct trial *t, int64_t s, int64_t token, int64_t head,
                       double *all) {
    float o[HEAD_DIM_MAX];
    for (int64_t d = 0; d < t->dim; d++)
        o[d] = bf16_decode(t->o[token * t->out_width + head * t->dim + d]);
    return dot(d_out_at(t, s, token, head), o, t->dim, all);
}

/* p and ds of one query and key. *size: ds with all its terms positive, for bounds. */
static double pair_of(const struct trial *t, int64_t s, int64_t token, int64_t head, int64_t key,
                      double delta, double delta_all, double *p, double *size) {
    int64_t values = t->heads + t->groups + head * t->groups / t->heads;
    double all, dp = dot(d_out_at(t, s, token, head), qkv_at(t, s, key, values), t->dim, &all);
    *p = exp(score(t, s, token, head, key) - (double)t->lse[head * t->length + token]);
    *size = *p * (all + delta_all) * scale_of(t);
    return *p * (dp - delta) * scale_of(t);
}

static double gradient(const struct trial *t, int64_t token, int64_t head, int64_t d) {
    return (double)bf16_decode(t->d_qkv[token * t->width + head * t->dim + d]);
}

/* The gradient of one query. */
static bool check_query(struct trial *t, int64_t s, int64_t token, int64_t head,
                        struct certificate *out) {
    int64_t group = t->heads + head * t->groups / t->heads;
    double all, delta = delta_of(t, s, token, head, &all);
    double x[HEAD_DIM_MAX] = { 0 }, size[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token >= LONG)
    for (int64_t j = 0; j <= token; j++)
        t->p[j] = pair_of(t, s, token, head, j, delta, all, &t->other[j], &t->q[j]);
    for (int64_t j = 0; j <= token; j++)
        add_row(qkv_at(t, s, j, group), t->dim, t->p[j], t->q[j], x, size);
    for (int64_t d = 0; d < t->dim; d++)
        if (!near(out, "the gradient of a query", token, head, gradient(t, token, head, d), x[d],
                  0x1p-6 * size[d] + 0x1p-8 * fabs(x[d]) + 0x1p-30))
            return false;
    return true;
}

/* The gradients of one key and its value, over the queries of its heads. */
static bool check_key(struct trial *t, int64_t s, int64_t key, int64_t group,
                      struct certificate *out) {
    double dk[HEAD_DIM_MAX] = { 0 }, dv[HEAD_DIM_MAX] = { 0 };
    double dk_all[HEAD_DIM_MAX] = { 0 }, dv_all[HEAD_DIM_MAX] = { 0 };
    int64_t each = t->heads / t->groups;
    for (int64_t head = group * each; head < (group + 1) * each; head++) {
#pragma omp parallel for schedule(static) if (t->length - key >= LONG)
        for (int64_t i = key; i < t->length; i++) {
            double all, delta = delta_of(t, s, i, head, &all);
            t->other[i] = pair_of(t, s, i, head, key, delta, all, &t->p[i], &t->q[i]);
        }
        for (int64_t i = key; i < t->length; i++) {
            add_row(qkv_at(t, s, i, head), t->dim, t->other[i], t->q[i], dk, dk_all);
            add_row(d_out_at(t, s, i, head), t->dim, t->p[i], t->p[i], dv, dv_all);
        }
    }
    for (int64_t d = 0; d < t->dim; d++)
        if (!near(out, "the gradient of a key", key, group,
                  gradient(t, key, t->heads + group, d), dk[d],
                  0x1p-6 * dk_all[d] + 0x1p-8 * fabs(dk[d]) + 0x1p-30) ||
            !near(out, "the gradient of a value", key, group,
                  gradient(t, key, t->heads + t->groups + group, d), dv[d],
                  0x1p-6 * dv_all[d] + 0x1p-8 * fabs(dv[d]) + 0x1p-30))
            return false;
    return true;
}

/* ---- the certificate ---- */

/* The kernel that served the last attention of this direction; "own" if the backend keeps none. */
static void name_kernel(struct backend *b, const char *direction, char out[16]) {
    struct decision d;
    snprintf(out, 16, "own");
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.section, "attention") && !strcmp(d.direction, direction))
            snprintf(out, 16, "%s", d.way);
}

static void name_way(struct certificate *out, const char *kernel) {
    bool other = !strcmp(kernel, "cudnn") || !strcmp(kernel, "wgmma");
    snprintf(out->how, sizeof out->how, "%s", kernel);
    snprintf(out->forbid, sizeof out->forbid, "%s", other ? kernel : "");
}

static void check_samples(struct trial *t, int64_t s, char kernel[2][16],
                          struct certificate *out) {
    const int64_t tokens[SAMPLES] = { 0, t->length - 1, t->length / 2, t->large + 1 };
    bool good = true;
    name_way(out, kernel[0]);
    for (int i = 0; i < SAMPLES && good; i++) {
        int64_t token = tokens[i] < t->length ? tokens[i] : 0;
        good = check_forward(t, s, token, i * t->heads / SAMPLES, out);
    }
    if (!good) return;
    name_way(out, kernel[1]);
    for (int i = 0; i < SAMPLES && good; i++) {
        int64_t token = tokens[i] < t->length ? tokens[i] : 0;
        good = check_query(t, s, token, i * t->heads / SAMPLES, out);
        if (good && i < 2 && t->length > 1)
            good = check_key(t, s, tokens[3 - i] < t->length ? tokens[3 - i] : 0,
                             i * (t->groups - 1), out);
    }
    if (good) name_way(out, kernel[0]);
}

/* The same again over other bytes: the gradients have the same bits. */
static enum status try_again(struct trial *t, struct certificate *out, struct err *e) {
    uint16_t *before = t->d_qkv;
    size_t size = (size_t)(2 * t->length * t->width);
    t->d_qkv = malloc(size);
    enum status st = t->d_qkv ? run(t, true, 0x42, e)
                              : FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    if (st == OK) st = fetch(t, 0, D_QKV, e);
    if (st == OK && memcmp(before, t->d_qkv, size) != 0)
        certify_fail(out, "stale output", "the same gradients differ when they are written over "
                     "other bytes");
    free(before);
    return st;
}

/* The run's shape, the first sequence and the last, over different garbage. */
static enum status try_own(struct trial *t, char kernel[2][16], struct certificate *out,
                           struct err *e) {
    TRY(run(t, true, 0xFF, e));
    TRY(fetch_all(t, 0, true, e));
    name_kernel(t->b, "forward", kernel[0]);
    name_kernel(t->b, "backward", kernel[1]);
    check_samples(t, 0, kernel, out);
    if (out->outcome == CERTIFY_PASSED) TRY(try_again(t, out, e));
    if (out->outcome != CERTIFY_PASSED || t->batch == 1) return OK;
    TRY(fetch_all(t, t->batch - 1, false, e));
    for (int64_t head = 0; head < t->heads; head += t->heads > 1 ? t->heads - 1 : 1)
        if (!check_forward(t, t->batch - 1, t->length - 1, head, out)) return OK;
    return OK;
}

/* A NaN in a value: the outputs after it are NaN in its column. */
static enum status try_nan(struct trial *t, struct certificate *out, struct err *e) {
    int64_t at = t->length / 2, values = t->heads + t->groups;
    TRY(put(t, at, values, f32_from_bits(0x7FC00000u), e));
    TRY(run(t, false, 0x42, e));
    TRY(fetch(t, 0, OUT, e));
    for (int64_t token = at; token < t->length; token++) {
        float x = bf16_decode(t->o[token * t->out_width]);
        out->outputs++;
        if (isnan(x)) continue;
        certify_fail(out, "NaN swallowed", "token %lld sees a value that is NaN, and its output "
                     "is %g", (long long)token, (double)x);
        return OK;
    }
    return OK;
}

enum status certify_attention(struct backend *b, const struct certify_way *way,
                              struct certificate *out, struct err *e) {
    struct trial t;
    char kernel[2][16] = { "own", "own" }, own[16];
    if (way->head_dim > HEAD_DIM_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "attention with heads of %lld elements; certificates know "
                    "at most %d", (long long)way->head_dim, HEAD_DIM_MAX);
    snprintf(out->reason, sizeof out->reason, "probabilities and their gradients may be rounded to "
             "BF16: 2^-7 of the terms' magnitudes forward, 2^-6 backward");
    enum status st = trial_open(&t, b, way, way->batch, way->length, e);
    if (st == OK) st = try_own(&t, kernel, out, e);
    trial_free(&t);
    if (st != OK || out->outcome != CERTIFY_PASSED) return st;
    memcpy(own, kernel[0], sizeof own);
    st = trial_open(&t, b, way, 1, ODD_LENGTH, e);
    if (st == OK) st = run(&t, true, 0xFF, e);
    if (st == OK) st = fetch_all(&t, 0, true, e);
    if (st == OK) {
        name_kernel(b, "forward", kernel[0]);
        name_kernel(b, "backward", kernel[1]);
        check_samples(&t, 0, kernel, out);
    }
    if (st == OK && out->outcome == CERTIFY_PASSED) st = try_nan(&t, out, e);
    if (out->outcome == CERTIFY_PASSED) name_way(out, own);
    trial_free(&t);
    return st;
}
