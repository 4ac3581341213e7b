/* quant_error, to the bit against its definition, written element by element; every scale kind,
 * codes that are right, and codes of another tensor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

#include "tests/support/op_tensor.h"

#define H DTYPE_BF16
#define F DTYPE_F32
#define E DTYPE_E4M3
#define G DTYPE_E5M2

enum { UNTRANSPOSED = 2 }; /* and the codes are a twin in the order of the stored value */

static const struct error_case {
    int64_t rows, cols;
    enum dtype x, code;
    enum scale_kind kind;
    int transposed; /* x is a transposed view */
} CASES[] = {
    { 1, 1, H, E, SCALE_TENSOR, false },
    { 150, 300, H, E, SCALE_TENSOR, false },
    { 150, 300, F, G, SCALE_TENSOR, true },
    { 7, 5000, H, G, SCALE_ROW, false },
    { 300, 37, H, E, SCALE_ROW, true },
    { 150, 300, H, E, SCALE_1X128, false },
    { 300, 150, H, E, SCALE_128X128, false },
    { 300, 150, F, E, SCALE_128X128, true },
    { 150, 300, H, E, SCALE_1X32, false },
    { 2100, 45, H, G, SCALE_32X32, false }, /* more strips than lanes */
    { 150, 300, H, G, SCALE_1X32, UNTRANSPOSED },
    { 70, 2100, H, E, SCALE_32X32, UNTRANSPOSED },
};

enum { LANES = 256 };

static float join(double lane[LANES]) {
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return (float)lane[0];
}

/* The definition in operators.inc, literally. `noise`: the sum of squared errors. */
static float defined(const struct tensor *x, const struct tensor *codes, bool noise) {
    double total[LANES] = { 0 };
    int64_t rows = codes->dim[0], cols = codes->dim[1];
    for (int64_t first = 0; first < rows; first += 8) {
        double lane[LANES] = { 0 };
        int64_t group = 0;
        for (int64_t i = first; i < first + 8 && i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                if (j % 8 == 0) group++;
                float back = op_stored(codes, i, j) * op_factor(codes, i, j);
                double v = (double)op_stored(x, i, j);
                if (noise) v = v - (double)back;
                lane[(group - 1) % LANES] += v * v;
            }
        for (int half = LANES / 2; half; half /= 2)
            for (int i = 0; i < half; i++) lane[i] += lane[i + half];
        total[first / 8 % LANES] += lane[0];
    }
    return join(total);
}

static void bits_are_those_of_the_definition(void **state) {
    static const char *const ISAS[] = { "avx512", "avx2", "neon", "portable" };
    for (size_t v = 0; v < 4; v++)
        for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
            const struct error_case *c = &CASES[i];
            struct backend *b = op_backend((int)v % 3 + 1, ISAS[v]);
            struct err e;
            if (!b) continue;
            struct tensor *stored = op_tensor(c->x, c->transposed ? c->cols : c->rows,
                                              c->transposed ? c->rows : c->cols, SCALE_NONE);
            struct tensor *codes = op_tensor(c->code, c->rows, c->cols, c->kind);
            struct tensor *out = op_tensor(F, 2, 1, SCALE_NONE);
            op_fill(stored, 7, 9);
            op_fill(codes, 8, 0);
            if (c->transposed == UNTRANSPOSED) codes = op_untransposed(codes);
            struct tensor x = c->transposed ? op_transposed_view(stored) : *stored;
            op_set(out, 0, 0, 2.5f); /* the sums are added to what is there */
            if (b->ops->quant_error(b, LANE_COMPUTE, out, &x, codes, &e) != OK)
                fail_msg("row %zu: %s", i, e.text);
            assert_true(op_stored(out, 0, 0) == 2.5f + defined(&x, codes, false));
            assert_true(op_stored(out, 1, 0) == defined(&x, codes, true));
            op_free();
        }
}

/* A rounding to E4M3 loses at most 1/16 of a normal value, some 32 dB for even errors. A scale that
 * leaves few bits, or saturates, costs most of it. */
static void decibels_are_what_casts_cost(void **state) {
    static const struct { float multiplier, least, most; } CASE[] = {
        { 32, 29, 34 }, { 1, 29, 34 }, { 0x1p-9f, 5, 29 }, { 4096, 0, 12 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct backend *b = op_backend(2, NULL);
        struct tensor *x = op_tensor(H, 64, 256, SCALE_NONE);
        struct tensor *codes = op_tensor(E, 64, 256, SCALE_TENSOR);
        struct tensor *multiplier = op_tensor(F, 1, 1, SCALE_NONE);
        struct tensor *out = op_tensor(F, 2, 1, SCALE_NONE);
        struct err e;
        op_fill(x, 3, 2); /* up to 4 */
        op_set(multiplier, 0, 0, CASE[i].multiplier);
        *(float *)codes->scale.data = 1 / CASE[i].multiplier;
        struct sink s = { .value = x, .codes = codes, .multiplier = multiplier,
                          .source = SCALE_SOURCE_KNOWN, .rule = { QUANT_TE, 0, false },
                          .keep_value = true };
        assert_int_equal(b->ops->quantise(b, LANE_COMPUTE, &s, x, &e), OK);
        assert_int_equal(b->ops->quant_error(b, LANE_COMPUTE, out, x, codes, &e), OK);
        float ratio = op_stored(out, 0, 0) / op_stored(out, 1, 0), db = 10 * log10f(ratio);
        if (!(db >= CASE[i].least && db <= CASE[i].most)) fail_msg("row %zu: %g dB", i, (double)db);
        op_free();
    }
}

static void nan_stays(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(H, 16, 16, SCALE_NONE), *out = op_tensor(F, 2, 1, SCALE_NONE);
    struct tensor *codes = op_tensor(E, 16, 16, SCALE_TENSOR);
    struct err e;
    op_set(x, 3, 4, NAN);
    assert_int_equal(b->ops->quant_error(b, LANE_COMPUTE, out, x, codes, &e), OK);
    for (int i = 0; i < 2; i++) assert_int_equal(((uint32_t *)out->data)[i], 0x7FC00000u);
    op_free();
}

static void bad_arguments_are_named(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct tensor *x = op_tensor(H, 16, 32, SCALE_NONE), *out = op_tensor(F, 2, 1, SCALE_NONE);
    struct tensor *codes = op_tensor(E, 16, 32, SCALE_1X32), bad;
    struct err e;
#define REFUSED(o, v, c, words)                                                             \
    do {                                                                                    \
        assert_int_equal(b->ops->quant_error(b, LANE_COMPUTE, o, v, c, &e), ERR_ARG);       \
        if (!strstr(e.text, words)) fail_msg("%s", e.text);                                 \
    } while (0)
    REFUSED(x, x, codes, "quant_error: out is bf16");
    REFUSED(out, NULL, codes, "quant_error: x is missing");
    REFUSED(out, x, x, "quant_error: codes is bf16");
    bad = *codes;
    bad.scale.kind = SCALE_NONE;
    REFUSED(out, x, &bad, "without a scale");
    bad = *x;
    bad.dim[1] = 31;
    REFUSED(out, &bad, codes, "quant_error: x is [16, 31], not [16, 32]");
    bad = *x;
    bad.stride[0] = 40;
    REFUSED(out, &bad, codes, "quant_error: x is not packed");
    bad = *x;
    bad.dtype = DTYPE_I32;
    REFUSED(out, &bad, codes, "quant_error: x is i32");
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_definition),
        cmocka_unit_test(decibels_are_what_casts_cost),
        cmocka_unit_test(nan_stays),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
