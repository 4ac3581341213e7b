/* quantise, quantise_finish, delayed_update, copies, fills, fingerprints, histograms: to the
 * bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/histogram.h"
#include "model/operand.h"
#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define TE { QUANT_TE, 0, false }
#define TE_POW2 { QUANT_TE, 0, true }
#define TORCHAO { QUANT_TORCHAO, 1e-12f, true }
#define TORCHAO_F32 { QUANT_TORCHAO, 1e-12f, false }
#define TE_BLOCK { QUANT_TE_BLOCK, 0, true }
#define TE_BLOCK_F32 { QUANT_TE_BLOCK, 0, false }
#define DEEPSEEK { QUANT_DEEPSEEK, 1e-4f, true }
#define DEEPSEEK_GRADIENT { QUANT_DEEPSEEK, 448 * 0x1p-126f, false }
#define MX { QUANT_MX, 0, false }
#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define KNOWN SCALE_SOURCE_KNOWN
#define AMAX SCALE_SOURCE_AMAX
#define BLOCK SCALE_SOURCE_BLOCK

/* The twin of a row, beside none (false) and a transposed one (true). SHARED: it is untransposed
 * and in the memory of the codes. */
enum { UNTRANSPOSED = 2, SHARED };

static const struct {
    int64_t rows, cols;
    enum dtype code;
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
    bool codes;
    int twin;
    bool special; /* zeros, NaN, infinity, blocks of tiny values */
} QUANTISE[] = {
    { 1, 1, E, SCALE_TENSOR, AMAX, TE, true, true, false },
    { 150, 300, E, SCALE_TENSOR, KNOWN, TE, true, true, false },
    { 150, 300, G, SCALE_TENSOR, KNOWN, TE, false, true, false },
    { 150, 300, G, SCALE_TENSOR, AMAX, TE, true, true, true },
    { 150, 300, E, SCALE_TENSOR, AMAX, TE_POW2, true, false, false },
    { 33, 17, E, SCALE_TENSOR, AMAX, TORCHAO_F32, false, true, false },
    { 512, 1024, E, SCALE_TENSOR, AMAX, TE, true, true, false },
    { 150, 300, E, SCALE_ROW, BLOCK, TORCHAO, true, true, false },
    { 150, 300, E, SCALE_ROW, BLOCK, TORCHAO, false, true, true },
    { 3, 1000, G, SCALE_ROW, BLOCK, TE, true, false, false },
    { 256, 640, E, SCALE_ROW, BLOCK, TORCHAO, true, true, false },
    { 150, 300, E, SCALE_1X128, BLOCK, TE_POW2, true, true, false },
    { 150, 300, G, SCALE_1X128, BLOCK, TE_POW2, false, true, true },
    { 150, 300, E, SCALE_1X128, BLOCK, DEEPSEEK, true, false, true },
    { 384, 512, E, SCALE_1X128, BLOCK, DEEPSEEK_GRADIENT, true, true, true },
    { 384, 512, E, SCALE_1X128, BLOCK, TE, true, true, false },
    { 300, 300, E, SCALE_1X128, BLOCK, TE_BLOCK, true, true, true },
    { 384, 512, G, SCALE_1X128, BLOCK, TE_BLOCK_F32, true, true, true },
    { 300, 300, E, SCALE_128X128, BLOCK, TE_BLOCK, true, true, true },
    { 384, 512, E, SCALE_128X128, BLOCK, TE_BLOCK_F32, true, true, true },
    { 300, 150, E, SCALE_128X128, BLOCK, TE_POW2, true, true, true },
    { 300, 150, E, SCALE_128X128, BLOCK, DEEPSEEK, false, true, false },
    { 512, 256, E, SCALE_128X128, BLOCK, TE, true, true, false },
    { 150, 300, E, SCALE_1X32, BLOCK, MX, true, true, true },
    { 70, 45, E, SCALE_1X32, BLOCK, MX, false, true, false },
    { 150, 300, E, SCALE_32X32, BLOCK, MX, true, true, true },
    { 31, 1, G, SCALE_32X32, BLOCK, MX, true, false, false },
    { 384, 512, E, SCALE_1X32, BLOCK, MX, true, UNTRANSPOSED, true },
    { 150, 300, G, SCALE_1X32, BLOCK, MX, true, UNTRANSPOSED, true },
    { 70, 45, E, SCALE_1X32, BLOCK, MX, false, UNTRANSPOSED, false },
    { 384, 512, E, SCALE_32X32, BLOCK, MX, true, UNTRANSPOSED, true },
    { 150, 300, E, SCALE_32X32, BLOCK, MX, true, UNTRANSPOSED, true },
    { 150, 300, E, SCALE_32X32, BLOCK, MX, true, SHARED, true },
    { 384, 512, E, SCALE_32X32, BLOCK, MX, true, SHARED, true },
    { 300, 150, E, SCALE_32X32, BLOCK, MX, false, UNTRANSPOSED, false },
};

