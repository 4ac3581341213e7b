#include "kernels/certify/attention_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Lines of qkv repeat after LINES tokens, so that long sequences are made quickly. */
enum { LINES = 61, SAMPLES = 4, ODD_LENGTH = 130, HEAD_DIM_MAX = 1024 };
enum part { QKV, OUT, LSE, D_OUT, D_QKV, DELTA, PARTS };

struct trial {
    struct backend *b;
    int64_t batch, length, heads, groups, dim;
    int64_t width, out_width; /* elements of a token in qkv and in o */
    void *memory[PARTS];
    uint16_t *line[2];        /* of qkv and of d_o: LINES tokens, owned */
    uint16_t *o, *d_qkv;      /* of one sequence, owned */
    float *lse;               /* of one sequence [heads][length], owned */
    double *p, *q;            /* scratch [length] */
    int64_t large; /* the token of sequence 0 with a large key */
};

static void trial_free(struct trial *t) {
    for (int i = 0; i < PARTS; i++)
        if (t->memory[i]) t->b->ops->memory_destroy(t->b, t->memory[i]);
    void *const owned[] = { t->line[0], t->line[1], t->o, t->d_qkv, t->lse, t->p, t->q };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
}

/* ---- the operands ---- */

enum { LARGE = 24 };

/* Element d of head `head` (queries, keys, values in this order) of a token. */
static double qkv_at(const struct trial *t, int64_t sequence, int64_t token, int64_t head,
                     int64_t d) {
    if (sequence == 0 && token == t->large && head == t->heads && d == 0) return LARGE;
    int64_t line = (sequence * t->length + token) % LINES;
    return (double)bf16_decode(t->line[0][line * t->width + head * t->dim + d]);
}

static double d_out_at(const struct trial *t, int64_t sequence, int64_t token, int64_t head,
                       int64_t d) {
    int64_t line = (sequence * t->length + token) % LINES;
    return (double)bf16_decode(t->line[1][line * t->out_width + head * t->dim + d]);
}

static enum status upload_lines(const struct trial *t, enum part part, const uint16_t *line,
                                int64_t width, struct err *e) {
    int64_t tokens = t->batch * t->length;
    for (int64_t at = 0; at < tokens; at += LINES) {
        int64_t count = tokens - at < LINES ? tokens - at : LINES;
        TRY(t->b->ops->upload(t->b, LANE_COMPUTE, (char *)t->memory[part] + at * width * 2, line,
                              count * width * 2, e));
    }
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
    if (!t->line[0] || !t->line[1] || !t->o || !t->d_qkv || !t->lse || !t->p || !t->q)
        return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    for (int i = 0; i < PARTS; i++)
        TRY(b->ops->memory_create(b, "certify: attention", bytes[i], &t->memory[i], e));
    TRY(upload_lines(t, QKV, t->line[0], t->width, e));
    TRY(upload_lines(t, D_OUT, t->line[1], t->out_width, e));
    return put(t, t->large, t->heads, LARGE, e);
}

/* ---- running it ---- */

static enum status fill(struct trial *t, enum part part, int64_t bytes, void *host, int garbage,
                        struct err *e) {
    memset(host, garbage, (size_t)bytes);
    return t->b->ops->upload(t->b, LANE_COMPUTE, t->memory[part], host, bytes, e);
}

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
    TRY(fill(t, OUT, 2 * t->length * t->out_width, t->o, garbage, e));
    TRY(fill(t, D_QKV, 2 * t->length * t->width, t->d_qkv, garbage, e));
    const struct attention_fwd_args fwd = { .o = &out, .lse = &lse, .qkv = &qkv,
                                            .heads = t->heads, .kv_heads = t->groups };
    TRY(b->ops->attention_fwd(b, LANE_COMPUTE, &fwd, e));
    if (!backward) return OK;
    const struct attention_bwd_args bwd = { .d_qkv = &d_out, .delta = &delta, .d_o = &d_o,
                                            .o = &o, .qkv = &qkv, .lse = &lse, .heads = t->heads,
                                            .kv_heads = t->groups };
    return b->ops->attention_bwd(b, LANE_COMPUTE, &bwd, e);
}

/* Reads the results of one sequence. */
static enum status fetch(struct trial *t, int64_t sequence, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    const struct { enum part part; void *host; int64_t bytes; } FROM[] = {
        { OUT, t->o, 2 * t->length * t->out_width },
        { D_QKV, t->d_qkv, 2 * t->length * t->width },
        { LSE, t->lse, 4 * t->length * t->heads },
    };
    for (size_t i = 0; i < sizeof FROM / sizeof *FROM; i++)
        TRY(ops->download(t->b, LANE_COMPUTE, FROM[i].host,
                          (const char *)t->memory[FROM[i].part] + sequence * FROM[i].bytes,
                          FROM[i].bytes, e));
    return OK;
}

/* ---- the values ---- */

static double scale_of(const struct trial *t) { return 1.0 / sqrt((double)t->dim); }

