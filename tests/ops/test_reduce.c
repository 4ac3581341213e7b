/* Sums, norms, clipping, the non-finite flag, bias gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

static double total(struct ops *o, const struct tensor *x, float factor, float beta, float start) {
    struct tensor out = ops_f32(o, start);
    OPS_OK(o, o->table->sum(o->b, LANE_COMPUTE, &out, x, factor, beta, &o->e));
    return ops_get(&out, 0);
}

/* The definition, literally: 16 lanes for each block of 65536, then the same over block sums. */
static float lanes16(const float *x, int64_t n) {
    float lane[16] = { 0 };
    for (int64_t i = 0; i < n; i++) lane[i % 16] += x[i];
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++) lane[j] += lane[j + half];
    return lane[0];
}

static void test_sum_is_the_definition(void **state) {
    static const int64_t COUNT[] = { 1, 15, 16, 17, 1000, 65536, 65537, 200003 };
    for (size_t i = 0; i < sizeof COUNT / sizeof COUNT[0]; i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct tensor x = ops_tensor(o, DTYPE_F32, COUNT[i], 1, 1, 1);
            ops_fill(&x, 9, 1);
            float block[8], square[8];
            float *squares = ops_memory(o, COUNT[i] * 4);
            const float *data = x.data;
            for (int64_t k = 0; k < COUNT[i]; k++) squares[k] = data[k] * data[k];
            int64_t blocks = 0;
            for (int64_t at = 0; at < COUNT[i]; at += 65536, blocks++) {
                int64_t n = COUNT[i] - at < 65536 ? COUNT[i] - at : 65536;
                block[blocks] = lanes16(data + at, n);
                square[blocks] = lanes16(squares + at, n);
            }
            assert_true(total(o, &x, 1, 0, NAN) == lanes16(block, blocks));
            assert_true(total(o, &x, -0.5f, 1, 3) == 3 + -0.5f * lanes16(block, blocks));
            struct tensor out = ops_f32(o, 0);
            OPS_OK(o, o->table->sum_squares(o->b, LANE_COMPUTE, &out, &x, 1, &o->e));
            assert_true(ops_get(&out, 0) == lanes16(square, blocks));
            ops_close(o);
        }
}

static void test_sum_squares_bf16(void **state) {
    struct ops *o = ops_open(2);
    struct tensor x = ops_tensor(o, DTYPE_BF16, 300, 11, 1, 1), out = ops_f32(o, 0);
    ops_fill(&x, 1, 2);
    double want = 0;
    for (int64_t i = 0; i < 3300; i++) want += ops_get(&x, i) * ops_get(&x, i);
    OPS_OK(o, o->table->sum_squares(o->b, LANE_COMPUTE, &out, &x, 1, &o->e));
    OPS_BELOW(fabs(ops_get(&out, 0) / want - 1), 1e-6, "sum of squares");
    struct tensor two[2] = { x, x }, both = ops_tensor(o, DTYPE_F32, 2, 1, 1, 1);
    two[1].dim[0] = 7;
    OPS_OK(o, o->table->sum_squares(o->b, LANE_COMPUTE, &both, two, 2, &o->e));
    assert_true(ops_get(&both, 0) == ops_get(&out, 0) && ops_get(&both, 1) < ops_get(&out, 0));
    two[1].dtype = DTYPE_F32;
    OPS_ERR(o, o->table->sum_squares(o->b, 0, &both, two, 2, &o->e), ERR_ARG,
            "x is bf16, then f32");
    ops_set(&x, 3299, NAN);
    OPS_OK(o, o->table->sum_squares(o->b, LANE_COMPUTE, &out, &x, 1, &o->e));
    assert_int_equal(f32_bits(*(float *)out.data), 0x7FC00000);
    ops_close(o);
}

