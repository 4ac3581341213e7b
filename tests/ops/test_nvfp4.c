/* NVFP4 by the definition of kernels/nvfp4.h, written element by element: codes, scales, rotation,
 * stochastic rounding. First by hand, then in every vector kernel, then in a GEMM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "kernels/nvfp4.h"
#include "tests/support/op_tensor.h"

/* ---- codes and scales, by hand ---- */

static const float GRID[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };

static void test_codes(void **state) {
    static const struct { float x; uint8_t code; } ROUNDED[] = {
        { 0.25f, 0 },  { 0.2501f, 1 }, { 0.75f, 2 }, { 0.7499f, 1 }, { 1.25f, 2 }, { 1.75f, 4 },
        { 2.5f, 4 },   { 2.51f, 5 },   { 3.5f, 6 },  { 3.49f, 5 },   { 5.0f, 6 },  { 5.01f, 7 },
        { 1e30f, 7 },  { INFINITY, 7 }, { -0.1f, 8 }, { -0.0f, 8 },  { -6.5f, 15 }, { NAN, 7 },
        { -NAN, 7 },   { 1e-40f, 0 },
    };
    for (uint8_t c = 0; c < 16; c++) {
        float value = c & 8 ? -GRID[c & 7] : GRID[c & 7];
        assert_int_equal(f32_bits(e2m1_decode(c)), f32_bits(value));
        assert_int_equal(e2m1_encode(value), c);
        assert_int_equal(e2m1_round_stochastic(value, 255), c);
    }
    for (size_t i = 0; i < sizeof ROUNDED / sizeof *ROUNDED; i++)
        if (e2m1_encode(ROUNDED[i].x) != ROUNDED[i].code)
            fail_msg("%g is code %d", (double)ROUNDED[i].x, e2m1_encode(ROUNDED[i].x));
}

static void test_stochastic_codes(void **state) {
    static const struct { float x; uint32_t random; float value; } ROUNDED[] = {
        { 0.25f, 127, 0 },  { 0.25f, 128, 0.5f }, { 1.75f, 128, 2 }, { 1.9f, 255, 2 },
        { 2.5f, 127, 2 },   { 2.5f, 128, 3 },     { 5, 127, 4 },     { 5, 128, 6 },
        { 7, 0, 6 },        { INFINITY, 9, 6 },   { NAN, 9, 6 },     { -2.5f, 128, -3 },
        { -2.5f, 127, -2 }, { 0, 255, 0 },
    };
    for (size_t i = 0; i < sizeof ROUNDED / sizeof *ROUNDED; i++) {
        float got = e2m1_decode(e2m1_round_stochastic(ROUNDED[i].x, ROUNDED[i].random));
        if (f32_bits(got) != f32_bits(ROUNDED[i].value))
            fail_msg("%g with %u is %g", (double)ROUNDED[i].x, ROUNDED[i].random, (double)got);
    }
    /* The mean of all draws is the value, for one that 1/256 of a step divides. */
    for (float x = 0; x <= 6; x += x < 2 ? 0.5f / 256 : x < 4 ? 1.0f / 256 : 2.0f / 256) {
        double sum = 0;
        for (uint32_t k = 0; k < 256; k++) sum += (double)e2m1_decode(e2m1_round_stochastic(x, k));
        if (sum != 256 * (double)x) fail_msg("%g: the mean is %g", (double)x, sum / 256);
    }
}

static void test_scales(void **state) {
    assert_true(nvfp4_tensor_multiplier(12) == 224);
    assert_true(nvfp4_tensor_multiplier(0) == 1);
    assert_true(nvfp4_tensor_multiplier(INFINITY) == 1);
    assert_true(nvfp4_tensor_multiplier(1e-38f) == 0x1.fffffep127f);
    assert_true(isnan(nvfp4_tensor_multiplier(NAN)));
    assert_int_equal(nvfp4_block_scale(224, 12), 0x7E);      /* 448 */
    assert_true(nvfp4_block_multiplier(224, 0x7E) == 0.5f);  /* 12 becomes 6 */
    assert_int_equal(nvfp4_block_scale(224, 3), 0x6E);       /* 112 */
    assert_true(nvfp4_block_multiplier(224, 0x6E) == 2);
    assert_int_equal(nvfp4_block_scale(224, 1e-7f), 0);
    assert_true(nvfp4_block_multiplier(224, 0) == 0x1.fffffep127f);
    assert_int_equal(nvfp4_block_scale(224, NAN), 0x7F);
    assert_true(nvfp4_tensor_factor(12) == 12 * (1.0f / 2688));
    assert_true(nvfp4_product_factor(2688, 2688) == 1);
}

