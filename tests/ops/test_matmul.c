/* matmul, two comparisons. To the bit with the definition in backend.h, written as scalar fmaf
 * chains, for every vector kernel of this machine and 1, 2, 3 threads. Within a bound with a naive
 * double loop, which does not use that definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/op_tensor.h"

enum bias { NO_BIAS, ACT_BIAS, F32_BIAS };
enum residual { NO_RESIDUAL, RESIDUAL, OUT_IS_RESIDUAL };

struct matmul_case {
    int64_t M, N, K;
    enum dtype a, b;
    enum scale_kind kind_a, kind_b;
    enum dtype out;
    bool transposed_a, transposed_b;
    enum bias bias;
    float beta;
    enum residual residual;
};

#define F DTYPE_F32
#define H DTYPE_BF16
#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define NONE SCALE_NONE

static const struct matmul_case CASES[] = {
    /* sizes: one, tails of every micro-tile, several tiles */
    { .M = 1, .N = 1, .K = 1, .a = F, .b = F, .out = F },
    { .M = 1, .N = 1, .K = 0, .a = F, .b = F, .out = F, .bias = F32_BIAS },
    { .M = 12, .N = 32, .K = 256, .a = F, .b = F, .out = F },
    { .M = 13, .N = 33, .K = 257, .a = F, .b = F, .out = F },
    { .M = 7, .N = 5, .K = 3, .a = H, .b = H, .out = H },
    { .M = 130, .N = 261, .K = 67, .a = H, .b = H, .out = H },
    { .M = 261, .N = 1, .K = 129, .a = H, .b = H, .out = F },
    /* more than the buffers hold: along M and N, and along K */
    { .M = 1460, .N = 1450, .K = 2, .a = F, .b = F, .out = H },
    { .M = 3, .N = 2, .K = 8200, .a = H, .b = H, .out = F, .transposed_b = true },
    { .M = 515, .N = 3, .K = 4097, .a = H, .b = H, .out = F },
    { .M = 2, .N = 3, .K = 4200, .a = E, .b = E, .kind_a = SCALE_1X32, .kind_b = SCALE_1X32,
      .out = F },
    { .M = 2, .N = 3, .K = 8300, .a = E, .b = E, .kind_a = SCALE_1X128, .kind_b = SCALE_1X128,
      .out = F },
    /* transposed views: dgrad, wgrad */
    { .M = 37, .N = 50, .K = 70, .a = F, .b = F, .out = F, .transposed_a = true },
    { .M = 37, .N = 50, .K = 70, .a = H, .b = H, .out = H, .transposed_b = true },
    { .M = 141, .N = 43, .K = 300, .a = H, .b = H, .out = F, .beta = 1, .transposed_a = true,
      .transposed_b = true },
    /* addends after the sum, in their order */
    { .M = 20, .N = 40, .K = 30, .a = H, .b = H, .out = H, .bias = ACT_BIAS },
    { .M = 20, .N = 40, .K = 30, .a = H, .b = H, .out = F, .bias = F32_BIAS, .beta = 1 },
    { .M = 20, .N = 40, .K = 30, .a = F, .b = F, .out = F, .residual = RESIDUAL },
    { .M = 20, .N = 40, .K = 30, .a = H, .b = H, .out = H, .residual = OUT_IS_RESIDUAL },
    { .M = 20, .N = 40, .K = 30, .a = H, .b = H, .out = H, .bias = F32_BIAS, .beta = 1,
      .residual = RESIDUAL },
    /* FP8: every pair of scales that the interface has, each with a short last block */
    { .M = 40, .N = 35, .K = 100, .a = E, .b = E, .kind_a = SCALE_TENSOR, .kind_b = SCALE_TENSOR,
      .out = H },
    { .M = 40, .N = 35, .K = 100, .a = E, .b = G, .kind_a = SCALE_TENSOR, .kind_b = SCALE_TENSOR,
      .out = F, .beta = 1 },
    { .M = 40, .N = 35, .K = 100, .a = G, .b = E, .kind_a = SCALE_TENSOR, .kind_b = SCALE_TENSOR,
      .out = H, .residual = RESIDUAL },
    { .M = 40, .N = 35, .K = 100, .a = E, .b = E, .kind_a = SCALE_ROW, .kind_b = SCALE_ROW,
      .out = H, .bias = ACT_BIAS },
    { .M = 40, .N = 35, .K = 100, .a = E, .b = E, .kind_a = SCALE_ROW, .kind_b = SCALE_TENSOR,
      .out = F },
    { .M = 40, .N = 35, .K = 100, .a = E, .b = E, .kind_a = SCALE_TENSOR, .kind_b = SCALE_ROW,
      .out = F },
    { .M = 140, .N = 135, .K = 300, .a = E, .b = E, .kind_a = SCALE_1X128,
      .kind_b = SCALE_128X128, .out = H, .residual = RESIDUAL },
    { .M = 140, .N = 35, .K = 300, .a = G, .b = E, .kind_a = SCALE_1X128, .kind_b = SCALE_128X128,
      .out = H },
    { .M = 140, .N = 35, .K = 300, .a = E, .b = E, .kind_a = SCALE_128X128,
      .kind_b = SCALE_1X128, .out = F },
    { .M = 40, .N = 135, .K = 300, .a = E, .b = E, .kind_a = SCALE_1X128, .kind_b = SCALE_1X128,
      .out = F, .beta = 1 },
    { .M = 40, .N = 35, .K = 300, .a = E, .b = E, .kind_a = SCALE_1X32, .kind_b = SCALE_1X32,
      .out = H },
    { .M = 40, .N = 70, .K = 290, .a = E, .b = E, .kind_a = SCALE_1X32, .kind_b = SCALE_32X32,
      .out = H },
    { .M = 40, .N = 70, .K = 290, .a = E, .b = G, .kind_a = SCALE_32X32, .kind_b = SCALE_1X32,
      .out = F },
    { .M = 40, .N = 70, .K = 290, .a = E, .b = E, .kind_a = SCALE_32X32, .kind_b = SCALE_32X32,
      .out = F },
    /* untransposed twins: dgrad, wgrad, and one that no model has */
    { .M = 40, .N = 70, .K = 290, .a = G, .b = E, .kind_a = SCALE_1X32, .kind_b = SCALE_32X32,
      .transposed_b = true, .out = H },
    { .M = 40, .N = 135, .K = 290, .a = E, .b = G, .kind_a = SCALE_1X32, .kind_b = SCALE_1X32,
      .transposed_a = true, .transposed_b = true, .out = F, .beta = 1 },
    { .M = 1, .N = 70, .K = 33, .a = E, .b = E, .kind_a = SCALE_1X32, .kind_b = SCALE_1X32,
      .transposed_a = true, .out = F },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

