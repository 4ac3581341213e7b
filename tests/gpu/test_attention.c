/* Attention against the reference, forward and backward: every head dimension, grouped heads,
 * lengths around the tiles, by every kernel that could serve, and the same call five times for the
 * same bits.
 *
 * Bounds (NMSE): probabilities and score gradients are rounded to BF16 before they are multiplied
 * (2^-9 each, 1.3e-6 in NMSE), and outputs once more: 1e-5. Gradients of scores are differences of
 * numbers so rounded: 1e-4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/pair.h"

enum { ROUNDS = 5 };

static struct pair *p;
static char *table; /* the choices of the first test; owned */

static int close_pair(void **state) {
    pair_close(p);
    p = NULL;
    return 0;
}

static const struct { int64_t batch, length, heads, kv_heads, dim; } CASES[] = {
    { 1, 1, 1, 1, 16 },     { 2, 64, 2, 2, 32 },    { 1, 65, 4, 1, 64 },   { 2, 127, 6, 2, 128 },
    { 1, 128, 3, 3, 128 },  { 1, 300, 4, 2, 64 },   { 3, 200, 2, 1, 32 },  { 1, 513, 8, 2, 128 },
    { 2, 90, 5, 5, 16 },    { 1, 1000, 2, 2, 64 },  { 2, 4, 2, 1, 64 },    { 1, 260, 8, 1, 128 },
    { 1, 1156, 8, 2, 128 }, { 2, 640, 4, 4, 64 },   { 1, 1540, 8, 1, 64 }, { 1, 772, 3, 3, 128 },
};
enum { CASES_COUNT = sizeof CASES / sizeof *CASES };

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

/* How a call was served, by the log of decisions: the last of this direction that is new. */
static void assert_way(int64_t before, const char *way) {
    struct decision d;
    int64_t count = before;
    for (; p->ops[GPU]->decision(p->b[GPU], count, &d); count++) {
        if (way && strcmp(d.way, way) != 0)
            fail_msg("%s %s was served by %s, not %s", d.name, d.direction, d.way, way);
    }
    assert_int_equal(count, before + 2); /* forward and backward */
}

static int64_t decisions(void) {
    struct decision d;
    int64_t count = 0;
    while (p->ops[GPU]->decision(p->b[GPU], count, &d)) count++;
    return count;
}

static void one_case(size_t i, const char *way) {
    int64_t n = CASES[i].batch, t = CASES[i].length, h = CASES[i].heads, g = CASES[i].kv_heads;
    int64_t d = CASES[i].dim, all = h + 2 * g, before = decisions();
    struct twin qkv = pair_tensor(p, DTYPE_BF16, n, t, all, d), d_qkv[ROUNDS];
    struct twin d_o = pair_tensor(p, DTYPE_BF16, n * t, h * d, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, n, h, t, 1);
    struct twin delta = pair_tensor(p, DTYPE_F32, n, h, t, 1);
    struct twin_sink o;
    pair_sink(p, &o, n * t, h * d, DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE,
              (struct quant_rule){ QUANT_TE, 0, false }, false);
    pair_fill(p, &qkv, 31 + i, 2, 0.5f);
    pair_fill(p, &d_o, 32 + i, 2, 0.5f);
    ON_BOTH(p, ops->attention_fwd(b, LANE_COMPUTE, S(o), S(lse), S(qkv), h, g, e));
    for (int round = 0; round < ROUNDS; round++) {
        d_qkv[round] = pair_tensor(p, DTYPE_BF16, n, t, all, d);
        for (int s = 0; s < SIDES; s++) /* the reference once */
            if ((s == GPU || round == 0) &&
                (p->ops[s]->attention_bwd(p->b[s], LANE_COMPUTE, S(d_qkv[round]), S(delta), S(d_o),
                                          S(o.value), S(qkv), S(lse), h, g, &p->e) != OK ||
                 p->ops[s]->sync(p->b[s], &p->e) != OK))
                fail_msg("attention_bwd: %s", p->e.text);
    }
    char what[96];
    snprintf(what, sizeof what, "attention row %zu by %s: o", i, way ? way : "any");
    pair_near(p, what, &o.value, 1e-5);
    pair_near(p, "attention lse", &lse, 1e-9);
    snprintf(what, sizeof what, "attention row %zu by %s: d_qkv", i, way ? way : "any");
    pair_near(p, what, &d_qkv[0], 1e-4);
    for (int round = 1; round < ROUNDS; round++)
        equal_on_gpu(&d_qkv[0].side[GPU], &d_qkv[round].side[GPU]);
    assert_way(before, way);
    pair_clear(p);
}