/* ---- the operator ---- */

struct nvfp4_case {
    int64_t rows, cols;
    enum scale_kind kind;
    bool codes, twin, rotate, stochastic;
    int64_t first; /* sequence of 24 rows that the value begins with */
};

static const struct nvfp4_case CASES[] = {
    { 48, 160, SCALE_1X16, true, true, false, false, 0 },
    { 48, 160, SCALE_1X16, true, true, true, false, 0 },
    { 48, 144, SCALE_1X16, true, true, true, true, 3 },
    { 41, 133, SCALE_1X16, true, true, true, true, 1 },
    { 41, 133, SCALE_1X16, false, true, true, true, 0 },
    { 41, 133, SCALE_1X16, true, false, false, false, 0 },
    { 7, 5, SCALE_1X16, true, true, true, true, 1 },
    { 41, 133, SCALE_16X16, true, true, false, false, 0 },
    { 48, 160, SCALE_16X16, false, true, false, false, 0 },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES, SEQUENCE = 24, STEP = 11, TENSOR = 5 };
static const uint64_t SEED = 1234;

struct fixture {
    struct tensor *x, *codes, *twin, *amax, *stats;
    struct round_draws draws;
    struct sink sink;
};

static void fixture_make(struct fixture *f, const struct nvfp4_case *c, const struct tensor *x) {
    struct tensor *step = op_tensor(DTYPE_I32, 1, 1, SCALE_NONE);
    struct tensor *sequence = op_tensor(DTYPE_I32, 1, 1, SCALE_NONE);
    *(int32_t *)step->data = STEP;
    *(int32_t *)sequence->data = (int32_t)c->first;
    f->x = op_tensor(DTYPE_BF16, c->rows, c->cols, SCALE_NONE);
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->cols; j++) op_set(f->x, i, j, op_stored(x, i, j));
    f->codes = op_tensor(DTYPE_E2M1, c->rows, c->cols, c->kind);
    f->twin = op_tensor(DTYPE_E2M1, c->cols, c->rows, c->kind);
    f->amax = op_tensor(DTYPE_U32, 1, 1, SCALE_NONE);
    f->stats = op_tensor(DTYPE_U64, 2, 1, SCALE_NONE);
    memset(f->codes->data, 0xAA, (size_t)op_bytes(f->codes)); /* padding must become zero */
    memset(f->twin->data, 0xAA, (size_t)op_bytes(f->twin));
    if (!c->codes) f->codes->data = NULL;
    if (c->twin) f->codes->transposed = f->twin;
    f->draws = (struct round_draws){ .step = step, .sequence = sequence, .seed = SEED,
                                     .sequence_rows = SEQUENCE, .tensor = TENSOR };
    f->sink = (struct sink){ .value = f->x, .codes = f->codes, .amax = f->amax, .stats = f->stats,
                             .source = SCALE_SOURCE_AMAX, .rule = { .constants = QUANT_NVFP4 },
                             .keep_value = true, .own_amax = true, .rotate = c->rotate,
                             .draws = c->stochastic ? &f->draws : NULL };
}

static void quantise(struct backend *b, struct fixture *f) {
    struct err e = { .text = "" };
    if (b->ops->quantise(b, LANE_COMPUTE, &f->sink, f->x, &e) != OK) fail_msg("%s", e.text);
}

/* x rotated by the matrix of the definition, as a sum in f64: exact for these values. */
static struct tensor *rotated(const struct tensor *x) {
    static const char SIGN[] = "+++-+------+-+--";
    struct tensor *y = op_tensor(DTYPE_BF16, x->dim[0], x->dim[1], SCALE_NONE);
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++) {
            double sum = 0;
            bool whole = i / 16 * 16 + 16 <= x->dim[0];
            for (int k = 0; k < 16 && whole; k++) {
                double h = __builtin_popcount((unsigned)(k & i % 16)) % 2 ? -0.25 : 0.25;
                double value = (double)op_stored(x, i / 16 * 16 + k, j);
                sum += SIGN[k] == '+' ? h * value : -h * value;
            }
            op_set(y, i, j, whole ? (float)sum : op_stored(x, i, j));
        }
    return y;
}

