/* Our own kernel for block-scaled FP8 (kernels/cuda/gemm_hopper.cu), selected by the choice table.
 * Outputs are near the reference. Sampled outputs equal, to the bit, the arithmetic that
 * gemm_hopper.cuh states. Also: the same bits twice; NaN and zeros; modes that it does not support.
 * Skipped on other devices than Hopper. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static struct backend_handle own; /* a second backend on the GPU, which loads the table */

static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define F DTYPE_F32
#define H DTYPE_BF16
#define ROWS SCALE_1X128
#define BLOCKS SCALE_128X128

struct own_case {
    int64_t m, n, k;
    enum scale_kind scale_b;
    enum dtype out;
    float beta;
    bool bias, residual;
    bool e5m2; /* the rows' codes: gradients of the format "hybrid" */
};

/* Tiles are 192 x 128, in pairs of columns; K goes by groups of four blocks. */
static const struct own_case CASES[] = {
    { 192, 256, 512, BLOCKS, H, 0, false, false, false },  /* one pair of whole tiles, one group */
    { 192, 128, 128, ROWS, F, 0, false, false, false },    /* one tile, no neighbour; one block */
    { 8, 8, 16, BLOCKS, H, 0, false, false, false },
    { 8, 8, 16, ROWS, F, 1, false, false, false },
    { 200, 136, 1168, BLOCKS, H, 0, true, false, false },  /* just more than a tile; 9.1 blocks */
    { 1000, 776, 720, BLOCKS, H, 0, true, true, false },   /* tails in every dimension */
    { 1000, 776, 720, BLOCKS, H, 0, false, true, false },
    { 1000, 776, 720, BLOCKS, F, 1, false, false, false },
    { 264, 328, 4752, ROWS, F, 1, false, false, false },   /* like a wgrad: long sums */
    { 264, 328, 4752, ROWS, H, 1, false, false, false },   /* BF16 main gradients */
    { 264, 328, 640, ROWS, H, 0, false, false, false },
    { 3000, 3080, 256, BLOCKS, H, 0, false, false, false }, /* several tiles a block */
    { 2008, 2056, 384, ROWS, F, 1, false, false, false },
    { 3000, 3080, 640, ROWS, F, 1, false, false, false },   /* and two groups: addends come later */
    { 3000, 3080, 640, ROWS, H, 1, false, false, false },
    { 3000, 3080, 640, BLOCKS, H, 0, false, true, false },
    { 1000, 776, 720, BLOCKS, H, 0, false, true, true },
    { 264, 328, 4752, ROWS, F, 1, false, false, true },
    { 264, 328, 640, ROWS, H, 1, false, false, true },
    { 3000, 3080, 256, BLOCKS, H, 0, false, false, true },
    /* six blocks of K: the columns' codes stay */
    { 192, 256, 768, BLOCKS, H, 0, false, false, false },
    { 8, 8, 656, BLOCKS, H, 0, true, false, false },
    { 3000, 3080, 768, BLOCKS, H, 0, true, false, false },   /* runs that change columns */
    { 3000, 3080, 768, BLOCKS, H, 0, false, true, true },
    { 3000, 3080, 768, BLOCKS, H, 1, true, false, false },
    { 1608, 16896, 768, BLOCKS, H, 0, false, true, false },  /* two sweeps of rows */
    { 12680, 3080, 720, BLOCKS, H, 0, false, false, false }, /* the second has few tiles */
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

struct operands { struct twin a, b, out, bias, residual; };

static enum dtype rows_of(const struct own_case *c) { return c->e5m2 ? DTYPE_E5M2 : DTYPE_E4M3; }

static struct operands make(const struct own_case *c, enum dtype b) {
    struct operands o = {
        .a = pair_codes(p, rows_of(c), c->m, c->k, ROWS),
        .b = pair_codes(p, b, c->n, c->k, c->scale_b),
        .out = pair_tensor(p, c->out, c->m, c->n, 1, 1), .bias = pair_tensor(p, H, c->n, 1, 1, 1),
        .residual = pair_tensor(p, c->out, c->m, c->n, 1, 1),
    };
    float size = sqrtf((float)c->k) * 2000; /* about the size of a product: codes reach 448 */
    pair_fill(p, &o.a, 1, 2, 1);
    pair_fill(p, &o.b, 2, 2, 1);
    pair_fill(p, &o.bias, 3, 2, size);
    pair_fill(p, &o.residual, 4, 2, size);
    pair_fill(p, &o.out, 5, 2, size);
    return o;
}

static enum status multiply(struct backend *b, const struct own_case *c, struct operands *o, int s,
                            const char *name) {
    return b->ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
        .out = S(o->out), .a = S(o->a), .b = S(o->b), .bias = c->bias ? S(o->bias) : NULL,
        .residual = c->residual ? S(o->residual) : NULL, .beta = c->beta, .name = name }, &p->e);
}

