/* Token and position embedding: forward only copies, so it is exact; backward sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

enum { BATCH = 20, LENGTH = 6, ROWS = BATCH * LENGTH, WIDTH = 19, VOCAB = 23 };

struct run { struct tensor x, tokens, table, position, d_table, d_position, dx, positions; };

/* A position other than the row's place; the last one never occurs. */
static int64_t placed(int64_t row) { return row * 7 % 11 % (LENGTH - 1); }

static struct run make(struct ops *o, enum dtype act, enum dtype grad) {
    struct run r = {
        ops_tensor(o, act, ROWS, WIDTH, 1, 1),    ops_tensor(o, DTYPE_I32, ROWS, 1, 1, 1),
        ops_tensor(o, act, VOCAB, WIDTH, 1, 1),   ops_tensor(o, act, LENGTH, WIDTH, 1, 1),
        ops_tensor(o, grad, VOCAB, WIDTH, 1, 1),  ops_tensor(o, grad, LENGTH, WIDTH, 1, 1),
        ops_tensor(o, act, ROWS, WIDTH, 1, 1),    ops_tensor(o, DTYPE_I32, ROWS, 1, 1, 1),
    };
    /* Few tokens, so that they repeat; the last of the vocabulary is in row 0 only. */
    for (int64_t i = 0; i < ROWS; i++)
        ops_set(&r.tokens, i, i ? rng_below(rng_bits(3, (uint64_t)i), VOCAB / 2) : VOCAB - 1);
    for (int64_t i = 0; i < ROWS; i++) ops_set(&r.positions, i, (double)placed(i));
    ops_fill(&r.table, 1, 1);
    ops_fill(&r.position, 2, 1);
    ops_fill(&r.dx, 3, 1);
    ops_fill(&r.d_table, 4, 1);
    return r;
}

static void test_forward(void **state) {
    for (int learned = 0; learned < 3; learned++) { /* 2: with positions */
        struct ops *o = ops_open(2);
        struct run r = make(o, DTYPE_BF16, DTYPE_F32);
        OPS_OK(o, o->table->embedding_fwd(o->b, LANE_COMPUTE, &r.x, &r.tokens, &r.table,
                                          learned ? &r.position : NULL,
                                          learned == 2 ? &r.positions : NULL, &o->e));
        for (int64_t i = 0; i < ROWS * WIDTH; i++) {
            int64_t token = (int64_t)ops_get(&r.tokens, i / WIDTH), c = i % WIDTH;
            int64_t at = learned == 2 ? placed(i / WIDTH) : i / WIDTH % LENGTH;
            float want = (float)ops_get(&r.table, token * WIDTH + c);
            if (learned) want += (float)ops_get(&r.position, at * WIDTH + c);
            assert_true(ops_get(&r.x, i) == bf16_decode(bf16_encode(want)));
        }
        ops_close(o);
    }
}

/* d_table is a chain over rows in f32, rounded once: exact, in both gradient dtypes. */
static void test_backward(void **state) {
    static const enum dtype GRAD[] = { DTYPE_F32, DTYPE_BF16 };
    for (int g = 0; g < 2; g++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct run r = make(o, DTYPE_BF16, GRAD[g]);
            struct tensor before = ops_copy(o, &r.d_table, DTYPE_F32);
            double sum[LENGTH * WIDTH] = { 0 };
            float want[VOCAB * WIDTH];
            for (int64_t i = 0; i < VOCAB * WIDTH; i++) want[i] = (float)ops_get(&before, i);
            for (int64_t i = 0; i < ROWS * WIDTH; i++) {
                float dx = (float)ops_get(&r.dx, i);
                want[(int64_t)ops_get(&r.tokens, i / WIDTH) * WIDTH + i % WIDTH] += dx;
                sum[i / WIDTH % LENGTH * WIDTH + i % WIDTH] += dx;
            }
            OPS_OK(o, o->table->embedding_bwd(o->b, LANE_COMPUTE, &r.d_table, &r.d_position, &r.dx,
                                              &r.tokens, NULL, &o->e));
            for (int64_t i = 0; i < VOCAB * WIDTH; i++)
                assert_true(ops_get(&r.d_table, i) ==
                            (GRAD[g] == DTYPE_F32 ? want[i] : bf16_decode(bf16_encode(want[i]))));
            /* d_position: 20 terms in 16 lanes; rounding is one bf16 step at most. */
            OPS_BELOW(ops_nmse(&r.d_position, sum), GRAD[g] == DTYPE_F32 ? 1e-13 : 4e-6,
                      "d_position");
            ops_close(o);
        }
}