static void put(uint16_t *x, int64_t rows, int64_t cols, int64_t i, int64_t j, float value) {
    if (i < rows && j < cols) x[i * cols + j] = bf16_encode(value);
}

static void fill_value(struct twin *x, bool special) {
    pair_fill(p, x, 7, 9, 1.0f);
    if (!special) return;
    int64_t rows = x->side[CPU].dim[0], cols = x->side[CPU].dim[1];
    uint16_t *host = x->side[CPU].data;
    for (int64_t j = 0; j < cols; j++) { /* blocks of zeros of every kind */
        for (int64_t i = 0; i < 32 && i < rows; i++)
            if (j / 32 == 1) put(host, rows, cols, i, j, 0.0f);
        put(host, rows, cols, 40, j, 0.0f);
    }
    for (int64_t i = 128; i < 256; i++) /* m = max / amax is infinite, or next to it */
        for (int64_t j = 128; j < 256; j++)
            put(host, rows, cols, i, j, ldexpf(j % 3 ? -1.0f : 1.0f, (int)(i % 16) - 135));
    put(host, rows, cols, 2, 3, NAN);
    put(host, rows, cols, 50, 10, -INFINITY);
    put(host, rows, cols, 60, 11, -0.0f);
    put(host, rows, cols, 61, 12, 1e-30f);
    put(host, rows, cols, 62, 13, 1e30f);
    pair_set(p, x, host, rows * cols * 2);
}

static void test_quantise(void **state) {
    for (size_t i = 0; i < sizeof QUANTISE / sizeof *QUANTISE; i++) {
        struct twin_sink out;
        pair_sink(p, &out, QUANTISE[i].rows, QUANTISE[i].cols, QUANTISE[i].code, QUANTISE[i].kind,
                  QUANTISE[i].source, QUANTISE[i].rule, QUANTISE[i].twin != 0);
        if (QUANTISE[i].twin >= UNTRANSPOSED)
            pair_untranspose(p, &out, QUANTISE[i].twin == SHARED);
        if (!QUANTISE[i].codes)
            for (int s = 0; s < SIDES; s++) out.side[s].codes->data = NULL;
        struct twin x = pair_tensor(p, DTYPE_BF16, QUANTISE[i].rows, QUANTISE[i].cols, 1, 1);
        fill_value(&x, QUANTISE[i].special);
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, S(out), S(x), e));
        ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(out), e));
        char what[64];
        snprintf(what, sizeof what, "quantise row %zu", i);
        pair_same_sink(p, what, &out);
        pair_clear(p);
    }
}

/* The same sums as the reference to the bit, of every scale kind and of transposed codes alone; a
 * second call adds to the first. */
static void test_quant_error(void **state) {
    for (size_t i = 0; i < sizeof QUANTISE / sizeof *QUANTISE; i++) {
        struct twin_sink out;
        int64_t rows = QUANTISE[i].rows, cols = QUANTISE[i].cols;
        bool transposed = !QUANTISE[i].codes;
        pair_sink(p, &out, rows, cols, QUANTISE[i].code, QUANTISE[i].kind, QUANTISE[i].source,
                  QUANTISE[i].rule, QUANTISE[i].twin != 0);
        if (QUANTISE[i].twin >= UNTRANSPOSED)
            pair_untranspose(p, &out, QUANTISE[i].twin == SHARED);
        struct twin x = pair_tensor(p, DTYPE_BF16, rows, cols, 1, 1), view = x;
        struct twin sums = pair_tensor(p, DTYPE_F32, 2, 1, 1, 1);
        fill_value(&x, QUANTISE[i].special && i % 2); /* the others without NaN and infinity */
        for (int s = 0; transposed && s < SIDES; s++)
            view.side[s] = tensor_transposed(&x.side[s]);
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, S(out), S(x), e));
        ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(out), e));
        for (int k = 0; k < 2; k++) /* codes.transposed of each side is its twin */
            ON_BOTH(p, ops->quant_error(b, LANE_COMPUTE, S(sums), S(view),
                                        transposed ? out.side[s].codes->transposed
                                                   : out.side[s].codes, e));
        char what[64];
        snprintf(what, sizeof what, "quant_error row %zu", i);
        pair_same(p, what, &sums);
        pair_clear(p);
    }
}