/* The operands of one case. */
struct fixture {
    struct tensor a, b, *out, *before, *bias, *residual;
    struct matmul_args args;
};

static struct tensor operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                             bool transposed, uint64_t seed) {
    bool fp8 = dtype_is_fp8(t); /* transposed: then an untransposed twin */
    struct tensor *x = transposed && !fp8 ? op_tensor(t, k, rows, NONE)
                                          : op_tensor(t, rows, k, kind);
    op_fill(x, seed, 4);
    if (transposed && fp8) return *op_untransposed(x);
    return transposed ? op_transposed_view(x) : *x;
}

static void fixture_make(struct fixture *f, const struct matmul_case *c) {
    memset(f, 0, sizeof *f);
    f->a = operand(c->a, c->M, c->K, c->kind_a, c->transposed_a, 1);
    f->b = operand(c->b, c->N, c->K, c->kind_b, c->transposed_b, 2);
    f->out = op_tensor(c->out, c->M, c->N, NONE);
    f->before = op_tensor(c->out, c->M, c->N, NONE);
    op_fill(f->before, 3, 4);
    if (c->bias) {
        f->bias = op_tensor(c->bias == F32_BIAS ? F : H, c->N, 1, NONE);
        op_fill(f->bias, 4, 4);
    }
    if (c->residual == RESIDUAL) {
        f->residual = op_tensor(c->out, c->M, c->N, NONE);
        op_fill(f->residual, 5, 4);
    }
    if (c->residual == OUT_IS_RESIDUAL) f->residual = f->out;
    f->args = (struct matmul_args){ .out = f->out, .a = &f->a, .b = &f->b, .bias = f->bias,
                                    .residual = f->residual, .beta = c->beta };
}

