/* Hashes of the results of every operator but quantise on seeded inputs, a NaN among them. Each is
 * one line, compared with ops.txt on every architecture and for every thread count. Links kernels
 * only. */
#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/histogram.h"

enum { B = 2, T = 70, R = B * T, C = 75, H = 4, G = 2, D = 24, F = 130, V = 300, VP = 304,
       N = 1500 };

struct golden {
    struct backend *b;
    const struct backend_ops *ops;
    struct err e;
    void *memory[512]; /* owned: allocations of make() since the last release() */
    int count;
};

static void must(const struct golden *g, enum status st) {
    if (st == OK) return;
    fprintf(stderr, "%s\n", g->e.text);
    exit(1);
}

static void release(struct golden *g) {
    while (g->count) g->ops->memory_destroy(g->b, g->memory[--g->count]);
}

/* Elements k/64 with k uniform in [-128, 128): exact in every dtype here; zeroed for seed 0. */
static struct tensor make(struct golden *g, enum dtype t, uint64_t seed, int64_t d0, int64_t d1,
                          int64_t d2, int64_t d3) {
    struct tensor x = tensor_make(NULL, t, d0, d1, d2, d3);
    must(g, g->ops->memory_create(g->b, "golden", tensor_count(&x) * dtype_bytes(t), &x.data,
                                  &g->e));
    g->memory[g->count++] = x.data;
    for (int64_t i = 0; seed && i < tensor_count(&x); i++) {
        float value = (float)((int)rng_below(rng_bits(seed, (uint64_t)i), 256) - 128) / 64;
        if (t == DTYPE_F32) ((float *)x.data)[i] = value;
        else ((uint16_t *)x.data)[i] = bf16_encode(value);
    }
    return x;
}

static struct tensor scalar(struct golden *g, float x) {
    struct tensor t = make(g, DTYPE_F32, 0, 1, 1, 1, 1);
    *(float *)t.data = x;
    return t;
}

static struct tensor indices(struct golden *g, int64_t n, uint32_t below) {
    struct tensor t = make(g, DTYPE_I32, 0, n, 1, 1, 1);
    int32_t *out = t.data;
    for (int64_t i = 0; i < n; i++) out[i] = (int32_t)rng_below(rng_bits(9, (uint64_t)i), below);
    return t;
}

static void print(struct golden *g, const char *name, const struct tensor *x) {
    uint64_t out = 0;
    struct tensor t = tensor_1d(&out, DTYPE_U64, 1);
    must(g, g->ops->fingerprint(g->b, LANE_COMPUTE, &t, x, &g->e));
    printf("%-24s %016" PRIx64 "\n", name, out);
}

static void norms(struct golden *g, enum dtype t) {
    struct tensor x = make(g, t, 1, R, C, 1, 1), gain = make(g, t, 2, C, 1, 1, 1);
    struct tensor bias = make(g, t, 3, C, 1, 1, 1);
    struct tensor dy = make(g, t, 4, R, C, 1, 1), residual = make(g, t, 5, R, C, 1, 1);
    struct tensor y = make(g, t, 0, R, C, 1, 1);
    struct tensor mean = make(g, DTYPE_F32, 0, R, 1, 1, 1);
    struct tensor rstd = make(g, DTYPE_F32, 0, R, 1, 1, 1);
    struct tensor d_gain = make(g, DTYPE_F32, 6, C, 1, 1, 1);
    struct tensor d_bias = make(g, DTYPE_F32, 7, C, 1, 1, 1);
    struct sink s = sink_value(&y, NULL);
    must(g, g->ops->rmsnorm_fwd(g->b, 0, &(struct norm_fwd_args){
            .y = &s, .rstd = &rstd, .x = &x, .gain = &gain, .eps = 1e-5f }, &g->e));
    print(g, "rmsnorm y", &y);
    print(g, "rmsnorm rstd", &rstd);
    must(g, g->ops->rmsnorm_bwd(g->b, 0, &(struct norm_bwd_args){
            .dx = &s, .d_gain = &d_gain, .dy = &dy, .x = &x, .gain = &gain, .rstd = &rstd,
            .residual = &residual }, &g->e));
    print(g, "rmsnorm dx", &y);
    print(g, "rmsnorm d_gain", &d_gain);
    must(g, g->ops->layernorm_fwd(g->b, 0, &(struct norm_fwd_args){
            .y = &s, .mean = &mean, .rstd = &rstd, .x = &x, .gain = &gain, .bias = &bias,
            .eps = 1e-5f }, &g->e));
    print(g, "layernorm y", &y);
    print(g, "layernorm rstd", &rstd);
    must(g, g->ops->layernorm_bwd(g->b, 0, &(struct norm_bwd_args){
            .dx = &s, .d_gain = &d_gain, .d_bias = &d_bias, .dy = &dy, .x = &x, .gain = &gain,
            .mean = &mean, .rstd = &rstd }, &g->e));
    print(g, "layernorm dx", &y);
    print(g, "layernorm d_gain", &d_gain);
    print(g, "layernorm d_bias", &d_bias);
    struct sink sums = sink_value(&dy, NULL);
    sums.sums = &d_bias;
    must(g, g->ops->quantise(g->b, 0, &sums, &dy, &g->e));
    print(g, "bias d_bias", &d_bias);
    release(g);
}