static void change_dtype(struct tensor *x) { x->dtype = DTYPE_I32; }
static void lengthen(struct tensor *x) { x->dim[0]++; }
static void take_data(struct tensor *x) { x->data = NULL; }
static void take_scale(struct tensor *x) { x->scale.kind = SCALE_NONE; }
static void separate(struct tensor *x) { x->stride[1] = 2; }

/* Arguments that the reference refuses, with the same status. */
static void test_quant_error_refuses(void **state) {
    static const struct { int which; void (*spoil)(struct tensor *x); } WRONG[] = {
        { 0, change_dtype }, { 0, lengthen }, { 0, take_data },
        { 1, change_dtype }, { 1, lengthen }, { 1, take_data }, { 1, separate },
        { 2, change_dtype }, { 2, lengthen }, { 2, take_data }, { 2, take_scale }, { 2, separate },
    };
    struct twin t[3] = { pair_tensor(p, DTYPE_F32, 2, 1, 1, 1),
                         pair_tensor(p, DTYPE_BF16, 64, 32, 1, 1),
                         pair_codes(p, E, 64, 32, SCALE_ROW) };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++)
        for (int s = 0; s < SIDES; s++) {
            struct tensor a[3] = { t[0].side[s], t[1].side[s], t[2].side[s] };
            WRONG[i].spoil(&a[WRONG[i].which]);
            p->e.text[0] = 0;
            if (p->ops[s]->quant_error(p->b[s], LANE_COMPUTE, &a[0], &a[1], &a[2], &p->e) !=
                    ERR_ARG || strncmp(p->e.text, "quant_error", 11) != 0)
                fail_msg("side %d, row %zu: %s", s, i, p->e.text);
        }
    pair_clear(p);
}

static void test_delayed(void **state) {
    enum { SLOTS = 300 };
    static const int64_t DEPTH[] = { 1, 2, 37, 1024, 1025, 2500 };
    for (int c = 0; c < 2 * (int)(sizeof DEPTH / sizeof *DEPTH); c++) {
        struct twin history = pair_tensor(p, DTYPE_F32, DEPTH[c / 2], SLOTS, 1, 1);
        int64_t count = DEPTH[c / 2] * SLOTS;
        float *older = malloc((size_t)count * sizeof *older);
        assert_non_null(older);
        for (int64_t i = 0; i < count; i++) /* many slots have their largest amax in the past */
            older[i] = ldexpf(rng_uniform(rng_bits(9, (uint64_t)i)), (int)(i % 41) - 20);
        pair_set(p, &history, older, count * 4);
        free(older);
        struct twin multiplier = pair_tensor(p, DTYPE_F32, SLOTS, 1, 1, 1);
        struct twin factor = pair_tensor(p, DTYPE_F32, SLOTS, 4, 1, 1), factors = factor;
        /* 16 bytes apart, which the GEMM requires */
        for (int s = 0; s < SIDES; s++) factor.side[s].dim[1] = 1;
        struct twin amax = pair_tensor(p, DTYPE_U32, SLOTS, 1, 1, 1);
        float code_max[SLOTS], one[SLOTS];
        for (int i = 0; i < SLOTS; i++) code_max[i] = i % 3 ? 448.0f : 57344.0f, one[i] = 1.0f;
        pair_set(p, &multiplier, one, sizeof one);
        for (int round = 0; round < 7; round++) {
            uint32_t bits[SLOTS];
            for (int i = 0; i < SLOTS; i++)
                bits[i] = f32_bits(ldexpf(1.0f + rng_uniform(rng_bits(round, i)), i % 40 - 20));
            bits[0] = 0;
            bits[1] = round == 2 ? 0x7FC00000u : bits[1];
            bits[2] = 1; /* max / amax is infinite */
            pair_set(p, &amax, bits, sizeof bits);
            ON_BOTH(p, ops->delayed_update(b, LANE_COMPUTE, &(struct delayed_args){
                S(history), S(multiplier), S(factor), S(amax), code_max, c, c % 2 }, e));
        }
        pair_same(p, "delayed history", &history);
        pair_same(p, "delayed multiplier", &multiplier);
        pair_same(p, "delayed factor", &factors);
        pair_same(p, "delayed amax", &amax);
        pair_clear(p);
    }
}

/* A view with gaps and exchanged dimensions. */
static struct twin strided(struct twin x) {
    for (int s = 0; s < SIDES; s++) {
        struct tensor *t = &x.side[s];
        *t = (struct tensor){ .data = t->data, .dtype = t->dtype, .dim = { 13, 5, 3, 1 },
                              .stride = { 1, 70, 20, 1 } };
    }
    return x;
}

