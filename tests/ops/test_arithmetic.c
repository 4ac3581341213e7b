/* Products under a tensor core's arithmetic, to the bit: with outputs that arithmetic.py computed
 * from exact fractions, for every arithmetic and vector kernel; and whole products with
 * arithmetic_output, output by output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/arithmetic.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/op_tensor.h"

static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };
enum { ISA_COUNT = 4, LINE_MAX_BYTES = 1 << 14 };

static struct backend *backend_of(int threads, const char *isa, const char *arithmetic) {
    struct err e;
    struct backend *b = op_backend(threads, isa);
    if (b && cpu_backend_calculate(b, arithmetic, &e) != OK) fail_msg("%s", e.text);
    return b;
}

/* ---- recorded outputs ---- */

static uint32_t hex(const char *text, int digits) {
    char part[9] = "";
    memcpy(part, text, (size_t)digits);
    return (uint32_t)strtoul(part, NULL, 16);
}

static enum dtype dtype_of(const char *name) {
    if (!strcmp(name, "bf16")) return DTYPE_BF16;
    if (!strcmp(name, "e2m1")) return DTYPE_E2M1;
    return strcmp(name, "e4m3") ? DTYPE_E5M2 : DTYPE_E4M3;
}

static enum scale_kind kind_of(const char *name) {
    static const struct { const char *name; enum scale_kind kind; } KINDS[] = {
        { "none", SCALE_NONE }, { "tensor", SCALE_TENSOR }, { "row", SCALE_ROW },
        { "1x128", SCALE_1X128 }, { "1x32", SCALE_1X32 }, { "1x16", SCALE_1X16 } };
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
        if (!strcmp(name, KINDS[i].name)) return KINDS[i].kind;
    fail_msg("scale %s", name);
    return SCALE_NONE;
}

/* ROWS equal rows of codes and their factors: Hopper multiplies FP8 in blocks only where an output
 * has multiples of 8 rows and columns. */
enum { ROWS = 8 };
static struct tensor *operand(const char *dtype, const char *scale, int64_t k, const char *codes,
                              const char *factors) {
    enum dtype t = dtype_of(dtype);
    struct tensor *x = op_tensor(t, ROWS, k, kind_of(scale));
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t i = 0; i < k; i++)
            if (t == DTYPE_BF16)
                ((uint16_t *)x->data)[row * x->stride[0] + i] = (uint16_t)hex(codes + 4 * i, 4);
            else
                ((uint8_t *)x->data)[row * x->stride[0] + i] = (uint8_t)hex(codes + 2 * i, 2);
    bool nvfp4 = x->scale.kind == SCALE_1X16; /* the amax comes first */
    float amax = nvfp4 ? f32_from_bits(hex(factors, 8)) : 0.0f;
    if (nvfp4) memcpy(x->scale.data, &amax, sizeof amax);
    for (int64_t i = 0; i < x->scale.dim[0] * x->scale.dim[1]; i++) {
        int64_t of_row = i % x->scale.dim[1];
        if (nvfp4)
            ((uint8_t *)x->scale.data)[SCALE_HEADER + i] =
                (uint8_t)hex(factors + 8 + 2 * of_row, 2);
        else if (x->scale.dtype == DTYPE_E8M0)
            ((uint8_t *)x->scale.data)[i] = (uint8_t)hex(factors + 2 * of_row, 2);
        else if (x->scale.kind != SCALE_NONE)
            ((float *)x->scale.data)[i] = f32_from_bits(hex(factors + 8 * of_row, 8));
    }
    return x;
}

enum { NAME, DTYPE_A, DTYPE_B, SCALE, FAST, K_OF, CODES_A, CODES_B, FACTORS_A, FACTORS_B, WANTED,
       FIELDS };