static void attention(struct golden *g, enum dtype t, bool nan) {
    struct tensor in = make(g, t, 11, B, T, H + 2 * G, D), qkv = make(g, t, 0, B, T, H + 2 * G, D);
    struct tensor d_qkv = make(g, t, 0, B, T, H + 2 * G, D), d_o = make(g, t, 12, R, H * D, 1, 1);
    struct tensor o = make(g, t, 0, R, H * D, 1, 1), lse = make(g, DTYPE_F32, 0, B, H, T, 1);
    struct tensor delta = make(g, DTYPE_F32, 0, B, H, T, 1);
    struct tensor rope = make(g, DTYPE_F32, 13, T, D, 1, 1);
    struct tensor gain = make(g, t, 14, D, 1, 1, 1), rstd = make(g, DTYPE_F32, 0, B, T, H + G, 1);
    struct tensor d_gain_q = make(g, DTYPE_F32, 0, D, 1, 1, 1);
    struct tensor d_gain_k = make(g, DTYPE_F32, 0, D, 1, 1, 1);
    if (nan) { /* one value of one key: it reaches every result that reads it, and no other */
        uint32_t bits = t == DTYPE_F32 ? 0xFFC00001u : 0xFFC1u;
        memcpy((char *)in.data + (30 * (H + 2 * G) + H + G) * D * dtype_bytes(t), &bits,
               (size_t)dtype_bytes(t));
    }
    struct sink s = sink_value(&o, NULL), dx = sink_value(&d_qkv, NULL);
    must(g, g->ops->qk_fwd(g->b, 0, &(struct qk_fwd_args){
            .out = &qkv, .rstd = &rstd, .in = &in, .gain_q = &gain, .gain_k = &gain, .rope = &rope,
            .heads = H, .kv_heads = G, .eps = 1e-6f }, &g->e));
    print(g, "qk out", &qkv);
    must(g, g->ops->attention_fwd(g->b, 0, &(struct attention_fwd_args){
            .o = &s, .lse = &lse, .qkv = &qkv, .heads = H, .kv_heads = G }, &g->e));
    print(g, "attention o", &o);
    print(g, "attention lse", &lse);
    must(g, g->ops->attention_bwd(g->b, 0, &(struct attention_bwd_args){
            .d_qkv = &dx, .delta = &delta, .d_o = &d_o, .o = &o, .qkv = &qkv, .lse = &lse,
            .heads = H, .kv_heads = G }, &g->e));
    print(g, "attention d_qkv", &d_qkv);
    must(g, g->ops->qk_bwd(g->b, 0, &(struct qk_bwd_args){
            .dx = &dx, .d_gain_q = &d_gain_q, .d_gain_k = &d_gain_k, .d_out = &d_qkv, .in = &in,
            .gain_q = &gain, .gain_k = &gain, .rstd = &rstd, .rope = &rope, .heads = H,
            .kv_heads = G }, &g->e));
    print(g, "qk dx", &d_qkv);
    print(g, "qk d_gain_q", &d_gain_q);
    print(g, "qk d_gain_k", &d_gain_k);
    struct tensor positions = indices(g, R, T);
    must(g, g->ops->qk_fwd(g->b, 0, &(struct qk_fwd_args){
            .out = &qkv, .rstd = &rstd, .in = &in, .gain_q = &gain, .gain_k = &gain, .rope = &rope,
            .positions = &positions, .heads = H, .kv_heads = G, .eps = 1e-6f }, &g->e));
    print(g, "qk out, positions", &qkv);
    must(g, g->ops->qk_bwd(g->b, 0, &(struct qk_bwd_args){
            .dx = &dx, .d_gain_q = &d_gain_q, .d_gain_k = &d_gain_k, .d_out = &qkv, .in = &in,
            .gain_q = &gain, .gain_k = &gain, .rstd = &rstd, .rope = &rope,
            .positions = &positions, .heads = H, .kv_heads = G }, &g->e));
    print(g, "qk dx, positions", &d_qkv);
    struct tensor scores = make(g, t, 15, H, T, T, 1), dp = make(g, t, 16, H, T, T, 1);
    must(g, g->ops->softmax_fwd(g->b, 0, &scores, &scores, 0.25f, &g->e));
    print(g, "softmax p", &scores);
    must(g, g->ops->softmax_bwd(g->b, 0, &dp, &scores, &dp, 0.25f, &g->e));
    print(g, "softmax ds", &dp);
    release(g);
}

