/* Our product on mma.sync (kernels/cuda/gemm_sync_body.h), run on the host by an emulator of the
 * instructions: every output equals, to the bit, the CPU's product under the arithmetics of sm_89
 * and sm_120, and is near the reference. Whatever the order of the warps, and however late copies
 * arrive. Nothing outside the outputs is written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/native.h"
#include "tests/ops/sync_machine.h"
#include "tests/support/op_tensor.h"

#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define H DTYPE_BF16
#define F DTYPE_F32

struct sync_case {
    const char *arithmetic;
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind kind_a, kind_b;
    bool bias, residual;
    float beta;
    int64_t gap; /* between rows of out */
};

static const struct sync_case CASES[] = {
    /* more than a tile of rows; 2.3 blocks of K */
    { "sm_120", 130, 70, 300, E, E, H, SCALE_1X128, SCALE_128X128, .bias = true },
    /* more than a tile of columns, in three blocks of 128x128; 1.02 blocks of K */
    { "ada", 40, 259, 130, E, E, F, SCALE_1X128, SCALE_128X128, .residual = true, .gap = 3 },
    { "ada", 21, 130, 160, G, E, F, SCALE_1X128, SCALE_1X128, .beta = 1 },
    { "sm_120", 17, 9, 128, E, G, H, SCALE_1X128, SCALE_1X128, .beta = 1, .gap = 1 },
    { "sm_120", 9, 17, 700, E, E, F, SCALE_ROW, SCALE_TENSOR, .bias = true, .residual = true },
    { "ada", 33, 31, 270, E, G, H, SCALE_ROW, SCALE_ROW, .beta = 0 },
    { "sm_120", 1, 1, 1, E, E, F, SCALE_TENSOR, SCALE_ROW, .beta = 0 },
    { "hopper", 50, 60, 200, H, H, F, .beta = 1 },
    { "ada", 129, 8, 72, H, H, H, .bias = true },
};

/* The padding of the CPU's tensors is zero, but the kernel must not read it. */
static struct tensor operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                             uint64_t seed) {
    struct tensor *x = op_tensor(t, rows, k, kind);
    op_fill(x, seed, 6);
    for (int64_t i = 0; dtype_is_fp8(t) && i < rows; i++)
        memset((uint8_t *)x->data + i * x->stride[0] + k, 0x7F, (size_t)(x->stride[0] - k));
    return *x;
}

static int kind_of(const struct matmul_args *t) {
    if (t->a->dtype == H) return SYNC_BF16;
    if (t->a->dtype == G) return SYNC_E5M2_E4M3;
    return t->b->dtype == G ? SYNC_E4M3_E5M2 : SYNC_E4M3_E4M3;
}

static int shift_of(const struct tensor *x) { return x->scale.kind == SCALE_128X128 ? 7 : 0; }

/* As gemm_sync.cu fills it. */
static struct sync_product product_of(const struct matmul_args *t) {
    int64_t size = dtype_bytes(t->a->dtype);
    const void *addend = t->residual ? t->residual->data : t->beta != 0 ? t->out->data : NULL;
    return (struct sync_product){
        .a = t->a->data, .b = t->b->data, .factor_a = t->a->scale.data,
        .factor_b = t->b->scale.data, .bias = t->bias ? t->bias->data : NULL, .addend = addend,
        .out = t->out->data, .rows = t->a->dim[0], .cols = t->b->dim[0],
        .bytes = t->a->dim[1] * size, .lda = t->a->stride[0] * size, .ldb = t->b->stride[0] * size,
        .ld = t->out->stride[0], .blocks = ceil_div(t->a->dim[1], 128), .shift_a = shift_of(t->a),
        .shift_b = shift_of(t->b), .step_a = t->a->scale.kind == SCALE_ROW,
        .step_b = t->b->scale.kind == SCALE_ROW, .out_bf16 = t->out->dtype == H,
        .bias_bf16 = t->bias && t->bias->dtype == H, .paired = t->out->stride[0] % 2 == 0,
    };
}

static int scales_of(const struct matmul_args *t) {
    if (t->a->dtype == H) return SYNC_UNSCALED;
    return scale_block(t->a->scale.kind) ? SYNC_BLOCKS : SYNC_LAST;
}

