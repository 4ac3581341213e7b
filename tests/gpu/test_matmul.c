/* matmul against the reference: every scale mode, native or emulated on Hopper; every epilogue; odd
 * sizes; long K. Also the cost of `fast_accumulate`, and equal bits of repeated calls.
 *
 * A device's distance from the reference follows from its roundings. nmse_bound computes it for
 * each row before the call. cuBLASLt adds bias, residual and C to the f32 product and rounds once.
 * This was measured for every algorithm that it lists for the call: all outputs were equal, for
 * products that f32 holds exactly. For algorithms that it lists for the product alone, only the
 * rows here were measured. There are two exceptions. With C in place (beta 1) in BF16, cuBLASLt
 * rounds the product before the addition. If a row of C is not a multiple of 16 bytes, we add C. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/transposed.h"
#include "tests/gpu/pair.h"
#include "tests/gpu/letters.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

struct matmul_case {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    bool a_transposed, b_transposed; /* BF16: as views of [K, M] and [K, N]. FP8: untransposed
                                        twins */
    float beta;
    int bias; /* a dtype, or -1 */
    bool residual, fast;
    const char *way; /* the way on Hopper: for odd sizes the library has no FP8 */
};

static const struct matmul_case CASES[] = {
    /* BF16: every layout, out dtype and epilogue */
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, -1, false, false, "bf16" },
    { 128, 256, 192, H, H, F, 0, 0, true, false, 0, -1, false, false, "bf16" },
    { 128, 256, 192, H, H, F, 0, 0, false, true, 1, -1, false, false, "bf16" },
    { 128, 256, 192, H, H, F, 0, 0, true, true, 1, -1, false, false, "bf16" },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 1, -1, false, false, "bf16" },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, H, false, false, "bf16" },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, F, true, false, "bf16" },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, -1, true, false, "bf16" },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 1, H, true, false, "bf16" },
    { 127, 255, 190, H, H, H, 0, 0, false, false, 0, H, false, false, "bf16" },
    { 33, 17, 5, H, H, F, 0, 0, true, true, 1, -1, true, false, "bf16" },
    { 1, 1, 1, H, H, H, 0, 0, false, false, 0, -1, false, false, "bf16" },
    /* a model's shape: algorithms listed for the product alone are candidates too */
    { 1024, 3072, 768, H, H, H, 0, 0, false, false, 0, H, false, false, "bf16" },
    { 1024, 768, 768, H, H, H, 0, 0, false, false, 0, H, true, false, "bf16" },
    { 1024, 768, 2048, H, H, H, 0, 0, false, false, 0, -1, true, false, "bf16" },
    { 1024, 768, 2048, E, E, H, T, T, false, false, 0, -1, true, true, "native" },
    { 1024, 3072, 768, E, E, H, T, T, false, false, 0, H, false, true, "native" },
    /* few outputs, long sums: split-K */
    { 64, 96, 40000, H, H, H, 0, 0, false, true, 0, -1, false, false, "bf16" },
    { 96, 64, 40000, H, H, F, 0, 0, true, true, 1, -1, false, false, "bf16" },
    { 96, 64, 40000, G, E, F, T, T, false, false, 1, -1, false, false, "native" },
    /* tensor-wide */
    { 256, 384, 512, E, E, H, T, T, false, false, 0, -1, false, false, "native" },
    { 256, 384, 512, E, E, H, T, T, false, false, 0, -1, false, true, "native" },
    { 256, 384, 512, G, E, F, T, T, false, false, 1, -1, false, false, "native" },
    { 256, 384, 512, E, G, H, T, T, false, false, 1, -1, false, false, "native" },
    { 256, 384, 512, E, E, H, T, T, false, false, 0, H, true, false, "native" },
    { 37, 53, 100, E, E, H, T, T, false, false, 0, -1, false, false, "emulated" },
    /* row scales, also on one side only */
    { 256, 384, 512, E, E, H, R, R, false, false, 0, -1, false, false, "native" },
    { 256, 384, 512, E, E, F, R, R, false, false, 1, -1, false, true, "native" },
    { 256, 384, 512, E, E, H, R, T, false, false, 0, -1, false, false, "native" },
    { 50, 70, 90, E, E, H, R, R, false, false, 0, H, false, false, "emulated" },
    /* block scales; K blocks not a multiple of 4, and a short last one */
    { 256, 384, 512, E, E, H, B, W, false, false, 0, -1, false, false, "native" },
    { 256, 384, 640, E, E, H, B, W, false, false, 0, H, true, false, "native" },
    { 256, 384, 640, E, E, H, W, B, false, false, 0, -1, false, false, "native" },
    { 256, 384, 720, E, E, F, B, B, false, false, 1, -1, false, false, "native" },
    { 256, 384, 512, G, E, F, B, B, false, false, 1, -1, false, false, "native" },
    /* factors in more than one tile each way, none of them full */
    { 264, 328, 4752, E, E, F, B, B, false, false, 0, -1, false, false, "native" },
    { 50, 70, 300, E, E, H, B, W, false, false, 0, -1, false, false, "emulated" },
    /* MXFP8: emulated on Hopper */
    { 256, 384, 512, E, E, H, X, X, false, false, 0, -1, false, false, "emulated" },
    { 256, 384, 512, E, E, F, X, Y, false, false, 1, -1, false, false, "emulated" },
    { 50, 70, 90, G, E, H, X, X, false, false, 0, H, true, false, "emulated" },
    { 256, 384, 512, G, E, H, X, Y, false, true, 0, H, true, false, "emulated" },
    { 256, 384, 512, G, E, F, X, X, true, true, 1, -1, false, false, "emulated" },
    { 50, 70, 90, E, G, H, Y, X, true, true, 0, -1, false, false, "emulated" },
    /* NVFP4: the tensors' factor is applied to the f32 product */
    { 256, 384, 512, E2, E2, H, N4, M4, false, false, 0, -1, false, false, "emulated" },
    { 256, 384, 512, E2, E2, F, N4, N4, false, false, 1, -1, false, false, "emulated" },
    { 50, 70, 90, E2, E2, H, N4, M4, false, false, 0, H, true, false, "emulated" },
};