static void feed_forward(struct golden *g, enum dtype t) {
    struct tensor x = make(g, t, 21, R, 2 * F, 1, 1), dh = make(g, t, 22, R, F, 1, 1);
    struct tensor h = make(g, t, 0, R, F, 1, 1);
    struct tensor wide = make(g, t, 23, R, 2 * F, 1, 1), dx = make(g, t, 0, R, 2 * F, 1, 1);
    struct sink s = sink_value(&h, NULL), d = sink_value(&dx, NULL);
    must(g, g->ops->swiglu_fwd(g->b, 0, &s, &x, &g->e));
    print(g, "swiglu h", &h);
    must(g, g->ops->swiglu_bwd(g->b, 0, &d, &dh, &x, &g->e));
    print(g, "swiglu dx", &dx);
    must(g, g->ops->gelu_fwd(g->b, 0, &d, &x, &g->e));
    print(g, "gelu h", &dx);
    must(g, g->ops->gelu_bwd(g->b, 0, &d, &wide, &x, &g->e));
    print(g, "gelu dx", &dx);
    struct tensor a = make(g, t, 24, R, F, 1, 1), w = make(g, t, 25, C, F, 1, 1);
    struct tensor out = make(g, t, 0, R, C, 1, 1);
    struct matmul_args m = { .out = &out, .a = &a, .b = &w };
    must(g, g->ops->matmul(g->b, 0, &m, &g->e));
    print(g, "matmul", &out);
    release(g);
}

static void ends(struct golden *g, enum dtype t) {
    struct tensor tokens = indices(g, R, V), table = make(g, t, 31, V, C, 1, 1);
    struct tensor position = make(g, t, 32, T, C, 1, 1);
    struct tensor x = make(g, t, 0, R, C, 1, 1), dx = make(g, t, 33, R, C, 1, 1);
    struct tensor loss = make(g, DTYPE_F32, 0, R, 1, 1, 1);
    struct tensor d_table = make(g, DTYPE_F32, 34, V, C, 1, 1);
    struct tensor d_position = make(g, DTYPE_F32, 35, T, C, 1, 1);
    struct tensor logits = make(g, t, 36, R, VP, 1, 1), d_logits = make(g, t, 0, R, VP, 1, 1);
    struct tensor grad_scale = scalar(g, 1.0f / 3), total = scalar(g, 0);
    struct sink s = sink_value(&d_logits, NULL);
    must(g, g->ops->embedding_fwd(g->b, 0, &x, &tokens, &table, &position, NULL, &g->e));
    print(g, "embedding x", &x);
    must(g, g->ops->embedding_bwd(g->b, 0, &d_table, &d_position, &dx, &tokens, NULL, &g->e));
    print(g, "embedding d_table", &d_table);
    print(g, "embedding d_position", &d_position);
    struct tensor positions = indices(g, R, T);
    must(g, g->ops->embedding_fwd(g->b, 0, &x, &tokens, &table, &position, &positions, &g->e));
    print(g, "embedding x, positions", &x);
    must(g, g->ops->embedding_bwd(g->b, 0, &d_table, &d_position, &dx, &tokens, &positions,
                                  &g->e));
    print(g, "embedding d_position, positions", &d_position);
    must(g, g->ops->cross_entropy(g->b, 0, &(struct cross_entropy_args){
            .loss = &loss, .d_logits = &s, .logits = &logits, .targets = &tokens, .vocab = V,
            .grad_scale = &grad_scale }, &g->e));
    print(g, "cross_entropy loss", &loss);
    print(g, "cross_entropy d_logits", &d_logits);
    must(g, g->ops->sum(g->b, 0, &total, &loss, 1.0f / R, 0, &g->e));
    print(g, "sum", &total);
    must(g, g->ops->sum_squares(g->b, 0, &total, &logits, 1, &g->e));
    print(g, "sum_squares", &total);
    release(g);
}