/* Runs every tile on the emulator. */
static void run_emulated(const struct sync_case *c, const struct matmul_args *args, bool late) {
    struct machine *m = calloc(1, sizeof *m);
    struct sync_product g = product_of(args);
    const struct arithmetic *arithmetic;
    struct mma_way way;
    struct err e;
    if (arithmetic_find(c->arithmetic, &arithmetic, &e) != OK ||
        arithmetic_way(arithmetic, args, &way, &e) != OK)
        fail_msg("%s", e.text);
    m->product = &g;
    m->kind = kind_of(args);
    m->scales = scales_of(args);
    m->late = m->backwards = late;
    m->mma = way.mma;
    m->least_a = way.least_a;
    m->least_b = way.least_b;
    for (m->tile = 0; m->tile < sync_tiles(&g); m->tile++) run_block(m);
    int64_t each = SYNC_THREADS / LANES * SYNC_DEPTH / SYNC_STEP * SYNC_M * SYNC_N;
    assert_int_equal(m->instructions, sync_tiles(&g) * sync_stages(&g) * each);
    machine_free(m);
}

/* The last row of out, with its gap, is the last memory that may be written. */
struct tensors { struct tensor a, b, out, emulated, before, bias, residual; };

static struct tensor output(const struct sync_case *c, uint64_t seed) {
    struct tensor *whole = op_tensor(c->out, c->m, c->n + c->gap, SCALE_NONE), x;
    op_fill(whole, seed, 4);
    x = *whole;
    x.dim[1] = c->n;
    return x;
}

static struct matmul_args make(const struct sync_case *c, struct tensors *t) {
    t->a = operand(c->a, c->m, c->k, c->kind_a, 11);
    t->b = operand(c->b, c->n, c->k, c->kind_b, 12);
    t->out = output(c, 13);
    t->emulated = output(c, 13);
    t->before = output(c, 13);
    t->residual = output(c, 14);
    struct tensor *bias = op_tensor(c->out, c->n, 1, SCALE_NONE);
    op_fill(bias, 15, 4);
    t->bias = *bias;
    return (struct matmul_args){ .out = &t->out, .a = &t->a, .b = &t->b,
                                 .bias = c->bias ? &t->bias : NULL,
                                 .residual = c->residual ? &t->residual : NULL, .beta = c->beta };
}

static int64_t bytes_of(const struct sync_case *c) {
    return c->m * (c->n + c->gap) * dtype_bytes(c->out);
}

static void multiply(const char *arithmetic, const struct matmul_args *args) {
    struct backend *b = op_backend(1, NULL);
    struct err e;
    if (cpu_backend_calculate(b, arithmetic, &e) != OK ||
        b->ops->matmul(b, LANE_COMPUTE, args, &e) != OK)
        fail_msg("%s: %s", arithmetic, e.text);
}

/* NMSE of what the kernel made, beside what the reference makes of the same. */
static double distance(const struct tensor *x, const struct tensor *reference) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++) {
            double want = (double)op_stored(reference, i, j), d = (double)op_stored(x, i, j) - want;
            error += d * d;
            size += want * want;
        }
    return error / size;
}

/* 13 bits in each of four instructions of a chain, and one rounding to BF16. */
static void is_near(const struct sync_case *c, const struct tensor *x, const struct tensor *want) {
    double s = 4 * 0x1p-13, rounding = c->out == H ? 0x1p-8 : 0x1p-23, found = distance(x, want);
    if (!(found <= s * s + rounding * rounding))
        fail_msg("%lld x %lld x %lld: NMSE %g from the reference", (long long)c->m,
                 (long long)c->n, (long long)c->k, found);
}

/* Cases take turns: copies at once and the first warp first, or late and the last warp first. */
static void check_case(const struct sync_case *c, int first, int last) {
    struct tensors t;
    struct matmul_args args = make(c, &t), there = args;
    there.out = &t.emulated;
    multiply(c->arithmetic, &args);
    for (int late = first; late <= last; late++) {
        memcpy(t.emulated.data, t.before.data, (size_t)bytes_of(c));
        run_emulated(c, &there, late);
        for (int64_t i = 0; i < c->m; i++)
            for (int64_t j = 0; j < c->n; j++)
                if (f32_bits(op_stored(&t.emulated, i, j)) != f32_bits(op_stored(&t.out, i, j)))
                    fail_msg("%s, %lld x %lld x %lld: [%lld, %lld] is %a, wanted %a", c->arithmetic,
                             (long long)c->m, (long long)c->n, (long long)c->k, (long long)i,
                             (long long)j, (double)op_stored(&t.emulated, i, j),
                             (double)op_stored(&t.out, i, j));
        assert_memory_equal(t.emulated.data, t.out.data, (size_t)bytes_of(c)); /* the gaps too */
    }
    memcpy(t.out.data, t.before.data, (size_t)bytes_of(c));
    multiply("reference", &args);
    is_near(c, &t.emulated, &t.out);
    op_free();
}

