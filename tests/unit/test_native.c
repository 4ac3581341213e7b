/* Native MXFP8 and NVFP4, as far as a machine without a GPU can check it: the library's order of
 * scales against the documented formula, packed codes, which products are native where, and the
 * memory that a plan counts for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention_rule.h"
#include "kernels/cuda/byte_scales.h"
#include "kernels/cuda/native.h"

/* ---- scales ---- */

/* The documented place of a scale: from the operand to the library, where swizzle_word() goes the
 * other way. */
static int64_t place_of(int64_t row, int64_t block, int64_t blocks) {
    int64_t padded = round_up(blocks, 4), tile = row / 128 * (padded / 4) + block / 4;
    return tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

static void lays_out(int64_t rows, int64_t blocks, int64_t share) {
    int64_t stored = ceil_div(rows, share), words = swizzle_words(rows, blocks);
    uint8_t *from = calloc((size_t)(stored * blocks), 1), *seen = calloc((size_t)words, 4);
    uint32_t *to = calloc((size_t)words, 4);
    assert_true(from && seen && to);
    assert_int_equal(4 * words, round_up(rows, 128) * round_up(blocks, 4));
    for (int64_t i = 0; i < stored * blocks; i++) from[i] = (uint8_t)(1 + i * 7 % 255);
    const struct swizzle s = { from, to, rows, blocks, share };
    for (int64_t i = 0; i < words; i++) to[i] = swizzle_word(&s, i);
    const uint8_t *bytes = (const uint8_t *)to; /* as a device reads them */
    for (int64_t row = 0; row < rows; row++)
        for (int64_t block = 0; block < blocks; block++) {
            int64_t at = place_of(row, block, blocks);
            if (bytes[at] != from[row / share * blocks + block] || seen[at]++)
                fail_msg("[%d x %d]: row %d, block %d", (int)rows, (int)blocks, (int)row,
                         (int)block);
        }
    for (int64_t i = 0; i < 4 * words; i++)
        if (!seen[i] && bytes[i]) fail_msg("padding at %d is %d", (int)i, bytes[i]);
    free(from);
    free(seen);
    free(to);
}

static void test_order_of_scales(void **state) {
    static const struct { int64_t rows, blocks, share; } CASE[] = {
        { 128, 4, 1 }, { 1, 1, 1 },    { 129, 5, 1 },   { 256, 8, 1 },   { 384, 12, 1 },
        { 31, 3, 1 },  { 127, 4, 32 }, { 200, 7, 32 },  { 640, 9, 16 },  { 33, 2, 16 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++)
        lays_out(CASE[i].rows, CASE[i].blocks, CASE[i].share);
}

/* The scales of an untransposed twin of a value [rows, cols]: one for 32 rows of a column. NVIDIA's
 * libraries keep them as [rows / 32][cols] and lay tiles of 4 by 128 of them out so that the column
 * has the place that a row has in TN (TransformerEngine, tests/cpp/operator/test_swizzle.cu). Ours
 * are those of a twin [cols, rows], so the place is the same as for any operand. */
static void test_order_of_column_scales(void **state) {
    static const struct { int64_t rows, cols; } CASE[] = {
        { 32, 128 }, { 128, 16 }, { 96, 272 }, { 4096, 400 }, { 160, 33 },
    };
    for (size_t c = 0; c < sizeof CASE / sizeof *CASE; c++) {
        int64_t cols = CASE[c].cols, blocks = ceil_div(CASE[c].rows, 32);
        int64_t high = round_up(blocks, 4), wide = round_up(cols, 128); /* theirs, padded */
        uint8_t *theirs = calloc((size_t)(high * wide), 1), *ours = malloc((size_t)(cols * blocks));
        uint8_t *want = calloc((size_t)(high * wide), 1);
        uint32_t *to = calloc((size_t)swizzle_words(cols, blocks), 4);
        assert_true(theirs && ours && want && to);
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t col = 0; col < cols; col++)
                theirs[block * wide + col] = ours[col * blocks + block] =
                    (uint8_t)(1 + (col * 37 + block * 101) % 251);
        for (int64_t col = 0; col < wide; col++)
            for (int64_t block = 0; block < high; block++) {
                int64_t tile = col / 128 * 128 * high + block / 4 * 512;
                int64_t at = tile + col % 128 % 32 * 16 + col % 128 / 32 * 4 + block % 4;
                want[at] = theirs[block * wide + col];
            }
        const struct swizzle s = { ours, to, cols, blocks, 1 };
        assert_int_equal(4 * swizzle_words(cols, blocks), high * wide);
        for (int64_t i = 0; i < swizzle_words(cols, blocks); i++) to[i] = swizzle_word(&s, i);
        assert_memory_equal(to, want, (size_t)(high * wide));
        free(theirs);
        free(ours);
        free(want);
        free(to);
    }
}

static void test_packed_codes(void **state) {
    for (uint32_t x = 0; x < 65536; x++) {
        uint32_t codes = (x & 15) | (x >> 4 & 15) << 8 | (x >> 8 & 15) << 16 | (x >> 12) << 24;
        if (nibbles_of(codes) != x) fail_msg("%08x is packed to %04x", codes, nibbles_of(codes));
    }
}

/* ---- decisions ---- */

#define TN false, false
#define MX SCALE_1X32, SCALE_32X32, 256, 128, 96, TN
#define FP4 SCALE_1X16, SCALE_1X16, 256, 128, 96, TN
static const struct native_case {
    struct gemm_kind kind;
    bool native, by_version, bias;
} CASES[] = {
    /* MXFP8: every Blackwell, no other device */
    { { 100, 130100, MX }, true, false, true },
    { { 103, 130100, MX }, true, false, true },
    { { 110, 130100, MX }, true, false, true },
    { { 120, 130100, MX }, true, false, true },
    { { 121, 130100, MX }, true, false, true },
    { { 100, 0, MX }, true, false, true },
    { { 90, 130100, MX }, false, false, true },
    { { 89, 130100, MX }, false, false, true },
    { { 80, 130100, MX }, false, false, true },
    /* versions */
    { { 100, 120800, MX }, false, true, true },
    { { 100, 120900, MX }, true, false, true },
    { { 100, 130400, MX }, true, false, true },
    { { 90, 120800, MX }, false, false, true },
    { { 100, 130400, FP4 }, false, true, true },
    { { 121, 130400, FP4 }, false, true, true },
    { { 100, 130401, FP4 }, true, false, true },
    { { 120, 130100, FP4 }, true, false, true },
    { { 90, 130100, FP4 }, false, false, true },
    /* Thor adds no bias to NVFP4 */
    { { 110, 130100, FP4 }, true, false, false },
    { { 101, 120900, FP4 }, true, false, false },
    /* shapes */
    { { 100, 0, SCALE_1X32, SCALE_1X32, 256, 128, 48, TN }, false, false, true },
    { { 100, 0, SCALE_1X32, SCALE_1X32, 252, 128, 64, TN }, false, false, true },
    { { 100, 0, SCALE_1X32, SCALE_1X32, 256, 100, 64, TN }, false, false, true },
    { { 100, 0, SCALE_1X16, SCALE_16X16, 8, 8, 32, TN }, true, false, true },
    { { 100, 0, SCALE_1X16, SCALE_16X16, 8, 8, 16, TN }, false, false, true },
    /* untransposed twins: dgrad, wgrad */
    { { 100, 130100, SCALE_1X32, SCALE_32X32, 256, 112, 96, false, true }, true, false, true },
    { { 103, 130100, SCALE_1X32, SCALE_1X32, 48, 112, 96, true, true }, true, false, true },
    { { 103, 0, SCALE_1X32, SCALE_1X32, 40, 112, 96, false, true }, true, false, true },
    { { 103, 0, SCALE_1X32, SCALE_1X32, 40, 112, 96, true, true }, false, false, true },
    { { 100, 0, SCALE_1X32, SCALE_1X32, 48, 104, 96, false, true }, false, false, true },
    { { 100, 120800, SCALE_1X32, SCALE_1X32, 48, 112, 96, true, true }, false, true, true },
    { { 120, 0, SCALE_1X32, SCALE_1X32, 256, 128, 96, false, true }, false, false, true },
    { { 121, 0, SCALE_1X32, SCALE_1X32, 256, 128, 96, true, true }, false, false, true },
    { { 110, 0, SCALE_1X32, SCALE_1X32, 256, 128, 96, true, true }, false, false, true },
    { { 90, 0, SCALE_1X32, SCALE_1X32, 256, 128, 96, true, true }, false, false, true },
    /* the other scales, as before */
    { { 100, 0, SCALE_TENSOR, SCALE_TENSOR, 7, 7, 7, TN }, true, false, true },
    { { 80, 0, SCALE_TENSOR, SCALE_TENSOR, 64, 64, 64, TN }, false, false, true },
    { { 90, 0, SCALE_1X128, SCALE_128X128, 64, 64, 64, TN }, true, false, true },
    { { 90, 0, SCALE_1X128, SCALE_128X128, 65, 64, 64, TN }, false, false, true },
    { { 100, 0, SCALE_1X128, SCALE_128X128, 64, 64, 64, TN }, false, false, true },
    { { 90, 0, SCALE_ROW, SCALE_ROW, 5, 5, 64, TN }, true, false, true },
    { { 121, 0, SCALE_ROW, SCALE_ROW, 64, 64, 64, TN }, false, false, true },
};

static void test_which_products_are_native(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct gemm_kind *g = &CASES[i].kind;
        const char *why = gemm_refusal(g);
        if ((why == NULL) != CASES[i].native || gemm_refused_by_version(g) != CASES[i].by_version ||
            gemm_adds_bias(g) != CASES[i].bias)
            fail_msg("case %d, sm_%d, version %d: %s", (int)i, g->cc, (int)g->library,
                     why ? why : "native");
        /* It follows "bf16 1x16 x bf16 16x16, " in a decision of 64 bytes. */
        if (why && CASES[i].by_version) assert_true(strlen(why) < 40);
    }
}