static int64_t block_of(enum scale_kind kind) {
    if (kind == SCALE_1X128 || kind == SCALE_128X128) return 128;
    return kind == SCALE_1X32 || kind == SCALE_32X32 ? 32 : 0;
}

/* The definition in backend.h, literally. */
static float defined_sum(const struct fixture *f, int64_t i, int64_t j) {
    int64_t K = f->a.dim[1], block = block_of(f->a.scale.kind);
    float total = 0.0f, acc = 0.0f;
    for (int64_t k = 0; k < K; k++) {
        acc = fmaf(op_stored(&f->a, i, k), op_stored(&f->b, j, k), acc);
        if (!block || ((k + 1) % block != 0 && k + 1 < K)) continue;
        total = fmaf(acc, op_factor(&f->a, i, k) * op_factor(&f->b, j, k), total);
        acc = 0.0f;
    }
    if (block) return total;
    return f->a.scale.kind == NONE ? acc : acc * (op_factor(&f->a, i, 0) * op_factor(&f->b, j, 0));
}

static float defined_out(const struct fixture *f, int64_t i, int64_t j) {
    float x = defined_sum(f, i, j);
    if (f->bias) x = x + op_stored(f->bias, j, 0);
    if (f->args.beta != 0) x = x + op_stored(f->before, i, j);
    if (f->residual)
        x = x + op_stored(f->residual == f->out ? f->before : f->residual, i, j);
    return x;
}

static double naive_out(const struct fixture *f, int64_t i, int64_t j) {
    double x = 0;
    for (int64_t k = 0; k < f->a.dim[1]; k++)
        x += (double)op_stored(&f->a, i, k) * (double)op_factor(&f->a, i, k) *
             (double)op_stored(&f->b, j, k) * (double)op_factor(&f->b, j, k);
    if (f->bias) x += (double)op_stored(f->bias, j, 0);
    if (f->args.beta != 0) x += (double)op_stored(f->before, i, j);
    if (f->residual) x += (double)op_stored(f->residual == f->out ? f->before : f->residual, i, j);
    return x;
}

static void run(struct backend *b, struct fixture *f) {
    struct err e;
    memcpy(f->out->data, f->before->data, (size_t)op_bytes(f->out));
    if (b->ops->matmul(b, LANE_COMPUTE, &f->args, &e) != OK) fail_msg("%s", e.text);
}

static void check_variant(struct backend *b, struct fixture *f, const struct tensor *want,
                          size_t row, const char *isa, int threads) {
    run(b, f);
    if (memcmp(f->out->data, want->data, (size_t)op_bytes(want)) == 0) return;
    for (int64_t i = 0; i < want->dim[0]; i++)
        for (int64_t j = 0; j < want->dim[1]; j++)
            if (f32_bits(op_stored(f->out, i, j)) != f32_bits(op_stored(want, i, j)))
                fail_msg("row %zu, %s, %d threads: out[%lld][%lld] = %a, defined %a", row, isa,
                         threads, (long long)i, (long long)j, (double)op_stored(f->out, i, j),
                         (double)op_stored(want, i, j));
}

static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };

static void test_bits_are_those_of_the_definition(void **state) {
    for (size_t row = 0; row < CASE_COUNT; row++) {
        struct fixture f;
        int variants = 0;
        fixture_make(&f, &CASES[row]);
        struct tensor *want = op_tensor(CASES[row].out, CASES[row].M, CASES[row].N, NONE);
        for (int64_t i = 0; i < want->dim[0]; i++)
            for (int64_t j = 0; j < want->dim[1]; j++) op_set(want, i, j, defined_out(&f, i, j));
        for (size_t v = 0; v < 12; v++) {
            struct backend *b = op_backend((int)v % 3 + 1, ISAS[v / 3]);
            if (!b) continue;
            variants++;
            check_variant(b, &f, want, row, ISAS[v / 3], (int)v % 3 + 1);
        }
        assert_true(variants >= 3);
        op_free();
    }
}

