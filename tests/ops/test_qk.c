/* QK-norm and RoPE against double loops; gradients against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

static const float EPS = 1e-6f;

struct sizes { int64_t batch, length, heads, kv_heads, dim; bool norm, rope, placed; };

/* The row of the rope table that a token takes. */
static int64_t position_of(const struct sizes *z, int64_t row) {
    return z->placed ? row * 7 % 5 % z->length : row % z->length;
}

struct reference {
    struct sizes z;
    double *in, *gain_q, *gain_k, *rope, *d_out, *out;
};

static void reference_head(const struct reference *r, int64_t t, int64_t h, const double *x,
                           double *y) {
    const struct sizes *z = &r->z;
    double square = 0;
    for (int64_t i = 0; i < z->dim; i++) square += x[i] * x[i];
    double rstd = 1 / sqrt(square / (double)z->dim + (double)EPS);
    bool is_v = h >= z->heads + z->kv_heads;
    const double *gain = h < z->heads ? r->gain_q : r->gain_k;
    for (int64_t i = 0; i < z->dim; i++) y[i] = z->norm && !is_v ? x[i] * rstd * gain[i] : x[i];
    if (!z->rope || is_v) return;
    for (int64_t i = 0, half = z->dim / 2; i < half; i++) {
        double c = r->rope[t * z->dim + i], s = r->rope[t * z->dim + half + i];
        double y1 = y[i], y2 = y[i + half];
        y[i] = y1 * c - y2 * s;
        y[i + half] = y2 * c + y1 * s;
    }
}

static double reference_forward(void *context) {
    struct reference *r = context;
    const struct sizes *z = &r->z;
    int64_t all = z->heads + 2 * z->kv_heads;
    double sum = 0;
    for (int64_t row = 0; row < z->batch * z->length; row++)
        for (int64_t h = 0; h < all; h++) {
            int64_t at = (row * all + h) * z->dim;
            reference_head(r, position_of(z, row), h, r->in + at, r->out + at);
            for (int64_t i = 0; i < z->dim; i++) sum += r->out[at + i] * r->d_out[at + i];
        }
    return sum;
}

struct run {
    struct tensor in, out, rstd, gain_q, gain_k, rope, positions, d_out, dx, d_gain_q, d_gain_k;
};

static struct run make(struct ops *o, const struct sizes *z, enum dtype t) {
    int64_t all = z->heads + 2 * z->kv_heads, d = z->dim;
    struct run r = {
        .in = ops_tensor(o, t, z->batch, z->length, all, d),
        .out = ops_tensor(o, t, z->batch, z->length, all, d),
        .d_out = ops_tensor(o, t, z->batch, z->length, all, d),
        .dx = ops_tensor(o, t, z->batch * z->length, all * d, 1, 1),
        .rstd = ops_tensor(o, DTYPE_F32, z->batch, z->length, z->heads + z->kv_heads, 1),
        .gain_q = ops_tensor(o, t, d, 1, 1, 1), .gain_k = ops_tensor(o, t, d, 1, 1, 1),
        .rope = ops_tensor(o, DTYPE_F32, z->length, d, 1, 1),
        .positions = ops_tensor(o, DTYPE_I32, z->batch, z->length, 1, 1),
        .d_gain_q = ops_tensor(o, DTYPE_F32, d, 1, 1, 1),
        .d_gain_k = ops_tensor(o, DTYPE_F32, d, 1, 1, 1),
    };
    ops_fill(&r.in, 1, 2);
    ops_fill(&r.d_out, 2, 1);
    ops_fill(&r.gain_q, 3, 2);
    ops_fill(&r.gain_k, 4, 2);
    for (int64_t row = 0; row < z->batch * z->length; row++)
        ops_set(&r.positions, row, (double)position_of(z, row));
    for (int64_t p = 0; p < z->length; p++)
        for (int64_t i = 0; i < d / 2; i++) {
            double angle = (double)p * pow(10000, -2.0 * (double)i / (double)d);
            ops_set(&r.rope, p * d + i, cos(angle));
            ops_set(&r.rope, p * d + d / 2 + i, sin(angle));
        }
    return r;
}

static enum status forward(struct ops *o, const struct run *r, const struct sizes *z) {
    return o->table->qk_fwd(o->b, LANE_COMPUTE, &(struct qk_fwd_args){
            .out = &r->out, .rstd = z->norm ? &r->rstd : NULL, .in = &r->in,
            .gain_q = z->norm ? &r->gain_q : NULL, .gain_k = z->norm ? &r->gain_k : NULL,
            .rope = z->rope ? &r->rope : NULL, .positions = z->placed ? &r->positions : NULL,
            .heads = z->heads, .kv_heads = z->kv_heads, .eps = EPS }, &o->e);
}