static uint32_t amax_of(const struct tensor *x, int64_t i0, int64_t rows, int64_t j0,
                        int64_t cols) {
    uint32_t max = 0;
    for (int64_t i = i0; i < i0 + rows && i < x->dim[0]; i++)
        for (int64_t j = j0; j < j0 + cols && j < x->dim[1]; j++) {
            uint32_t bits = f32_bits(op_stored(x, i, j)) & 0x7FFFFFFFu;
            if (bits > max) max = bits;
        }
    return max;
}

/* The byte of the gradient's element (row, col), from its place in the global batch. */
static uint32_t byte_of(const struct nvfp4_case *c, enum nvfp4_copy copy, int64_t i, int64_t col) {
    int64_t row = c->first * SEQUENCE + i;
    uint64_t key = rng_key(SEED, RNG_GRADIENT, STEP, 2 * TENSOR + (uint64_t)copy);
    uint64_t at = copy == NVFP4_CODES ? (uint64_t)(row * ((c->cols + 7) / 8) + col / 8)
                                      : (uint64_t)(row / 8 * c->cols + col);
    return rng_bits(key, at) >> 8 * ((copy == NVFP4_CODES ? col : row) % 8) & 0xFF;
}

/* One copy of x [rows, K], or of a transposed view for the twin. */
static struct tensor *defined(const struct nvfp4_case *c, const struct tensor *x,
                              enum nvfp4_copy copy, uint64_t stats[2]) {
    struct tensor *codes = op_tensor(DTYPE_E2M1, x->dim[0], x->dim[1], c->kind);
    int64_t rows = c->kind == SCALE_16X16 ? 16 : 1;
    float amax = f32_from_bits(amax_of(x, 0, x->dim[0], 0, x->dim[1]));
    float s = nvfp4_tensor_multiplier(amax);
    *(float *)codes->scale.data = amax;
    for (int64_t i = 0; i < x->dim[0]; i++)
        for (int64_t j = 0; j < x->dim[1]; j++) {
            uint32_t top = amax_of(x, i / rows * rows, rows, j / 16 * 16, 16);
            uint8_t d = nvfp4_block_scale(s, f32_from_bits(top));
            float v = op_stored(x, i, j), m = nvfp4_block_multiplier(s, d);
            uint32_t random = copy == NVFP4_CODES ? byte_of(c, copy, i, j) : byte_of(c, copy, j, i);
            uint8_t code = e2m1_encode(v * m);
            if (c->stochastic) code = e2m1_round_stochastic(v * m, random);
            uint8_t *scales = (uint8_t *)codes->scale.data + SCALE_HEADER;
            scales[i / rows * codes->scale.dim[1] + j / 16] = d;
            ((uint8_t *)codes->data)[i * codes->stride[0] + j] = code;
            stats[0] += fabsf(v * m) > 6;
            stats[1] += v != 0 && (code & 7) == 0;
        }
    return codes;
}

static void assert_same(const struct tensor *got, const struct tensor *want, const char *which,
                        size_t row) {
    for (int64_t i = 0; i < op_bytes(want); i++)
        if (((uint8_t *)got->data)[i] != ((uint8_t *)want->data)[i])
            fail_msg("row %zu: %s: byte %lld is %02X, defined %02X", row, which, (long long)i,
                     ((uint8_t *)got->data)[i], ((uint8_t *)want->data)[i]);
    if (memcmp(got->scale.data, want->scale.data, (size_t)scale_bytes(&want->scale)) != 0)
        fail_msg("row %zu: the scale of %s", row, which);
}

static void check_case(struct backend *b, size_t row) {
    const struct nvfp4_case *c = &CASES[row];
    struct fixture f;
    uint64_t stats[2] = { 0, 0 }, twin_stats[2] = { 0, 0 };
    struct tensor *x = op_tensor(DTYPE_BF16, c->rows, c->cols, SCALE_NONE);
    op_fill(x, row, 3);
    for (int64_t j = 16; j < 40 && j < c->cols; j++) /* with a block of zeros */
        op_set(x, c->rows / 2, j, 0);
    fixture_make(&f, c, x);
    quantise(b, &f);
    struct tensor turned = op_transposed_view(c->rotate ? rotated(x) : x);
    struct tensor *codes = defined(c, x, NVFP4_CODES, stats);
    struct tensor *twin = defined(c, &turned, NVFP4_TWIN, twin_stats);
    if (c->codes) assert_same(f.codes, codes, "codes", row);
    if (c->twin) assert_same(f.twin, twin, "twin", row);
    assert_memory_equal(f.stats->data, c->codes ? stats : twin_stats, sizeof stats);
}