/* An f32 chain of K terms has a relative error of about sqrt(K) * 2^-24, squared 3e-11 for K 8300.
 * A bf16 result has at most 2^-9, squared and averaged 1.3e-6. */
static void test_close_to_a_naive_double_loop(void **state) {
    struct backend *b = op_backend(2, NULL);
    assert_non_null(b);
    for (size_t row = 0; row < CASE_COUNT; row++) {
        struct fixture f;
        double error = 0, size = 0;
        fixture_make(&f, &CASES[row]);
        run(b, &f);
        struct tensor *out = f.out;
        for (int64_t i = 0; i < out->dim[0]; i++)
            for (int64_t j = 0; j < out->dim[1]; j++) {
                double want = naive_out(&f, i, j), got = (double)op_stored(out, i, j);
                error += (got - want) * (got - want);
                size += want * want;
            }
        double bound = CASES[row].out == F ? 3e-11 : 4e-6;
        if (!(error <= bound * size)) fail_msg("row %zu: NMSE %g", row, error / size);
    }
    op_free();
}

static void test_nan_is_kept_and_canonical(void **state) {
    static const struct matmul_case SMALL = { .M = 3, .N = 3, .K = 40, .a = F, .b = F, .out = F };
    for (size_t v = 0; v < 4; v++) {
        struct backend *b = op_backend(1, ISAS[v]);
        if (!b) continue;
        struct fixture f;
        fixture_make(&f, &SMALL);
        float *a = f.a.data, *x = f.b.data, *out = f.out->data;
        a[0] = f32_from_bits(0xFFC12345u);        /* row 0: a signed NaN with a payload */
        a[40] = INFINITY;                         /* row 1: infinity, and infinity * 0 */
        x[0] = 1.0f, x[40] = 0.0f, x[80] = -1.0f;
        run(b, &f);
        for (int j = 0; j < 3; j++) assert_int_equal(f32_bits(out[j]), 0x7FC00000u);
        assert_true(out[3] == INFINITY && out[5] == -INFINITY);
        assert_int_equal(f32_bits(out[4]), 0x7FC00000u);
        assert_true(isfinite(out[6]));
        op_free();
    }
}

/* ---- rejected arguments ---- */

static void spoil_k(struct fixture *f) { f->b.dim[1]++; }
static void spoil_dtype(struct fixture *f) { f->b.dtype = H; }
static void spoil_integer(struct fixture *f) { f->a.dtype = DTYPE_I32; }
static void spoil_mixed(struct fixture *f) { f->b = operand(E, 8, 8, SCALE_TENSOR, false, 1); }
static void spoil_strides(struct fixture *f) { f->a.stride[1] = 3; f->a.stride[0] = 24; }
static void spoil_dims(struct fixture *f) { f->a.dim[2] = 2; }
static void spoil_missing(struct fixture *f) { f->args.a = NULL; }
static void spoil_scale(struct fixture *f) { f->a.scale.kind = SCALE_TENSOR; }
static void spoil_out_shape(struct fixture *f) { f->out->dim[0] = 7; }
static void spoil_out_dtype(struct fixture *f) { f->out->dtype = DTYPE_U32; }
static void spoil_out_rows(struct fixture *f) { f->out->stride[1] = 2; }
static void spoil_bias(struct fixture *f) { f->args.bias = op_tensor(F, 9, 1, NONE); }
static void spoil_bias_stride(struct fixture *f) {
    struct tensor *bias = op_tensor(F, 8, 2, NONE);
    bias->dim[1] = 1;
    f->args.bias = bias;
}
static void spoil_residual(struct fixture *f) { f->args.residual = op_tensor(H, 8, 8, NONE); }
static void spoil_residual_shape(struct fixture *f) { f->args.residual = op_tensor(F, 8, 7, NONE); }
static void spoil_beta(struct fixture *f) { f->args.beta = 0.5f; }
static void spoil_beta_residual(struct fixture *f) { f->args.beta = 1; f->args.residual = f->out; }

