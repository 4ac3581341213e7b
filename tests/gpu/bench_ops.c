/* Times the operators on a GPU at the sizes of one model's step: medians of several samples, and
 * bytes or operations a second.
 *
 *   bench_ops [--exact] [--model llama3-small|8b|gpt2|124m] [NAME..]
 *
 *   --exact   the forms of train.exact      NAME   only operators of that name
 *
 * Bytes count each operand once; attention counts the causal half. Operands are several times the
 * size of the L2 cache, so that the figures are memory speeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/histogram.h"
#include "runner/plan/backends.h"

enum { SAMPLES = 7, CALLS = 20 };

struct sizes {
    const char *name;
    int64_t batch, time, width, heads, kv, dim, ffn, vocab, chunk; /* chunk: rows of logits */
    bool gpt2; /* LayerNorm, GELU, biases, no rotation */
};
static const struct sizes MODEL[] = {
    { "llama3-small", 8, 2048, 2048, 16, 4, 128, 5504, 128256, 2048, false },
    { "8b", 1, 8192, 4096, 32, 8, 128, 14336, 128256, 4096, false },
    { "gpt2", 32, 1024, 768, 12, 12, 64, 3072, 50304, 8192, true },
    { "124m", 32, 1024, 768, 12, 12, 64, 2048, 50304, 8192, false },
};
enum { MODELS = sizeof MODEL / sizeof *MODEL };

struct bench {
    struct backend *b;
    const struct backend_ops *ops;
    struct err e;
    char **only; /* names, NULL-terminated */
    struct sizes s;
    int64_t rows, in, all; /* batch * time; width of the ffn's input; heads of q, k and v */
    struct tensor x, y, z, residual, gain, mean, rstd, d_gain, d_bias, gate_up, d_gate_up, h;
    struct tensor codes, twin, scale, qkv, d_qkv, lse, delta, rope, tokens, table, logits, loss;
    struct tensor grad_scale, amax, stats, weight, m, v, grad, one, flag, step, sum, print, counts;
    struct tensor targets, bias;
};

static void need(struct bench *t, enum status st) {
    if (st == OK) return;
    fprintf(stderr, "%s\n", t->e.text);
    exit(1);
}

static struct tensor make(struct bench *t, enum dtype type, int64_t d0, int64_t d1, int64_t d2,
                          int64_t d3) {
    void *data;
    int64_t bytes = d0 * d1 * d2 * d3 * dtype_bytes(type);
    need(t, t->ops->memory_create(t->b, "bench", bytes, &data, &t->e));
    struct tensor x = tensor_make(data, type, d0, d1, d2, d3);
    if (type == DTYPE_F32 || type == DTYPE_BF16)
        need(t, t->ops->fill_normal(t->b, LANE_COMPUTE, &x, 1.0f, 1, (uint32_t)(d0 + d1), 0,
                                    &t->e));
    return x;
}

