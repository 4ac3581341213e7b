/* matmul against the reference: every scale mode native to Hopper, the emulated ones, every
 * epilogue, odd sizes, and twice the same call for the same bits.
 *
 * Bounds (NMSE): a BF16 output differs only where two sums straddle a rounding boundary (1e-6),
 * except where the library adds a bias, C or a residual: it rounds the product to BF16 before
 * (2e-5). FP8 tensor cores keep 13 to 14 bits of the running sum (facts: accumulation accuracy):
 * 1e-5 with promotion, 1e-3 with fast accumulation. Emulated block modes whose factors are no
 * powers of two round operands to BF16: 1e-5. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define E DTYPE_E4M3
#define G DTYPE_E5M2
#define H DTYPE_BF16
#define F DTYPE_F32

struct matmul_case {
    int64_t m, n, k;
    enum dtype a, b, out;
    enum scale_kind scale_a, scale_b;
    bool a_transposed, b_transposed; /* BF16 only: as views of [K, M] and [K, N] */
    float beta;
    int bias; /* a dtype, or -1 */
    bool residual, fast;
    double nmse_max;
};

static const struct matmul_case CASES[] = {
    /* BF16: every layout, out dtype and epilogue */
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, -1, false, false, 1e-6 },
    { 128, 256, 192, H, H, F, 0, 0, true, false, 0, -1, false, false, 1e-9 },
    { 128, 256, 192, H, H, F, 0, 0, false, true, 1, -1, false, false, 1e-9 },
    { 128, 256, 192, H, H, F, 0, 0, true, true, 1, -1, false, false, 1e-9 },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 1, -1, false, false, 2e-5 },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, H, false, false, 2e-5 },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, F, true, false, 2e-5 },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 0, -1, true, false, 2e-5 },
    { 128, 256, 192, H, H, H, 0, 0, false, false, 1, H, true, false, 2e-5 },
    { 127, 255, 190, H, H, H, 0, 0, false, false, 0, H, false, false, 2e-5 },
    { 33, 17, 5, H, H, F, 0, 0, true, true, 1, -1, true, false, 1e-9 },
    { 1, 1, 1, H, H, H, 0, 0, false, false, 0, -1, false, false, 1e-6 },
    /* tensor-wide */
    { 256, 384, 512, E, E, H, SCALE_TENSOR, SCALE_TENSOR, false, false, 0, -1, false, false, 1e-5 },
    { 256, 384, 512, E, E, H, SCALE_TENSOR, SCALE_TENSOR, false, false, 0, -1, false, true, 1e-3 },
    { 256, 384, 512, G, E, F, SCALE_TENSOR, SCALE_TENSOR, false, false, 1, -1, false, false, 1e-5 },
    { 256, 384, 512, E, G, H, SCALE_TENSOR, SCALE_TENSOR, false, false, 1, -1, false, false, 3e-5 },
    { 256, 384, 512, E, E, H, SCALE_TENSOR, SCALE_TENSOR, false, false, 0, H, true, false, 3e-5 },
    { 37, 53, 100, E, E, H, SCALE_TENSOR, SCALE_TENSOR, false, false, 0, -1, false, false, 1e-5 },
    /* rows, also one side only */
    { 256, 384, 512, E, E, H, SCALE_ROW, SCALE_ROW, false, false, 0, -1, false, false, 1e-5 },
    { 256, 384, 512, E, E, F, SCALE_ROW, SCALE_ROW, false, false, 1, -1, false, true, 1e-3 },
    { 256, 384, 512, E, E, H, SCALE_ROW, SCALE_TENSOR, false, false, 0, -1, false, false, 1e-5 },
    { 50, 70, 90, E, E, H, SCALE_ROW, SCALE_ROW, false, false, 0, H, false, false, 1e-5 },
    /* blocks; K blocks not a multiple of 4, and a short last one */
    { 256, 384, 512, E, E, H, SCALE_1X128, SCALE_128X128, false, false, 0, -1, false, false, 1e-5 },
    { 256, 384, 640, E, E, H, SCALE_1X128, SCALE_128X128, false, false, 0, H, true, false, 3e-5 },
    { 256, 384, 640, E, E, H, SCALE_128X128, SCALE_1X128, false, false, 0, -1, false, false, 1e-5 },
    { 256, 384, 720, E, E, F, SCALE_1X128, SCALE_1X128, false, false, 1, -1, false, false, 1e-5 },
    { 256, 384, 512, G, E, F, SCALE_1X128, SCALE_1X128, false, false, 1, -1, false, false, 1e-5 },
    { 50, 70, 300, E, E, H, SCALE_1X128, SCALE_128X128, false, false, 0, -1, false, false, 3e-5 },
    /* MXFP8: emulated on Hopper */
    { 256, 384, 512, E, E, H, SCALE_1X32, SCALE_1X32, false, false, 0, -1, false, false, 1e-5 },
    { 256, 384, 512, E, E, F, SCALE_1X32, SCALE_32X32, false, false, 1, -1, false, false, 1e-8 },
    { 50, 70, 90, G, E, H, SCALE_1X32, SCALE_1X32, false, false, 0, H, true, false, 3e-5 },
};

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
    for (int round = 0; round < 2; round++) {
        struct twin *o = round ? &again : &out;
        pair_fill(p, o, 23, 2, 8.0f);
        ON_BOTH(p, ops->matmul(b, LANE_COMPUTE, &(struct matmul_args){
            .out = S(*o), .a = S(a), .b = S(w), .bias = c->bias < 0 ? NULL : S(bias),
            .residual = c->residual ? S(residual) : NULL, .beta = c->beta,
            .fast_accumulate = c->fast }, e));
    }
    char what[64];
    snprintf(what, sizeof what, "matmul row %zu", row);
    pair_near(p, what, &out, c->nmse_max);
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