/* A backend whose table names our own kernel for that call; the first backend made the entry. */
static struct backend *open_own(const struct own_case *c, struct operands *o) {
    char *table;
    if (multiply(p->b[GPU], c, o, GPU, "timed") != OK ||
        p->ops[GPU]->sync(p->b[GPU], &p->e) != OK ||
        p->ops[GPU]->choices_save(p->b[GPU], &table, &p->e) != OK ||
        backend_open("cuda", 0, 0, &own, &p->e) != OK)
        fail_msg("%s", p->e.text);
    char *changed = choices_with("gemm", table, GEMM_OWN);
    if (own.backend->ops->choices_load(own.backend, changed, &p->e) != OK)
        fail_msg("%s", p->e.text);
    free(changed);
    free(table);
    return own.backend;
}

static bool is_hopper(void) {
    struct device_info info;
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    return strcmp(info.architecture, "sm_90") == 0;
}

/* ---- its arithmetic, to the bit ---- */

/* The last place of a sum is 2^-13 of the largest exponent; truncates towards zero. */
static double truncated(double x, int exponent) {
    double place = ldexp(1, exponent - 13);
    return trunc(x / place) * place;
}

/* The exponent of a code's value. Subnormal codes have the smallest one, -6 or -14. */
static int exponent_of(enum dtype t, float value) {
    int exponent, least = t == DTYPE_E5M2 ? -14 : -6;
    frexp(value, &exponent);
    return exponent - 1 < least ? least : exponent - 1;
}

/* chain + a b over 32 codes, b of E4M3, as Hopper's tensor cores add them. The exponent of a
 * product is the sum of its factors' exponents, not normalised. */
static double instruction(double chain, enum dtype type, const uint8_t *a, const uint8_t *b,
                          int count) {
    int top = -1000, exponent;
    double sum;
    for (int pass = 0; pass < 2; pass++) {
        if (chain != 0) frexp(chain, &exponent);
        if (pass == 0 && chain != 0) top = exponent - 1;
        sum = chain != 0 ? truncated(chain, top) : 0;
        for (int i = 0; i < count; i++) {
            float x = fp8_decode(type, a[i]), y = fp8_decode(DTYPE_E4M3, b[i]);
            if (x == 0 || y == 0) continue;
            exponent = exponent_of(type, x) + exponent_of(DTYPE_E4M3, y);
            if (pass == 0) top = exponent > top ? exponent : top;
            else sum += truncated((double)x * y, top);
        }
    }
    if (sum == 0) return 0;
    frexp(sum, &exponent);
    return truncated(sum, exponent - 1);
}