/* The largest NMSE that a row may have.
 *
 * s: before its last rounding the device's sum is off by s times its own size (rms).
 * On tensor cores f32 chains truncate: at worst 2^-23 for each of K terms. Hopper's FP8 products
 * keep at least 13 bits of the running sum, which takes 32 terms at a time. They start again every
 * 128 terms unless `fast` (facts: accumulation accuracy). Emulated block factors that are no powers
 * of two are multiplied into both operands and rounded to BF16: uniform within 2^-8, so
 * 2^-8/sqrt(3) each.
 *
 * An f32 output is off by s^2. A BF16 output has neighbours at most 2^-7 of it apart, and becomes
 * the other neighbour with probability |error| / distance. This adds 2^-7 E|x| E|error|; E|x| is
 * 0.8 of the rms in sums of many terms. C in place: the product is rounded first, off by up to
 * 2^-8, 2^-9 in the mean. Addends are independent of the product, so they only make the result
 * larger. */
static double nmse_bound(const struct matmul_case *c) {
    double k = (double)c->k, s = k * 0x1p-23, in_place = 0;
    bool fp8 = dtype_is_fp8(c->a), native = !strcmp(c->way, "native");
    bool blocks = c->scale_a == SCALE_1X128 || c->scale_a == SCALE_128X128;
    if (fp8 && native) s += ceil((c->fast ? k : fmin(k, 128)) / 32) * 0x1p-13;
    if (fp8 && !native && blocks) s += sqrt(2) * 0x1p-8 / sqrt(3);
    if (c->out == F) return s * s;
    if (c->beta != 0 && !c->residual) in_place = 0x1p-7 * 0x1p-9; /* with both, we add C */
    return s * s + 0x1p-7 * 0.8 * 0.8 * s + in_place;
}

/* The GPU's decision for the call of that name. */
static struct decision decided(const char *name) {
    struct decision d;
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        if (!strcmp(d.name, name)) return d;
    fail_msg("%s was not recorded", name);
    return d;
}

