/* The plain version that bench attention times is attention: its output and gradients are those of
 * the fused operators on the same numbers, and it takes the memory that it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/cpu/cpu_backend.h"
#include "runner/bench/plain_attention.h"
#include "tests/support/must.h"

enum { B = 2, T = 33, D = 16 };

/* Heads first .. first + n of x [B,T,all,D], by head: [B,n,T,D]. */
static struct tensor by_head(const struct tensor *x, int64_t first, int64_t n) {
    struct tensor v = *x;
    v.data = (float *)x->data + first * x->stride[2];
    v.dim[1] = n;
    v.dim[2] = x->dim[1];
    v.stride[1] = x->stride[2];
    v.stride[2] = x->stride[1];
    return v;
}

static void copy(struct backend *b, const struct tensor *to, struct tensor from) {
    MUST(b->ops->copy(b, LANE_COMPUTE, to, &from, E));
}

/* Both packed after the view. */
static void assert_near(struct backend *b, struct bench_memory *m, const char *what,
                        const struct tensor *plain, struct tensor fused) {
    struct tensor other;
    double errors = 0, squares = 0;
    MUST(bench_tensor(m, &other, DTYPE_F32, plain->dim[0], plain->dim[1], plain->dim[2],
                      plain->dim[3], E));
    copy(b, &other, fused);
    const float *x = plain->data, *y = other.data;
    for (int64_t i = 0; i < tensor_count(plain); i++) {
        errors += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        squares += (double)y[i] * y[i];
    }
    if (!(squares > 0 && errors / squares < 1e-11))
        fail_msg("%s: relative squared error %g", what, errors / squares);
}

static void like_the_fused_operators(int64_t heads, int64_t kv) {
    struct backend *b;
    MUST(cpu_backend_open(&b, 2, E));
    struct bench_memory m = { .b = b }, operands = { .b = b };
    struct attention_shape s = { .batch = B, .seq_len = T, .heads = heads, .kv_heads = kv,
                                 .head_dim = D, .act = DTYPE_F32, .backward = true };
    int64_t all = heads + 2 * kv;
    struct tensor qkv, o, lse, d_qkv, d_o, delta;
    MUST(bench_tensor(&operands, &qkv, DTYPE_F32, B, T, all, D, E));
    MUST(bench_tensor(&operands, &d_qkv, DTYPE_F32, B, T, all, D, E));
    MUST(bench_tensor(&operands, &o, DTYPE_F32, B, T, heads, D, E));
    MUST(bench_tensor(&operands, &d_o, DTYPE_F32, B, T, heads, D, E));
    MUST(bench_tensor(&operands, &lse, DTYPE_F32, B, heads, T, 1, E));
    MUST(bench_tensor(&operands, &delta, DTYPE_F32, B, heads, T, 1, E));
    struct plain_attention p;
    MUST(plain_attention_make(&m, &s, &p, E));
    copy(b, &p.q, by_head(&qkv, 0, heads));
    copy(b, &p.k, by_head(&qkv, heads, kv));
    copy(b, &p.v, by_head(&qkv, heads + kv, kv));
    copy(b, &p.d_o, by_head(&d_o, 0, heads));
    MUST(plain_attention_forward(&p, E));
    MUST(plain_attention_backward(&p, E));
    struct tensor o_rows = tensor_2d(o.data, DTYPE_F32, B * T, heads * D);
    struct tensor d_o_rows = tensor_2d(d_o.data, DTYPE_F32, B * T, heads * D);
    struct sink out = sink_value(&o_rows, NULL), grad = sink_value(&d_qkv, NULL);
    MUST(b->ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
            .o = &out, .lse = &lse, .qkv = &qkv, .heads = heads, .kv_heads = kv }, E));
    MUST(b->ops->attention_bwd(b, LANE_COMPUTE, &(struct attention_bwd_args){
            .d_qkv = &grad, .delta = &delta, .d_o = &d_o_rows, .o = &o_rows, .qkv = &qkv,
            .lse = &lse, .heads = heads, .kv_heads = kv }, E));
    assert_near(b, &operands, "o", &p.o, by_head(&o, 0, heads));
    assert_near(b, &operands, "d_q", &p.d_q, by_head(&d_qkv, 0, heads));
    assert_near(b, &operands, "d_k", &p.d_k, by_head(&d_qkv, heads, kv));
    assert_near(b, &operands, "d_v", &p.d_v, by_head(&d_qkv, heads + kv, kv));
    bench_free(&m);
    bench_free(&operands);
    b->ops->close(b);
}

static void one_head_each(void **state) { like_the_fused_operators(3, 3); }
static void heads_share_keys(void **state) { like_the_fused_operators(6, 2); }

/* Backends whose allocations are counted. */
static int64_t taken;
static enum status (*real_create)(struct backend *b, const char *what, int64_t bytes, void **out,
                                  struct err *e);
static enum status counting(struct backend *b, const char *what, int64_t bytes, void **out,
                            struct err *e) {
    taken += bytes;
    return real_create(b, what, bytes, out, e);
}

static void it_takes_the_memory_that_it_says(void **state) {
    struct backend *b;
    MUST(cpu_backend_open(&b, 1, E));
    const struct backend_ops *real = b->ops;
    struct backend_ops table = *real;
    real_create = real->memory_create;
    table.memory_create = counting;
    b->ops = &table;
    for (int backward = 0; backward < 2; backward++) {
        struct bench_memory m = { .b = b };
        struct plain_attention p;
        struct attention_shape s = { .batch = B, .seq_len = T, .heads = 4, .kv_heads = 2,
                                     .head_dim = D, .act = DTYPE_BF16, .backward = backward != 0 };
        taken = 0;
        MUST(plain_attention_make(&m, &s, &p, E));
        assert_int_equal(taken, plain_attention_all_bytes(&s));
        assert_int_equal(plain_attention_bytes(&s), B * 4 * T * T * 2 * (1 + backward));
        assert_true(fused_attention_bytes(&s) < plain_attention_bytes(&s));
        bench_free(&m);
    }
    b->ops = real;
    b->ops->close(b);
}

/* T x T of a long sequence does not fit: that is said, and nothing is allocated. */
static void it_is_left_out_where_it_does_not_fit(void **state) {
    struct backend *b;
    MUST(cpu_backend_open(&b, 1, E));
    const struct bench_effort once = { .samples = 1, .sample_us = 1 };
    struct attention_shape s = { .batch = 1, .seq_len = 32, .heads = 2, .kv_heads = 1,
                                 .head_dim = D, .act = DTYPE_BF16, .backward = true };
    struct attention_version v;
    MUST(plain_attention_measure(b, &s, &once, -1, &v, E));
    assert_true(v.time.median_us > 0 && !*v.why && v.bytes == plain_attention_bytes(&s));
    s.seq_len = 1 << 20;
    MUST(plain_attention_measure(b, &s, &once, (int64_t)64 << 30, &v, E));
    assert_true(v.time.median_us == 0);
    assert_non_null(strstr(v.why, "GiB, 64.00 GiB are free"));
    b->ops->close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_head_each),
        cmocka_unit_test(heads_share_keys),
        cmocka_unit_test(it_is_left_out_where_it_does_not_fit),
        cmocka_unit_test(it_takes_the_memory_that_it_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