static float expected(const struct own_case *c, const struct operands *o, int64_t i, int64_t j) {
    const struct tensor *a = &o->a.side[CPU], *b = &o->b.side[CPU];
    int64_t blocks = (c->k + 127) / 128, other = c->scale_b == BLOCKS ? j / 128 : j;
    const float *factor_a = (const float *)a->scale.data + i * blocks;
    const float *factor_b = (const float *)b->scale.data + other * blocks;
    const uint8_t *row = (const uint8_t *)a->data + i * a->stride[0];
    const uint8_t *column = (const uint8_t *)b->data + j * b->stride[0];
    float total = 0;
    for (int64_t block = 0; block < blocks; block++) {
        double chain = 0;
        for (int64_t k = block * 128; k < (block + 1) * 128 && k < c->k; k += 32)
            chain = instruction(chain, a->dtype, row + k, column + k,
                                (int)(c->k - k < 32 ? c->k - k : 32));
        float x = factor_a[block], y = factor_b[block];
        total = c->scale_b == BLOCKS ? fmaf((float)chain, x * y, total)
                                     : fmaf((float)chain * x, y, total);
    }
    return total;
}

static float value_of(enum dtype t, const void *data, int64_t i) {
    return t == F ? ((const float *)data)[i] : bf16_decode(((const uint16_t *)data)[i]);
}

/* `before`: the content of out before the call. */
static void check_bits(const struct own_case *c, const struct operands *o, const void *got,
                       const void *before) {
    enum { SAMPLES = 300 };
    for (int64_t s = 0; s < SAMPLES; s++) {
        int64_t i = s < 4 ? s % 2 * (c->m - 1) : s * 7919 % c->m;
        int64_t j = s < 4 ? s / 2 * (c->n - 1) : s * 104729 % c->n, at = i * c->n + j;
        float want = expected(c, o, i, j), have = value_of(c->out, got, at);
        if (c->beta != 0) want += value_of(c->out, before, at);
        if (c->residual) want += value_of(c->out, o->residual.side[CPU].data, at);
        if (c->bias) want += value_of(H, o->bias.side[CPU].data, j);
        if (c->out == H) want = bf16_decode(bf16_encode(want));
        if (memcmp(&want, &have, sizeof want) != 0)
            fail_msg("%lld x %lld x %lld: [%lld, %lld] is %a, not %a", (long long)c->m,
                     (long long)c->n, (long long)c->k, (long long)i, (long long)j, (double)have,
                     (double)want);
    }
}

static void *fetch(const struct tensor *x) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    void *host = test_malloc((size_t)bytes);
    if (p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host, x->data, bytes, &p->e) != OK)
        fail_msg("%s", p->e.text);
    return host;
}

/* The last decision of the second backend names our own kernel. */
static void assert_own(struct backend *b, const char *name) {
    struct decision d;
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++)
        if (!strcmp(d.name, name) && !strcmp(d.way, "native") && strstr(d.detail, ", wgmma"))
            return;
    fail_msg("our own kernel did not serve %s", name);
}

static void equals_its_definition(void **state) {
    enum { TIMES = 3 };
    if (!is_hopper()) skip();
    for (int i = 0; i < CASE_COUNT; i++) {
        const struct own_case *c = &CASES[i];
        struct operands o = make(c, DTYPE_E4M3);
        struct backend *b = open_own(c, &o);
        int64_t bytes = c->m * c->n * dtype_bytes(c->out);
        void *got[TIMES], *before = NULL;
        for (int t = 0; t < TIMES; t++) {
            pair_fill(p, &o.out, 5, 2, sqrtf((float)c->k) * 2000);
            if (t == 0) before = fetch(&o.out.side[GPU]);
            if (multiply(b, c, &o, GPU, "own") != OK || b->ops->sync(b, &p->e) != OK)
                fail_msg("%s", p->e.text);
            got[t] = fetch(&o.out.side[GPU]);
            assert_memory_equal(got[0], got[t], (size_t)bytes);
        }
        assert_own(b, "own");
        check_bits(c, &o, got[0], before);
        for (int t = 0; t < TIMES; t++) test_free(got[t]);
        test_free(before);
        backend_close(&own);
        pair_clear(p);
    }
}