/* Codes [k, rows] as an untransposed twin [rows, k]. */
static struct twin untransposed(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                                uint64_t seed) {
    struct twin stored = pair_codes(p, t, k, rows, kind), x = pair_codes(p, t, rows, k, kind);
    pair_fill(p, &stored, seed, 2, 1.0f);
    pair_fill(p, &x, seed + 1, 2, 1.0f);
    for (int s = 0; s < SIDES; s++) {
        struct scale scale = x.side[s].scale;
        x.side[s] = tensor_transposed(&stored.side[s]);
        x.side[s].scale = scale;
    }
    return x;
}

static struct twin operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                           bool transposed, uint64_t seed) {
    struct twin x;
    if (dtype_is_fp8(t) && transposed) return untransposed(t, rows, k, kind, seed);
    if (dtype_is_fp8(t)) x = pair_codes(p, t, rows, k, kind);
    else x = pair_tensor(p, t, transposed ? k : rows, transposed ? rows : k, 1, 1);
    pair_fill(p, &x, seed, 2, 1.0f);
    if (!transposed) return x;
    for (int s = 0; s < SIDES; s++) {
        struct tensor *y = &x.side[s];
        y->dim[0] = rows;
        y->dim[1] = k;
        y->stride[0] = 1;
        y->stride[1] = rows;
    }
    return x;
}

/* The rms of a finished product on the CPU. */
static double rms_of(const struct tensor *x) {
    double squares = 0;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        double v = x->dtype == F ? ((const float *)x->data)[i]
                                 : bf16_decode(((const uint16_t *)x->data)[i]);
        squares += v * v;
    }
    return sqrt(squares / (double)tensor_count(x));
}

/* The scale of addends as large as the product: without one of them a result is off by a fifth or
 * more. Draws of pair_fill with a spread of 2 have an rms of 3.2 times their scale. */
static double addend_scale(const struct tensor *product) { return rms_of(product) / 3.2; }

static void check(size_t row, const struct matmul_case *c) {
    struct twin a = operand(c->a, c->m, c->k, c->scale_a, c->a_transposed, 21);
    struct twin w = operand(c->b, c->n, c->k, c->scale_b, c->b_transposed, 22);
    struct twin out = pair_tensor(p, c->out, c->m, c->n, 1, 1), again = out;
    struct twin residual = pair_tensor(p, c->out, c->m, c->n, 1, 1);
    struct twin bias = pair_tensor(p, c->bias < 0 ? H : (enum dtype)c->bias, c->n, 1, 1, 1);
    char what[64];
    snprintf(what, sizeof what, "matmul row %zu", row);
    struct matmul_args args = { .out = &out.side[CPU], .a = &a.side[CPU], .b = &w.side[CPU] };
    if (p->ops[CPU]->matmul(p->b[CPU], LANE_COMPUTE, &args, &p->e) != OK) fail_msg("%s", p->e.text);
    float addend = (float)addend_scale(&out.side[CPU]);
    pair_fill(p, &residual, 24, 2, addend);
    pair_fill(p, &bias, 25, 2, addend);
    again.side[GPU] = pair_tensor(p, c->out, c->m, c->n, 1, 1).side[GPU];
    for (int round = 0; round < 2; round++) {
        struct twin *o = round ? &again : &out;
        pair_fill(p, o, 23, 2, addend);
        ON_BOTH(p, ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
            .out = S(*o), .a = S(a), .b = S(w), .bias = c->bias < 0 ? NULL : S(bias),
            .residual = c->residual ? S(residual) : NULL, .beta = c->beta,
            .fast_accumulate = c->fast, .name = what }, e));
    }
    if (strcmp(decided(what).way, c->way) != 0)
        fail_msg("%s is %s, not %s", what, decided(what).way, c->way);
    pair_near(p, what, &out, nmse_bound(c));
    struct twin repeated = { { again.side[GPU], out.side[GPU] } };
    void *host[2];
    int64_t bytes = tensor_count(&out.side[GPU]) * dtype_bytes(c->out);
    for (int s = 0; s < 2; s++) {
        host[s] = test_malloc((size_t)bytes);
        assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host[s],
                                               repeated.side[s].data, bytes, &p->e), OK);
    }
    assert_memory_equal(host[0], host[1], (size_t)bytes);
    test_free(host[0]);
    test_free(host[1]);
    pair_clear(p);
}