/* Each pair of dtypes: added in f32, rounded once. */
static void test_add(void **state) {
    static const enum dtype T[] = { DTYPE_F32, DTYPE_BF16 };
    for (int c = 0; c < 12; c++) {
        struct ops *o = ops_open(1 + c / 4);
        struct tensor x = ops_tensor(o, T[c & 1], 70001, 1, 1, 1);
        struct tensor out = ops_tensor(o, T[c >> 1 & 1], 70001, 1, 1, 1);
        ops_fill(&x, 3, 1);
        ops_fill(&out, 4, 5);
        struct tensor want = ops_copy(o, &out, DTYPE_F32);
        OPS_OK(o, o->table->add(o->b, LANE_COMM, &out, &x, &o->e));
        for (int64_t i = 0; i < 70001; i++) {
            float sum = (float)ops_get(&want, i) + (float)ops_get(&x, i);
            if (out.dtype == DTYPE_BF16) sum = bf16_decode(bf16_encode(sum));
            assert_true((float)ops_get(&out, i) == sum);
        }
        ops_close(o);
    }
}

static void test_clip_factor(void **state) {
    static const struct { float squares[2], max_norm, norm, clip; } CASE[] = {
        { { 9, 16 }, 10, 5, 1 },      { { 9, 16 }, 2.5f, 5, 0.5f }, { { 9, 16 }, 5, 5, 1 },
        { { 9, 16 }, 0, 5, 1 },       { { 0, 0 }, 1, 0, 1 },
        { { 9, INFINITY }, 1, INFINITY, 0 },
    };
    struct ops *o = ops_open(1);
    struct tensor squares = ops_tensor(o, DTYPE_F32, 2, 1, 1, 1), norm = ops_f32(o, 0);
    struct tensor clip = ops_f32(o, 0);
    for (size_t i = 0; i < sizeof CASE / sizeof CASE[0]; i++) {
        memcpy(squares.data, CASE[i].squares, 8);
        OPS_OK(o, o->table->clip_factor(o->b, 0, &norm, &clip, &squares, CASE[i].max_norm, &o->e));
        assert_true(ops_get(&norm, 0) == CASE[i].norm && ops_get(&clip, 0) == CASE[i].clip);
    }
    ops_set(&squares, 0, NAN);
    OPS_OK(o, o->table->clip_factor(o->b, 0, &norm, &clip, &squares, 1, &o->e));
    assert_true(isnan(ops_get(&norm, 0)) && ops_get(&clip, 0) == 1);
    ops_close(o);
}

/* The first bad element of the first bad tensor is reported; later ones do not replace it. */
static void test_flag_order(void **state) {
    struct ops *o = ops_open(1);
    const struct backend_ops *t = o->table;
    struct tensor flag = ops_tensor(o, DTYPE_I32, 2, 1, 1, 1), step = ops_i32(o, 17);
    struct tensor x = ops_tensor(o, DTYPE_F32, 40, 1, 1, 1);
    struct tensor amax = ops_tensor(o, DTYPE_U32, 3, 1, 1, 1);
    int32_t *f = flag.data;
    uint32_t *bits = amax.data;
    f[0] = f[1] = -1;
    OPS_OK(o, t->flag_nonfinite(o->b, 0, &flag, &step, &x, 100, &o->e));
    assert_true(f[0] == -1 && f[1] == -1);
    bits[0] = f32_bits(3.4e38f);
    bits[1] = 0x7F800000u;
    bits[2] = 0x7FC00000u;
    OPS_OK(o, t->flag_nonfinite(o->b, 0, &flag, &step, &amax, 100, &o->e));
    assert_true(f[0] == 17 && f[1] == 101);
    ops_set(&x, 0, NAN);
    OPS_OK(o, t->flag_nonfinite(o->b, 0, &flag, &step, &x, 0, &o->e));
    assert_true(f[0] == 17 && f[1] == 101);
    f[0] = f[1] = -1;
    ops_set(&x, 0, 0);
    ops_set(&x, 39, -INFINITY);
    OPS_OK(o, t->flag_nonfinite(o->b, 0, &flag, &step, &x, 0, &o->e));
    assert_true(f[0] == 17 && f[1] == 39);
    ops_close(o);
}