/* With positions, d_position is such a chain too. */
static void test_backward_positions(void **state) {
    for (int threads = 1; threads <= 3; threads++) {
        struct ops *o = ops_open(threads);
        struct run r = make(o, DTYPE_BF16, DTYPE_F32);
        float want[LENGTH * WIDTH];
        ops_fill(&r.d_position, 5, 1);
        for (int64_t i = 0; i < LENGTH * WIDTH; i++) want[i] = (float)ops_get(&r.d_position, i);
        for (int64_t i = 0; i < ROWS * WIDTH; i++)
            want[placed(i / WIDTH) * WIDTH + i % WIDTH] += (float)ops_get(&r.dx, i);
        OPS_OK(o, o->table->embedding_bwd(o->b, LANE_COMPUTE, &r.d_table, &r.d_position, &r.dx,
                                          &r.tokens, &r.positions, &o->e));
        for (int64_t i = 0; i < LENGTH * WIDTH; i++)
            assert_true(ops_get(&r.d_position, i) == want[i]);
        ops_close(o);
    }
}

static void test_nan_kept(void **state) {
    struct ops *o = ops_open(2);
    struct run r = make(o, DTYPE_F32, DTYPE_F32);
    ops_set(&r.dx, 4, NAN); /* row 0, whose token occurs only there */
    OPS_OK(o, o->table->embedding_bwd(o->b, LANE_COMPUTE, &r.d_table, &r.d_position, &r.dx,
                                      &r.tokens, NULL, &o->e));
    for (int64_t i = 0; i < VOCAB * WIDTH; i++)
        assert_int_equal(isnan(ops_get(&r.d_table, i)) != 0, i == (VOCAB - 1) * WIDTH + 4);
    assert_true(isnan(ops_get(&r.d_position, 4)) && !isnan(ops_get(&r.d_position, 5)));
    ops_close(o);
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    struct run r = make(o, DTYPE_F32, DTYPE_F32);
    const struct backend_ops *t = o->table;
    struct tensor narrow = ops_tensor(o, DTYPE_F32, VOCAB, WIDTH - 1, 1, 1);
    struct tensor seven = ops_tensor(o, DTYPE_F32, 7, WIDTH, 1, 1);
    struct tensor bf16 = ops_copy(o, &r.table, DTYPE_BF16);
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &narrow, NULL, NULL, &o->e), ERR_ARG,
            "table");
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &bf16, NULL, NULL, &o->e), ERR_ARG,
            "table is bf16");
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.dx, &r.table, NULL, NULL, &o->e), ERR_ARG,
            "tokens is f32");
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &r.table, &narrow, NULL, &o->e), ERR_ARG,
            "position");
    OPS_ERR(o, t->embedding_bwd(o->b, 0, &r.d_table, &seven, &r.dx, &r.tokens, NULL, &o->e),
            ERR_ARG, "not whole sequences of 7");
    OPS_ERR(o, t->embedding_bwd(o->b, 0, &narrow, NULL, &r.dx, &r.tokens, NULL, &o->e), ERR_ARG,
            "d_table");
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &r.table, &r.position, &r.dx, &o->e),
            ERR_ARG, "positions is f32");
    ops_set(&r.positions, 7, LENGTH);
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &r.table, &r.position, &r.positions,
                                &o->e), ERR_ARG, "positions: index 6 at row 7 is not in [0, 6)");
    OPS_ERR(o, t->embedding_bwd(o->b, 0, &r.d_table, &r.d_position, &r.dx, &r.tokens, &r.positions,
                                &o->e), ERR_ARG, "positions: index 6 at row 7 is not in [0, 6)");
    ops_set(&r.tokens, 5, VOCAB);
    OPS_ERR(o, t->embedding_fwd(o->b, 0, &r.x, &r.tokens, &r.table, NULL, NULL, &o->e), ERR_ARG,
            "tokens: index 23 at row 5 is not in [0, 23)");
    ops_set(&r.tokens, 5, -1);
    OPS_ERR(o, t->embedding_bwd(o->b, 0, &r.d_table, NULL, &r.dx, &r.tokens, NULL, &o->e), ERR_ARG,
            "tokens: index -1 at row 5");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_backward),
        cmocka_unit_test(test_backward_positions), cmocka_unit_test(test_nan_kept),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
