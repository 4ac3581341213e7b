/* Certificates (kernels/certify) of stand-ins that are wrong in ways that real kernels have been:
 * each must fail and be named. A correct device must pass, also one that adds in another order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "kernels/certify/certify.h"
#include "kernels/certify/gemm_check.h"
#include "kernels/cpu/cpu_backend.h"
#include "runner/certify/ways.h"
#include "tests/support/must.h"
#include "tests/support/wrong_backend.h"

#define GEMM(...) { .section = WAY_GEMM, .m = 64, .n = 48, .k = 272, __VA_ARGS__ }
#define FP8(kind_a, kind_b, ...)                                                               \
    GEMM(.a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_BF16, .scale_a = SCALE_##kind_a,       \
         .scale_b = SCALE_##kind_b, __VA_ARGS__)
/* K in 32s: native where the device has block scales of one byte. */
#define MX(kind_b)                                                                             \
    { .section = WAY_GEMM, .m = 64, .n = 48, .k = 288, .a = DTYPE_E4M3, .b = DTYPE_E4M3,       \
      .out = DTYPE_BF16, .scale_a = SCALE_1X32, .scale_b = SCALE_##kind_b }

/* Ways of the recipes. */
static const struct certify_way WAYS[] = {
    GEMM(.a = DTYPE_BF16, .b = DTYPE_BF16, .out = DTYPE_BF16),
    GEMM(.a = DTYPE_BF16, .b = DTYPE_BF16, .out = DTYPE_F32, .transposed_a = true,
         .transposed_b = true, .beta = true),
    GEMM(.a = DTYPE_BF16, .b = DTYPE_BF16, .out = DTYPE_BF16, .bias = true,
         .bias_dtype = DTYPE_BF16, .residual = true),
    FP8(TENSOR, TENSOR, .fast = true),
    FP8(ROW, ROW, .beta = true),
    FP8(1X128, 128X128, .residual = true),
    { .section = WAY_GEMM, .m = 48, .n = 64, .k = 200, .a = DTYPE_E5M2, .b = DTYPE_E4M3,
      .out = DTYPE_F32, .scale_a = SCALE_1X128, .scale_b = SCALE_1X128, .beta = true },
    MX(1X32), MX(32X32),
    { .section = WAY_GEMM, .m = 48, .n = 64, .k = 224, .a = DTYPE_E2M1, .b = DTYPE_E2M1,
      .out = DTYPE_BF16, .scale_a = SCALE_1X16, .scale_b = SCALE_16X16 },
    { .section = WAY_CAST, .m = 150, .k = 272, .a = DTYPE_BF16, .b = DTYPE_E4M3,
      .scale_b = SCALE_TENSOR, .source = SCALE_SOURCE_KNOWN, .codes = true, .twin = true },
    { .section = WAY_CAST, .m = 150, .k = 272, .a = DTYPE_BF16, .b = DTYPE_E5M2,
      .scale_b = SCALE_TENSOR, .source = SCALE_SOURCE_AMAX, .codes = true },
    { .section = WAY_CAST, .m = 150, .k = 272, .a = DTYPE_BF16, .b = DTYPE_E4M3,
      .scale_b = SCALE_1X128, .source = SCALE_SOURCE_BLOCK, .codes = true, .twin = true,
      .rule = { QUANT_TE_BLOCK, 0, true } },
    { .section = WAY_CAST, .m = 150, .k = 272, .a = DTYPE_BF16, .b = DTYPE_E4M3,
      .scale_b = SCALE_1X32, .source = SCALE_SOURCE_BLOCK, .codes = true, .twin = true,
      .rule = { QUANT_MX, 0, true } },
#define TWINS(kind_b, ...)                                                                     \
    { .section = WAY_GEMM, .m = 64, .n = 48, .k = 288, .a = DTYPE_E4M3, .b = DTYPE_E4M3,       \
      .out = DTYPE_F32, .scale_a = SCALE_1X32, .scale_b = SCALE_##kind_b,                      \
      .transposed_b = true, __VA_ARGS__ }
#define CAST_TWIN(KIND, ...)                                                                   \
    { .section = WAY_CAST, .m = 150, .k = 264, .a = DTYPE_BF16, .b = DTYPE_E4M3,               \
      .scale_b = SCALE_##KIND, .source = SCALE_SOURCE_BLOCK, .twin = true,                     \
      .untransposed = true, .rule = { QUANT_MX, 0, true }, __VA_ARGS__ }
    TWINS(1X32, .beta = false), TWINS(32X32, .beta = false), /* dgrad */
    TWINS(1X32, .transposed_a = true, .beta = true), /* wgrad */
    CAST_TWIN(1X32, .codes = true), CAST_TWIN(1X32, .codes = false),
    CAST_TWIN(32X32, .codes = true), CAST_TWIN(32X32, .codes = false),
#define ATTENTION(LENGTH, ...)                                                                 \
    { .section = WAY_ATTENTION, .a = DTYPE_BF16, .batch = 2, .length = LENGTH, .heads = 4,     \
      .kv_heads = 2, .head_dim = 16, __VA_ARGS__ }
    ATTENTION(200, .window = 40), ATTENTION(1100, .window = 1000), ATTENTION(200, .window = 1),
    ATTENTION(200, .documents = true), ATTENTION(1, .documents = true),
    ATTENTION(200, .window = 40, .documents = true),
    ATTENTION(70, .window = 0),
};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };
enum { TN = 7, TN_SQUARES, TWIN_PRODUCTS = 14, TWIN_CASTS = 17, TWIN_END = 21 };
enum { WINDOW = WAY_COUNT - 7, LONG_WINDOW, WINDOW_OF_ONE, DOCUMENTS, ONE_TOKEN, BOTH };

