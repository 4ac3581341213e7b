/* Attention against the reference, forward and backward: every head dimension, grouped heads,
 * lengths around the tiles, and twice the same call for the same bits.
 *
 * Bounds (NMSE): probabilities and score gradients are rounded to BF16 before they are multiplied
 * (2^-9 each, 1.3e-6 in NMSE), and outputs once more: 1e-5. Gradients of scores are differences of
 * numbers so rounded: 1e-4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

static const struct { int64_t batch, length, heads, kv_heads, dim; } CASES[] = {
    { 1, 1, 1, 1, 16 },    { 2, 64, 2, 2, 32 },   { 1, 65, 4, 1, 64 },  { 2, 127, 6, 2, 128 },
    { 1, 128, 3, 3, 128 }, { 1, 300, 4, 2, 64 },  { 3, 200, 2, 1, 32 }, { 1, 513, 8, 2, 128 },
    { 2, 90, 5, 5, 16 },   { 1, 1000, 2, 2, 64 },
};

/* Downloads both and fails unless they are equal. */
static void equal_on_gpu(const struct tensor *x, const struct tensor *y) {
    int64_t bytes = tensor_count(x) * dtype_bytes(x->dtype);
    const struct tensor *t[2] = { x, y };
    void *host[2];
    for (int i = 0; i < 2; i++) {
        host[i] = test_malloc((size_t)bytes);
        assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, host[i], t[i]->data, bytes,
                                               &p->e), OK);
    }
    assert_memory_equal(host[0], host[1], (size_t)bytes);
    test_free(host[0]);
    test_free(host[1]);
}

static void test_attention(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        int64_t n = CASES[i].batch, t = CASES[i].length, h = CASES[i].heads, g = CASES[i].kv_heads;
        int64_t d = CASES[i].dim, all = h + 2 * g;
        struct twin qkv = pair_tensor(p, DTYPE_BF16, n, t, all, d), d_qkv[2];
        struct twin d_o = pair_tensor(p, DTYPE_BF16, n * t, h * d, 1, 1);
        struct twin lse = pair_tensor(p, DTYPE_F32, n, h, t, 1), delta = lse;
        delta = pair_tensor(p, DTYPE_F32, n, h, t, 1);
        struct twin_sink o;
        pair_sink(p, &o, n * t, h * d, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE,
                  (struct quant_rule){ QUANT_TE, 0, false }, false);
        pair_fill(p, &qkv, 31 + i, 2, 0.5f);
        pair_fill(p, &d_o, 32 + i, 2, 0.5f);
        ON_BOTH(p, ops->attention_fwd(b, LANE_COMPUTE, S(o), S(lse), S(qkv), h, g, e));
        for (int round = 0; round < 2; round++) {
            d_qkv[round] = pair_tensor(p, DTYPE_BF16, n, t, all, d);
            ON_BOTH(p, ops->attention_bwd(b, LANE_COMPUTE, S(d_qkv[round]), S(delta), S(d_o),
                                          S(o.value), S(qkv), S(lse), h, g, e));
        }
        char what[64];
        snprintf(what, sizeof what, "attention row %zu: o", i);
        pair_near(p, what, &o.value, 1e-5);
        pair_near(p, "attention lse", &lse, 1e-9);
        snprintf(what, sizeof what, "attention row %zu: d_qkv", i);
        pair_near(p, what, &d_qkv[0], 1e-4);
        equal_on_gpu(&d_qkv[0].side[GPU], &d_qkv[1].side[GPU]);
        pair_clear(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_attention) };
    return cmocka_run_group_tests(tests, setup, teardown);
}
