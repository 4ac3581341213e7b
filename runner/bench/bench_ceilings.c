#include "runner/bench/bench_ceilings.h"

#include <string.h>

#include "model/window.h"

enum { SIDE_DEVICE = 8192, SIDE_CPU = 1024 };

/* ---- GEMM -------------------------------------------------------------------------------------*/

struct gemm_run { struct backend *b; struct matmul_args args; struct tensor out, left, right; };

static enum status run_gemm(void *context, struct err *e) {
    struct gemm_run *r = context;
    return r->b->ops->matmul(r->b, LANE_COMPUTE, &r->args, e);
}

enum status ceiling_gemm(struct backend *b, const struct gemm_shape *s,
                         const struct bench_effort *effort, struct bench_time *out,
                         struct err *e) {
    struct bench_memory m = { .b = b };
    struct gemm_run r = { .b = b };
    r.args = (struct matmul_args){ .out = &r.out, .a = &r.left, .b = &r.right,
                                   .fast_accumulate = s->fast_accumulate,
                                   .direction = s->direction };
    enum status st = bench_operand(&m, &r.left, s->a, s->m, s->k, s->a_scale, s->a_transposed, e);
    if (st == OK)
        st = bench_operand(&m, &r.right, s->b, s->n, s->k, s->b_scale, s->b_transposed, e);
    if (st == OK) st = bench_tensor(&m, &r.out, s->out, s->m, s->n, 1, 1, e);
    if (st == OK) st = bench_measure(b, effort, run_gemm, &r, out, e);
    bench_free(&m);
    return st;
}

enum status ceiling_large_gemm(struct backend *b, enum dtype t, double *tflops, struct err *e) {
    static const struct bench_effort EFFORT = { .samples = 7, .sample_us = 3000,
                                               .pause_us = 10000 };
    enum scale_kind scale = t == DTYPE_E2M1     ? SCALE_1X16
                            : dtype_is_fp8(t) ? SCALE_TENSOR
                                              : SCALE_NONE;
    int64_t n = strcmp(b->ops->name, "cpu") ? SIDE_DEVICE : SIDE_CPU;
    struct gemm_shape shape = { .m = n, .n = n, .k = n, .a = t, .b = t,
                                .out = t == DTYPE_F32 ? DTYPE_F32 : DTYPE_BF16,
                                .a_scale = scale, .b_scale = scale,
                                .fast_accumulate = t != DTYPE_E2M1 };
    struct bench_time time = { 0 };
    *tflops = 0;
    enum status st = ceiling_gemm(b, &shape, &EFFORT, &time, e);
    if (st == OK) *tflops = gemm_flop(&shape) / time.best_us * 1e-6;
    return st == ERR_UNSUPPORTED ? OK : st;
}

/* ---- attention --------------------------------------------------------------------------------*/

struct attention_run {
    struct backend *b;
    const struct attention_shape *shape;
    struct tensor qkv, d_qkv, o, d_o, lse, delta;
    struct tensor first_key; /* data NULL without a window */
    struct sink sink;
    struct tensor multiplier, factor, amax, stats; /* of p and of ds, FP8 attention only */
    struct attention_cast p, ds;
};

static const struct tensor *first_key_of(const struct attention_run *r) {
    return r->first_key.data ? &r->first_key : NULL;
}
static const struct attention_cast *cast_of(const struct attention_run *r,
                                            const struct attention_cast *cast) {
    return dtype_is_fp8(r->shape->act) ? cast : NULL;
}

static enum status run_forward(void *context, struct err *e) {
    struct attention_run *r = context;
    return r->b->ops->attention_fwd(r->b, LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &r->sink, .lse = &r->lse, .qkv = &r->qkv, .first_key = first_key_of(r),
            .heads = r->shape->heads, .kv_heads = r->shape->kv_heads,
            .p = cast_of(r, &r->p) }, e);
}

static enum status run_backward(void *context, struct err *e) {
    struct attention_run *r = context;
    struct sink d_qkv = sink_value(&r->d_qkv, NULL);
    return r->b->ops->attention_bwd(r->b, LANE_COMPUTE, &(struct attention_bwd_args){
            .d_qkv = &d_qkv, .delta = &r->delta, .d_o = &r->d_o, .o = &r->o, .qkv = &r->qkv,
            .lse = &r->lse, .first_key = first_key_of(r), .heads = r->shape->heads,
            .kv_heads = r->shape->kv_heads, .p = cast_of(r, &r->p), .ds = cast_of(r, &r->ds) }, e);
}

/* [rows, heads*D], or codes with one scale. */
static enum status attention_operand(struct bench_memory *m, struct tensor *out, enum dtype t,
                                     int64_t rows, int64_t cols, struct err *e) {
    return bench_operand(m, out, t, rows, cols, dtype_is_fp8(t) ? SCALE_TENSOR : SCALE_NONE, false,
                         e);
}

