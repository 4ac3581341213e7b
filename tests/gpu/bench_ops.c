/* Times of the operators on a GPU, at the sizes of llama3-small (8 x 2048 tokens): median of
 * several samples, and what that is in bytes or operations a second. Names as arguments limit it
 * to those.
 *
 * Bytes are what the operator must move, each operand once; attention counts the causal half. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/backends.h"

enum { BATCH = 8, TIME = 2048, ROWS = BATCH * TIME, WIDTH = 2048, HEADS = 16, KV = 4, DIM = 128,
       FFN = 5504, ALL = HEADS + 2 * KV, VOCAB = 128256, CHUNK = 2048, SAMPLES = 7, CALLS = 20 };

struct bench {
    struct backend *b;
    const struct backend_ops *ops;
    struct err e;
    char **only; /* names, NULL-terminated */
    struct tensor x, y, z, gain, rstd, d_gain, gate_up, h, codes, twin, scale, qkv, d_qkv, lse;
    struct tensor delta, rope, tokens, table, logits, loss, grad_scale, amax, stats, weight, m, v;
    struct tensor grad, one;
    struct tensor flag, step, sum, print, targets, bias;
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
        double us_ = sample_[SAMPLES / 2], gb_ = (bytes) / us_ * 1e-3, tf_ = (flop) / us_ * 1e-6; \
        printf("%-36s %9.1f us %8.0f GB/s %8.0f TFLOP/s\n", (name), us_, gb_, tf_);               \
        fflush(stdout);                                                                           \
    } while (0)

static struct sink coded(struct bench *t, struct tensor *value, int64_t rows, int64_t k,
                         enum scale_kind kind, enum scale_source source, bool twin) {
    struct sink s = sink_value(value, &t->amax);
    void *codes = t->codes.data, *transposed = t->twin.data;
    t->codes = tensor_fp8(codes, DTYPE_E4M3, rows, k);
    t->twin = tensor_fp8(transposed, DTYPE_E4M3, k, rows);
    t->codes.scale = scale_make(t->scale.data, kind, rows, k);
    t->twin.scale = scale_make((char *)t->scale.data + (16 << 20), kind, k, rows);
    t->codes.transposed = twin ? &t->twin : NULL;
    s.codes = &t->codes;
    s.source = source;
    s.multiplier = &t->one;
    s.stats = &t->stats;
    s.rule = (struct quant_rule){ QUANT_TE, 0, kind != SCALE_TENSOR };
    return s;
}

static enum status quantise(struct bench *t, const struct sink *s) {
    TRY(t->ops->quantise(t->b, LANE_COMPUTE, s, &t->h, &t->e));
    return t->ops->quantise_finish(t->b, LANE_COMPUTE, s, &t->e);
}

static void bench_quantise(struct bench *t) {
    static const struct {
        const char *name;
        enum scale_kind kind;
        enum scale_source source;
    } KIND[] = {
        { "known", SCALE_TENSOR, SCALE_SOURCE_KNOWN }, { "amax", SCALE_TENSOR, SCALE_SOURCE_AMAX },
        { "row", SCALE_ROW, SCALE_SOURCE_BLOCK },      { "1x128", SCALE_1X128, SCALE_SOURCE_BLOCK },
        { "128x128", SCALE_128X128, SCALE_SOURCE_BLOCK },
    };
    double n = (double)ROWS * FFN;
    for (size_t i = 0; i < sizeof KIND / sizeof *KIND; i++)
        for (int twin = 0; twin < 2; twin++) {
            struct sink s = coded(t, &t->h, ROWS, FFN, KIND[i].kind, KIND[i].source, twin);
            char name[64];
            snprintf(name, sizeof name, "quantise %s%s", KIND[i].name, twin ? " + transposed" : "");
            MEASURE(t, name, n * (3 + twin), 0.0, quantise(t, &s));
        }
}

/* Activations whose codes are made in the same kernel: the value is not kept. */
static void bench_fused(struct bench *t) {
    static const struct {
        const char *name;
        enum scale_kind kind;
        enum scale_source source;
    } KIND[] = {
        { "known", SCALE_TENSOR, SCALE_SOURCE_KNOWN }, { "1x128", SCALE_1X128, SCALE_SOURCE_BLOCK },
    };
    double f = (double)ROWS * FFN;
    for (size_t i = 0; i < sizeof KIND / sizeof *KIND; i++) {
        char name[64];
        struct sink h = coded(t, &t->h, ROWS, FFN, KIND[i].kind, KIND[i].source, true);
        h.keep_value = false;
        snprintf(name, sizeof name, "swiglu_fwd into %s", KIND[i].name);
        MEASURE(t, name, f * 6, 0.0, t->ops->swiglu_fwd(b, 0, &h, &t->gate_up, e));
        struct sink d = coded(t, &t->gate_up, ROWS, 2 * FFN, KIND[i].kind, KIND[i].source, true);
        d.keep_value = false;
        snprintf(name, sizeof name, "swiglu_bwd into %s", KIND[i].name);
        MEASURE(t, name, f * 10, 0.0, t->ops->swiglu_bwd(b, 0, &d, &t->h, &t->gate_up, e));
    }
}