static const struct certify_way BLOCKS = FP8(1X128, 1X128, .fast = false);
static const struct certify_way LARGE = { .section = WAY_GEMM, .m = 256, .n = 32, .k = 128,
    .a = DTYPE_E4M3, .b = DTYPE_E4M3, .out = DTYPE_F32, .scale_a = SCALE_ROW,
    .scale_b = SCALE_ROW };
static const struct certify_way STOCHASTIC = { .section = WAY_CAST, .m = 64, .k = 128,
    .a = DTYPE_BF16, .b = DTYPE_E2M1, .scale_b = SCALE_1X16, .source = SCALE_SOURCE_AMAX,
    .rule = { QUANT_NVFP4, 0, false }, .codes = true, .draws = true };

static struct backend *open_cpu(const char *arithmetic) {
    struct backend *b = NULL;
    MUST(cpu_backend_open(&b, 1, E));
    if (arithmetic) MUST(cpu_backend_calculate(b, arithmetic, E));
    return b;
}

static struct certificate try_way(const struct certify_way *way, enum wrong_kind kind,
                                  const char *arithmetic, const char *architecture,
                                  const char *forbid) {
    struct backend *reference = open_cpu(NULL), *b = open_cpu(arithmetic);
    struct certificate c;
    MUST(wrong_backend_open(b, kind, architecture, "cuda", E));
    if (forbid) MUST(b->ops->forbid(b, "gemm", forbid, E));
    if (way->kernel) MUST(b->ops->attention_backend(b, way->kernel, E));
    MUST(certify(b, reference, way, &c, E));
    b->ops->close(b);
    reference->ops->close(reference);
    return c;
}

static void must_pass(const struct certificate *c) {
    char text[WAY_TEXT_CAP];
    certify_way_text(&c->way, text);
    if (c->outcome != CERTIFY_PASSED) fail_msg("%s: %s: %s", text, c->fault, c->found);
    assert_true(c->outputs > 0);
}

/* The reference has its own bits, and bits are demanded on this architecture. */
static void test_reference(void **state) {
    for (int i = 0; i < WAY_COUNT; i++) {
        struct certificate c = try_way(&WAYS[i], WRONG_NOTHING, NULL, "x86_64", NULL);
        must_pass(&c);
        if (c.way.section == WAY_GEMM) assert_true(c.agreed & 1);
    }
}

/* On an unknown device the same outputs are within the bound. So are those of another order. */
static void test_unknown(void **state) {
    for (int i = 0; i < WAY_COUNT; i++)
        for (int order = 0; order < (i < 5 ? 2 : 1); order++) {
            struct certificate c = try_way(&WAYS[i], order ? WRONG_ORDER : WRONG_NOTHING, NULL,
                                           "sm_121", NULL);
            must_pass(&c);
            if (c.way.section == WAY_GEMM) assert_true(c.bound > 0 && c.error <= c.bound);
        }
}

/* All small shapes run, whether the device multiplies the codes or widens them. */
static void test_shapes(void **state) {
    static const char *const DEVICES[] = { "sm_90", "sm_100", "sm_121", "sm_80" };
    static const struct { const char *device; int way; const char *how; } HOW[] = {
        { "sm_90", 3, "native" }, { "sm_90", 7, "emulated" }, { "sm_80", 9, "emulated" },
        { "sm_100", 3, "native" }, { "sm_100", 7, "native" }, { "sm_100", 8, "native" },
        { "sm_100", 9, "native" }, { "sm_100", 5, "emulated" }, { "sm_121", 5, "native" },
        { "sm_121", 9, "native" }, { "sm_80", 3, "emulated" }, { "sm_100", 14, "native" },
        { "sm_100", 15, "native" }, { "sm_100", 16, "native" }, { "sm_121", 14, "emulated" },
        { "sm_90", 16, "emulated" },
    };
    for (size_t d = 0; d < sizeof DEVICES / sizeof *DEVICES; d++)
        for (int i = 0; i < WAY_COUNT; i++) {
            if (WAYS[i].section != WAY_GEMM) continue;
            if (!d && WAYS[i].a == DTYPE_E2M1) continue; /* Hopper's arithmetic has none */
            struct certificate c = try_way(&WAYS[i], WRONG_NOTHING, d ? NULL : "hopper",
                                           DEVICES[d], NULL);
            must_pass(&c);
            const bool odd = dtype_is_fp8(WAYS[i].a) && !trial_block(WAYS[i].scale_a);
            if (c.shapes != 4 + odd || !strstr(c.found, odd ? "outputs of 5 of 5 shapes are right"
                                                            : "outputs of 4 of 4 shapes are right"))
                fail_msg("way %d on %s: %d shapes: %s", i, DEVICES[d], c.shapes, c.found);
            for (size_t h = 0; h < sizeof HOW / sizeof *HOW; h++)
                if (!strcmp(HOW[h].device, DEVICES[d]) && HOW[h].way == i)
                    assert_string_equal(c.how, HOW[h].how);
        }
}