/* What the runner asks has the answers of the rules that the backend follows. */
static void test_what_a_version_explains(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct gemm_kind *g = &CASES[i].kind;
        const char *fault = device_library_fault(g->cc, g->a, g->library);
        if (CASES[i].by_version) assert_string_equal(fault, gemm_refusal(g));
        if (CASES[i].native) assert_null(fault);
        assert_null(device_library_fault(g->cc, g->a, 0));
    }
    assert_null(device_library_fault(90, SCALE_1X16, 130400));
    assert_null(device_library_fault(100, SCALE_TENSOR, 120800));
}

static void test_where_cudnn_is_asked(void **state) {
    static const int CC[] = { 0, 80, 89, 90, 100, 101, 103, 110, 120, 121 };
    const struct attention_size size = { 1, 4096, 8, 8, 128 };
    for (size_t i = 0; i < sizeof CC / sizeof *CC; i++)
        assert_int_equal(device_asks_cudnn(CC[i]),
                         cudnn_fp8_may_serve(CC[i], &size, CUDNN_FP8_FORWARD, false));
}

/* ---- memory ---- */

static int64_t bytes_of(int cc, enum scale_kind a, enum scale_kind b, const char *name) {
    const struct device_gemm gemm = { .m = 256, .n = 512, .k = 1024, .out_bytes = 2, .fp8 = true,
                                      .a = a, .b = b };
    const struct device_work work = { .gemm = &gemm, .gemms = 1, .world = 1 };
    struct device_item item[DEVICE_ITEMS_MAX];
    int n = device_memory(cc, &work, item);
    for (int i = 0; i < n; i++)
        if (!strcmp(item[i].name, name)) return item[i].bytes;
    return 0;
}