static void test_equals_the_cpu(void **state) {
    int count = sizeof CASES / sizeof *CASES;
    for (int i = 0; i < count; i++) check_case(&CASES[i], i && i % 2, i % 2 || !i);
}

/* Every tile is computed once, whatever the number of rows of tiles. */
static void test_tiles(void **state) {
    static const int64_t SIZES[][2] = { { 1, 1 }, { 129, 700 }, { 1100, 300 }, { 2048, 128 },
                                        { 1025, 1025 } };
    for (size_t s = 0; s < sizeof SIZES / sizeof *SIZES; s++) {
        struct sync_product g = { .rows = SIZES[s][0], .cols = SIZES[s][1] };
        int64_t across = ceil_div(g.cols, SYNC_COLS), row, col;
        bool seen[256] = { false };
        for (int64_t i = 0; i < sync_tiles(&g); i++) {
            sync_tile(&g, i, &row, &col);
            assert_true(row % SYNC_ROWS == 0 && row < g.rows);
            assert_true(col % SYNC_COLS == 0 && col < g.cols);
            bool *tile = &seen[row / SYNC_ROWS * across + col / SYNC_COLS];
            assert_false(*tile);
            *tile = true;
        }
    }
}

/* A NaN code reaches its row alone; a row of zeros gives +0. */
static void test_nan_and_zeros(void **state) {
    static const struct sync_case c = { "sm_120", 20, 24, 200, E, E, F, SCALE_1X128,
                                        SCALE_1X128, .beta = 0 };
    struct tensors t;
    struct matmul_args args = make(&c, &t);
    uint8_t *codes = t.a.data;
    codes[3 * t.a.stride[0] + 150] = 0x7F;
    memset(codes + 5 * t.a.stride[0], 0, (size_t)c.k);
    run_emulated(&c, &args, true);
    for (int64_t i = 0; i < c.m; i++)
        for (int64_t j = 0; j < c.n; j++) {
            uint32_t bits = f32_bits(op_stored(&t.out, i, j));
            if (i == 3) assert_int_equal(bits, 0x7FC00000u);
            else assert_true(isfinite(op_stored(&t.out, i, j)));
            if (i == 5) assert_int_equal(bits, 0);
        }
    op_free();
}

/* A stage and its factors fill what sm_89 and sm_120 give a block of threads: 99 KB. */
static void test_shared_memory(void **state) {
    assert_int_equal(SYNC_SHARED, 99 << 10);
    assert_int_equal(SYNC_STAGE % SYNC_DEPTH, 0);
}

/* Who multiplies FP8, for each device and pair of scales: kernels/cuda/CHOICES.md. */
static void test_who_multiplies(void **state) {
    enum { L = GEMM_BY_LIBRARY, O = GEMM_BY_SYNC, W = GEMM_EMULATED };
    static const int CC[] = { 80, 89, 90, 100, 120, 121 };
    static const struct { enum scale_kind a, b; int64_t n; int by[6]; } ROWS[] = {
        { SCALE_TENSOR, SCALE_TENSOR, 64, { W, L, L, L, L, L } },
        { SCALE_ROW, SCALE_ROW, 64, { W, O, L, W, O, O } },
        { SCALE_TENSOR, SCALE_ROW, 64, { W, O, L, W, O, O } },
        { SCALE_1X128, SCALE_128X128, 64, { W, O, L, W, O, O } },
        { SCALE_1X128, SCALE_1X128, 63, { W, O, W, W, O, O } },
        { SCALE_1X32, SCALE_32X32, 64, { W, W, W, L, L, L } },
        { SCALE_1X16, SCALE_16X16, 63, { W, W, W, W, W, W } },
    };
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++)
        for (int d = 0; d < 6; d++) {
            const struct gemm_kind kind = { CC[d], 0, ROWS[r].a, ROWS[r].b, 128, ROWS[r].n,
                                            256, false, false };
            if (gemm_by_of(&kind) != (enum gemm_by)ROWS[r].by[d])
                fail_msg("row %zu, sm_%d", r, CC[d]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_the_cpu), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_nan_and_zeros),  cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_who_multiplies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
