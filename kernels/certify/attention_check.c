#include "kernels/certify/attention_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/certify/attention_mask.h"
#include "kernels/certify/device_lines.h"

/* Lines of qkv repeat after LINES tokens, so that long sequences are made quickly. */
enum { LINES = 61, HEAD_DIM_MAX = 1024 };
/* Of the small shapes. With a mask some tiles of keys are behind all queries of a later tile. */
enum { ODD_LENGTH = 130, MASKED_LENGTH = 330, ODD_WINDOW = 33 };
enum { SAMPLES = 4, SAMPLES_MASKED = 8 };
enum { LONG = 1024 /* from so many tokens on the host's threads share a row */ };
enum part { QKV, OUT, LSE, D_OUT, D_QKV, DELTA, FIRST_KEY, PARTS };

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
    struct attention_mask mask;
    enum mask_mistake mistake; /* that the expected values are computed with */
};

static void trial_free(struct trial *t) {
    for (int i = 0; i < PARTS; i++)
        if (t->memory[i]) t->b->ops->memory_destroy(t->b, t->memory[i]);
    void *const owned[] = { t->line[0], t->line[1], t->value[0], t->value[1], t->o, t->d_qkv,
                           t->lse, t->p, t->q, t->other };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    attention_mask_free(&t->mask);
}

/* ---- the operands ---- */

/* With a mask the last query does not see the large key, and that token's values are large too: an
 * output to which it counts is wrong by more than the bound, however many keys there are. */
enum { LARGE = 24, LARGE_VALUE = 16384 };

/* The first key that a query sees. */
static int64_t low_of(const struct trial *t, int64_t sequence, int64_t token) {
    return attention_mask_low(&t->mask, t->mistake, sequence, token);
}

static bool is_masked(const struct trial *t) { return attention_mask_any(&t->mask); }

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
    for (int64_t g = 0; g < t->groups && is_masked(t); g++)
        large[(t->heads + t->groups + g) * t->dim] = LARGE_VALUE;
    return OK;
}

/* Writes one element of sequence 0. */
static enum status put(const struct trial *t, int64_t token, int64_t head, float x,
                       struct err *e) {
    uint16_t bits = bf16_encode(x);
    int64_t at = token * t->width + head * t->dim;
    return t->b->ops->upload(t->b, LANE_COMPUTE, (char *)t->memory[QKV] + 2 * at, &bits, 2, e);
}

static enum status put_large(const struct trial *t, struct err *e) {
    TRY(put(t, t->large, t->heads, LARGE, e));
    for (int64_t g = 0; g < t->groups && is_masked(t); g++)
        TRY(put(t, t->large, t->heads + t->groups + g, LARGE_VALUE, e));
    return OK;
}

static enum status open_mask(struct trial *t, const struct certify_way *way, struct err *e) {
    TRY(attention_mask_open(&t->mask, t->batch, t->length, way->window, way->documents, e));
    int64_t low = low_of(t, 0, t->length - 1);
    t->large = low > 0 ? low - 1 : t->length / 3;
    return OK;
}