/* The way of a product under an arithmetic; false where it has none. */
static bool way_of(const struct arithmetic *m, const struct certify_way *w, struct mma_way *way) {
    struct err ignored;
    struct tensor a = tensor_2d(NULL, w->a, w->m, w->k), b = tensor_2d(NULL, w->b, w->n, w->k);
    struct tensor out = tensor_2d(NULL, w->out, w->m, w->n);
    a.scale = scale_make(NULL, w->scale_a, w->m, w->k);
    b.scale = scale_make(NULL, w->scale_b, w->n, w->k);
    const struct matmul_args args = { .out = &out, .a = &a, .b = &b, .fast_accumulate = w->fast,
                                      .beta = w->beta ? 1.0f : 0.0f };
    return arithmetic_way(m, &args, way, &ignored) == OK;
}

/* Whether two arithmetics add this product alike, but for the order along K, which is searched. */
static bool same_arithmetic(const struct arithmetic *x, const struct arithmetic *y,
                            const struct certify_way *w) {
    struct mma_way a, b;
    if (!way_of(x, w, &a) || !way_of(y, w, &b)) return false;
    return !memcmp(&a.mma, &b.mma, sizeof a.mma) && a.widened == b.widened &&
           a.scaled == b.scaled && a.block == b.block && a.term == b.term &&
           a.least_a == b.least_a && a.least_b == b.least_b;
}

/* A device of each published arithmetic, where none is known, agrees in doctor's standard ways with
 * that one and with those that add alike. In f32 it agrees with no other. */
static void must_tell(const struct certify_way *w, const struct arithmetic *m, int *apart) {
    const struct arithmetic *other;
    char text[WAY_TEXT_CAP];
    bool twins = w->transposed_a || w->transposed_b; /* native on sm_100 alone */
    struct certificate c = try_way(w, WRONG_NOTHING, m->name, twins ? "sm_100" : "sm_121", NULL);
    must_pass(&c);
    certify_way_text(w, text);
    for (int j = 0; (other = arithmetic_at(j)); j++) {
        bool agrees = c.agreed >> j & 1, wanted = same_arithmetic(m, other, w);
        if (wanted != agrees && (wanted || w->out == DTYPE_F32))
            fail_msg("%s: a device of %s %s %s", text, m->name,
                     agrees ? "agrees with" : "does not agree with", other->name);
        *apart += !agrees;
    }
}

static void test_models(void **state) {
    const struct arithmetic *m;
    struct ways ways;
    struct mma_way way;
    int bytes = 0, apart = 0;
    MUST(ways_standard(TWINS_UNTRANSPOSED, &ways, E));
    for (int64_t n = 0; n < ways.count; n++) {
        struct certify_way w = ways.way[n];
        if (w.section != WAY_GEMM) continue;
        bool is_byte = w.scale_a == SCALE_1X32 || w.scale_a == SCALE_1X16;
        if (is_byte) assert_true(w.out == DTYPE_F32 && w.k >= 8192);
        bytes += is_byte;
        w.m = 32; /* fewer outputs, of which as many are sampled */
        w.n = 32;
        for (int i = 0; (m = arithmetic_at(i)); i++)
            if (way_of(m, &w, &way)) must_tell(&w, m, &apart); /* Hopper's has no NVFP4 */
    }
    assert_int_equal(bytes, 7);
    assert_true(apart > 80);
    ways_free(&ways);
}

/* With C in one rounding, NVFP4 is recognised, too; the bits are others. */
static void test_fused(void **state) {
    static const struct certify_way WAY = { .section = WAY_GEMM, .m = 64, .n = 48, .k = 1024,
        .a = DTYPE_E2M1, .b = DTYPE_E2M1, .out = DTYPE_F32, .scale_a = SCALE_1X16,
        .scale_b = SCALE_1X16, .beta = true };
    struct certificate c = try_way(&WAY, WRONG_NOTHING, "sm_100", "sm_100", NULL);
    must_pass(&c);
    assert_string_equal(c.order, "one chain");
    c = try_way(&WAY, WRONG_FUSED, "sm_100", "sm_100", NULL);
    must_pass(&c);
    assert_string_equal(c.order, "one chain, addend fused");
    assert_non_null(strstr(c.reason, "NVFP4 of the narrowest"));
}