static void test_memory(void **state) {
    static const char WIDE[] = "operands widened to BF16", SCALES[] = "scales for cuBLASLt";
    static const char PACKED[] = "scales and FP4 for cuBLASLt";
    static const char TIMING[] = "timing GEMMs, before step 0";
    const int64_t elements = 768 * 1024, out = 2 * 256 * 512;
    assert_int_equal(bytes_of(90, SCALE_1X32, SCALE_32X32, WIDE), 2 * elements);
    assert_int_equal(bytes_of(90, SCALE_1X32, SCALE_32X32, SCALES), 0);
    assert_int_equal(bytes_of(100, SCALE_1X32, SCALE_32X32, WIDE), 0);
    assert_int_equal(bytes_of(100, SCALE_1X32, SCALE_32X32, SCALES), 768 * 32);
    assert_int_equal(bytes_of(100, SCALE_1X32, SCALE_32X32, TIMING), elements + out);
    assert_int_equal(bytes_of(120, SCALE_1X16, SCALE_16X16, WIDE), 0);
    assert_int_equal(bytes_of(120, SCALE_1X16, SCALE_16X16, PACKED), 768 * 64 + elements / 2);
    assert_int_equal(bytes_of(120, SCALE_1X16, SCALE_16X16, TIMING), elements / 2 + out);
}