static double score(const struct trial *t, int64_t s, int64_t token, int64_t head, int64_t key) {
    int64_t group = t->heads + head * t->groups / t->heads;
    double sum = 0;
    for (int64_t d = 0; d < t->dim; d++)
        sum += qkv_at(t, s, token, head, d) * qkv_at(t, s, key, group, d);
    return sum * scale_of(t);
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

/* One row of the forward. Probabilities may be rounded to BF16: 2^-8 of each term. */
static bool check_forward(struct trial *t, int64_t s, int64_t token, int64_t head,
                          struct certificate *out) {
    int64_t values = t->heads + t->groups + head * t->groups / t->heads;
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= token; j++) {
        t->p[j] = score(t, s, token, head, j);
        if (t->p[j] > most) most = t->p[j];
    }
    for (int64_t j = 0; j <= token; j++) sum += t->p[j] = exp(t->p[j] - most);
    double lse = most + log(sum);
    if (!near(out, "log-sum-exp", token, head, (double)t->lse[head * t->length + token], lse,
              0x1p-9 + 0x1p-16 * fabs(most)))
        return false;
    for (int64_t d = 0; d < t->dim; d++) {
        double x = 0, all = 0;
        for (int64_t j = 0; j <= token; j++) {
            double term = t->p[j] / sum * qkv_at(t, s, j, values, d);
            x += term;
            all += fabs(term);
        }
        double got = (double)bf16_decode(t->o[token * t->out_width + head * t->dim + d]);
        if (!near(out, "the output", token, head, got, x, 0x1p-7 * all + 0x1p-8 * fabs(x)))
            return false;
    }
    return true;
}

/* The sum of d_o * o over a row, and the sum of magnitudes. */
static double delta_of(const struct trial *t, int64_t s, int64_t token, int64_t head,
                       double *all) {
    double sum = 0;
    *all = 0;
    for (int64_t d = 0; d < t->dim; d++) {
        double x = d_out_at(t, s, token, head, d) *
                   (double)bf16_decode(t->o[token * t->out_width + head * t->dim + d]);
        sum += x;
        *all += fabs(x);
    }
    return sum;
}

/* p and ds of one query and key. *size: ds with all its terms positive, for bounds. */
static double pair_of(const struct trial *t, int64_t s, int64_t token, int64_t head, int64_t key,
                      double delta, double delta_all, double *p, double *size) {
    int64_t values = t->heads + t->groups + head * t->groups / t->heads;
    double dp = 0, all = 0;
    for (int64_t d = 0; d < t->dim; d++) {
        double x = d_out_at(t, s, token, head, d) * qkv_at(t, s, key, values, d);
        dp += x;
        all += fabs(x);
    }
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
    double all, p, delta = delta_of(t, s, token, head, &all);
    for (int64_t j = 0; j <= token; j++)
        t->p[j] = pair_of(t, s, token, head, j, delta, all, &p, &t->q[j]);
    for (int64_t d = 0; d < t->dim; d++) {
        double x = 0, size = 0;
        for (int64_t j = 0; j <= token; j++) {
            double k = qkv_at(t, s, j, group, d);
            x += t->p[j] * k;
            size += t->q[j] * fabs(k);
        }
        if (!near(out, "the gradient of a query", token, head, gradient(t, token, head, d), x,
                  0x1p-6 * size + 0x1p-8 * fabs(x) + 0x1p-30))
            return false;
    }
    return true;
}

/* The gradients of one key and its value, over the queries of its heads. */
static bool check_key(struct trial *t, int64_t s, int64_t key, int64_t group,
                      struct certificate *out) {
    double dk[HEAD_DIM_MAX] = { 0 }, dv[HEAD_DIM_MAX] = { 0 };
    double dk_all[HEAD_DIM_MAX] = { 0 }, dv_all[HEAD_DIM_MAX] = { 0 };
    int64_t each = t->heads / t->groups;
    for (int64_t head = group * each; head < (group + 1) * each; head++)
        for (int64_t i = key; i < t->length; i++) {
            double all, p, size, delta = delta_of(t, s, i, head, &all);
            double ds = pair_of(t, s, i, head, key, delta, all, &p, &size);
            for (int64_t d = 0; d < t->dim; d++) {
                double q = qkv_at(t, s, i, head, d), g = d_out_at(t, s, i, head, d);
                dk[d] += ds * q;
                dk_all[d] += size * fabs(q);
                dv[d] += p * g;
                dv_all[d] += p * fabs(g);
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

/* The run's shape, the first sequence and the last, over different garbage. */
static enum status try_own(struct trial *t, char kernel[2][16], struct certificate *out,
                           struct err *e) {
    int64_t size = 2 * t->length * t->width;
    unsigned char *before = malloc((size_t)size);
    if (!before) return FAIL(e, ERR_MEMORY, "no memory for the certificate of attention");
    enum status st = run(t, true, 0xFF, e);
    if (st == OK) st = fetch(t, 0, e);
    name_kernel(t->b, "forward", kernel[0]);
    name_kernel(t->b, "backward", kernel[1]);
    if (st == OK) memcpy(before, t->d_qkv, (size_t)size);
    if (st == OK) check_samples(t, 0, kernel, out);
    if (st == OK && out->outcome == CERTIFY_PASSED) st = run(t, true, 0x42, e);
    if (st == OK && out->outcome == CERTIFY_PASSED) st = fetch(t, 0, e);
    if (st == OK && out->outcome == CERTIFY_PASSED && memcmp(before, t->d_qkv, (size_t)size) != 0)
        certify_fail(out, "stale output", "the same gradients differ when they are written over "
                     "other bytes");
    free(before);
    if (st != OK || out->outcome != CERTIFY_PASSED || t->batch == 1) return st;
    TRY(fetch(t, t->batch - 1, e));
    for (int64_t head = 0; head < t->heads; head += t->heads > 1 ? t->heads - 1 : 1)
        if (!check_forward(t, t->batch - 1, t->length - 1, head, out)) return OK;
    return OK;
}

/* A NaN in a value: the outputs after it are NaN in its column. */
static enum status try_nan(struct trial *t, struct certificate *out, struct err *e) {
    int64_t at = t->length / 2, values = t->heads + t->groups;
    TRY(put(t, at, values, f32_from_bits(0x7FC00000u), e));
    TRY(run(t, false, 0x42, e));
    TRY(fetch(t, 0, e));
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
    if (st == OK) st = fetch(&t, 0, e);
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