/* Where Hopper's bits are demanded, its arithmetic passes and the reference's does not. */
static void test_demanded(void **state) {
    struct certificate c = try_way(&BLOCKS, WRONG_NOTHING, "hopper", "sm_90", NULL);
    must_pass(&c);
    assert_string_equal(c.how, "native");
    assert_non_null(strstr(c.order, "chains of 128"));
    assert_non_null(strstr(c.reason, "hopper, to the bit"));
    c = try_way(&WAYS[6], WRONG_NOTHING, NULL, "sm_90", NULL);
    assert_int_equal(c.outcome, CERTIFY_FAILED);
    assert_string_equal(c.fault, "other bits");
}

/* The order is the one that the device states: another one of the same arithmetic fails. */
static void test_stated(void **state) {
    static const struct certify_way CHAINS = { .section = WAY_GEMM, .m = 48, .n = 64, .k = 400,
        .a = DTYPE_E5M2, .b = DTYPE_E4M3, .out = DTYPE_F32, .scale_a = SCALE_TENSOR,
        .scale_b = SCALE_TENSOR };
    const struct certify_way *ways[] = { &WAYS[1], &CHAINS };
    static const char *const STATED[] = { "states one chain, parts of 256", "states chains of 64" };
    static const char *const FOUND[] = { "hopper with one chain", "hopper with chains of 128" };
    for (int i = 0; i < 2; i++) {
        struct certificate c = try_way(ways[i], WRONG_NOTHING, "hopper", "sm_90", NULL);
        must_pass(&c);
        assert_non_null(strstr(c.reason, "in the order that the backend states"));
        c = try_way(ways[i], WRONG_TOLD, "hopper", "sm_90", NULL);
        assert_int_equal(c.outcome, CERTIFY_FAILED);
        assert_string_equal(c.fault, "other bits");
        if (!strstr(c.found, STATED[i]) || !strstr(c.found, FOUND[i])) fail_msg("%s", c.found);
        c = try_way(ways[i], WRONG_TOLD, "hopper", "sm_121", NULL); /* nobody knows it there */
        must_pass(&c);
    }
}

struct wrong_case {
    const struct certify_way *way;
    enum wrong_kind kind;
    const char *fault, *words; /* words: part of the sentence */
};