/* Whatever serves on this machine. Leaves the table of its choices for the next test. */
static void as_chosen(void **state) {
    p = pair_open();
    for (size_t i = 0; i < CASES_COUNT; i++) one_case(i, NULL);
    if (p->ops[GPU]->choices_save(p->b[GPU], &table, &p->e) != OK) fail_msg("%s", p->e.text);
}

/* The kernels for any device, also where others would serve. */
static void on_mma(void **state) {
    p = pair_open();
    if (p->ops[GPU]->pretend(p->b[GPU], "sm_121", &p->e) != OK) fail_msg("%s", p->e.text);
    for (size_t i = 0; i < CASES_COUNT; i++) one_case(i, "mma");
}

/* Hopper's kernels wherever they can serve, also where cuDNN would. */
static void on_wgmma(void **state) {
    struct device_info info;
    p = pair_open();
    if (p->ops[GPU]->info(p->b[GPU], &info, &p->e) != OK) fail_msg("%s", p->e.text);
    if (strcmp(info.architecture, "sm_90") != 0) skip();
    assert_non_null(table);
    choices_without_plans(table);
    if (p->ops[GPU]->choices_load(p->b[GPU], table, &p->e) != OK) fail_msg("%s", p->e.text);
    for (size_t i = 0; i < CASES_COUNT; i++)
        if (CASES[i].dim >= 64) one_case(i, "wgmma");
}

/* Gradients of one long sequence on a backend of its own, downloaded: more tiles of keys than blocks
 * run together. */
enum {
    LONG = 24640, LONG_HEADS = 4, LONG_DIM = 64,
    LONG_COUNT = LONG * (LONG_HEADS + 2) * LONG_DIM
};
static uint16_t *long_gradients(const char *caps, const char *way) {
    uint16_t *host = test_malloc(LONG_COUNT * 2);
    struct decision d;
    p = pair_open();
    if (caps && p->ops[GPU]->pretend(p->b[GPU], caps, &p->e) != OK) fail_msg("%s", p->e.text);
    struct twin qkv = pair_tensor(p, DTYPE_BF16, 1, LONG, LONG_HEADS + 2, LONG_DIM), d_qkv = qkv;
    struct twin d_o = pair_tensor(p, DTYPE_BF16, LONG, LONG_HEADS * LONG_DIM, 1, 1), o = d_o;
    d_qkv = pair_tensor(p, DTYPE_BF16, 1, LONG, LONG_HEADS + 2, LONG_DIM);
    o = pair_tensor(p, DTYPE_BF16, LONG, LONG_HEADS * LONG_DIM, 1, 1);
    struct twin lse = pair_tensor(p, DTYPE_F32, 1, LONG_HEADS, LONG, 1), delta = lse;
    delta = pair_tensor(p, DTYPE_F32, 1, LONG_HEADS, LONG, 1);
    pair_fill(p, &qkv, 51, 2, 0.5f);
    pair_fill(p, &d_o, 52, 2, 0.5f);
    struct sink to = sink_value(&o.side[GPU], NULL);
    if (p->ops[GPU]->attention_fwd(p->b[GPU], 0, &to, &lse.side[GPU], &qkv.side[GPU], LONG_HEADS, 1,
                                   &p->e) != OK ||
        p->ops[GPU]->attention_bwd(p->b[GPU], 0, &d_qkv.side[GPU], &delta.side[GPU], &d_o.side[GPU],
                                   &o.side[GPU], &qkv.side[GPU], &lse.side[GPU], LONG_HEADS, 1,
                                   &p->e) != OK ||
        p->ops[GPU]->download(p->b[GPU], 0, host, d_qkv.side[GPU].data, LONG_COUNT * 2, &p->e) !=
            OK)
        fail_msg("%s", p->e.text);
    for (int64_t i = 0; p->ops[GPU]->decision(p->b[GPU], i, &d); i++)
        if (way && !strcmp(d.direction, "backward")) assert_string_equal(d.way, way);
    close_pair(NULL);
    return host;
}

static void long_sequences(void **state) {
    uint16_t *x = long_gradients(NULL, NULL), *again = long_gradients(NULL, NULL);
    uint16_t *y = long_gradients("sm_121", "mma");
    double apart = 0.0, size = 0.0;
    assert_memory_equal(x, again, LONG_COUNT * 2);
    for (int64_t i = 0; i < LONG_COUNT; i++) {
        double u = bf16_decode(x[i]), v = bf16_decode(y[i]);
        apart += (u - v) * (u - v);
        size += v * v;
    }
    if (!(apart <= 1e-4 * size)) fail_msg("NMSE %.3g of 1e-4", apart / size);
    test_free(x);
    test_free(again);
    test_free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(as_chosen, close_pair),
        cmocka_unit_test_teardown(on_mma, close_pair),
        cmocka_unit_test_teardown(on_wgmma, close_pair),
        cmocka_unit_test_teardown(long_sequences, close_pair),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(table);
    return failed;
}