static void test_bits_are_those_of_the_definition(void **state) {
    static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };
    for (size_t v = 0; v < 4; v++)
        for (size_t row = 0; row < CASE_COUNT; row++) {
            struct backend *b = op_backend((int)v % 3 + 1, ISAS[v]);
            if (b) check_case(b, row);
            op_free();
        }
}

/* Two micro-batches of equal values have the codes of one that holds both: a draw knows its place
 * in the global batch, and no rank and no micro-batch. Equal values get unequal codes. */
static void test_draws_know_the_place(void **state) {
    struct nvfp4_case whole = { 2 * SEQUENCE, 64, SCALE_1X16, true, true, false, true, 2 };
    struct backend *b = op_backend(2, NULL);
    struct tensor *x = op_tensor(DTYPE_BF16, 2 * SEQUENCE, 64, SCALE_NONE);
    op_fill(x, 3, 3);
    for (int64_t i = 0; i < SEQUENCE; i++)
        for (int64_t j = 0; j < 64; j++) op_set(x, SEQUENCE + i, j, op_stored(x, i, j));
    struct fixture all, half[2];
    fixture_make(&all, &whole, x);
    quantise(b, &all);
    for (int h = 0; h < 2; h++) {
        struct nvfp4_case part = { SEQUENCE, 64, SCALE_1X16, true, false, false, true, 2 };
        if (h == 0) part.first += 1; /* the second half by its sequence, the first by its row */
        fixture_make(&half[h], &part, x);
        if (h == 1) {
            *(int32_t *)half[h].draws.sequence->data = 1;
            half[h].draws.row = SEQUENCE;
        }
        quantise(b, &half[h]);
    }
    size_t bytes = (size_t)op_bytes(half[0].codes);
    assert_memory_equal((char *)all.codes->data + bytes, half[0].codes->data, bytes);
    assert_memory_equal(all.codes->data, half[1].codes->data, bytes);
    assert_memory_not_equal(half[0].codes->data, half[1].codes->data, bytes);
    *(int32_t *)half[1].draws.step->data = STEP + 1; /* another step, another tensor */
    quantise(b, &half[1]);
    assert_memory_not_equal(all.codes->data, half[1].codes->data, bytes);
    *(int32_t *)half[1].draws.step->data = STEP;
    half[1].draws.tensor++;
    quantise(b, &half[1]);
    assert_memory_not_equal(all.codes->data, half[1].codes->data, bytes);
    op_free();
}

/* Zeros stay zeros. A NaN is in the scale of its block and in the tensor's amax. */
static void test_zeros_and_nan(void **state) {
    struct nvfp4_case c = { 16, 32, SCALE_1X16, true, true, true, true, 0 };
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(DTYPE_BF16, 16, 32, SCALE_NONE);
    struct fixture f;
    fixture_make(&f, &c, x);
    quantise(b, &f);
    for (int64_t i = 0; i < op_bytes(f.codes); i++)
        assert_int_equal(((uint8_t *)f.codes->data)[i] & 7, 0);
    assert_true(*(float *)f.twin->scale.data == 0);
    op_set(x, 3, 20, NAN);
    op_set(x, 4, 20, 1);
    fixture_make(&f, &c, x);
    quantise(b, &f);
    assert_true(isnan(op_factor(f.codes, 3, 20)));
    assert_true(isnan(*(float *)f.codes->scale.data) && isnan(*(float *)f.twin->scale.data));
    op_free();
}

/* ---- in a GEMM ---- */

static void test_products(void **state) {
    enum { M = 37, N = 50, K = 300 };
    struct backend *b = op_backend(2, NULL);
    struct tensor *x = op_tensor(DTYPE_E2M1, M, K, SCALE_1X16);
    struct tensor *w = op_tensor(DTYPE_E2M1, N, K, SCALE_16X16);
    struct tensor *out = op_tensor(DTYPE_F32, M, N, SCALE_NONE);
    struct err e = { .text = "" };
    op_fill(x, 1, 0);
    op_fill(w, 2, 0);
    struct matmul_args args = { .out = out, .a = x, .b = w };
    if (b->ops->matmul(b, LANE_COMPUTE, &args, &e) != OK) fail_msg("%s", e.text);
    float alpha = nvfp4_product_factor(*(float *)x->scale.data, *(float *)w->scale.data);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            float total = 0;
            for (int64_t k0 = 0; k0 < K; k0 += 16) {
                const uint8_t *sx = (uint8_t *)x->scale.data + SCALE_HEADER;
                const uint8_t *sw = (uint8_t *)w->scale.data + SCALE_HEADER;
                float chain = 0, dx = e4m3_decode(sx[i * x->scale.dim[1] + k0 / 16]);
                float dw = e4m3_decode(sw[j / 16 * w->scale.dim[1] + k0 / 16]);
                for (int64_t k = k0; k < k0 + 16 && k < K; k++)
                    chain = fmaf(op_stored(x, i, k), op_stored(w, j, k), chain);
                total = fmaf(chain, dx * dw, total);
            }
            if (f32_bits(op_stored(out, i, j)) != f32_bits(total * alpha))
                fail_msg("(%d, %d) is %a, not %a", (int)i, (int)j, (double)op_stored(out, i, j),
                         (double)(total * alpha));
        }
    op_free();
}