/* way: heads and mask; the shape is this trial's. */
static enum status trial_open(struct trial *t, struct backend *b, const struct certify_way *way,
                              int64_t batch, int64_t length, struct err *e) {
    *t = (struct trial){ .b = b, .batch = batch, .length = length, .heads = way->heads,
                         .groups = way->kv_heads, .dim = way->head_dim };
    TRY(open_mask(t, way, e));
    t->width = (t->heads + 2 * t->groups) * t->dim;
    t->out_width = t->heads * t->dim;
    int64_t tokens = batch * length, widths[2] = { t->width, t->out_width };
    int64_t bytes[PARTS] = {
        [QKV] = 2 * tokens * t->width, [OUT] = 2 * tokens * t->out_width,
        [LSE] = 4 * tokens * t->heads, [D_OUT] = 2 * tokens * t->out_width,
        [D_QKV] = 2 * tokens * t->width, [DELTA] = 4 * tokens * t->heads,
        [FIRST_KEY] = is_masked(t) ? 4 * tokens : 0,
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
        if (bytes[i])
            TRY(b->ops->memory_create(b, "certify: attention", bytes[i], &t->memory[i], e));
    if (is_masked(t)) TRY(attention_mask_upload(&t->mask, b, t->memory[FIRST_KEY], e));
    TRY(device_lines(b, t->memory[QKV], t->line[0], 2 * LINES * t->width, bytes[QKV], e));
    TRY(device_lines(b, t->memory[D_OUT], t->line[1], 2 * LINES * t->out_width, bytes[D_OUT], e));
    return put_large(t, e);
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
    struct tensor first = tensor_2d(t->memory[FIRST_KEY], DTYPE_I32, t->batch, t->length);
    const struct tensor *first_key = is_masked(t) ? &first : NULL;
    struct sink out = sink_value(&o, NULL), d_out = sink_value(&d_qkv, NULL);
    TRY(device_bytes(b, t->memory[OUT], garbage, 2 * t->length * t->out_width, e));
    TRY(device_bytes(b, t->memory[D_QKV], garbage, 2 * t->length * t->width, e));
    const struct attention_fwd_args fwd = { .o = &out, .lse = &lse, .qkv = &qkv,
                                            .first_key = first_key, .heads = t->heads,
                                            .kv_heads = t->groups };
    TRY(b->ops->attention_fwd(b, LANE_COMPUTE, &fwd, e));
    if (!backward) return OK;
    const struct attention_bwd_args bwd = { .d_qkv = &d_out, .delta = &delta, .d_o = &d_o,
                                            .o = &o, .qkv = &qkv, .lse = &lse,
                                            .first_key = first_key, .heads = t->heads,
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
    int64_t values = t->heads + t->groups + head * t->groups / t->heads, low = low_of(t, s, token);
    double most = -INFINITY, sum = 0, x[HEAD_DIM_MAX] = { 0 }, all[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token - low >= LONG)
    for (int64_t j = low; j <= token; j++) t->p[j] = score(t, s, token, head, j);
    for (int64_t j = low; j <= token; j++)
        if (t->p[j] > most) most = t->p[j];
    for (int64_t j = low; j <= token; j++) sum += t->p[j] = exp(t->p[j] - most);
    double lse = most + log(sum);
    if (!near(out, "log-sum-exp", token, head, (double)t->lse[head * t->length + token], lse,
              0x1p-9 + 0x1p-16 * fabs(most)))
        return false;
    for (int64_t j = low; j <= token; j++)
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
    int64_t group = t->heads + head * t->groups / t->heads, low = low_of(t, s, token);
    double all, delta = delta_of(t, s, token, head, &all);
    double x[HEAD_DIM_MAX] = { 0 }, size[HEAD_DIM_MAX] = { 0 };
#pragma omp parallel for schedule(static) if (token - low >= LONG)
    for (int64_t j = low; j <= token; j++)
        t->p[j] = pair_of(t, s, token, head, j, delta, all, &t->other[j], &t->q[j]);
    for (int64_t j = low; j <= token; j++)
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
    int64_t each = t->heads / t->groups, end = attention_mask_end(&t->mask, t->mistake, s, key);
    for (int64_t head = group * each; head < (group + 1) * each; head++) {
#pragma omp parallel for schedule(static) if (end - key >= LONG)
        for (int64_t i = key; i < end; i++) {
            double all, delta = delta_of(t, s, i, head, &all);
            t->other[i] = pair_of(t, s, i, head, key, delta, all, &t->p[i], &t->q[i]);
        }
        for (int64_t i = key; i < end; i++) {
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

enum sample { SAMPLE_OUTPUT, SAMPLE_QUERY, SAMPLE_KEY };

static bool check_one(struct trial *t, enum sample what, int64_t s, int64_t token, int64_t head,
                      struct certificate *out) {
    switch (what) {
    case SAMPLE_OUTPUT: return check_forward(t, s, token, head, out);
    case SAMPLE_QUERY: return check_query(t, s, token, head, out);
    default: return check_key(t, s, token, head, out);
    }
}

/* Checks a sample. If it is wrong, and right without a part of the mask, that is the fault. */
static bool check(struct trial *t, enum sample what, int64_t s, int64_t token, int64_t head,
                  struct certificate *out) {
    if (check_one(t, what, s, token, head, out)) return true;
    for (int m = MASK_NO_WINDOW; m < MASK_MISTAKES; m++) {
        struct certificate other = { .bound = 0 };
        char sentence[96], found[sizeof out->found];
        if (!attention_mask_can(&t->mask, (enum mask_mistake)m)) continue;
        t->mistake = (enum mask_mistake)m;
        bool right = check_one(t, what, s, token, head, &other);
        t->mistake = MASK_RIGHT;
        if (!right) continue;
        attention_mask_sentence(&t->mask, (enum mask_mistake)m, sentence);
        memcpy(found, out->found, sizeof found);
        certify_fail(out, attention_mask_fault((enum mask_mistake)m), "%.150s; %s", found,
                     sentence);
        break;
    }
    return false;
}

/* Tokens whose outputs and gradients are computed again. With a mask: the one that the last query
 * does not see, both sides of a document's border, and a long document's first. */
static int sample_tokens(const struct trial *t, int64_t out[SAMPLES_MASKED]) {
    const int64_t L = t->length;
    const int64_t tokens[SAMPLES_MASKED] = { 0, L - 1, L / 2, t->large + 1, t->large, 64, 63,
                                             L - L / 4 };
    for (int i = 0; i < SAMPLES_MASKED; i++) out[i] = tokens[i] < L ? tokens[i] : 0;
    return is_masked(t) ? SAMPLES_MASKED : SAMPLES;
}

static void check_samples(struct trial *t, int64_t s, char kernel[2][16],
                          struct certificate *out) {
    int64_t token[SAMPLES_MASKED];
    int count = sample_tokens(t, token), keys = is_masked(t) ? count : 2;
    bool good = true;
    name_way(out, kernel[0]);
    for (int i = 0; i < count && good; i++)
        good = check(t, SAMPLE_OUTPUT, s, token[i], i * t->heads / count, out);
    if (!good) return;
    name_way(out, kernel[1]);
    for (int i = 0; i < count && good; i++)
        good = check(t, SAMPLE_QUERY, s, token[i], i * t->heads / count, out);
    for (int i = 0; i < keys && good && t->length > 1; i++)
        good = check(t, SAMPLE_KEY, s, token[(i + 3) % count], i % 2 * (t->groups - 1), out);
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
    TRY(fetch_all(t, t->batch - 1, is_masked(t), e));
    if (is_masked(t)) check_samples(t, t->batch - 1, kernel, out);
    if (is_masked(t)) return OK;
    for (int64_t head = 0; head < t->heads; head += t->heads > 1 ? t->heads - 1 : 1)
        if (!check_forward(t, t->batch - 1, t->length - 1, head, out)) return OK;
    return OK;
}

/* A NaN in a value: the outputs that see it are NaN in its column. */
static enum status try_nan(struct trial *t, struct certificate *out, struct err *e) {
    int64_t at = t->length / 2, values = t->heads + t->groups;
    TRY(put(t, at, values, f32_from_bits(0x7FC00000u), e));
    TRY(run(t, false, 0x42, e));
    TRY(fetch(t, 0, OUT, e));
    for (int64_t token = at; token < t->length; token++) {
        float x = bf16_decode(t->o[token * t->out_width]);
        if (low_of(t, 0, token) > at) break; /* as all later ones */
        out->outputs++;
        if (isnan(x)) continue;
        certify_fail(out, "NaN swallowed", "token %lld sees a value that is NaN, and its output "
                     "is %g", (long long)token, (double)x);
        return OK;
    }
    return OK;
}

/* A small shape of one sequence under a mask. */
static enum status try_small(struct backend *b, const struct certify_way *way,
                             struct certificate *out, struct err *e) {
    struct trial t;
    char kernel[2][16];
    bool masked = way->window || way->documents;
    enum status st = trial_open(&t, b, way, 1, masked ? MASKED_LENGTH : ODD_LENGTH, e);
    if (st == OK) st = run(&t, true, 0xFF, e);
    if (st == ERR_UNSUPPORTED && way->kernel == ATTENTION_CUDNN) { /* it serves no short ones */
        trial_free(&t);
        return OK;
    }
    if (st == OK) st = fetch_all(&t, 0, true, e);
    if (st == OK) {
        name_kernel(b, "forward", kernel[0]);
        name_kernel(b, "backward", kernel[1]);
        check_samples(&t, 0, kernel, out);
    }
    if (st == OK && out->outcome == CERTIFY_PASSED) st = try_nan(&t, out, e);
    trial_free(&t);
    return st;
}

/* Small shapes with the parts of the mask that the run has: windows of one key and of no multiple
 * of a tile, short documents, both. */
static enum status try_edges(struct backend *b, const struct certify_way *way,
                             struct certificate *out, struct err *e) {
    const struct { int64_t window; bool documents; } masks[] = {
        { 1, false }, { ODD_WINDOW, false }, { 0, true }, { ODD_WINDOW, true },
    };
    struct certify_way small = *way;
    if (!way->window && !way->documents) return try_small(b, way, out, e);
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        if ((masks[i].window && !way->window) || (masks[i].documents && !way->documents)) continue;
        small.window = masks[i].window;
        small.documents = masks[i].documents;
        TRY(try_small(b, &small, out, e));
        if (out->outcome != CERTIFY_PASSED) break;
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
    st = try_edges(b, way, out, e);
    if (out->outcome == CERTIFY_PASSED) name_way(out, own);
    return st;
}