static void fp8(struct fixture *f, enum dtype a, enum dtype b, enum scale_kind kind_a,
                enum scale_kind kind_b) {
    f->a = operand(a, 8, 8, kind_a, false, 1);
    f->b = operand(b, 8, 8, kind_b, false, 2);
}
static void spoil_e5m2(struct fixture *f) { fp8(f, G, G, SCALE_TENSOR, SCALE_TENSOR); }
static void spoil_squares(struct fixture *f) { fp8(f, E, E, SCALE_128X128, SCALE_128X128); }
static void spoil_blocks(struct fixture *f) { fp8(f, E, E, SCALE_1X128, SCALE_1X32); }
static void spoil_block_tensor(struct fixture *f) { fp8(f, E, E, SCALE_1X128, SCALE_TENSOR); }
static void spoil_block_row(struct fixture *f) { fp8(f, E, E, SCALE_ROW, SCALE_1X32); }
static void spoil_no_scale(struct fixture *f) { fp8(f, E, E, NONE, SCALE_TENSOR); }
static void spoil_scale_shape(struct fixture *f) {
    fp8(f, E, E, SCALE_ROW, SCALE_ROW);
    f->b.scale.dim[0] = 9;
}
static void spoil_scale_dtype(struct fixture *f) {
    fp8(f, E, E, SCALE_ROW, SCALE_ROW);
    f->b.scale.dtype = DTYPE_E8M0;
}
static void spoil_fp8_view(struct fixture *f) {
    fp8(f, E, E, SCALE_TENSOR, SCALE_TENSOR);
    f->a = op_transposed_view(&f->a);
}

static const struct { void (*spoil)(struct fixture *f); const char *text; } REFUSED[] = {
    { spoil_k, "K is 8 in a, 9 in b" },
    { spoil_dtype, "a is f32, b is bf16" },
    { spoil_integer, "a is i32" },
    { spoil_mixed, "a is f32, b is e4m3" },
    { spoil_strides, "a has no stride of 1" },
    { spoil_dims, "a has more than two dimensions" },
    { spoil_missing, "a is missing" },
    { spoil_scale, "a is f32 and has a scale" },
    { spoil_out_shape, "out is [7, 8], not [8, 8]" },
    { spoil_out_dtype, "out is u32" },
    { spoil_out_rows, "out has rows that are not contiguous" },
    { spoil_bias, "bias is [9, 1], not [8, 1]" },
    { spoil_bias_stride, "bias is strided" },
    { spoil_residual, "residual is bf16" },
    { spoil_residual_shape, "residual is [8, 7], not [8, 8]" },
    { spoil_beta, "beta is 0.5" },
    { spoil_beta_residual, "out is its own residual with beta 1" },
    { spoil_e5m2, "e5m2 with e5m2" },
    { spoil_squares, "128x128 with 128x128" },
    { spoil_blocks, "scale blocks of 128 along K in a, 32 in b" },
    { spoil_block_tensor, "scale blocks of 128 along K in a, 0 in b" },
    { spoil_block_row, "scale blocks of 0 along K in a, 32 in b" },
    { spoil_no_scale, "e4m3 without a scale" },
    { spoil_scale_shape, "the scale is f32 [9, 1], not f32 [8, 1]" },
    { spoil_scale_dtype, "the scale is e8m0 [8, 1], not f32 [8, 1]" },
    { spoil_fp8_view, "a is FP8 and not contiguous along K" },
};

static void test_refuses(void **state) {
    struct backend *b = op_backend(1, NULL);
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct fixture f;
        struct err e = { .text = "" };
        fixture_make(&f, &(struct matmul_case){ .M = 8, .N = 8, .K = 8, .a = F, .b = F, .out = F });
        REFUSED[i].spoil(&f);
        enum status st = b->ops->matmul(b, LANE_COMPUTE, &f.args, &e);
        if (st != ERR_ARG || !strstr(e.text, REFUSED[i].text))
            fail_msg("row %zu: %s, \"%s\"; wanted \"%s\"", i, status_name(st), e.text,
                     REFUSED[i].text);
    }
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits_are_those_of_the_definition),
        cmocka_unit_test(test_close_to_a_naive_double_loop),
        cmocka_unit_test(test_nan_is_kept_and_canonical),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