static enum status backward(struct ops *o, const struct run *r, const struct sizes *z,
                            struct tensor *dx) {
    struct sink s = sink_value(dx, NULL);
    return o->table->qk_bwd(o->b, LANE_COMPUTE, &(struct qk_bwd_args){
            .dx = &s, .d_gain_q = z->norm ? &r->d_gain_q : NULL,
            .d_gain_k = z->norm ? &r->d_gain_k : NULL, .d_out = &r->d_out, .in = &r->in,
            .gain_q = z->norm ? &r->gain_q : NULL, .gain_k = z->norm ? &r->gain_k : NULL,
            .rstd = z->norm ? &r->rstd : NULL, .rope = z->rope ? &r->rope : NULL,
            .positions = z->placed ? &r->positions : NULL, .heads = z->heads,
            .kv_heads = z->kv_heads }, &o->e);
}

static struct reference reference_of(struct ops *o, const struct run *r, const struct sizes *z) {
    return (struct reference){ *z, ops_doubles(o, &r->in), ops_doubles(o, &r->gain_q),
                               ops_doubles(o, &r->gain_k), ops_doubles(o, &r->rope),
                               ops_doubles(o, &r->d_out), ops_doubles(o, &r->out) };
}

static const struct {
    struct sizes z;
    enum dtype dtype;
    double nmse_max;
} CASE[] = {
    { { 2, 9, 4, 2, 8, true, true, false }, DTYPE_F32, 1e-12 },
    { { 1, 40, 3, 1, 6, true, false, false }, DTYPE_F32, 1e-12 },
    { { 3, 7, 2, 2, 18, false, true, false }, DTYPE_F32, 1e-12 },
    { { 3, 7, 2, 2, 18, false, true, true }, DTYPE_F32, 1e-12 },
    { { 2, 9, 4, 2, 8, true, true, true }, DTYPE_F32, 1e-12 },
    { { 2, 20, 4, 2, 32, true, true, false }, DTYPE_BF16, 4e-6 }, /* one rounding to bf16 */
    { { 1, 5, 1, 1, 7, false, false, false }, DTYPE_BF16, 0 },    /* a copy: exact */
};
enum { CASES = sizeof CASE / sizeof CASE[0] };

static void test_forward(void **state) {
    for (int i = 0; i < CASES; i++) {
        struct ops *o = ops_open(2);
        struct run r = make(o, &CASE[i].z, CASE[i].dtype);
        OPS_OK(o, forward(o, &r, &CASE[i].z));
        struct reference ref = reference_of(o, &r, &CASE[i].z);
        reference_forward(&ref);
        OPS_BELOW(ops_nmse(&r.out, ref.out), CASE[i].nmse_max, "out");
        ops_close(o);
    }
}

static void test_gradient(void **state) {
    for (int i = 0; i < CASES; i++) {
        if (CASE[i].dtype != DTYPE_F32) continue;
        struct ops *o = ops_open(2);
        struct run r = make(o, &CASE[i].z, DTYPE_F32);
        OPS_OK(o, forward(o, &r, &CASE[i].z));
        OPS_OK(o, backward(o, &r, &CASE[i].z, &r.dx));
        struct reference ref = reference_of(o, &r, &CASE[i].z);
        struct { const struct tensor *gradient; double *x; } part[] = {
            { &r.dx, ref.in }, { &r.d_gain_q, ref.gain_q }, { &r.d_gain_k, ref.gain_k },
        };
        for (int p = 0; p < (CASE[i].z.norm ? 3 : 1); p++)
            for (uint64_t seed = 70; seed < 73; seed++) {
                double want = ops_difference(reference_forward, &ref, part[p].x,
                                             tensor_count(part[p].gradient), seed, 1e-4);
                OPS_BELOW(fabs(ops_along(part[p].gradient, seed) - want), 1e-4 * (1 + fabs(want)),
                          "directional derivative");
            }
        ops_close(o);
    }
}

/* Without a norm out may alias in. dx may alias d_out. v is unchanged. */
static void test_aliases(void **state) {
    struct sizes z = { 2, 12, 2, 1, 8, false, true, false };
    struct ops *o = ops_open(2);
    struct run r = make(o, &z, DTYPE_BF16), in_place = r;
    OPS_OK(o, forward(o, &r, &z));
    for (int64_t row = 0; row < 24; row++)
        for (int64_t i = 24; i < 32; i++)
            assert_true(ops_get(&r.out, row * 32 + i) == ops_get(&r.in, row * 32 + i));
    OPS_OK(o, backward(o, &r, &z, &r.dx));
    in_place.in = in_place.out = ops_copy(o, &r.in, DTYPE_BF16);
    OPS_OK(o, forward(o, &in_place, &z));
    assert_int_equal(ops_hash(&in_place.out), ops_hash(&r.out));
    struct tensor flat = tensor_2d(r.d_out.data, DTYPE_BF16, 24, 32);
    OPS_OK(o, backward(o, &r, &z, &flat));
    assert_int_equal(ops_hash(&flat), ops_hash(&r.dx));
    ops_close(o);
}