/* Which devices multiply untransposed twins, and what a plan counts where one is widened: lines of
 * the product's columns, not of K. */
static void test_untransposed_twins(void **state) {
    static const int CC[] = { 0, 80, 89, 90, 100, 103, 110, 120, 121 };
    for (size_t i = 0; i < sizeof CC / sizeof *CC; i++)
        for (enum scale_kind kind = SCALE_NONE; kind < SCALE_KIND_COUNT; kind++)
            assert_int_equal(device_twins_untransposed(CC[i], kind),
                             (CC[i] == 100 || CC[i] == 103) &&
                                 (kind == SCALE_1X32 || kind == SCALE_32X32));
    struct device_gemm gemm = { .m = 20, .n = 36, .k = 100, .out_bytes = 2, .fp8 = true,
                                .a = SCALE_1X32, .b = SCALE_1X32, .twin_a = true, .twin_b = true };
    const struct device_work work = { .gemm = &gemm, .gemms = 1, .world = 1 };
    for (int cc = 90; cc <= 100; cc += 10) {
        struct device_item item[DEVICE_ITEMS_MAX];
        int n = device_memory(cc, &work, item);
        int64_t wide = cc == 100 ? 2 * 100 * (24 + 40) : 2 * 104 * (20 + 36), found = 0;
        for (int i = 0; i < n; i++)
            if (!strcmp(item[i].name, "operands widened to BF16")) found = item[i].bytes;
        assert_int_equal(found, wide);
    }
}

/* Terms of a sum over two ranks: codes to send and codes received, with a scale for 128. */
static void test_memory_of_coded_terms(void **state) {
    struct device_work work = { .world = 2, .shard = 1 << 20, .shard_bytes = 4 };
    struct device_item item[DEVICE_ITEMS_MAX];
    for (int codes = 0; codes < 2; codes++) {
        int64_t found = 0;
        work.shard_codes = codes;
        int n = device_memory(90, &work, item);
        for (int i = 0; i < n; i++)
            if (!strcmp(item[i].name, "terms of a sum over ranks")) found = item[i].bytes;
        assert_int_equal(found, codes ? 4 * ((1 << 20) + (1 << 13)) : 2 * (4 << 20));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_scales),
        cmocka_unit_test(test_order_of_column_scales),
        cmocka_unit_test(test_packed_codes),
        cmocka_unit_test(test_which_products_are_native),
        cmocka_unit_test(test_what_a_version_explains),
        cmocka_unit_test(test_where_cudnn_is_asked),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_untransposed_twins),
        cmocka_unit_test(test_memory_of_coded_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