static void optimiser(struct golden *g, enum dtype weight, bool master, enum dtype state) {
    struct tensor w = make(g, weight, 41, N, 1, 1, 1), f = make(g, DTYPE_F32, 41, N, 1, 1, 1);
    struct tensor m = make(g, state, 0, N, 1, 1, 1), v = make(g, state, 0, N, 1, 1, 1);
    struct tensor grad = make(g, DTYPE_F32, 42, N, 1, 1, 1);
    struct tensor m_scale = make(g, DTYPE_F32, 0, 1, ceil_div(N, 128), 1, 1);
    struct tensor v_scale = make(g, DTYPE_F32, 0, 1, ceil_div(N, 128), 1, 1);
    if (state == DTYPE_E4M3) {
        m.scale = scale_make(m_scale.data, SCALE_1X128, 1, N);
        v.scale = scale_make(v_scale.data, SCALE_1X128, 1, N);
    }
    struct tensor lr = scalar(g, 0.01f), clip = scalar(g, 0.3f), bias = scalar(g, 2);
    struct tensor step = indices(g, 1, 1), flag = indices(g, 2, 1);
    ((int32_t *)flag.data)[0] = -1;
    struct sink s = sink_value(&w, NULL);
    struct adamw_args a = {
        .weight = &s, .master = master ? &f : NULL, .m = &m, .v = &v, .grad = &grad, .lr = &lr,
        .clip = &clip, .bias1 = &bias, .bias2 = &bias, .step = &step, .flag = &flag, .beta1 = 0.9f,
        .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .seed = 5, .tensor_id = 6,
    };
    for (int t = 1; t <= 3; t++) {
        *(int32_t *)step.data = t;
        must(g, g->ops->adamw(g->b, 0, &a, 1, &g->e));
    }
    print(g, "adamw weight", &w);
    print(g, "adamw m", &m);
    print(g, "adamw v", &v);
    release(g);
}

int main(void) {
    struct golden state = { 0 }, *g = &state;
    must(g, cpu_backend_open(&g->b, omp_get_max_threads(), &g->e));
    g->ops = g->b->ops;
    static const enum dtype ACT[] = { DTYPE_F32, DTYPE_BF16 };
    for (int i = 0; i < 2; i++) {
        printf("%s\n", dtype_name(ACT[i]));
        norms(g, ACT[i]);
        attention(g, ACT[i], false);
        attention(g, ACT[i], true);
        feed_forward(g, ACT[i]);
        ends(g, ACT[i]);
    }
    struct tensor normal = make(g, DTYPE_F32, 0, N, 1, 1, 1);
    must(g, g->ops->fill_normal(g->b, 0, &normal, 0.02f, 1, 2, 3, &g->e));
    print(g, "fill_normal", &normal);
    struct tensor counts = make(g, DTYPE_U64, 0, HISTOGRAM_COUNTS, 1, 1, 1);
    must(g, g->ops->histogram(g->b, 0, &counts, &normal, &g->e));
    print(g, "histogram", &counts);
    release(g);
    optimiser(g, DTYPE_F32, false, DTYPE_F32);
    optimiser(g, DTYPE_BF16, true, DTYPE_F32);
    optimiser(g, DTYPE_BF16, true, DTYPE_BF16);
    optimiser(g, DTYPE_BF16, true, DTYPE_E4M3);
    optimiser(g, DTYPE_BF16, false, DTYPE_F32);
    g->ops->close(g->b);
    return 0;
}