/* A matrix [rows, heads*D] as attention reads it: [B,T,heads,D]. */
static void split_heads(struct tensor *x, const struct attention_shape *s) {
    int64_t row = x->stride[0], heads = x->dim[1] / s->head_dim;
    struct tensor view = tensor_make(x->data, x->dtype, s->batch, s->seq_len, heads, s->head_dim);
    view.stride[1] = row;
    view.stride[0] = s->seq_len * row;
    view.scale = x->scale;
    *x = view;
}

/* p and ds are rounded by one multiplier, a power of two: its value does not change the time. */
static enum status attention_casts(struct bench_memory *m, struct attention_run *r,
                                   struct err *e) {
    static const float MULTIPLIER = 256.0f, FACTOR = 1 / 256.0f;
    struct backend *b = r->b;
    TRY(bench_tensor(m, &r->multiplier, DTYPE_F32, 1, 1, 1, 1, e));
    TRY(bench_tensor(m, &r->factor, DTYPE_F32, 1, 1, 1, 1, e));
    TRY(bench_tensor(m, &r->amax, DTYPE_U32, 1, 1, 1, 1, e));
    TRY(bench_tensor(m, &r->stats, DTYPE_U64, 2, 1, 1, 1, e));
    TRY(b->ops->upload(b, LANE_COMPUTE, r->multiplier.data, &MULTIPLIER, sizeof MULTIPLIER, e));
    TRY(b->ops->upload(b, LANE_COMPUTE, r->factor.data, &FACTOR, sizeof FACTOR, e));
    r->p = (struct attention_cast){ .code = DTYPE_E4M3, .multiplier = &r->multiplier,
                                    .factor = &r->factor, .amax = &r->amax, .stats = &r->stats };
    r->ds = r->p;
    r->ds.code = r->shape->d_o;
    return OK;
}

static enum status attention_tensors(struct bench_memory *m, struct attention_run *r,
                                     struct err *e) {
    const struct attention_shape *s = r->shape;
    int64_t rows = s->batch * s->seq_len, all = s->heads + 2 * s->kv_heads;
    TRY(attention_operand(m, &r->qkv, s->act, rows, all * s->head_dim, e));
    split_heads(&r->qkv, s);
    if (dtype_is_fp8(s->act)) TRY(attention_casts(m, r, e));
    TRY(bench_tensor(m, &r->o, s->out, rows, s->heads * s->head_dim, 1, 1, e));
    TRY(bench_tensor(m, &r->lse, DTYPE_F32, s->batch, s->heads, s->seq_len, 1, e));
    r->sink = sink_value(&r->o, NULL);
    if (s->window) {
        TRY(bench_tensor(m, &r->first_key, DTYPE_I32, s->batch, s->seq_len, 1, 1, e));
        TRY(window_upload(r->b, &r->first_key, s->window, e));
    }
    TRY(run_forward(r, e)); /* backward reads lse, which forward writes */
    if (!s->backward) return OK;
    TRY(bench_tensor(m, &r->d_qkv, s->out, rows, all * s->head_dim, 1, 1, e));
    TRY(attention_operand(m, &r->d_o, s->d_o, rows, s->heads * s->head_dim, e));
    return bench_tensor(m, &r->delta, DTYPE_F32, s->batch, s->heads, s->seq_len, 1, e);
}

enum status ceiling_attention(struct backend *b, const struct attention_shape *shape,
                              const struct bench_effort *effort, struct bench_time *out,
                              struct err *e) {
    struct bench_memory m = { .b = b };
    struct attention_run r = { .b = b, .shape = shape };
    enum status st = attention_tensors(&m, &r, e);
    if (st == OK)
        st = bench_measure(b, effort, shape->backward ? run_backward : run_forward, &r, out, e);
    bench_free(&m);
    return st;
}

/* ---- memory -----------------------------------------------------------------------------------*/

struct copy_run { struct backend *b; struct tensor from, to; };

static enum status run_copy(void *context, struct err *e) {
    struct copy_run *r = context;
    return r->b->ops->copy(r->b, LANE_COMPUTE, &r->to, &r->from, e);
}

enum status ceiling_copy(struct backend *b, int64_t bytes, const struct bench_effort *effort,
                         double *bytes_per_s, struct err *e) {
    struct bench_memory m = { .b = b };
    struct copy_run r = { .b = b };
    struct bench_time time = { 0 };
    r.from = r.to = tensor_1d(NULL, DTYPE_BF16, bytes / 2);
    enum status st = bench_zeros(&m, bytes, &r.from.data, e);
    if (st == OK) st = bench_zeros(&m, bytes, &r.to.data, e);
    if (st == OK) st = bench_measure(b, effort, run_copy, &r, &time, e);
    if (st == OK) *bytes_per_s = 2.0 * (double)bytes / time.best_us * 1e6;
    bench_free(&m);
    return st;
}