static void test_matmul(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) check(i, &CASES[i]);
}

/* ---- fast accumulation ---- */

/* Codes that are all equal, except the first of each row; and a factor of 1. */
static struct tensor rows_alike(int64_t rows, int64_t k, float first, float others) {
    struct tensor x = pair_codes(p, E, rows, k, T).side[GPU];
    uint8_t *host = test_malloc((size_t)(rows * k));
    const float one = 1;
    memset(host, fp8_encode(E, others), (size_t)(rows * k));
    for (int64_t i = 0; i < rows; i++) host[i * k] = fp8_encode(E, first);
    if (p->ops[GPU]->upload(p->b[GPU], LANE_COMPUTE, x.data, host, rows * k, &p->e) != OK ||
        p->ops[GPU]->upload(p->b[GPU], LANE_COMPUTE, x.scale.data, &one, 4, &p->e) != OK)
        fail_msg("%s", p->e.text);
    test_free(host);
    return x;
}

/* Every output is the same sum, exact in f32. Returns the largest share of it that the GPU
 * loses. */
static double share_lost(int64_t k, float first, float others, bool fast, const char *what) {
    enum { M = 1024, N = 2048 }; /* a tile for each multiprocessor: K stays whole */
    struct tensor a = rows_alike(M, k, first, others), b = rows_alike(N, k, first, 1);
    struct tensor out = pair_tensor(p, F, M, N, 1, 1).side[GPU];
    float *got = test_malloc(sizeof *got * M * N);
    double sum = (double)first * first + (double)(k - 1) * others, most = 0;
    struct matmul_args args = { .out = &out, .a = &a, .b = &b, .fast_accumulate = fast,
                                .name = what };
    if (p->ops[GPU]->matmul(p->b[GPU], LANE_COMPUTE, &args, &p->e) != OK ||
        p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, got, out.data, (int64_t)sizeof *got * M * N,
                              &p->e) != OK)
        fail_msg("%s", p->e.text);
    for (int64_t i = 0; i < M * N; i++) most = fmax(most, fabs(got[i] - sum) / sum);
    if (getenv("DISTANCES")) printf("    %s: %.3g of the sum is missing\n", what, most);
    test_free(got);
    pair_clear(p);
    return most;
}

/* One term of 2^16 and 16,383 of 7/64. Hopper's 14 bits of 2^16 end at 4 (or at 8, if they include
 * the leading bit). So 32 small terms together, 3.5, leave such a sum unchanged. Fast: all of them
 * are lost, 1792, which is 2.7 % of the sum; split-K would lose them in the first part only. Not
 * fast: the first 128 terms lose 14, 2e-4 of the sum, within nmse_bound's s (2.4e-3). A device that
 * always accumulates fast exceeds that bound by a factor of 11. That fast loses more holds for
 * Hopper; other devices may keep more bits. */
static void test_fast_accumulation(void **state) {
    enum { K = 16384 };
    const float first = 256, others = 0.109375f;
    struct device_info info;
    struct matmul_case split = { 1024, 2048, K, E, E, F, T, T, .way = "native" };
    double apart = share_lost(K, first, others, false, "split accumulation");
    double fast = share_lost(K, first, others, true, "fast accumulation");
    if (!(apart * apart <= nmse_bound(&split)))
        fail_msg("split accumulation loses %.3g of the sum, at most %.3g", apart,
                 sqrt(nmse_bound(&split)));
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) return;
    assert_null(strstr(decided("split accumulation").detail, ", fast"));
    assert_non_null(strstr(decided("fast accumulation").detail, ", fast"));
    if (!(fast > 2 * apart))
        fail_msg("fast accumulation loses %.3g of the sum, split %.3g", fast, apart);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matmul), cmocka_unit_test(test_fast_accumulation),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
