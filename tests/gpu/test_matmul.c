/* matmul against the reference: every scale mode native to Hopper, the emulated ones, every
 * epilogue, odd sizes, long K, and twice the same call for the same bits.
 *
 * How far a device may be from the reference follows from where it rounds; nmse_bound says it for
 * each row before anything runs. That cuBLASLt adds bias, residual and C to the f32 product and
 * rounds once was measured: every output of every algorithm equal to that, for products that f32
 * holds exactly. The exception is C in place (beta 1) in BF16: there the product is rounded before
 * it is added. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define H DTYPE_BF16
#define F DTYPE_F32
#define T SCALE_TENSOR
#define R SCALE_ROW
#define B SCALE_1X128
#define W SCALE_128X128
#define X SCALE_1X32
#define Y SCALE_32X32

struct matmul_case {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    bool a_transposed, b_transposed; /* BF16 only: as views of [K, M] and [K, N] */
    float beta;
    int bias; /* a dtype, or -1 */
    bool residual, fast;
    const char *way; /* what becomes of it on Hopper: for odd sizes the library has no FP8 */
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
    /* rows, also one side only */
    { 256, 384, 512, E, E, H, R, R, false, false, 0, -1, false, false, "native" },
    { 256, 384, 512, E, E, F, R, R, false, false, 1, -1, false, true, "native" },
    { 256, 384, 512, E, E, H, R, T, false, false, 0, -1, false, false, "native" },
    { 50, 70, 90, E, E, H, R, R, false, false, 0, H, false, false, "emulated" },
    /* blocks; K blocks not a multiple of 4, and a short last one */
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
};

/* The largest NMSE that a row may have.
 *
 * s: the device's sum before its last rounding is off by s times the sum's own size (rms). f32
 * chains on tensor cores truncate: 2^-23 for each of K terms at worst. Hopper's FP8 products keep
 * at least 13 bits of the running sum, which takes 32 terms at a time, and start afresh every 128
 * unless `fast` (facts: accumulation accuracy). Block factors that are no powers of two are
 * multiplied into both operands and rounded to BF16 where emulated: uniform within 2^-8, so
 * 2^-8/sqrt(3) each.
 *
 * An f32 output is off by s^2. A BF16 one, whose neighbours are at most 2^-7 of it apart, comes out
 * as the other neighbour with probability |error| / distance: 2^-7 E|x| E|error| on top, and E|x|
 * is 0.8 of the rms in sums of many terms. C in place: the product, rounded before, is off by up to
 * 2^-8, 2^-9 in the mean. Addends are independent of the product, so they only make the result
 * larger. */
static double nmse_bound(const struct matmul_case *c) {
    double k = (double)c->k, s = k * 0x1p-23, in_place = 0;
    bool fp8 = dtype_is_fp8(c->a), native = !strcmp(c->way, "native");
    bool blocks = c->scale_a == SCALE_1X128 || c->scale_a == SCALE_128X128;
    if (fp8 && native) s += ceil((c->fast ? k : fmin(k, 128)) / 32) * 0x1p-13;
    if (fp8 && !native && blocks) s += sqrt(2) * 0x1p-8 / sqrt(3);
    if (c->out == F) return s * s;
    if (c->beta != 0 && !c->residual) in_place = 0x1p-7 * 0x1p-9; /* both: our own epilogue */
    return s * s + 0x1p-7 * 0.8 * 0.8 * s + in_place;
}

static void went(const char *name, const char *way) {
    struct decision d;
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        if (!strcmp(d.name, name)) {
            if (strcmp(d.way, way) != 0) fail_msg("%s is %s, not %s", name, d.way, way);
            return;
        }
    fail_msg("%s was not recorded", name);
}

static struct twin operand(enum dtype t, int64_t rows, int64_t k, enum scale_kind kind,
                           bool transposed, uint64_t seed) {
    struct twin x;
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

static void check(size_t row, const struct matmul_case *c) {
    struct twin a = operand(c->a, c->m, c->k, c->scale_a, c->a_transposed, 21);
    struct twin w = operand(c->b, c->n, c->k, c->scale_b, c->b_transposed, 22);
    struct twin out = pair_tensor(p, c->out, c->m, c->n, 1, 1), again = out;
    struct twin residual = pair_tensor(p, c->out, c->m, c->n, 1, 1);
    struct twin bias = pair_tensor(p, c->bias < 0 ? H : (enum dtype)c->bias, c->n, 1, 1, 1);
    again.side[GPU] = pair_tensor(p, c->out, c->m, c->n, 1, 1).side[GPU];
    pair_fill(p, &out, 23, 2, 8.0f);
    pair_fill(p, &again, 23, 2, 8.0f);
    pair_fill(p, &residual, 24, 2, 8.0f);
    pair_fill(p, &bias, 25, 2, 8.0f);
    char what[64];
    snprintf(what, sizeof what, "matmul row %zu", row);
    for (int round = 0; round < 2; round++) {
        struct twin *o = round ? &again : &out;
        pair_fill(p, o, 23, 2, 8.0f);
        ON_BOTH(p, ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
            .out = S(*o), .a = S(a), .b = S(w), .bias = c->bias < 0 ? NULL : S(bias),
            .residual = c->residual ? S(residual) : NULL, .beta = c->beta,
            .fast_accumulate = c->fast, .name = what }, e));
    }
    went(what, c->way);
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

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_matmul) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