/* 13 bits of a sum of four instructions in each block: see nmse_bound in
 * tests/gpu/test_matmul.c. */
static void is_near_the_reference(void **state) {
    if (!is_hopper()) skip();
    for (int i = 0; i < CASE_COUNT; i++) {
        const struct own_case *c = &CASES[i];
        double k = (double)c->k, s = k * 0x1p-23 + 4 * 0x1p-13;
        struct operands o = make(c, DTYPE_E4M3);
        struct backend *b = open_own(c, &o);
        pair_fill(p, &o.out, 5, 2, sqrtf((float)c->k) * 2000);
        if (multiply(p->b[CPU], c, &o, CPU, NULL) != OK || multiply(b, c, &o, GPU, NULL) != OK ||
            b->ops->sync(b, &p->e) != OK)
            fail_msg("%s", p->e.text);
        pair_near(p, "our own GEMM", &o.out, c->out == F ? s * s : s * s + 0x1p-7 * 0.64 * s);
        backend_close(&own);
        pair_clear(p);
    }
}

/* ---- NaN, zeros ---- */

/* One code of a row is NaN: then all outputs of that row are NaN, canonical, and no others. A block
 * of zeros adds nothing; a row of zeros gives +0. */
static void nan_and_zeros_stay_in_their_rows(void **state) {
    enum { M = 200, N = 264, K = 640, NAN_ROW = 130, ZERO_ROW = 7, ZERO_BLOCK = 2 };
    if (!is_hopper()) skip();
    for (int f32 = 0; f32 < 2; f32++) {
        const struct own_case c = { M, N, K, f32 ? ROWS : BLOCKS, f32 ? F : H, 0, false, false,
                                    false };
        struct operands o = make(&c, DTYPE_E4M3);
        struct backend *b = open_own(&c, &o);
        uint8_t *codes = test_malloc(M * K);
        memcpy(codes, o.a.side[CPU].data, M * K);
        codes[NAN_ROW * K + 300] = 0x7F;
        memset(codes + ZERO_ROW * K, 0, K);
        for (int i = 0; i < M; i++) memset(codes + i * K + ZERO_BLOCK * 128, 0, 128);
        codes[NAN_ROW * K + 300] = 0x7F;
        pair_set(p, &o.a, codes, M * K);
        if (multiply(b, &c, &o, GPU, "own") != OK || b->ops->sync(b, &p->e) != OK)
            fail_msg("%s", p->e.text);
        void *got = fetch(&o.out.side[GPU]);
        for (int i = 0; i < M * N; i++) {
            uint32_t bits = f32 ? ((uint32_t *)got)[i] : (uint32_t)((uint16_t *)got)[i] << 16;
            bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
            if (nan != (i / N == NAN_ROW)) fail_msg("[%d, %d] is %08x", i / N, i % N, bits);
            if (nan) assert_int_equal(bits, 0x7FC00000);
            if (i / N == ZERO_ROW) assert_int_equal(bits, 0);
        }
        test_free(got);
        test_free(codes);
        backend_close(&own);
        pair_clear(p);
    }
}

/* ---- unsupported modes ---- */

/* A table that names our kernel for columns of E5M2 is rejected, with the shape. */
static void unsupported_modes_are_rejected(void **state) {
    static const struct own_case c = { 256, 384, 512, ROWS, F, 0, false, false, false };
    if (!is_hopper()) skip();
    struct operands o = make(&c, DTYPE_E5M2);
    struct backend *b = open_own(&c, &o);
    assert_int_equal(multiply(b, &c, &o, GPU, "own"), ERR_CONFIG);
    assert_non_null(strstr(p->e.text, "our own kernel for a GEMM [256, 384, 512]"));
    backend_close(&own);
    pair_clear(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_definition), cmocka_unit_test(is_near_the_reference),
        cmocka_unit_test(nan_and_zeros_stay_in_their_rows),
        cmocka_unit_test(unsupported_modes_are_rejected),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