static void check_line(int number, char *const field[FIELDS]) {
    int64_t k = strtoll(field[K_OF], NULL, 10);
    struct tensor *a = operand(field[DTYPE_A], field[SCALE], k, field[CODES_A], field[FACTORS_A]);
    struct tensor *b = operand(field[DTYPE_B], field[SCALE], k, field[CODES_B], field[FACTORS_B]);
    struct tensor *out = op_tensor(DTYPE_F32, ROWS, ROWS, SCALE_NONE);
    struct matmul_args args = { .out = out, .a = a, .b = b,
                                .fast_accumulate = *field[FAST] == '1' };
    const struct arithmetic *m;
    struct mma_way way;
    struct err e;
    uint32_t wanted = hex(field[WANTED], 8);
    if (arithmetic_find(field[NAME], &m, &e) != OK || arithmetic_way(m, &args, &way, &e) != OK)
        fail_msg("line %d: %s", number, e.text);
    uint32_t got = f32_bits(f32_canonical(arithmetic_output(&way, &args, 0, 0)));
    if (got != wanted) fail_msg("line %d: one output %08x, wanted %08x", number, got, wanted);
    for (int i = 0; i < ISA_COUNT; i++) {
        struct backend *backend = backend_of(1, ISAS[i], field[NAME]);
        if (!backend) continue;
        if (backend->ops->matmul(backend, LANE_COMPUTE, &args, &e) != OK) fail_msg("%s", e.text);
        for (int at = 0; at < ROWS * ROWS; at++) {
            got = f32_bits(((float *)out->data)[at]);
            if (got != wanted)
                fail_msg("line %d, %s: %08x, wanted %08x", number, ISAS[i], got, wanted);
        }
    }
    op_free();
}

static void test_recorded_outputs(void **state) {
    static char line[LINE_MAX_BYTES];
    int lines = 0;
    FILE *f = fopen("tests/ops/arithmetic.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *field[FIELDS], *rest = line;
        for (int i = 0; i < FIELDS; i++) assert_non_null(field[i] = strtok_r(rest, " \n", &rest));
        check_line(++lines, field);
    }
    fclose(f);
    assert_int_equal(lines, 170);
}

/* ---- whole products ---- */

struct product {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind kind_a, kind_b;
    bool fast, bias, residual, transposed;
    float beta;
};

#define H DTYPE_BF16
#define E DTYPE_E4M3
enum { FIRST_OF_CLASSES = 10 }; /* rows of PRODUCTS */
static const struct product PRODUCTS[] = {
    { 70, 67, 301, H, H, DTYPE_F32, .beta = 1, .transposed = true },
    { 9, 40, 4200, H, H, H, .residual = true },
    { 33, 35, 517, E, E, H, SCALE_TENSOR, SCALE_TENSOR, .fast = true, .bias = true },
    { 33, 35, 517, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = false },
    { 5, 3, 8200, E, DTYPE_E5M2, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = true },
    { 20, 50, 130, E, E, H, SCALE_ROW, SCALE_TENSOR, .bias = true, .residual = true },
    { 140, 45, 300, DTYPE_E5M2, E, DTYPE_F32, SCALE_1X128, SCALE_128X128, .beta = 1 },
    { 20, 150, 290, E, E, H, SCALE_1X128, SCALE_1X128, .residual = true },
    { 40, 35, 290, E, E, DTYPE_F32, SCALE_1X32, SCALE_32X32, .beta = 1 },
    { 2, 3, 0, H, H, DTYPE_F32, .bias = true },
    /* classes of Hopper: parts; BF16 in place; a's factor first; rounded twice by the library; the
     * bias last */
    { 24, 40, 4200, DTYPE_E5M2, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .beta = 1 },
    { 70, 8, 9001, H, H, H, .transposed = true, .beta = 1 },
    { 30, 72, 130, H, H, H, .bias = true, .beta = 1 },
    { 24, 152, 290, E, E, H, SCALE_1X128, SCALE_1X128, .beta = 1 },
    { 24, 152, 290, DTYPE_E5M2, E, H, SCALE_1X128, SCALE_1X128, .bias = true, .beta = 1 },
    { 30, 72, 130, H, H, DTYPE_F32, .bias = true, .residual = true },
    { 24, 152, 290, E, E, DTYPE_F32, SCALE_1X128, SCALE_128X128, .bias = true, .residual = true },
    /* Only the reference describes the first; sm_100 and sm_120 the others, too. */
    { 9, 8, 70, DTYPE_F32, DTYPE_F32, DTYPE_F32, .residual = true },
    { 20, 18, 100, DTYPE_E2M1, DTYPE_E2M1, H, SCALE_1X16, SCALE_16X16, .bias = true },
    { 45, 70, 4300, DTYPE_E2M1, DTYPE_E2M1, DTYPE_F32, SCALE_1X16, SCALE_1X16, .beta = 1 },
};
enum { ALL_ROWS = sizeof PRODUCTS / sizeof *PRODUCTS, MMA_ROWS = ALL_ROWS - 3 };