static void bench_rows(struct bench *t) {
    struct sink y = sink_value(&t->y, &t->amax), h = sink_value(&t->h, &t->amax);
    struct sink g = sink_value(&t->gate_up, &t->amax), dx = sink_value(&t->d_qkv, &t->amax);
    double n = (double)ROWS * WIDTH, f = (double)ROWS * FFN;
    MEASURE(t, "rmsnorm_fwd", n * 4, 0.0,
            t->ops->rmsnorm_fwd(b, 0, &y, &t->rstd, &t->x, &t->gain, 1e-5f, e));
    MEASURE(t, "rmsnorm_bwd", n * 8, 0.0,
            t->ops->rmsnorm_bwd(b, 0, &y, &t->d_gain, &t->z, &t->x, &t->gain, &t->rstd, &t->x, e));
    MEASURE(t, "swiglu_fwd", f * 6, 0.0, t->ops->swiglu_fwd(b, 0, &h, &t->gate_up, e));
    MEASURE(t, "swiglu_bwd", f * 10, 0.0, t->ops->swiglu_bwd(b, 0, &g, &t->h, &t->gate_up, e));
    MEASURE(t, "gelu_fwd", f * 4, 0.0, t->ops->gelu_fwd(b, 0, &h, &t->h, e));
    MEASURE(t, "bias_bwd", f * 2, 0.0, t->ops->bias_bwd(b, 0, &t->bias, &t->h, e));
    double q = (double)ROWS * ALL * DIM;
    MEASURE(t, "qk_fwd (rope)", q * 4, 0.0,
            t->ops->qk_fwd(b, 0, &t->qkv, NULL, &t->qkv, NULL, NULL, &t->rope, HEADS, KV, 1e-5f,
                           e));
    MEASURE(t, "qk_bwd (rope)", q * 4, 0.0,
            t->ops->qk_bwd(b, 0, &dx, NULL, NULL, &t->d_qkv, &t->qkv, NULL, NULL, NULL, &t->rope,
                           HEADS, KV, e));
}

static void bench_attention(struct bench *t) {
    struct sink o = sink_value(&t->y, &t->amax);
    double flop = 4.0 * BATCH * HEADS * (double)TIME * TIME * DIM / 2;
    MEASURE(t, "attention_fwd B8 S2048 H16/4 D128", 0.0, flop,
            t->ops->attention_fwd(b, 0, &o, &t->lse, &t->qkv, HEADS, KV, e));
    MEASURE(t, "attention_bwd B8 S2048 H16/4 D128", 0.0, 2.5 * flop,
            t->ops->attention_bwd(b, 0, &t->d_qkv, &t->delta, &t->z, &t->y, &t->qkv, &t->lse, HEADS,
                                  KV, e));
}

static void bench_ends(struct bench *t) {
    double n = (double)ROWS * WIDTH, l = (double)CHUNK * VOCAB, w = (double)FFN * 2 * WIDTH;
    struct sink d = sink_value(&t->logits, &t->amax), weight = sink_value(&t->weight, &t->amax);
    MEASURE(t, "embedding_fwd", n * 4, 0.0,
            t->ops->embedding_fwd(b, 0, &t->x, &t->tokens, &t->table, NULL, e));
    MEASURE(t, "embedding_bwd", n * 2, 0.0,
            t->ops->embedding_bwd(b, 0, &t->table, NULL, &t->z, &t->tokens, e));
    MEASURE(t, "cross_entropy 2048 rows", l * 6, 0.0,
            t->ops->cross_entropy(b, 0, &t->loss, &d, &t->logits, &t->targets, VOCAB,
                                  &t->grad_scale, e));
    struct adamw_args a = { .weight = &weight, .m = &t->m, .v = &t->v, .grad = &t->grad,
                            .lr = &t->one, .clip = &t->one, .bias1 = &t->one, .bias2 = &t->one,
                            .step = &t->step,
                            .flag = &t->flag, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f };
    MEASURE(t, "adamw bf16", w * 14, 0.0, t->ops->adamw(b, 0, &a, 1, e));
    MEASURE(t, "sum_squares bf16", w * 2, 0.0, t->ops->sum_squares(b, 0, &t->sum, &t->grad, 1, e));
    MEASURE(t, "fingerprint bf16", w * 2, 0.0, t->ops->fingerprint(b, 0, &t->print, &t->weight, e));
}