/* A sink adds the column sums of its value: the gradient of a bias. */
static void test_column_sums(void **state) {
    static const enum dtype GRAD[] = { DTYPE_F32, DTYPE_BF16 };
    for (int g = 0; g < 2; g++) {
        uint64_t first = 0;
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct tensor dy = ops_tensor(o, DTYPE_BF16, 53, 70, 1, 1);
            struct tensor d_bias = ops_tensor(o, GRAD[g], 70, 1, 1, 1);
            ops_fill(&dy, 1, 1);
            ops_fill(&d_bias, 2, 1);
            double *want = ops_doubles(o, &d_bias);
            for (int64_t i = 0; i < 53 * 70; i++) want[i % 70] += ops_get(&dy, i);
            struct sink sink = sink_value(&dy, NULL);
            sink.sums = &d_bias;
            OPS_OK(o, o->table->quantise(o->b, LANE_COMPUTE, &sink, &dy, &o->e));
            OPS_BELOW(ops_nmse(&d_bias, want), GRAD[g] == DTYPE_F32 ? 1e-13 : 4e-6, "d_bias");
            if (threads == 1) first = ops_hash(&d_bias);
            assert_int_equal(ops_hash(&d_bias), first);
            ops_close(o);
        }
    }
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    const struct backend_ops *t = o->table;
    struct tensor x = ops_tensor(o, DTYPE_F32, 8, 4, 1, 1), one = ops_f32(o, 0);
    struct tensor i32 = ops_i32(o, 0);
    struct tensor bf16 = ops_tensor(o, DTYPE_BF16, 8, 4, 1, 1);
    struct tensor flag = ops_tensor(o, DTYPE_I32, 2, 1, 1, 1);
    struct tensor gaps = x;
    gaps.dim[1] = 3;
    OPS_ERR(o, t->sum(o->b, 0, &one, &bf16, 1, 0, &o->e), ERR_ARG, "x is bf16");
    OPS_ERR(o, t->sum(o->b, 0, &one, &gaps, 1, 0, &o->e), ERR_ARG, "not packed");
    OPS_ERR(o, t->sum(o->b, 0, &x, &x, 1, 0, &o->e), ERR_ARG, "total is [8, 4]");
    OPS_ERR(o, t->sum_squares(o->b, 0, &one, &i32, 1, &o->e), ERR_ARG, "x is i32");
    OPS_ERR(o, t->sum_squares(o->b, 0, &i32, &x, 1, &o->e), ERR_ARG, "out is i32");
    struct tensor empty = ops_tensor(o, DTYPE_F32, 1, 1, 1, 1);
    empty.dim[0] = 0;
    ops_set(&one, 0, 7);
    OPS_OK(o, t->sum_squares(o->b, 0, &one, &empty, 1, &o->e));
    assert_true(ops_get(&one, 0) == 0);
    OPS_ERR(o, t->add(o->b, 0, &x, &one, &o->e), ERR_ARG, "1 elements to 32");
    OPS_ERR(o, t->add(o->b, 0, &x, &i32, &o->e), ERR_ARG, "x is i32");
    OPS_ERR(o, t->add(o->b, 0, &gaps, &x, &o->e), ERR_ARG, "not packed");
    OPS_ERR(o, t->clip_factor(o->b, 0, &one, &i32, &x, 1, &o->e), ERR_ARG, "clip is i32");
    OPS_ERR(o, t->clip_factor(o->b, 0, &x, &one, &x, 1, &o->e), ERR_ARG, "norm");
    OPS_ERR(o, t->clip_factor(o->b, 0, &one, &one, &bf16, 1, &o->e), ERR_ARG, "squares is bf16");
    OPS_ERR(o, t->flag_nonfinite(o->b, 0, &flag, &i32, &bf16, 0, &o->e), ERR_ARG, "x is bf16");
    OPS_ERR(o, t->flag_nonfinite(o->b, 0, &i32, &i32, &x, 0, &o->e), ERR_ARG, "flag is [1, 1]");
    OPS_ERR(o, t->flag_nonfinite(o->b, 0, &flag, &one, &x, 0, &o->e), ERR_ARG, "step is f32");
    struct sink sink = sink_value(&x, NULL);
    sink.sums = &one;
    OPS_ERR(o, t->quantise(o->b, 0, &sink, &x, &o->e), ERR_ARG, "sums is [1, 1], not [4, 1]");
    sink.sums = &i32;
    OPS_ERR(o, t->quantise(o->b, 0, &sink, &x, &o->e), ERR_ARG, "sums is i32");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_is_the_definition), cmocka_unit_test(test_sum_squares_bf16),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_clip_factor), cmocka_unit_test(test_flag_order),
        cmocka_unit_test(test_column_sums), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