struct tensors { struct tensor a, b, *out, *before, *bias, *residual; };

static struct tensor filled(enum dtype t, int64_t rows, int64_t cols, enum scale_kind kind,
                            bool transposed, uint64_t seed) {
    struct tensor *x = op_tensor(t, transposed ? cols : rows, transposed ? rows : cols, kind);
    op_fill(x, seed, 6);
    return transposed ? op_transposed_view(x) : *x;
}

static struct matmul_args make(const struct product *p, struct tensors *t) {
    t->a = filled(p->a, p->m, p->k, p->kind_a, p->transposed, 1);
    t->b = filled(p->b, p->n, p->k, p->kind_b, p->transposed, 2);
    if (p->a == H && p->k > 100) { /* outside f32's easy range, and no number */
        uint16_t *x = t->a.data;
        for (int i = 0; i < 60; i++) x[i * 37] = (uint16_t)(x[i * 37] % 0x7F00);
        x[p->m * p->k / 2] = 0x7F80;
    }
    t->out = op_tensor(p->out, p->m, p->n, SCALE_NONE);
    t->before = op_tensor(p->out, p->m, p->n, SCALE_NONE);
    op_fill(t->before, 3, 4);
    t->bias = p->bias ? op_tensor(DTYPE_F32, p->n, 1, SCALE_NONE) : NULL;
    t->residual = p->residual ? op_tensor(p->out, p->m, p->n, SCALE_NONE) : NULL;
    if (t->bias) op_fill(t->bias, 4, 4);
    if (t->residual) op_fill(t->residual, 5, 4);
    return (struct matmul_args){ .out = t->out, .a = &t->a, .b = &t->b, .bias = t->bias,
                                 .residual = t->residual, .beta = p->beta,
                                 .fast_accumulate = p->fast };
}

static void check_product(size_t row, const char *name) {
    struct tensors t;
    struct matmul_args args = make(&PRODUCTS[row], &t), one = args;
    struct tensor *want = op_tensor(t.out->dtype, t.out->dim[0], t.out->dim[1], SCALE_NONE);
    const struct arithmetic *m;
    struct mma_way way;
    struct err e;
    int variants = 0;
    one.out = t.before;
    if (arithmetic_find(name, &m, &e) != OK || arithmetic_way(m, &args, &way, &e) != OK)
        fail_msg("%s", e.text);
    for (int64_t i = 0; i < want->dim[0]; i++)
        for (int64_t j = 0; j < want->dim[1]; j++)
            op_set(want, i, j, arithmetic_output(&way, &one, i, j));
    for (int v = 0; v < ISA_COUNT; v++) {
        struct backend *b = backend_of(v % 3 + 1, ISAS[v], name);
        if (!b) continue;
        struct mma_way told;
        bool known = false;
        if (b->ops->product_way(b, &args, &told, &known, &e) != OK) fail_msg("%s", e.text);
        assert_true(known);
        assert_memory_equal(&told.mma, &way.mma, sizeof way.mma);
        assert_memory_equal(&told.order, &way.order, sizeof way.order);
        assert_true(told.factors == way.factors && told.block == way.block);
        variants++;
        memcpy(t.out->data, t.before->data, (size_t)op_bytes(t.out));
        if (b->ops->matmul(b, LANE_COMPUTE, &args, &e) != OK) fail_msg("%s", e.text);
        for (int64_t i = 0; i < want->dim[0]; i++)
            for (int64_t j = 0; j < want->dim[1]; j++)
                if (f32_bits(op_stored(t.out, i, j)) != f32_bits(op_stored(want, i, j)))
                    fail_msg("%s, row %zu, %s: out[%lld][%lld] = %a, wanted %a", name, row, ISAS[v],
                             (long long)i, (long long)j, (double)op_stored(t.out, i, j),
                             (double)op_stored(want, i, j));
    }
    assert_true(variants >= 1);
    op_free();
}