static double now_us(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec * 1e6 + (double)s.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool wanted(const struct bench *t, const char *name) {
    if (!*t->only) return true;
    for (char **n = t->only; *n; n++)
        if (strstr(name, *n)) return true;
    return false;
}

#define MEASURE(t, name, bytes, flop, call)                                                       \
    do {                                                                                          \
        if (!wanted((t), (name))) break;                                                          \
        double sample_[SAMPLES];                                                                  \
        struct backend *b = (t)->b;                                                               \
        struct err *e = &(t)->e;                                                                  \
        for (int i_ = -1; i_ < SAMPLES; i_++) {                                                   \
            need((t), (t)->ops->sync(b, e));                                                      \
            double start_ = now_us();                                                             \
            for (int j_ = 0; j_ < CALLS; j_++) need((t), (call));                                 \
            need((t), (t)->ops->sync(b, e));                                                      \
            if (i_ >= 0) sample_[i_] = (now_us() - start_) / CALLS;                               \
        }                                                                                         \
        qsort(sample_, SAMPLES, sizeof *sample_, ascending);                                      \
        double us_ = sample_[SAMPLES / 2], tb_ = (bytes) / us_ * 1e-6, tf_ = (flop) / us_ * 1e-6; \
        printf("%-36s %9.1f us", (name), us_);                                                    \
        if (tb_ > 0) printf(" %8.2f TB/s", tb_);                                                  \
        if (tf_ > 0) printf(" %8.0f TFLOP/s", tf_);                                               \
        printf("\n");                                                                             \
        fflush(stdout);                                                                           \
    } while (0)

/* ---- codes ---- */

static const struct into {
    const char *name;
    enum scale_kind kind;
    enum scale_source source;
} INTO[] = {
    { "known", SCALE_TENSOR, SCALE_SOURCE_KNOWN },     { "amax", SCALE_TENSOR, SCALE_SOURCE_AMAX },
    { "row", SCALE_ROW, SCALE_SOURCE_BLOCK },          { "1x128", SCALE_1X128, SCALE_SOURCE_BLOCK },
    { "128x128", SCALE_128X128, SCALE_SOURCE_BLOCK },
};
enum { INTOS = sizeof INTO / sizeof *INTO };

static struct sink coded(struct bench *t, struct tensor *value, int64_t rows, int64_t k,
                         const struct into *into, bool twin) {
    struct sink s = sink_value(value, &t->amax);
    void *codes = t->codes.data, *transposed = t->twin.data;
    t->codes = tensor_fp8(codes, DTYPE_E4M3, rows, k);
    t->twin = tensor_fp8(transposed, DTYPE_E4M3, k, rows);
    t->codes.scale = scale_make(t->scale.data, into->kind, rows, k);
    t->twin.scale = scale_make((char *)t->scale.data + (16 << 20), into->kind, k, rows);
    t->codes.transposed = twin ? &t->twin : NULL;
    s.codes = &t->codes;
    s.source = into->source;
    s.multiplier = &t->one;
    s.stats = &t->stats;
    s.rule = (struct quant_rule){ QUANT_TE, 0, into->kind != SCALE_TENSOR };
    s.keep_value = false;
    s.own_amax = true;
    return s;
}

static enum status quantise(struct bench *t, const struct sink *s, const struct tensor *x) {
    TRY(t->ops->quantise(t->b, LANE_COMPUTE, s, x, &t->e));
    return t->ops->quantise_finish(t->b, LANE_COMPUTE, s, &t->e);
}

static void bench_quantise(struct bench *t) {
    int64_t f = t->s.ffn;
    double n = (double)t->rows * (double)f;
    struct tensor to = tensor_2d(t->d_gate_up.data, DTYPE_BF16, t->rows, f);
    MEASURE(t, "copy", n * 4, 0.0, t->ops->copy(b, LANE_COMPUTE, &to, &t->h, e));
    for (int i = 0; i < INTOS; i++)
        for (int twin = 0; twin < 2; twin++) {
            struct sink s = coded(t, &t->h, t->rows, f, &INTO[i], twin);
            char name[64];
            snprintf(name, sizeof name, "quantise %s%s", INTO[i].name, twin ? " + transposed" : "");
            MEASURE(t, name, n * (3 + twin), 0.0, quantise(t, &s, &t->h));
        }
}

/* Producers into codes and their transpose, including quantise_finish. Only dx of a norm is also
 * kept as a value. */
static enum status finish(struct bench *t, enum status st, const struct sink *s) {
    return st == OK ? t->ops->quantise_finish(t->b, LANE_COMPUTE, s, &t->e) : st;
}

static void bench_into(struct bench *t, const struct into *into) {
    const struct backend_ops *ops = t->ops;
    int64_t r = t->rows, c = t->s.width, f = t->s.ffn;
    double n = (double)r * (double)c, g = (double)r * (double)f;
    char name[64];
#define NAMED(text) (snprintf(name, sizeof name, text " into %s", into->name), name)
    struct sink y = coded(t, &t->y, r, c, into, true);
    if (t->s.gpt2)
        MEASURE(t, NAMED("layernorm_fwd"), n * 4, 0.0,
                finish(t, ops->layernorm_fwd(b, 0, &(struct norm_fwd_args){
                    .y = &y, .mean = &t->mean, .rstd = &t->rstd, .x = &t->x, .gain = &t->gain,
                    .bias = &t->gain, .eps = 1e-5f }, e), &y));
    else
        MEASURE(t, NAMED("rmsnorm_fwd"), n * 4, 0.0,
                finish(t, ops->rmsnorm_fwd(b, 0, &(struct norm_fwd_args){
                    .y = &y, .rstd = &t->rstd, .x = &t->x, .gain = &t->gain,
                    .eps = 1e-5f }, e), &y));
    y.keep_value = true;
    if (t->s.gpt2)
        MEASURE(t, NAMED("layernorm_bwd"), n * 10, 0.0,
                finish(t, ops->layernorm_bwd(b, 0, &(struct norm_bwd_args){
                    .dx = &y, .d_gain = &t->d_gain, .d_bias = &t->d_bias, .dy = &t->z, .x = &t->x,
                    .gain = &t->gain, .mean = &t->mean, .rstd = &t->rstd,
                    .residual = &t->residual }, e), &y));
    else
        MEASURE(t, NAMED("rmsnorm_bwd"), n * 10, 0.0,
                finish(t, ops->rmsnorm_bwd(b, 0, &(struct norm_bwd_args){
                    .dx = &y, .d_gain = &t->d_gain, .dy = &t->z, .x = &t->x, .gain = &t->gain,
                    .rstd = &t->rstd, .residual = &t->residual }, e), &y));
    struct sink h = coded(t, &t->h, r, f, into, true);
    if (t->s.gpt2)
        MEASURE(t, NAMED("gelu_fwd"), g * 4, 0.0,
                finish(t, ops->gelu_fwd(b, 0, &h, &t->gate_up, e), &h));
    else
        MEASURE(t, NAMED("swiglu_fwd"), g * 6, 0.0,
                finish(t, ops->swiglu_fwd(b, 0, &h, &t->gate_up, e), &h));
    struct sink d = coded(t, &t->d_gate_up, r, t->in, into, true);
    if (t->s.gpt2) {
        MEASURE(t, NAMED("gelu_bwd"), g * 6, 0.0,
                finish(t, ops->gelu_bwd(b, 0, &d, &t->h, &t->gate_up, e), &d));
        d.sums = &t->bias;
        MEASURE(t, NAMED("gelu_bwd with sums"), g * 6, 0.0,
                finish(t, ops->gelu_bwd(b, 0, &d, &t->h, &t->gate_up, e), &d));
    } else {
        MEASURE(t, NAMED("swiglu_bwd"), g * 10, 0.0,
                finish(t, ops->swiglu_bwd(b, 0, &d, &t->h, &t->gate_up, e), &d));
    }
    struct sink dx = coded(t, &t->d_qkv, r, t->all * t->s.dim, into, true);
    double q = (double)r * (double)(t->all * t->s.dim);
    MEASURE(t, NAMED("qk_bwd"), q * 4, 0.0,
            finish(t, ops->qk_bwd(b, 0, &(struct qk_bwd_args){
                .dx = &dx, .d_out = &t->d_qkv, .in = &t->qkv, .rope = t->s.gpt2 ? NULL : &t->rope,
                .heads = t->s.heads, .kv_heads = t->s.kv }, e), &dx));
#undef NAMED
}

/* ---- values ---- */

static void bench_norms(struct bench *t) {
    const struct backend_ops *ops = t->ops;
    struct sink y = sink_value(&t->y, &t->amax);
    double n = (double)t->rows * (double)t->s.width;
    if (t->s.gpt2) {
        MEASURE(t, "layernorm_fwd", n * 4, 0.0,
                ops->layernorm_fwd(b, 0, &(struct norm_fwd_args){
                    .y = &y, .mean = &t->mean, .rstd = &t->rstd, .x = &t->x, .gain = &t->gain,
                    .bias = &t->gain, .eps = 1e-5f }, e));
        MEASURE(t, "layernorm_bwd", n * 8, 0.0,
                ops->layernorm_bwd(b, 0, &(struct norm_bwd_args){
                    .dx = &y, .d_gain = &t->d_gain, .d_bias = &t->d_bias, .dy = &t->z, .x = &t->x,
                    .gain = &t->gain, .mean = &t->mean, .rstd = &t->rstd,
                    .residual = &t->residual }, e));
        y.sums = &t->d_bias;
        MEASURE(t, "layernorm_bwd with sums", n * 8, 0.0,
                ops->layernorm_bwd(b, 0, &(struct norm_bwd_args){
                    .dx = &y, .d_gain = &t->d_gain, .d_bias = &t->d_bias, .dy = &t->z, .x = &t->x,
                    .gain = &t->gain, .mean = &t->mean, .rstd = &t->rstd,
                    .residual = &t->residual }, e));
        return;
    }
    MEASURE(t, "rmsnorm_fwd", n * 4, 0.0,
            ops->rmsnorm_fwd(b, 0, &(struct norm_fwd_args){
                .y = &y, .rstd = &t->rstd, .x = &t->x, .gain = &t->gain, .eps = 1e-5f }, e));
    MEASURE(t, "rmsnorm_bwd", n * 8, 0.0,
            ops->rmsnorm_bwd(b, 0, &(struct norm_bwd_args){
                .dx = &y, .d_gain = &t->d_gain, .dy = &t->z, .x = &t->x, .gain = &t->gain,
                .rstd = &t->rstd, .residual = &t->residual }, e));
}

static void bench_rows(struct bench *t) {
    const struct backend_ops *ops = t->ops;
    struct sink h = sink_value(&t->h, &t->amax), g = sink_value(&t->d_gate_up, &t->amax);
    struct sink dx = sink_value(&t->d_qkv, &t->amax);
    double f = (double)t->rows * (double)t->s.ffn, q = (double)tensor_count(&t->qkv);
    if (t->s.gpt2) {
        MEASURE(t, "gelu_fwd", f * 4, 0.0, ops->gelu_fwd(b, 0, &h, &t->gate_up, e));
        MEASURE(t, "gelu_bwd", f * 6, 0.0, ops->gelu_bwd(b, 0, &g, &t->h, &t->gate_up, e));
        g.sums = &t->bias;
        MEASURE(t, "gelu_bwd with sums", f * 6, 0.0,
                ops->gelu_bwd(b, 0, &g, &t->h, &t->gate_up, e));
        struct sink of_h = sink_value(&t->h, NULL), of_x = sink_value(&t->x, NULL);
        of_h.sums = &t->bias;
        of_x.sums = &t->d_bias;
        MEASURE(t, "column sums, ffn", f * 2, 0.0, ops->quantise(b, 0, &of_h, &t->h, e));
        MEASURE(t, "column sums, width", (double)tensor_count(&t->x) * 2, 0.0,
                ops->quantise(b, 0, &of_x, &t->x, e));
    } else {
        MEASURE(t, "swiglu_fwd", f * 6, 0.0, ops->swiglu_fwd(b, 0, &h, &t->gate_up, e));
        MEASURE(t, "swiglu_bwd", f * 10, 0.0, ops->swiglu_bwd(b, 0, &g, &t->h, &t->gate_up, e));
        MEASURE(t, "qk_fwd (rope)", q * 4, 0.0,
                ops->qk_fwd(b, 0, &(struct qk_fwd_args){
                    .out = &t->qkv, .in = &t->qkv, .rope = &t->rope, .heads = t->s.heads,
                    .kv_heads = t->s.kv, .eps = 1e-5f }, e));
    }
    MEASURE(t, t->s.gpt2 ? "qk_bwd (amax alone)" : "qk_bwd (rope)", q * (t->s.gpt2 ? 2 : 4), 0.0,
            ops->qk_bwd(b, 0, &(struct qk_bwd_args){
                .dx = &dx, .d_out = &t->d_qkv, .in = &t->qkv, .rope = t->s.gpt2 ? NULL : &t->rope,
                .heads = t->s.heads, .kv_heads = t->s.kv }, e));
}

static void bench_attention(struct bench *t) {
    struct sink o = sink_value(&t->y, &t->amax), d_qkv = sink_value(&t->d_qkv, &t->amax);
    double flop = 4.0 * (double)(t->s.batch * t->s.heads * t->s.time * t->s.time * t->s.dim) / 2;
    MEASURE(t, "attention_fwd", 0.0, flop,
            t->ops->attention_fwd(b, 0, &(struct attention_fwd_args){
                .o = &o, .lse = &t->lse, .qkv = &t->qkv, .heads = t->s.heads,
                .kv_heads = t->s.kv }, e));
    MEASURE(t, "attention_bwd", 0.0, 2.5 * flop,
            t->ops->attention_bwd(b, 0, &(struct attention_bwd_args){
                .d_qkv = &d_qkv, .delta = &t->delta, .d_o = &t->z, .o = &t->y, .qkv = &t->qkv,
                .lse = &t->lse, .heads = t->s.heads, .kv_heads = t->s.kv }, e));
    if (!t->s.gpt2) return;
    struct tensor bias = tensor_make(t->bias.data, DTYPE_F32, t->all * t->s.dim, 1, 1, 1);
    d_qkv.sums = &bias;
    MEASURE(t, "attention_bwd with sums", 0.0, 2.5 * flop,
            t->ops->attention_bwd(b, 0, &(struct attention_bwd_args){
                .d_qkv = &d_qkv, .delta = &t->delta, .d_o = &t->z, .o = &t->y, .qkv = &t->qkv,
                .lse = &t->lse, .heads = t->s.heads, .kv_heads = t->s.kv }, e));
}

static void bench_ends(struct bench *t) {
    const struct backend_ops *ops = t->ops;
    double n = (double)tensor_count(&t->x), l = (double)tensor_count(&t->logits);
    double w = (double)tensor_count(&t->weight);
    struct sink d = sink_value(&t->logits, &t->amax), weight = sink_value(&t->weight, &t->amax);
    MEASURE(t, "embedding_fwd", n * 4, 0.0,
            ops->embedding_fwd(b, 0, &t->x, &t->tokens, &t->table, NULL, NULL, e));
    MEASURE(t, "embedding_bwd", n * 2, 0.0,
            ops->embedding_bwd(b, 0, &t->table, NULL, &t->z, &t->tokens, NULL, e));
    MEASURE(t, "cross_entropy", l * 4, 0.0,
            ops->cross_entropy(b, 0, &(struct cross_entropy_args){
                .loss = &t->loss, .d_logits = &d, .logits = &t->logits, .targets = &t->targets,
                .vocab = t->s.vocab, .grad_scale = &t->grad_scale }, e));
    struct adamw_args a = { .weight = &weight, .m = &t->m, .v = &t->v, .grad = &t->grad,
                            .lr = &t->one, .clip = &t->one, .bias1 = &t->one, .bias2 = &t->one,
                            .step = &t->step,
                            .flag = &t->flag, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f };
    MEASURE(t, "adamw bf16", w * 14, 0.0, ops->adamw(b, 0, &a, 1, e));
    MEASURE(t, "sum_squares bf16", w * 2, 0.0, ops->sum_squares(b, 0, &t->sum, &t->grad, 1, e));
    MEASURE(t, "fingerprint bf16", w * 2, 0.0, ops->fingerprint(b, 0, &t->print, &t->weight, e));
    MEASURE(t, "histogram bf16", w * 2, 0.0, ops->histogram(b, 0, &t->counts, &t->weight, e));
}

/* ---- the optimizer ---- */

enum { LAYERS = 3, WEIGHTS = 4 * LAYERS }; /* weights of one call, in the order of a step */

struct weight {
    struct tensor value, m, v, grad, codes, twin;
    struct sink sink;
};

static void make_weight(struct bench *t, struct weight *w, int64_t rows, int64_t k) {
    struct tensor *half[] = { &w->value, &w->m, &w->v, &w->grad };
    for (int i = 0; i < 4; i++) *half[i] = make(t, DTYPE_BF16, rows, k, 1, 1);
    need(t, t->ops->fill(t->b, 0, &w->v, 1.0f, &t->e));
    w->codes = tensor_fp8(make(t, DTYPE_U32, rows, k / 4, 1, 1).data, DTYPE_E4M3, rows, k);
    w->twin = tensor_fp8(make(t, DTYPE_U32, k, rows / 4, 1, 1).data, DTYPE_E4M3, k, rows);
    w->codes.transposed = &w->twin;
    w->codes.scale.data = make(t, DTYPE_F32, rows, ceil_div(k, 128), 1, 1).data;
    w->twin.scale.data = make(t, DTYPE_F32, k, ceil_div(rows, 128), 1, 1).data;
}

/* into NULL: values without codes. */
static struct sink weight_into(struct bench *t, struct weight *w, const struct into *into) {
    struct sink s = sink_value(&w->value, &t->amax);
    if (!into) return s;
    int64_t rows = w->value.dim[0], k = w->value.dim[1];
    w->codes.scale = scale_make(w->codes.scale.data, into->kind, rows, k);
    w->twin.scale = scale_make(w->twin.scale.data, into->kind, k, rows);
    s.codes = &w->codes;
    s.source = into->source;
    s.multiplier = &t->one;
    s.stats = &t->stats;
    s.rule = (struct quant_rule){ QUANT_TE, 0, into->kind != SCALE_TENSOR };
    return s;
}

static enum status adamw(struct bench *t, const struct adamw_args *args) {
    TRY(t->ops->adamw(t->b, LANE_COMPUTE, args, WEIGHTS, &t->e));
    for (int i = 0; i < WEIGHTS; i++)
        TRY(t->ops->quantise_finish(t->b, LANE_COMPUTE, args[i].weight, &t->e));
    return OK;
}

/* The weights of a few layers, including quantise_finish. */
static void bench_adamw(struct bench *t) {
    int64_t c = t->s.width, o = t->s.heads * t->s.dim;
    const int64_t rows[4] = { t->all * t->s.dim, c, t->in, c }, cols[4] = { c, o, c, t->s.ffn };
    struct weight w[WEIGHTS];
    struct adamw_args args[WEIGHTS];
    struct tensor rate = make(t, DTYPE_F32, 1, 1, 1, 1); /* small: weights keep their size */
    need(t, t->ops->fill(t->b, 0, &rate, 1e-4f, &t->e));
    double n = 0;
    for (int i = 0; i < WEIGHTS; i++) {
        make_weight(t, &w[i], rows[i % 4], cols[i % 4]);
        n += (double)tensor_count(&w[i].value);
        args[i] = (struct adamw_args){
            .weight = &w[i].sink, .m = &w[i].m, .v = &w[i].v, .grad = &w[i].grad, .lr = &rate,
            .clip = &t->one, .bias1 = &t->one, .bias2 = &t->one, .step = &t->step,
            .flag = &t->flag, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
            .tensor_id = (uint32_t)i,
        };
    }
    for (int k = -1; k < INTOS; k++) {
        char name[64] = "adamw, layers";
        if (k >= 0) snprintf(name, sizeof name, "adamw, layers into %s", INTO[k].name);
        for (int i = 0; i < WEIGHTS; i++)
            w[i].sink = weight_into(t, &w[i], k < 0 ? NULL : &INTO[k]);
        MEASURE(t, name, n * (k < 0 ? 14 : 16), 0.0, adamw(t, args));
    }
}

/* ---- operands ---- */

static void make_activations(struct bench *t) {
    int64_t r = t->rows, c = t->s.width, f = t->s.ffn;
    int64_t widest = t->in > t->all * t->s.dim ? t->in : t->all * t->s.dim;
    t->x = make(t, DTYPE_BF16, r, c, 1, 1);
    t->y = make(t, DTYPE_BF16, r, c, 1, 1);
    t->z = make(t, DTYPE_BF16, r, c, 1, 1);
    t->residual = make(t, DTYPE_BF16, r, c, 1, 1);
    t->gain = make(t, DTYPE_BF16, c, 1, 1, 1);
    t->d_gain = make(t, DTYPE_F32, c, 1, 1, 1);
    t->d_bias = make(t, DTYPE_F32, c, 1, 1, 1);
    t->mean = make(t, DTYPE_F32, r, 1, 1, 1);
    t->rstd = make(t, DTYPE_F32, r, 1, 1, 1);
    t->gate_up = make(t, DTYPE_BF16, r, t->in, 1, 1);
    t->d_gate_up = make(t, DTYPE_BF16, r, t->in, 1, 1);
    t->h = make(t, DTYPE_BF16, r, f, 1, 1);
    t->bias = make(t, DTYPE_F32, f, 1, 1, 1);
    t->codes = make(t, DTYPE_U32, r, widest / 4, 1, 1);
    t->twin = make(t, DTYPE_U32, r, widest / 4, 1, 1);
    t->scale = make(t, DTYPE_F32, 8 << 20, 1, 1, 1);
    t->qkv = make(t, DTYPE_BF16, t->s.batch, t->s.time, t->all, t->s.dim);
    t->d_qkv = make(t, DTYPE_BF16, t->s.batch, t->s.time, t->all, t->s.dim);
    t->lse = make(t, DTYPE_F32, t->s.batch, t->s.heads, t->s.time, 1);
    t->delta = make(t, DTYPE_F32, t->s.batch, t->s.heads, t->s.time, 1);
    t->rope = make(t, DTYPE_F32, t->s.time, t->s.dim, 1, 1);
}

static void make_ends(struct bench *t) {
    t->tokens = make(t, DTYPE_I32, t->rows, 1, 1, 1);
    t->table = make(t, DTYPE_BF16, t->s.vocab, t->s.width, 1, 1);
    t->logits = make(t, DTYPE_BF16, t->s.chunk, t->s.vocab, 1, 1);
    t->loss = make(t, DTYPE_F32, t->s.chunk, 1, 1, 1);
    struct tensor *of_weight[] = { &t->weight, &t->m, &t->v, &t->grad };
    for (int i = 0; i < 4; i++) *of_weight[i] = make(t, DTYPE_BF16, t->in, t->s.width, 1, 1);
    t->one = t->grad_scale = make(t, DTYPE_F32, 1, 1, 1, 1);
    t->sum = make(t, DTYPE_F32, 1, 1, 1, 1);
    t->step = make(t, DTYPE_I32, 1, 1, 1, 1);
    t->flag = make(t, DTYPE_I32, 2, 1, 1, 1);
    t->amax = make(t, DTYPE_U32, 1, 1, 1, 1);
    t->stats = make(t, DTYPE_U64, 2, 1, 1, 1);
    t->print = make(t, DTYPE_U64, 1, 1, 1, 1);
    t->counts = make(t, DTYPE_U64, HISTOGRAM_COUNTS, 1, 1, 1);
    int32_t *token = malloc((size_t)t->rows * 4), none[2] = { -1, -1 };
    if (!token) exit(1);
    for (int64_t i = 0; i < t->rows; i++)
        token[i] = (int32_t)rng_below(rng_bits(3, (uint64_t)i), (uint32_t)t->s.vocab);
    need(t, t->ops->fill(t->b, 0, &t->one, 1.0f, &t->e));
    need(t, t->ops->fill(t->b, 0, &t->v, 1.0f, &t->e)); /* a second moment is not negative */
    need(t, t->ops->upload(t->b, 0, t->tokens.data, token, t->rows * 4, &t->e));
    need(t, t->ops->upload(t->b, 0, t->flag.data, none, sizeof none, &t->e));
    t->targets = tensor_1d(t->tokens.data, DTYPE_I32, t->s.chunk);
    free(token);
}

int main(int argc, char **argv) {
    bool exact = argc > 1 && !strcmp(argv[1], "--exact");
    argc -= exact;
    argv += exact;
    struct bench t = { .only = argv + 1, .s = MODEL[0] };
    if (argc > 2 && !strcmp(argv[1], "--model")) {
        t.only = argv + 3;
        for (int i = 0; i < MODELS; i++)
            if (!strcmp(argv[2], MODEL[i].name)) t.s = MODEL[i];
    }
    t.rows = t.s.batch * t.s.time;
    t.in = t.s.gpt2 ? t.s.ffn : 2 * t.s.ffn;
    t.all = t.s.heads + 2 * t.s.kv;
    struct backend_handle handle;
    need(&t, backend_open("cuda", 0, 0, &handle, &t.e));
    t.b = handle.backend;
    t.ops = t.b->ops;
    need(&t, t.ops->set_exact(t.b, exact, &t.e));
    make_activations(&t);
    make_ends(&t);
    printf("%s: %lld rows\n", t.s.name, (long long)t.rows);
    bench_quantise(&t);
    for (int i = 0; i < INTOS; i++) bench_into(&t, &INTO[i]);
    bench_norms(&t);
    bench_rows(&t);
    bench_attention(&t);
    bench_ends(&t);
    bench_adamw(&t);
    backend_close(&handle);
    return 0;
}
