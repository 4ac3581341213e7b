/* quantise and quantise_finish, to the bit against the definition, written block by block. Every
 * scale kind, source, twin and set of constants is tested. test_delayed.c has delayed_update. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/op_tensor.h"

/* UNTRANSPOSED: the twin's order. SHARED: it has the codes' memory. */
enum wanted { CODES = 1, TWIN = 2, BOTH = CODES | TWIN, UNTRANSPOSED = 4, SHARED = 8 };

struct quantise_case {
    int64_t rows, cols;
    enum dtype x, code;
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
    enum wanted wanted;
    bool special; /* zeros, NaN and infinity among the elements */
};

#define TE { QUANT_TE, 0, false }
#define TE_POW2 { QUANT_TE, 0, true }
#define TORCHAO { QUANT_TORCHAO, 1e-12f, true }
#define DEEPSEEK { QUANT_DEEPSEEK, 1e-4f, true }
#define DEEPSEEK_GRADIENT { QUANT_DEEPSEEK, 448 * 0x1p-126f, false }
#define MX { QUANT_MX, 0, false }
#define H DTYPE_BF16
#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define KNOWN SCALE_SOURCE_KNOWN
#define AMAX SCALE_SOURCE_AMAX
#define BLOCK SCALE_SOURCE_BLOCK