/* Copies codes to their twin: tile by tile where alignment allows, else one by one. */
static void test_transposed_codes(void **state) {
    static const int64_t SIZE[][2] = { { 16, 8 }, { 128, 128 }, { 400, 1000 }, { 37, 21 },
                                       { 1024, 4096 } };
    for (size_t i = 0; i < sizeof SIZE / sizeof SIZE[0]; i++) {
        struct twin x = pair_codes(p, E, SIZE[i][0], SIZE[i][1], SCALE_TENSOR);
        struct twin out = pair_codes(p, E, SIZE[i][1], SIZE[i][0], SCALE_TENSOR);
        pair_fill(p, &x, 5, 3, 1.0f);
        struct twin view = x;
        for (int s = 0; s < SIDES; s++) view.side[s] = tensor_transposed(&x.side[s]);
        ON_BOTH(p, ops->copy(b, LANE_COMM, S(out), S(view), e));
        pair_same(p, "copy of codes into their twin", &out);
        pair_clear(p);
    }
}

static void test_copies(void **state) {
    static const enum dtype T[] = { DTYPE_F32, DTYPE_BF16 };
    for (int c = 0; c < 8; c++) {
        struct twin x = pair_tensor(p, T[c / 2 % 2], 13, 5, 3, 7);
        struct twin out = pair_tensor(p, T[c % 2], 13, 5, 3, c < 4 ? 7 : 1), from = x;
        pair_fill(p, &x, 3, 12, 1.0f);
        if (c >= 4) from = strided(x);
        ON_BOTH(p, ops->copy(b, LANE_COMPUTE, S(out), S(from), e));
        pair_same(p, "copy", &out);
        struct twin print = pair_tensor(p, DTYPE_U64, 1, 1, 1, 1);
        ON_BOTH(p, ops->fingerprint(b, LANE_COMPUTE, S(print), S(from), e));
        pair_same(p, "fingerprint", &print);
        struct twin counts = pair_tensor(p, DTYPE_U64, HISTOGRAM_COUNTS, 1, 1, 1);
        ON_BOTH(p, ops->histogram(b, LANE_COMPUTE, S(counts), S(from), e));
        pair_same(p, "histogram", &counts);
        struct twin all = pair_tensor(p, DTYPE_F32, 13 * 5 * 3 * 7, 1, 1, 1);
        ON_BOTH(p, ops->gather(b, LANE_COMPUTE, S(all), S(from), 1, e));
        pair_same(p, "gather", &all);
        ON_BOTH(p, ops->zero(b, LANE_COMPUTE, S(from), e));
        pair_same(p, "zero", &x);
        pair_clear(p);
    }
}

static void test_fills(void **state) {
    static const enum dtype T[] = { DTYPE_F32, DTYPE_BF16 };
    static const int64_t N[] = { 1, 7, 1000, 65537 };
    for (int c = 0; c < 8; c++) {
        struct twin x = pair_tensor(p, T[c % 2], N[c / 2], 1, 1, 1);
        struct twin print = pair_tensor(p, DTYPE_U64, 1, 1, 1, 1);
        ON_BOTH(p, ops->fill_normal(b, LANE_COMPUTE, S(x), 0.02f, 1234, 7, 5000000000, e));
        pair_same(p, "fill_normal", &x);
        ON_BOTH(p, ops->fingerprint(b, LANE_COMPUTE, S(print), S(x), e));
        pair_same(p, "fingerprint", &print);
        struct twin counts = pair_tensor(p, DTYPE_U64, HISTOGRAM_COUNTS, 1, 1, 1);
        ON_BOTH(p, ops->histogram(b, LANE_COMPUTE, S(counts), S(x), e));
        pair_same(p, "histogram", &counts);
        ON_BOTH(p, ops->fill(b, LANE_COMPUTE, S(x), -0.3f, e));
        pair_same(p, "fill", &x);
        pair_clear(p);
    }
    struct twin codes = pair_codes(p, E, 33, 100, SCALE_TENSOR);
    struct twin print = pair_tensor(p, DTYPE_U64, 1, 1, 1, 1);
    ON_BOTH(p, ops->fingerprint(b, LANE_COMPUTE, S(print), S(codes), e));
    pair_same(p, "fingerprint of codes", &print);
    pair_clear(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise), cmocka_unit_test(test_quant_error),
        cmocka_unit_test(test_quant_error_refuses),
        cmocka_unit_test(test_delayed), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_transposed_codes),
        cmocka_unit_test(test_fills),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