/* Tensor cores have no way for F32, and Hopper's none for NVFP4. */
static void test_a_way_that_is_unknown(void **state) {
    struct tensors t;
    struct err e;
    struct mma_way way;
    bool known = true;
    struct backend *b = backend_of(1, NULL, "hopper");
    for (size_t row = MMA_ROWS; row < ALL_ROWS; row++) {
        struct matmul_args args = make(&PRODUCTS[row], &t);
        assert_true(args.a->dtype == DTYPE_F32 || args.a->dtype == DTYPE_E2M1);
        known = true;
        assert_int_equal(b->ops->product_way(b, &args, &way, &known, &e), OK);
        assert_false(known);
        assert_int_equal(b->ops->matmul(b, LANE_COMPUTE, &args, &e), ERR_UNSUPPORTED);
    }
    op_free();
}

/* The class is a function of kind and shape. These lines are bits of every run on a Hopper. */
static void test_classes(void **state) {
    static const struct {
        struct product p;
        int64_t part;
        bool rounded, widened;
        enum factor_order factors;
    } CLASSES[] = {
        { { 4096, 4096, 8192, H, H, DTYPE_F32, .beta = 1 }, 0, false, false, 0 },
        { { 768, 768, 32768, H, H, DTYPE_F32, .beta = 1 }, 6592, false, false, 0 },
        { { 768, 768, 32768, H, H, H, .beta = 1 }, 6592, false, false, 0 },
        { { 768, 768, 32768, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = false }, 8192,
          false, false, 0 },
        { { 768, 768, 4096, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = false }, 0,
          false, false, 0 },
        { { 96, 64, 40000, E, E, H, SCALE_ROW, SCALE_ROW, .fast = false }, 0, false, false,
          FACTOR_B_FIRST },
        { { 96, 64, 40000, E, E, H, SCALE_ROW, SCALE_ROW, .fast = true }, 0, false, false,
          FACTOR_B_FIRST },
        { { 3072, 768, 32768, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = false }, 0,
          false, false, 0 },
        { { 512, 512, 32768, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = false }, 8192,
          false, false, 0 },
        { { 96, 64, 40000, E, E, H, SCALE_TENSOR, SCALE_TENSOR, .fast = false }, 1280, false,
          false, 0 },
        { { 768, 768, 32768, H, H, DTYPE_F32, .bias = true }, 0, false, false, 0 },
        { { 96, 64, 40000, H, H, DTYPE_F32, .fast = false }, 1280, false, false, 0 },
        { { 1024, 2048, 768, H, H, H, .beta = 1 }, 0, true, false, 0 },
        { { 1024, 2048, 768, H, H, H, .residual = true }, 0, false, false, 0 },
        { { 768, 768, 9000, E, E, H, SCALE_1X128, SCALE_1X128, .beta = 1 }, 0, false, false,
          FACTOR_A_FIRST },
        { { 760, 768, 9000, E, E, H, SCALE_1X128, SCALE_128X128, .beta = 1 }, 0, false, false, 0 },
        { { 764, 768, 900, E, E, H, SCALE_1X128, SCALE_128X128, .fast = false }, 0, false, true,
          0 },
    };
    struct err e;
    const struct arithmetic *m;
    assert_int_equal(arithmetic_find("hopper", &m, &e), OK);
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++) {
        const struct product *p = &CLASSES[i].p;
        struct tensor a = tensor_2d(NULL, p->a, p->m, p->k), b = tensor_2d(NULL, p->b, p->n, p->k);
        struct tensor out = tensor_2d(NULL, p->out, p->m, p->n);
        a.scale = scale_make(NULL, p->kind_a, p->m, p->k);
        b.scale = scale_make(NULL, p->kind_b, p->n, p->k);
        struct matmul_args args = { .out = &out, .a = &a, .b = &b, .beta = p->beta,
                                    .bias = p->bias ? &out : NULL,
                                    .residual = p->residual ? &out : NULL };
        struct mma_way way;
        if (arithmetic_way(m, &args, &way, &e) != OK) fail_msg("%s", e.text);
        if (way.order.part != CLASSES[i].part || way.rounded != CLASSES[i].rounded ||
            way.widened != CLASSES[i].widened || way.factors != CLASSES[i].factors)
            fail_msg("row %zu: parts of %lld, %d, %d, %d", i, (long long)way.order.part,
                     way.rounded, way.widened, (int)way.factors);
    }
}