/* wgrad of rotated operands is wgrad: what the casts lose is all that is lost. */
static void test_rotation_leaves_the_product(void **state) {
    enum { ROWS = 64, N = 24, K = 40 };
    struct backend *b = op_backend(1, NULL);
    struct fixture f[2];
    for (int i = 0; i < 2; i++) {
        struct nvfp4_case c = { ROWS, i ? K : N, SCALE_1X16, false, true, true, false, 0 };
        struct tensor *x = op_tensor(DTYPE_BF16, ROWS, c.cols, SCALE_NONE);
        op_fill(x, 40 + (uint64_t)i, 1);
        fixture_make(&f[i], &c, x);
        quantise(b, &f[i]);
    }
    struct tensor *out = op_tensor(DTYPE_F32, N, K, SCALE_NONE);
    struct matmul_args args = { .out = out, .a = f[0].twin, .b = f[1].twin };
    struct err e = { .text = "" };
    if (b->ops->matmul(b, LANE_COMPUTE, &args, &e) != OK) fail_msg("%s", e.text);
    double lost = 0, size = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) {
            double exact = 0;
            for (int64_t r = 0; r < ROWS; r++)
                exact += (double)op_stored(f[0].x, r, n) * (double)op_stored(f[1].x, r, k);
            double d = (double)op_stored(out, n, k) - exact;
            lost += d * d;
            size += exact * exact;
        }
    if (lost > 0.03 * size) fail_msg("NMSE %g", lost / size);
    op_free();
}

/* ---- rejected arguments ---- */

static void spoil_rule(struct fixture *f) { f->sink.rule.constants = QUANT_TE; }
static void spoil_source(struct fixture *f) { f->sink.source = SCALE_SOURCE_BLOCK; }
static void spoil_code(struct fixture *f) { f->codes->dtype = f->twin->dtype = DTYPE_E4M3; }
static void spoil_scale(struct fixture *f) { f->codes->scale.dim[1]++; }
static void spoil_step(struct fixture *f) { f->draws.step = f->amax; }
static void spoil_kind(struct fixture *f) {
    f->codes->scale = op_tensor(DTYPE_E2M1, 32, 48, SCALE_16X16)->scale;
    f->codes->transposed = NULL;
}

static void test_refuses(void **state) {
    static const struct { void (*spoil)(struct fixture *); const char *text; } REFUSED[] = {
        { spoil_rule, "NVFP4's scales, its rule and an amax must be used together" },
        { spoil_source, "does not fit the source of scales" },
        { spoil_code, "do not have NVFP4's scales" },
        { spoil_scale, "the scale is e4m3 [32, 4], not e4m3 [32, 3]" },
        { spoil_step, "step is u32" },
        { spoil_kind, "rotation and stochastic rounding are for 1x16 scales" },
    };
    static const struct nvfp4_case GOOD = { 32, 48, SCALE_1X16, true, true, true, true, 0 };
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(DTYPE_BF16, 32, 48, SCALE_NONE);
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct fixture f;
        struct err e = { .text = "" };
        fixture_make(&f, &GOOD, x);
        REFUSED[i].spoil(&f);
        enum status st = b->ops->quantise(b, LANE_COMPUTE, &f.sink, f.x, &e);
        if (st != ERR_ARG || !strstr(e.text, REFUSED[i].text))
            fail_msg("row %zu: %s, \"%s\"; wanted \"%s\"", i, status_name(st), e.text,
                     REFUSED[i].text);
    }
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_stochastic_codes),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_bits_are_those_of_the_definition),
        cmocka_unit_test(test_draws_know_the_place),
        cmocka_unit_test(test_zeros_and_nan),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_rotation_leaves_the_product),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