static void make_all(struct bench *t) {
    t->x = make(t, DTYPE_BF16, ROWS, WIDTH, 1, 1);
    t->y = make(t, DTYPE_BF16, ROWS, WIDTH, 1, 1);
    t->z = make(t, DTYPE_BF16, ROWS, WIDTH, 1, 1);
    t->gain = make(t, DTYPE_BF16, WIDTH, 1, 1, 1);
    t->d_gain = make(t, DTYPE_F32, WIDTH, 1, 1, 1);
    t->rstd = make(t, DTYPE_F32, ROWS, 1, 1, 1);
    t->gate_up = make(t, DTYPE_BF16, ROWS, 2 * FFN, 1, 1);
    t->h = make(t, DTYPE_BF16, ROWS, FFN, 1, 1);
    t->codes = make(t, DTYPE_U32, ROWS, 2 * FFN / 4, 1, 1);
    t->twin = make(t, DTYPE_U32, ROWS, 2 * FFN / 4, 1, 1);
    t->scale = make(t, DTYPE_F32, 8 << 20, 1, 1, 1);
    t->qkv = make(t, DTYPE_BF16, BATCH, TIME, ALL, DIM);
    t->d_qkv = make(t, DTYPE_BF16, BATCH, TIME, ALL, DIM);
    t->lse = make(t, DTYPE_F32, BATCH, HEADS, TIME, 1);
    t->delta = make(t, DTYPE_F32, BATCH, HEADS, TIME, 1);
    t->bias = make(t, DTYPE_F32, FFN, 1, 1, 1);
    t->rope = make(t, DTYPE_F32, TIME, DIM, 1, 1);
    t->tokens = make(t, DTYPE_I32, ROWS, 1, 1, 1);
    t->table = make(t, DTYPE_BF16, VOCAB, WIDTH, 1, 1);
    t->logits = make(t, DTYPE_BF16, CHUNK, VOCAB, 1, 1);
    t->loss = make(t, DTYPE_F32, CHUNK, 1, 1, 1);
    t->weight = make(t, DTYPE_BF16, 2 * FFN, WIDTH, 1, 1);
    t->m = make(t, DTYPE_BF16, 2 * FFN, WIDTH, 1, 1);
    t->v = make(t, DTYPE_BF16, 2 * FFN, WIDTH, 1, 1);
    t->grad = make(t, DTYPE_BF16, 2 * FFN, WIDTH, 1, 1);
    t->one = t->grad_scale = make(t, DTYPE_F32, 1, 1, 1, 1);
    t->sum = make(t, DTYPE_F32, 1, 1, 1, 1);
    t->step = make(t, DTYPE_I32, 1, 1, 1, 1);
    t->flag = make(t, DTYPE_I32, 2, 1, 1, 1);
    t->amax = make(t, DTYPE_U32, 1, 1, 1, 1);
    t->stats = make(t, DTYPE_U64, 2, 1, 1, 1);
    t->print = make(t, DTYPE_U64, 1, 1, 1, 1);
    static int32_t token[ROWS];
    for (int i = 0; i < ROWS; i++) token[i] = (int32_t)rng_below(rng_bits(3, (uint64_t)i), VOCAB);
    int32_t none[2] = { -1, -1 };
    need(t, t->ops->fill(t->b, 0, &t->one, 1.0f, &t->e));
    need(t, t->ops->upload(t->b, 0, t->tokens.data, token, sizeof token, &t->e));
    need(t, t->ops->upload(t->b, 0, t->flag.data, none, sizeof none, &t->e));
    t->targets = tensor_1d(t->tokens.data, DTYPE_I32, CHUNK);
}

int main(int argc, char **argv) {
    struct bench t = { .only = argv + 1 };
    struct backend_handle handle;
    need(&t, backend_open("cuda", 0, 0, &handle, &t.e));
    t.b = handle.backend;
    t.ops = t.b->ops;
    make_all(&t);
    bench_quantise(&t);
    bench_fused(&t);
    bench_rows(&t);
    bench_attention(&t);
    bench_ends(&t);
    backend_close(&handle);
    return 0;
}