static void test_whole_products(void **state) {
    for (size_t row = 0; row < MMA_ROWS; row++)
        check_product(row, row % 2 ? "hopper" : row % 4 ? "ada" : "sm_100");
    for (size_t row = 0; row < MMA_ROWS; row++)
        if (row % 2 == 0 || row >= FIRST_OF_CLASSES) check_product(row, "hopper");
    for (size_t row = MMA_ROWS + 1; row < ALL_ROWS; row++)
        check_product(row, row % 2 ? "sm_100" : "sm_120");
    for (size_t row = 0; row < ALL_ROWS; row++) check_product(row, "reference");
}

/* Split-K: the parts' chains are added in f32. The sum differs from one chain's. */
static void test_parts(void **state) {
    struct tensors t;
    struct product p = { 1, 1, 4096, E, E, DTYPE_F32, SCALE_TENSOR, SCALE_TENSOR, .fast = true };
    struct matmul_args args = make(&p, &t);
    struct mma_way way;
    struct err e;
    float sum = 0.0f;
    assert_int_equal(arithmetic_way(arithmetic_at(1), &args, &way, &e), OK);
    float whole = arithmetic_output(&way, &args, 0, 0);
    way.order.part = 1024;
    float parts = arithmetic_output(&way, &args, 0, 0);
    for (int i = 0; i < 4; i++) {
        struct tensor a = t.a, b = t.b;
        a.data = (uint8_t *)t.a.data + 1024 * i;
        b.data = (uint8_t *)t.b.data + 1024 * i;
        a.dim[1] = b.dim[1] = 1024;
        float one = 1.0f;
        a.scale.data = b.scale.data = &one;
        struct matmul_args part = { .out = t.out, .a = &a, .b = &b };
        way.order.part = 0;
        sum = sum + arithmetic_output(&way, &part, 0, 0);
    }
    sum = sum * (op_factor(&t.a, 0, 0) * op_factor(&t.b, 0, 0));
    assert_int_equal(f32_bits(parts), f32_bits(sum));
    assert_int_not_equal(f32_bits(parts), f32_bits(whole));
    op_free();
}

/* 1 + residual + bias, of which the latter cancel: the order of f32 additions shows. */
static void test_bias_after_residual(void **state) {
    static const struct { const char *name; float want; } ORDERS[] = { { "hopper", 0 },
                                                                       { "ada", 1 } };
    const float large = 16777216.0f; /* 2^24: 1 more is rounded away */
    struct product p = { 1, 1, 16, H, H, DTYPE_F32, .bias = true, .residual = true };
    for (size_t i = 0; i < sizeof ORDERS / sizeof *ORDERS; i++) {
        struct tensors t;
        struct matmul_args args = make(&p, &t);
        const struct arithmetic *m;
        struct mma_way way;
        struct err e;
        memset(t.a.data, 0, 16 * sizeof(uint16_t));
        memset(t.b.data, 0, 16 * sizeof(uint16_t));
        *(uint16_t *)t.a.data = *(uint16_t *)t.b.data = bf16_encode(1.0f);
        *(float *)t.residual->data = large;
        *(float *)t.bias->data = -large;
        assert_int_equal(arithmetic_find(ORDERS[i].name, &m, &e), OK);
        assert_int_equal(arithmetic_way(m, &args, &way, &e), OK);
        assert_true(arithmetic_output(&way, &args, 0, 0) == ORDERS[i].want);
        op_free();
    }
}