/* Positions that count up to T in each sequence give the bits of no positions. */
static void test_positions_of_whole_sequences(void **state) {
    struct sizes z = { 2, 12, 4, 2, 8, true, true, false };
    struct ops *o = ops_open(2);
    struct run r = make(o, &z, DTYPE_BF16);
    uint64_t out[2], dx[2];
    for (int i = 0; i < 2; i++) {
        z.placed = i == 1; /* the tensor was filled without */
        OPS_OK(o, forward(o, &r, &z));
        OPS_OK(o, backward(o, &r, &z, &r.dx));
        out[i] = ops_hash(&r.out);
        dx[i] = ops_hash(&r.dx);
    }
    assert_true(out[0] == out[1] && dx[0] == dx[1]);
    ops_close(o);
}

static void test_bits(void **state) {
    struct sizes z = { 2, 37, 4, 2, 24, true, true, false };
    for (int threads = 1; threads <= 3; threads++) {
        struct ops *o = ops_open(threads);
        struct run r = make(o, &z, DTYPE_BF16);
        for (int64_t i = 0; i < tensor_count(&r.rope); i++) /* without the C library's sine */
            ops_set(&r.rope, i, 0.5 + 0.25 * (double)(i % 3));
        OPS_OK(o, forward(o, &r, &z));
        OPS_OK(o, backward(o, &r, &z, &r.dx));
        uint64_t hash = ops_hash(&r.out) ^ ops_hash(&r.rstd) * 3 ^ ops_hash(&r.dx) * 5 ^
                        ops_hash(&r.d_gain_q) * 7 ^ ops_hash(&r.d_gain_k) * 9;
        if (hash != 0xEC01C15D24410CA7u)
            fail_msg("%d threads: hash 0x%016llX", threads, (unsigned long long)hash);
        ops_close(o);
    }
}

static void test_nan_kept(void **state) {
    struct sizes z = { 1, 3, 2, 1, 8, true, true, false };
    struct ops *o = ops_open(1);
    struct run r = make(o, &z, DTYPE_F32);
    ops_set(&r.in, 32 + 8 + 3, NAN); /* row 1, head 1 */
    OPS_OK(o, forward(o, &r, &z));
    for (int64_t i = 0; i < 96; i++) assert_int_equal(isnan(ops_get(&r.out, i)) != 0, i / 8 == 5);
    OPS_OK(o, backward(o, &r, &z, &r.dx));
    for (int64_t i = 0; i < 96; i++) assert_int_equal(isnan(ops_get(&r.dx, i)) != 0, i / 8 == 5);
    assert_true(isnan(ops_get(&r.d_gain_q, 0)) && !isnan(ops_get(&r.d_gain_k, 0)));
    ops_close(o);
}

static void test_arguments(void **state) {
    struct sizes z = { 1, 3, 2, 1, 8, true, true, false };
    struct ops *o = ops_open(1);
    const struct run good = make(o, &z, DTYPE_F32);
    struct tensor i32 = ops_tensor(o, DTYPE_I32, 1, 3, 4, 8);
    struct tensor odd = ops_tensor(o, DTYPE_F32, 1, 3, 4, 7);
    struct run r = good;
    r.in = i32; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "is i32");
    r = good; r.in = odd; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "head_dim 7 is odd");
    r = good; r.out = i32; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "out is i32");
    z.placed = true;
    r = good; r.positions = r.rope; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "qk_fwd is f32");
    r = good; r.positions = i32; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "96 elements, not 3");
    ops_set(&good.positions, 1, 3);
    r = good; OPS_ERR(o, backward(o, &r, &z, &r.dx), ERR_ARG, "qk_bwd: index 3 at row 1 is not in");
    z.placed = false;
    r = good; r.gain_k = i32; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "is i32");
    r = good; r.rope = odd; OPS_ERR(o, forward(o, &r, &z), ERR_ARG, "[1, 84], not [3, 8]");
    r = good; r.d_out = odd; OPS_ERR(o, backward(o, &r, &z, &r.dx), ERR_ARG, "d_out");
    r = good; r.d_gain_q = odd; OPS_ERR(o, backward(o, &r, &z, &r.dx), ERR_ARG, "d_gain_q");
    r = good; OPS_ERR(o, backward(o, &r, &z, &odd), ERR_ARG, "dx");
    struct sizes wrong = z;
    wrong.heads = 3;
    OPS_ERR(o, forward(o, &good, &wrong), ERR_ARG, "4 heads in the tensor, 3 + 2*1");
    OPS_ERR(o, o->table->qk_fwd(o->b, 0, &(struct qk_fwd_args){
            .out = &r.out, .rstd = &r.rstd, .in = &r.in, .gain_q = &r.gain_q, .heads = 2,
            .kv_heads = 1, .eps = EPS }, &o->e), ERR_ARG, "alone");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_aliases),  cmocka_unit_test(test_positions_of_whole_sequences),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_nan_kept), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