static const struct quantise_case CASES[] = {
    { 1, 1, DTYPE_F32, E, SCALE_TENSOR, AMAX, TE, BOTH, false },
    { 150, 300, H, E, SCALE_TENSOR, KNOWN, TE, BOTH, false },
    { 150, 300, H, G, SCALE_TENSOR, KNOWN, TE, TWIN, false },
    { 150, 300, H, G, SCALE_TENSOR, AMAX, TE, BOTH, false },
    { 150, 300, H, E, SCALE_TENSOR, AMAX, TE_POW2, CODES, false },
    { 33, 17, H, E, SCALE_TENSOR, AMAX, TORCHAO, TWIN, false },
    { 64, 64, H, E, SCALE_TENSOR, AMAX, TE, BOTH, true },
    { 150, 300, H, E, SCALE_ROW, BLOCK, TORCHAO, BOTH, false },
    { 150, 300, H, E, SCALE_ROW, BLOCK, TORCHAO, TWIN, true },
    { 3, 1000, DTYPE_F32, G, SCALE_ROW, BLOCK, TE, CODES, false },
    { 150, 300, H, E, SCALE_1X128, BLOCK, TE_POW2, BOTH, false },
    { 150, 300, H, G, SCALE_1X128, BLOCK, TE_POW2, TWIN, true },
    { 150, 300, H, E, SCALE_1X128, BLOCK, DEEPSEEK, CODES, true },
    { 150, 300, H, E, SCALE_1X128, BLOCK, DEEPSEEK_GRADIENT, BOTH, true },
    { 128, 128, H, E, SCALE_1X128, BLOCK, TE, BOTH, false },
    { 300, 150, H, E, SCALE_128X128, BLOCK, TE_POW2, BOTH, true },
    { 300, 150, H, E, SCALE_128X128, BLOCK, DEEPSEEK, TWIN, false },
    { 150, 300, H, E, SCALE_1X32, BLOCK, MX, BOTH, true },
    { 70, 45, H, E, SCALE_1X32, BLOCK, MX, TWIN, false },
    { 150, 300, H, E, SCALE_32X32, BLOCK, MX, BOTH, true },
    { 31, 1, H, G, SCALE_32X32, BLOCK, MX, CODES, false },
    { 150, 300, H, E, SCALE_1X32, BLOCK, MX, BOTH | UNTRANSPOSED, true },
    { 70, 45, H, G, SCALE_1X32, BLOCK, MX, TWIN | UNTRANSPOSED, false },
    { 150, 300, H, E, SCALE_32X32, BLOCK, MX, BOTH | UNTRANSPOSED, true },
    { 300, 150, DTYPE_F32, E, SCALE_32X32, BLOCK, MX, TWIN | UNTRANSPOSED, true },
    { 1, 33, H, E, SCALE_32X32, BLOCK, MX, BOTH | UNTRANSPOSED | SHARED, false },
    { 150, 300, H, E, SCALE_32X32, BLOCK, MX, BOTH | UNTRANSPOSED | SHARED, true },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static const float KNOWN_MULTIPLIER = 37.5f;

struct fixture {
    struct tensor *x, *value, *codes, *twin, *multiplier, *amax, *stats;
    struct sink sink;
};

static void fill(struct tensor *x, bool special) {
    op_fill(x, 7, 9);
    /* The largest element is last in a tile of 128 x 128 or in the tensor, so an early end
     * shows. */
    if (!special) op_set(x, x->dim[0] < 128 ? x->dim[0] - 1 : 127,
                         x->dim[1] < 128 ? x->dim[1] - 1 : 127, -5000.0f);
    if (!special) return;
    for (int64_t j = 0; j < x->dim[1]; j++) { /* whole blocks of zeros of every kind */
        for (int64_t i = 0; i < 32 && i < x->dim[0]; i++)
            if (j / 32 == 1) op_set(x, i, j, 0.0f);
        op_set(x, 40, j, 0.0f);
    }
    op_set(x, 2, 3, NAN);
    op_set(x, 50, 10, -INFINITY);
    op_set(x, 60, 11, -0.0f);
    op_set(x, 61, 12, 1e-30f);
    op_set(x, 62, 13, 1e30f);
}

static void fixture_make(struct fixture *f, const struct quantise_case *c) {
    memset(f, 0, sizeof *f);
    f->x = op_tensor(c->x, c->rows, c->cols, SCALE_NONE);
    fill(f->x, c->special);
    f->value = op_tensor(c->x, c->rows, c->cols, SCALE_NONE);
    f->codes = op_tensor(c->code, c->rows, c->cols, c->kind);
    f->twin = op_tensor(c->code, c->cols, c->rows, c->kind);
    if (c->wanted & UNTRANSPOSED) f->twin = op_untransposed(f->twin);
    if (c->wanted & SHARED) f->twin->data = f->codes->data;
    f->multiplier = op_tensor(DTYPE_F32, 1, 1, SCALE_NONE);
    f->amax = op_tensor(DTYPE_U32, 1, 1, SCALE_NONE);
    f->stats = op_tensor(DTYPE_U64, 2, 1, SCALE_NONE);
    op_set(f->multiplier, 0, 0, KNOWN_MULTIPLIER);
    memset(f->codes->data, 0xAA, (size_t)op_bytes(f->codes)); /* padding must become zero */
    memset(f->twin->data, 0xAA, (size_t)op_bytes(f->twin));
    if (!(c->wanted & CODES)) f->codes->data = NULL;
    if (c->wanted & TWIN) f->codes->transposed = f->twin;
    f->sink = (struct sink){ .value = f->value, .codes = f->codes, .multiplier = f->multiplier,
                             .amax = f->amax, .stats = f->stats, .source = c->source,
                             .rule = c->rule, .keep_value = true };
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static uint32_t bits_of(const struct tensor *x, int64_t i, int64_t j) {
    return f32_bits(op_stored(x, i, j)) & 0x7FFFFFFFu;
}

static uint32_t amax_of(const struct tensor *x, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    uint32_t max = 0;
    for (int64_t i = i0; i < i1 && i < x->dim[0]; i++)
        for (int64_t j = j0; j < j1 && j < x->dim[1]; j++)
            if (bits_of(x, i, j) > max) max = bits_of(x, i, j);
    return max;
}

/* The definition in quant.h, literally: codes of x (or of a transposed view), block by block. */
static struct tensor *defined_codes(const struct tensor *x, const struct quantise_case *c,
                                    uint64_t stats[2]) {
    struct tensor *codes = op_tensor(c->code, x->dim[0], x->dim[1], c->kind);
    int64_t rows = 1, cols = larger(x->dim[1], 1);
    if (c->kind == SCALE_TENSOR) rows = larger(x->dim[0], 1);
    if (c->kind == SCALE_1X128 || c->kind == SCALE_128X128) cols = 128;
    if (c->kind == SCALE_1X32 || c->kind == SCALE_32X32) cols = 32;
    if (c->kind == SCALE_128X128 || c->kind == SCALE_32X32) rows = cols;
    for (int64_t i0 = 0; i0 < x->dim[0]; i0 += rows)
        for (int64_t j0 = 0; j0 < x->dim[1]; j0 += cols) {
            float amax = f32_from_bits(amax_of(x, i0, i0 + rows, j0, j0 + cols)), stored = 0;
            float m = quant_multiplier(&c->rule, c->code, amax, &stored);
            if (c->source == KNOWN) { m = KNOWN_MULTIPLIER; stored = 0; } /* must not be written */
            int64_t at = i0 / rows * codes->scale.dim[1] + j0 / cols;
            if (codes->scale.dtype == DTYPE_F32) ((float *)codes->scale.data)[at] = stored;
            else ((uint8_t *)codes->scale.data)[at] = e8m0_encode_up(stored);
            for (int64_t i = i0; i < i0 + rows && i < x->dim[0]; i++)
                for (int64_t j = j0; j < j0 + cols && j < x->dim[1]; j++) {
                    float v = op_stored(x, i, j);
                    op_set(codes, i, j, v * m);
                    stats[0] += fabsf(v * m) > dtype_max(c->code);
                    stats[1] += v != 0 && (f32_bits(op_stored(codes, i, j)) << 1) == 0;
                }
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

/* own: no other rank shares the amax, so the producer makes the codes and finishing changes
 * nothing. */
static void check_case(struct backend *b, size_t row, bool own) {
    const struct quantise_case *c = &CASES[row];
    struct fixture f;
    struct err e;
    uint64_t stats[2] = { 5, 7 }, twin_stats[2] = { 5, 7 };
    fixture_make(&f, c);
    f.sink.own_amax = own;
    memcpy(f.stats->data, stats, sizeof stats); /* new counts are added to these */
    if (b->ops->quantise(b, LANE_COMPUTE, &f.sink, f.x, &e) != OK) fail_msg("%zu: %s", row, e.text);
    if (c->source == AMAX && f.codes->data && !own)
        assert_int_equal(*(uint8_t *)f.codes->data, 0xAA);
    if (b->ops->quantise_finish(b, LANE_COMPUTE, &f.sink, &e) != OK)
        fail_msg("%zu: %s", row, e.text);
    struct tensor view = op_transposed_view(f.x);
    struct tensor *codes = defined_codes(f.x, c, stats);
    struct tensor *twin = defined_codes(&view, c, twin_stats);
    if (c->wanted & UNTRANSPOSED) twin = op_untransposed(twin);
    if (f.codes->data) assert_same(f.codes, codes, "codes", row);
    if (c->wanted & TWIN) assert_same(f.twin, twin, "twin", row);
    assert_memory_equal(f.value->data, f.x->data, (size_t)op_bytes(f.x));
    assert_int_equal(*(uint32_t *)f.amax->data, amax_of(f.x, 0, c->rows, 0, c->cols));
    assert_memory_equal(f.stats->data, f.codes->data ? stats : twin_stats, sizeof stats);
}

static void test_bits_are_those_of_the_definition(void **state) {
    static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };
    for (size_t v = 0; v < 12; v++)
        for (size_t row = 0; row < CASE_COUNT; row++) {
            struct backend *b = op_backend((int)v % 3 + 1, ISAS[v / 3]);
            if (b) check_case(b, row, v % 2);
            op_free();
        }
}

/* value may alias x. The amax slot only rises. Without codes nothing else happens. */
static void test_value_alone(void **state) {
    struct backend *b = op_backend(2, NULL);
    struct tensor *x = op_tensor(H, 90, 100, SCALE_NONE);
    struct tensor *amax = op_tensor(DTYPE_U32, 1, 1, SCALE_NONE);
    struct err e;
    op_fill(x, 3, 2);
    op_set(x, 80, 99, -9.0f);
    struct sink s = sink_value(x, amax);
    assert_int_equal(b->ops->quantise(b, LANE_COMPUTE, &s, x, &e), OK);
    assert_int_equal(b->ops->quantise_finish(b, LANE_COMPUTE, &s, &e), OK);
    assert_int_equal(*(uint32_t *)amax->data, f32_bits(9.0f));
    op_set(x, 80, 99, 1.0f);
    assert_int_equal(b->ops->quantise(b, LANE_COMPUTE, &s, x, &e), OK);
    assert_int_equal(*(uint32_t *)amax->data, f32_bits(9.0f));
    op_set(x, 0, 0, NAN);
    assert_int_equal(b->ops->quantise(b, LANE_COMPUTE, &s, x, &e), OK);
    assert_int_equal(*(uint32_t *)amax->data, 0x7FC00000u);
    op_free();
}

/* ---- rejected arguments ---- */

static void spoil_x(struct fixture *f) { f->x->dtype = DTYPE_I32; }
static void spoil_value(struct fixture *f) { f->sink.value = NULL; }
static void spoil_value_dtype(struct fixture *f) { f->value->dtype = E; }
static void spoil_value_act(struct fixture *f) { f->value->dtype = DTYPE_F32; }
static void spoil_value_shape(struct fixture *f) { f->value->dim[0] = 31; }
static void spoil_amax(struct fixture *f) { f->amax->dtype = DTYPE_F32; }
static void spoil_no_amax(struct fixture *f) { f->sink.amax = NULL; }
static void spoil_stats(struct fixture *f) { f->stats->dim[0] = 1; }
static void spoil_no_codes(struct fixture *f) { f->sink.codes = NULL; }
static void spoil_no_source(struct fixture *f) { f->sink.source = SCALE_SOURCE_NONE; }
static void spoil_empty(struct fixture *f) { f->codes->data = NULL; f->codes->transposed = NULL; }
static void spoil_code_dtype(struct fixture *f) { f->codes->dtype = H; }
static void spoil_code_shape(struct fixture *f) { f->codes->dim[1] = 63; }
static void spoil_code_stride(struct fixture *f) { f->codes->stride[1] = 2; }
static void spoil_twin_shape(struct fixture *f) { f->twin->dim[0] = 63; }
static void spoil_twin_dtype(struct fixture *f) { f->twin->dtype = G; }
static void spoil_twin_order(struct fixture *f) { *f->twin = op_transposed_view(f->codes); }
static void spoil_twin_shared(struct fixture *f) { f->twin->data = f->codes->data; }
static void spoil_twin_empty(struct fixture *f) { f->twin->data = NULL; }
static void spoil_scale(struct fixture *f) { f->codes->scale.data = NULL; }
static void spoil_scale_shape(struct fixture *f) { f->codes->scale.dim[0] = 2; }
static void spoil_block(struct fixture *f) { f->sink.source = BLOCK; }
static void spoil_kind(struct fixture *f) {
    f->codes->transposed = NULL;
    f->codes->scale = op_tensor(E, 32, 64, SCALE_ROW)->scale;
}
static void spoil_mx(struct fixture *f) { f->sink.rule.constants = QUANT_MX; }
static void spoil_not_mx(struct fixture *f) {
    f->codes->transposed = NULL;
    f->codes->scale = op_tensor(E, 32, 64, SCALE_1X32)->scale;
    f->sink.source = BLOCK;
}
static void spoil_multiplier(struct fixture *f) {
    f->sink.source = KNOWN;
    f->sink.multiplier = NULL;
}

static const struct { void (*spoil)(struct fixture *f); const char *text; } REFUSED[] = {
    { spoil_x, "x is i32" },
    { spoil_value, "sink without value" },
    { spoil_value_dtype, "value is e4m3" },
    { spoil_value_act, "x is bf16, value is f32" },
    { spoil_value_shape, "value is not 32 x 64 packed elements" },
    { spoil_amax, "amax is f32" },
    { spoil_no_amax, "current scaling needs an amax slot" },
    { spoil_stats, "stats is [1, 1], not [2, 1]" },
    { spoil_no_codes, "a source of scales without codes" },
    { spoil_no_source, "codes without a source of scales" },
    { spoil_empty, "codes are empty" },
    { spoil_code_dtype, "codes are bf16" },
    { spoil_code_shape, "codes are [32, 63], not [32, 64]" },
    { spoil_code_stride, "codes are not contiguous along K" },
    { spoil_twin_shape, "transposed codes are [63, 32], not [64, 32]" },
    { spoil_twin_dtype, "differ in dtype or scale" },
    { spoil_twin_order, "not contiguous along K: an untransposed twin has MXFP8's scales" },
    { spoil_twin_shared, "transposed codes share the memory of the codes" },
    { spoil_twin_empty, "transposed codes are empty" },
    { spoil_scale, "without a scale" },
    { spoil_scale_shape, "the scale is f32 [2, 1], not f32 [1, 1]" },
    { spoil_block, "does not fit the source of scales" },
    { spoil_kind, "does not fit the source of scales" },
    { spoil_mx, "e8m0 scales and the mx rule must be used together" },
    { spoil_not_mx, "e8m0 scales and the mx rule must be used together" },
    { spoil_multiplier, "multiplier is missing" },
};

static void test_refuses(void **state) {
    static const struct quantise_case GOOD = { 32, 64, H, E, SCALE_TENSOR, AMAX, TE, BOTH, false };
    struct backend *b = op_backend(1, NULL);
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct fixture f;
        struct err e = { .text = "" };
        fixture_make(&f, &GOOD);
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
        cmocka_unit_test(test_bits_are_those_of_the_definition),
        cmocka_unit_test(test_value_alone),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