/* One instruction on elements [k, k + n) of row 0 of both operands. */
static float add_terms(const struct mma_way *way, const struct tensors *t, int64_t k, int64_t n,
                       float c) {
    float a[32], b[32];
    int32_t ea[32], eb[32];
    for (int64_t i = 0; i < n; i++) {
        a[i] = op_stored(&t->a, 0, k + i);
        b[i] = op_stored(&t->b, 0, k + i);
        ea[i] = mma_exponent(a[i], way->least_a);
        eb[i] = mma_exponent(b[i], way->least_b);
    }
    return mma_add(&way->mma, n, (struct mma_terms){ a, ea, 1 }, (struct mma_terms){ b, eb, 1 }, c);
}

/* The products that fill no tile come first, in groups of their own. */
static void test_rest_of_a_tile_comes_first(void **state) {
    struct tensors t;
    struct product p = { 1, 1, 43, H, H, DTYPE_F32, .fast = false };
    struct matmul_args args = make(&p, &t);
    struct mma_way way;
    struct err e;
    float c = 0.0f;
    assert_int_equal(arithmetic_way(arithmetic_at(1), &args, &way, &e), OK);
    float whole = arithmetic_output(&way, &args, 0, 0);
    way.order.tile = 16;
    way.mma.group = 8;
    c = add_terms(&way, &t, 0, 8, c); /* 43 is 2 tiles of 16 and 11 */
    c = add_terms(&way, &t, 8, 3, c);
    for (int64_t k = 11; k < 43; k += 8) c = add_terms(&way, &t, k, 8, c);
    assert_int_equal(f32_bits(arithmetic_output(&way, &args, 0, 0)), f32_bits(c));
    assert_int_not_equal(f32_bits(whole), f32_bits(c));
    op_free();
}

/* Factors of a block, in each order; those of this test are no powers of two. */
static void test_orders_of_factors(void **state) {
    struct tensors t;
    struct product p = { 8, 8, 128, E, E, DTYPE_F32, SCALE_1X128, SCALE_1X128, .fast = false };
    struct matmul_args args = make(&p, &t);
    struct mma_way way;
    struct err e;
    float a = 1.7182818f, b, one = 1.0f;
    int others[2] = { 0, 0 };
    assert_int_equal(arithmetic_way(arithmetic_at(1), &args, &way, &e), OK);
    t.a.scale.data = t.b.scale.data = &one;
    float x = arithmetic_output(&way, &args, 0, 0);
    t.a.scale.data = &a;
    t.b.scale.data = &b;
    for (int n = 0; n < 20; n++) {
        b = 0.5772157f * (float)(2 * n + 1);
        const float want[] = { [FACTORS_TOGETHER] = x * (a * b), [FACTOR_A_FIRST] = x * a * b,
                               [FACTOR_B_FIRST] = x * b * a };
        for (int i = 0; i < 3; i++) {
            way.factors = (enum factor_order)i;
            assert_int_equal(f32_bits(arithmetic_output(&way, &args, 0, 0)), f32_bits(want[i]));
        }
        for (int i = 0; i < 2; i++) others[i] += want[i] != want[i + 1];
    }
    assert_true(others[0] > 0 && others[1] > 0);
    op_free();
}

static void test_refuses(void **state) {
    struct err e;
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(DTYPE_F32, 2, 2, SCALE_NONE);
    struct tensor *out = op_tensor(DTYPE_F32, 2, 2, SCALE_NONE);
    struct matmul_args args = { .out = out, .a = x, .b = x };
    assert_int_equal(cpu_backend_calculate(b, "volta", &e), ERR_ARG);
    assert_string_equal(e.text, "unknown arithmetic 'volta'; the arithmetics are reference, "
                                "hopper, ada, sm_100, sm_120");
    assert_int_equal(cpu_backend_calculate(b, "hopper", &e), OK);
    assert_int_equal(b->ops->matmul(b, LANE_COMPUTE, &args, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.text, "a is f32, and hopper multiplies bf16 and FP8 only"));
    assert_int_equal(cpu_backend_calculate(b, "reference", &e), OK);
    assert_int_equal(b->ops->matmul(b, LANE_COMPUTE, &args, &e), OK);
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_outputs),
        cmocka_unit_test(test_whole_products),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_a_way_that_is_unknown),
        cmocka_unit_test(test_bias_after_residual), cmocka_unit_test(test_parts),
        cmocka_unit_test(test_rest_of_a_tile_comes_first),
        cmocka_unit_test(test_orders_of_factors),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