static void test_mistakes(void **state) {
    const struct certify_way *attention = &WAYS[WAY_COUNT - 1], *cast = &WAYS[12];
    const struct wrong_case cases[] = {
        { &BLOCKS, WRONG_IGNORED, "ignored scale", "without the scale of a" },
        { &WAYS[3], WRONG_IGNORED, "ignored scale", "without the scale of a" },
        { &WAYS[4], WRONG_IGNORED, "ignored scale", "without the scale of a" },
        { &WAYS[7], WRONG_IGNORED, "ignored scale", "without the scale of a" },
        { &WAYS[9], WRONG_IGNORED, "ignored scale", "without the scale of a" },
        { &WAYS[9], WRONG_TENSOR_FACTOR, "ignored tensor factor", "the factors of both tensors" },
        { &WAYS[9], WRONG_MANTISSA, "cut scale", "scale of a cut to powers of two" },
        { &WAYS[9], WRONG_NAN, "NaN swallowed", "is exact" },
        { &WAYS[9], WRONG_SWAPPED, "swapped blocks", "neighbouring scale blocks of a" },
        { &BLOCKS, WRONG_SWAPPED, "swapped blocks", "neighbouring scale blocks of a" },
        { &WAYS[8], WRONG_SWAPPED, "swapped blocks", "neighbouring scale blocks of a" },
        { &BLOCKS, WRONG_TRANSPOSED, "transposed scales", "column by column" },
        { &WAYS[8], WRONG_TRANSPOSED, "transposed scales", "column by column" },
        { &BLOCKS, WRONG_STALE, "stale output", "what was there before" },
        { &WAYS[3], WRONG_STALE, "stale output", "what was there before" },
        { &BLOCKS, WRONG_TAIL, "tail not written", "what was there before" },
        { &WAYS[3], WRONG_ODD, "tail not written", "sampled outputs of 37 x 53 x 112" },
        { &WAYS[4], WRONG_ODD, "wrong output", "sampled outputs of 37 x 53 x 112" },
        { &BLOCKS, WRONG_NAN, "NaN swallowed", "is exact" },
        { &BLOCKS, WRONG_K_TAIL, "tail of K", "without the last products" },
        { &LARGE, WRONG_LARGE, "ignored scale", "256 x 32 x 128" },
        { &STOCHASTIC, WRONG_ROUNDING, "zeroed rounding", "codes" },
        { cast, WRONG_CAST_STALE, "stale output", "over other bytes" },
        { cast, WRONG_CAST_NAN, "NaN swallowed", "with a NaN" },
        { attention, WRONG_ATTENTION, "beyond the bound", "the output of token" },
        { attention, WRONG_ATTENTION_STALE, "stale output", "what was there before" },
        { attention, WRONG_ATTENTION_NAN, "NaN swallowed", "sees a value that is NaN" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct certificate c = try_way(cases[i].way, cases[i].kind, NULL, "sm_121", NULL);
        if (c.outcome != CERTIFY_FAILED || strcmp(c.fault, cases[i].fault) != 0 ||
            !strstr(c.found, cases[i].words))
            fail_msg("case %zu: %s: \"%s\"; wanted %s with \"%s\"", i, c.fault, c.found,
                     cases[i].fault, cases[i].words);
    }
}

/* A kernel that ignores the first key, or a part of what it stands for, fails where it is used. */
static void test_masks(void **state) {
    const struct certify_way *plain = &WAYS[WAY_COUNT - 1];
    const struct wrong_case cases[] = {
        { &WAYS[WINDOW], WRONG_FIRST_KEY, "ignored window", "without a window of 40" },
        { &WAYS[WINDOW], WRONG_WINDOW, "ignored window", "without a window of 40" },
        { &WAYS[LONG_WINDOW], WRONG_FIRST_KEY, "ignored window", "without a window of 1000" },
        { &WAYS[WINDOW_OF_ONE], WRONG_FIRST_KEY, "ignored window", "without a window of 1" },
        { &WAYS[DOCUMENTS], WRONG_FIRST_KEY, "ignored documents", "right without documents" },
        { &WAYS[BOTH], WRONG_FIRST_KEY, "ignored first key", "window of 40 and documents" },
        { &WAYS[BOTH], WRONG_WINDOW, "ignored window", "right without a window of 40" },
        { &WAYS[ONE_TOKEN], WRONG_FIRST_KEY, "ignored documents", "right without documents" },
        { &WAYS[WINDOW], WRONG_FIRST_KEY_BACKWARD, "ignored window", "the gradient of a query" },
        { &WAYS[DOCUMENTS], WRONG_FIRST_KEY_BACKWARD, "ignored documents", "the gradient of" },
        { &WAYS[WINDOW], WRONG_FIRST_TILE, "beyond the bound", "is exact" },
        { &WAYS[LONG_WINDOW], WRONG_FIRST_BEFORE, "beyond the bound", "token 1099" },
        { &WAYS[DOCUMENTS], WRONG_FIRST_BEFORE, "beyond the bound", "is exact" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct certificate c = try_way(plain, cases[i].kind, NULL, "sm_121", NULL);
        must_pass(&c); /* nothing to ignore */
        c = try_way(cases[i].way, cases[i].kind, NULL, "sm_121", NULL);
        if (c.outcome != CERTIFY_FAILED || strcmp(c.fault, cases[i].fault) != 0 ||
            !strstr(c.found, cases[i].words))
            fail_msg("case %zu: %s: \"%s\"; wanted %s with \"%s\"", i, c.fault, c.found,
                     cases[i].fault, cases[i].words);
        assert_string_equal(c.forbid, "wgmma");
        c = try_way(cases[i].way, cases[i].kind, NULL, "sm_121", "wgmma");
        must_pass(&c);
    }
}

#define FP8_ATTENTION(GRADIENT, O, LENGTH, DIM, ...)                                           \
    { .section = WAY_ATTENTION, .a = DTYPE_E4M3, .b = DTYPE_##GRADIENT, .out = DTYPE_##O,      \
      .batch = 2, .length = LENGTH, .heads = 4, .kv_heads = 2, .head_dim = DIM, __VA_ARGS__ }
static const struct certify_way FP8_WAYS[] = {
    FP8_ATTENTION(E5M2, E4M3, 200, 16, .window = 0),
    FP8_ATTENTION(E4M3, BF16, 70, 10, .window = 0), /* rows of codes are padded */
    FP8_ATTENTION(E5M2, BF16, 1, 64, .window = 0),
    FP8_ATTENTION(E5M2, BF16, 1100, 16, .window = 1000),
    FP8_ATTENTION(E4M3, E4M3, 200, 16, .window = 40, .documents = true),
};
enum { FP8_COUNT = sizeof FP8_WAYS / sizeof *FP8_WAYS };

/* FP8 attention passes on the reference and on a device that rounds as it does; each way has a name
 * of its own. */
static void test_fp8_attention(void **state) {
    char text[WAY_TEXT_CAP];
    for (int i = 0; i < FP8_COUNT; i++) {
        struct certificate c = try_way(&FP8_WAYS[i], WRONG_NOTHING, NULL, "x86_64", NULL);
        must_pass(&c);
        assert_string_equal(c.how, "own");
        assert_true(c.bound > 0 && c.error <= c.bound);
        c = try_way(&FP8_WAYS[i], WRONG_NOTHING, NULL, "sm_121", NULL);
        must_pass(&c);
    }
    certify_way_text(&FP8_WAYS[0], text);
    assert_string_equal(text, "attention e4m3 by known scales, gradients e5m2, output e4m3, "
                              "2 x 200, heads 4/2 of 16");
}

static void test_fp8_mistakes(void **state) {
    const struct certify_way *way = &FP8_WAYS[0], *padded = &FP8_WAYS[1], *masked = &FP8_WAYS[3];
    const struct wrong_case cases[] = {
        { way, WRONG_FP8_VALUES, "ignored scale", "right without the scale of v" },
        { padded, WRONG_FP8_VALUES, "ignored scale", "right without the scale of v" },
        { masked, WRONG_FP8_VALUES, "ignored scale", "right without the scale of v" },
        { way, WRONG_FP8_P, "ignored scale", "without the scales of the probabilities" },
        { masked, WRONG_FP8_P, "ignored scale", "without the scales of the probabilities" },
        { way, WRONG_FP8_DS, "ignored scale", "without the factor of the scores' gradient" },
        { padded, WRONG_FP8_DS, "ignored scale", "without the factor of the scores' gradient" },
        { way, WRONG_FP8_ZERO, "zeroed gradient", "the whole row is 0" },
        { padded, WRONG_FP8_ZERO, "zeroed gradient", "the whole row is 0" },
        { way, WRONG_FP8_STALE, "stale output", "what was there before" },
        { way, WRONG_FP8_STALE_BACKWARD, "stale output", "what was there before" },
        { way, WRONG_FP8_NO_AMAX, "wrong amax", "the amax of the probabilities is 0" },
        { way, WRONG_FP8_NEW_AMAX, "wrong amax", "it is not kept" },
        { way, WRONG_FP8_NAN, "NaN swallowed", "sees a value that is NaN" },
        { masked, WRONG_FIRST_KEY, "ignored window", "without a window of 1000" },
        { masked, WRONG_FIRST_BEFORE, "beyond the bound", "token 1099" },
        { &FP8_WAYS[4], WRONG_FIRST_KEY, "ignored first key", "window of 40 and documents" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct certificate c = try_way(cases[i].way, cases[i].kind, NULL, "sm_121", NULL);
        if (c.outcome != CERTIFY_FAILED || strcmp(c.fault, cases[i].fault) != 0 ||
            !strstr(c.found, cases[i].words))
            fail_msg("case %zu: %s: \"%s\"; wanted %s with \"%s\"", i, c.fault, c.found,
                     cases[i].fault, cases[i].words);
    }
}

/* A run that asks for cuDNN's kernel has no other. */
static void test_fp8_cudnn(void **state) {
    const struct certify_way way = FP8_ATTENTION(E5M2, E4M3, 512, 16, .kernel = ATTENTION_CUDNN);
    const enum wrong_kind kinds[] = { WRONG_FP8_VALUES, WRONG_FP8_DS, WRONG_FP8_STALE };
    struct certificate c = try_way(&way, WRONG_NOTHING, NULL, "sm_121", NULL);
    must_pass(&c);
    assert_string_equal(c.how, "cudnn");
    assert_string_equal(c.forbid, "");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        c = try_way(&way, kinds[i], NULL, "sm_121", NULL);
        assert_int_equal(c.outcome, CERTIFY_FAILED);
        assert_string_equal(c.fault, kinds[i] == WRONG_FP8_STALE ? "stale output"
                                                                 : "ignored scale");
        assert_string_equal(c.forbid, "");
    }
    struct certify_way bf16 = WAYS[WAY_COUNT - 1];
    bf16.kernel = ATTENTION_CUDNN;
    c = try_way(&bf16, WRONG_ATTENTION, NULL, "sm_121", NULL);
    assert_int_equal(c.outcome, CERTIFY_FAILED);
    assert_string_equal(c.forbid, "");
    c = try_way(&bf16, WRONG_ATTENTION_NAN_LONG, NULL, "sm_121", NULL);
    assert_int_equal(c.outcome, CERTIFY_FAILED);
    assert_string_equal(c.fault, "NaN swallowed");
}

/* The failed way has a name for forbid(); without it the same product passes. */
static void test_forbidden(void **state) {
    struct certificate c = try_way(&BLOCKS, WRONG_STALE, NULL, "sm_121", NULL);
    assert_string_equal(c.forbid, "e4m3 1x128 x e4m3 1x128");
    c = try_way(&BLOCKS, WRONG_STALE, NULL, "sm_121", "e4m3 1x128 x e4m3 1x128");
    must_pass(&c);
    assert_string_equal(c.how, "emulated");
    assert_string_equal(c.forbid, "");
    c = try_way(&WAYS[WAY_COUNT - 1], WRONG_ATTENTION, NULL, "sm_121", NULL);
    assert_string_equal(c.forbid, "wgmma");
    c = try_way(&WAYS[WAY_COUNT - 1], WRONG_ATTENTION, NULL, "sm_121", "wgmma");
    must_pass(&c);
    assert_string_equal(c.how, "mma");
    struct backend *cpu = open_cpu(NULL);
    MUST_FAIL(ERR_UNSUPPORTED, "no other way", cpu->ops->forbid(cpu, "gemm", "x", E));
    cpu->ops->close(cpu);
}

static void must_fail(const struct certificate *c, const char *fault, const char *words) {
    char text[WAY_TEXT_CAP];
    certify_way_text(&c->way, text);
    if (c->outcome != CERTIFY_FAILED || strcmp(c->fault, fault) != 0 || !strstr(c->found, words))
        fail_msg("%s: %s: \"%s\"; wanted %s with \"%s\"", text, c->fault, c->found, fault, words);
}

/* A device that reads untransposed twins wrongly fails in these products alone. */
static void test_twin_products(void **state) {
    static const struct { enum wrong_kind kind; const char *fault, *words[3]; } MISTAKES[] = {
        { WRONG_TWIN_CODES, "transposed codes",
          { "the twin b read as", "the twin b read as", "twins read as transposed" } },
        { WRONG_TWIN_SCALES, "transposed scales",
          { "the scale of b read", "the scale of b read", "both scales read" } },
    };
    for (int k = 0; k < 2; k++) {
        for (int i = TN; i <= TN_SQUARES; i++) {
            struct certificate c = try_way(&WAYS[i], MISTAKES[k].kind, NULL, "sm_100", NULL);
            must_pass(&c);
            assert_string_equal(c.how, "native");
        }
        for (int i = 0; i < 3; i++) {
            const struct certify_way *way = &WAYS[TWIN_PRODUCTS + i];
            struct certificate c = try_way(way, MISTAKES[k].kind, NULL, "sm_100", NULL);
            must_fail(&c, MISTAKES[k].fault, MISTAKES[k].words[i]);
            c = try_way(way, MISTAKES[k].kind, NULL, "sm_120", NULL); /* they are widened there */
            must_pass(&c);
        }
    }
}

/* An own shape whose lines are padded is widened, and the padding belongs to no output. */
static void test_twin_padding(void **state) {
    struct certify_way way = WAYS[TWIN_PRODUCTS + 2];
    way.m = 40;
    way.n = 24;
    struct certificate c = try_way(&way, WRONG_NOTHING, NULL, "sm_100", NULL);
    must_pass(&c);
    assert_string_equal(c.how, "emulated");
}

/* A long wgrad, whose operands repeat few numbers along K, has outputs that tell a mistake. */
static void test_twin_long(void **state) {
    struct certify_way way = WAYS[TWIN_PRODUCTS + 2];
    way.m = 16;
    way.n = 32;
    way.k = 65536;
    struct backend *b = open_cpu(NULL);
    struct gemm_trial t;
    const int64_t shape[3] = { way.m, way.n, way.k };
    int zero = 0;
    MUST(gemm_trial_open(&t, b, &way, shape, TRIAL_WHOLE, E));
    for (int i = 0; i < t.rows; i++)
        for (int j = 0; j < t.cols; j++) {
            double sum = gemm_sum(&t, t.row[i], t.col[j]);
            zero += t.row[i] != ROW_ZERO && t.col[j] != ROW_ZERO && sum == 0;
            assert_false(fabs(sum) >= 0x1p22); /* in quarters: 24 bits */
        }
    assert_true(zero <= 4);
    gemm_trial_free(&t);
    b->ops->close(b);
}

static void test_twin_casts(void **state) {
    const struct certify_way *both = &WAYS[TWIN_CASTS];
    struct certificate c = try_way(both, WRONG_TWIN_CAST, NULL, "sm_100", NULL);
    must_fail(&c, "wrong codes", "codes of the twin");
    c = try_way(&WAYS[13], WRONG_TWIN_CAST, NULL, "sm_100", NULL); /* transposed */
    must_pass(&c);
    for (int i = TWIN_CASTS; i < TWIN_END; i++) {
        c = try_way(&WAYS[i], WRONG_CAST_STALE, NULL, "sm_100", NULL);
        must_fail(&c, "stale output", "over other bytes");
        c = try_way(&WAYS[i], WRONG_CAST_NAN, NULL, "sm_100", NULL);
        must_fail(&c, "NaN swallowed", "with a NaN");
    }
}

/* Without NN its operands are widened; TN and NT stay what they are. */
static void test_forbidden_twins(void **state) {
    static const char NN[] = "e4m3 1x32 x e4m3 1x32 untransposed";
    const struct certify_way *dgrad = &WAYS[TWIN_PRODUCTS], *wgrad = dgrad + 2;
    struct certificate c = try_way(dgrad, WRONG_TWIN_CODES, NULL, "sm_100", NULL);
    assert_string_equal(c.forbid, NN);
    c = try_way(dgrad, WRONG_TWIN_CODES, NULL, "sm_100", NN);
    must_pass(&c);
    assert_string_equal(c.how, "emulated");
    c = try_way(wgrad, WRONG_TWIN_CODES, NULL, "sm_100", NN);
    assert_int_equal(c.outcome, CERTIFY_FAILED);
    assert_string_equal(c.forbid, "e4m3 1x32 untransposed x e4m3 1x32 untransposed");
    c = try_way(&WAYS[TN], WRONG_TWIN_CODES, NULL, "sm_100", NN);
    must_pass(&c);
    assert_string_equal(c.how, "native");
    assert_string_equal(c.forbid, "e4m3 1x32 x e4m3 1x32");
    assert_true(way_may_use(dgrad, "gemm e4m3 1x32 x e4m3 1x32 untransposed"));
    assert_false(way_may_use(&WAYS[TN], "gemm e4m3 1x32 x e4m3 1x32 untransposed"));
    assert_false(way_may_use(dgrad, "gemm e4m3 1x32 x e4m3 1x32"));
}

/* The standard ways have them where a device asks for them. */
static void test_standard_twins(void **state) {
    for (unsigned twins = TWINS_TRANSPOSED; twins <= TWINS_UNTRANSPOSED; twins++) {
        struct ways ways;
        int products = 0, casts = 0;
        MUST(ways_standard(twins, &ways, E));
        for (int64_t i = 0; i < ways.count; i++) {
            char text[WAY_TEXT_CAP];
            certify_way_text(&ways.way[i], text);
            if (!strstr(text, "untransposed")) continue;
            products += ways.way[i].section == WAY_GEMM;
            casts += ways.way[i].section == WAY_CAST;
        }
        assert_int_equal(products, twins == TWINS_UNTRANSPOSED ? 3 : 0);
        assert_int_equal(casts, twins == TWINS_UNTRANSPOSED ? 2 : 0);
        ways_free(&ways);
    }
}

/* What a GPU asks for: as it is, as it acts, and where that is not known. */
static void test_twins_asked(void **state) {
    static const struct { const char *caps, *cc; bool mixed; unsigned twins; } CASES[] = {
        { NULL, "10.0", false, TWINS_UNTRANSPOSED }, { NULL, "10.3", false, TWINS_UNTRANSPOSED },
        { NULL, "9.0", false, TWINS_TRANSPOSED }, { NULL, "12.1", false, TWINS_TRANSPOSED },
        { "sm_100", "9.0", false, TWINS_UNTRANSPOSED }, { "sm_90", "10.0", true, TWINS_TRANSPOSED },
        { NULL, "9.0", true, TWINS_TRANSPOSED | TWINS_UNTRANSPOSED },
        { NULL, NULL, false, TWINS_TRANSPOSED | TWINS_UNTRANSPOSED },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *facts = json_pack("{s:s?,s:b}", "gpu.cc", CASES[i].cc, "gpu.mixed",
                                  CASES[i].mixed);
        assert_int_equal(ways_twins(CASES[i].caps, facts), CASES[i].twins);
        json_decref(facts);
    }
}

static void test_texts(void **state) {
    char text[WAY_TEXT_CAP];
    for (int i = 0; i < WAY_COUNT; i++)
        for (int j = 0; j < i; j++) {
            char other[WAY_TEXT_CAP];
            certify_way_text(&WAYS[i], text);
            certify_way_text(&WAYS[j], other);
            assert_string_not_equal(text, other);
        }
    certify_way_text(&WAYS[5], text);
    assert_string_equal(text, "gemm e4m3 1x128 x e4m3 128x128 -> bf16, 64 x 48 x 272, residual");
    certify_way_text(&WAYS[TWIN_PRODUCTS + 2], text);
    assert_string_equal(text, "gemm e4m3 1x32 untransposed x e4m3 1x32 untransposed -> f32, "
                              "64 x 48 x 288, in place");
    certify_way_text(&WAYS[1], text);
    assert_string_equal(text, "gemm bf16 transposed x bf16 transposed -> f32, 64 x 48 x 272, in "
                              "place");
    certify_way_text(&WAYS[WAY_COUNT - 1], text);
    assert_string_equal(text, "attention bf16, 2 x 70, heads 4/2 of 16");
    certify_way_text(&WAYS[BOTH], text);
    assert_string_equal(text, "attention bf16, 2 x 200, heads 4/2 of 16, window 40, documents");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_models), cmocka_unit_test(test_fused),
        cmocka_unit_test(test_demanded),
        cmocka_unit_test(test_stated), cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_fp8_attention), cmocka_unit_test(test_fp8_mistakes),
        cmocka_unit_test(test_fp8_cudnn),
        cmocka_unit_test(test_twin_products), cmocka_unit_test(test_twin_padding),
        cmocka_unit_test(test_twin_long), cmocka_unit_test(test_twin_casts),
        cmocka_unit_test(test_forbidden_twins), cmocka_unit_test(test_standard_twins),
        cmocka_unit_test(test_twins_asked),
        cmocka_unit_test(test_forbidden), cmocka_unit_test(test_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
