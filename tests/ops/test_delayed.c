/* delayed_update, expected values by hand: H rows of history, row 0 is the cleared staging row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "tests/support/op_tensor.h"

enum { ROWS_MAX = 4 };

/* One slot, one call. Values of the history from row 0 on. */
struct delayed_case {
    const char *about;
    int64_t H;
    bool most_recent;
    int margin;
    float code_max;
    float history[ROWS_MAX], multiplier, amax;
    float history_after[ROWS_MAX], multiplier_after;
};

static const struct delayed_case CASES[] = {
    { "history 1: the amax itself", 1, false, 0, 448, { 0 }, 1, 3.5f, { 0 }, 128 },
    { "history 1, most recent", 1, true, 0, 57344, { 0 }, 1, 7, { 0 }, 8192 },
    { "history 4: the old maximum rules, and rolls out", 4, false, 0, 448,
      { 0, 14, 2, 1 }, 5, 3.5f, { 0, 2, 1, 3.5f }, 32 },
    { "history 4: the current one rules", 4, false, 0, 448,
      { 0, 1, 2, 3 }, 5, 7, { 0, 2, 3, 7 }, 64 },
    { "history 4, most recent", 4, true, 0, 448,
      { 0, 14, 2, 1 }, 5, 3.5f, { 0, 2, 1, 3.5f }, 128 },
    { "margin 1 halves", 4, false, 1, 448, { 0, 0, 0, 0 }, 1, 3.5f, { 0, 0, 0, 3.5f }, 64 },
    { "margin 2 quarters", 1, true, 2, 448, { 0 }, 1, 3.5f, { 0 }, 32 },
    { "zero: neither rolls nor rescans", 4, false, 0, 448,
      { 0, 14, 2, 1 }, 5, 0, { 0, 14, 2, 1 }, 5 },
    { "zero, most recent", 4, true, 0, 448, { 0, 14, 2, 1 }, 5, 0, { 0, 14, 2, 1 }, 5 },
    { "infinity keeps the multiplier, and is remembered", 4, false, 0, 448,
      { 0, 14, 2, 1 }, 5, INFINITY, { 0, 2, 1, INFINITY }, 5 },
    { "NaN likewise", 4, true, 0, 448, { 0, 14, 2, 1 }, 5, NAN, { 0, 2, 1, NAN }, 5 },
    { "a remembered infinity still rules under max", 4, false, 0, 448,
      { 0, INFINITY, 2, 1 }, 5, 7, { 0, 2, 1, 7 }, 5 },
    { "and not under most recent", 4, true, 0, 448,
      { 0, INFINITY, 2, 1 }, 5, 7, { 0, 2, 1, 7 }, 64 },
    { "an infinite quotient becomes FLT_MAX", 1, true, 0, 448, { 0 }, 1, 1e-38f, { 0 }, FLT_MAX },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static bool same(float a, float b) { return f32_bits(a) == f32_bits(b); }

/* Every case is tried between two slots that must not change. */
enum { SLOTS = 3, SLOT = 1 };

static void check(struct backend *b, const struct delayed_case *c) {
    struct tensor *history = op_tensor(DTYPE_F32, c->H, SLOTS, SCALE_NONE);
    struct tensor *multiplier = op_tensor(DTYPE_F32, SLOTS, 1, SCALE_NONE);
    struct tensor *factor = op_tensor(DTYPE_F32, SLOTS, 1, SCALE_NONE);
    struct tensor *amax = op_tensor(DTYPE_U32, SLOTS, 1, SCALE_NONE);
    float code_max[SLOTS] = { 448, c->code_max, 57344 };
    struct delayed_args d = { history, multiplier, factor, amax, code_max, c->margin,
                              c->most_recent };
    struct err e;
    for (int64_t r = 0; r < c->H; r++) op_set(history, r, SLOT, c->history[r]);
    for (int64_t s = 0; s < SLOTS; s++) op_set(multiplier, s, 0, s == SLOT ? c->multiplier : 9);
    for (int64_t s = 0; s < SLOTS; s++) op_set(factor, s, 0, 1 / op_stored(multiplier, s, 0));
    ((uint32_t *)amax->data)[SLOT] = f32_bits(c->amax);
    if (b->ops->delayed_update(b, LANE_COMPUTE, &d, &e) != OK) fail_msg("%s", e.text);
    for (int64_t r = 0; r < c->H; r++)
        if (!same(op_stored(history, r, SLOT), c->history_after[r]))
            fail_msg("%s: history[%lld] is %g", c->about, (long long)r,
                     (double)op_stored(history, r, SLOT));
    if (!same(op_stored(multiplier, SLOT, 0), c->multiplier_after))
        fail_msg("%s: multiplier is %g", c->about, (double)op_stored(multiplier, SLOT, 0));
    assert_true(same(op_stored(factor, SLOT, 0), 1 / c->multiplier_after));
    for (int64_t s = 0; s < SLOTS; s++) {
        assert_int_equal(((uint32_t *)amax->data)[s], 0);
        if (s != SLOT) assert_true(op_stored(multiplier, s, 0) == 9);
    }
}

static void test_by_hand(void **state) {
    struct backend *b = op_backend(1, NULL);
    for (size_t i = 0; i < CASE_COUNT; i++) check(b, &CASES[i]);
    op_free();
}

/* Four regions of one slot, history 3 (two older rows): the values that TransformerEngine gives. */
static void test_a_history_of_three(void **state) {
    static const float AMAX[] = { 7, 3.5f, 1.75f, 1.75f };
    static const float MULTIPLIER[] = { 64, 64, 64, 128 }; /* 7 counts for two more regions */
    struct backend *b = op_backend(1, NULL);
    struct tensor *history = op_tensor(DTYPE_F32, 3, 1, SCALE_NONE);
    struct tensor *multiplier = op_tensor(DTYPE_F32, 1, 1, SCALE_NONE);
    struct tensor *factor = op_tensor(DTYPE_F32, 1, 1, SCALE_NONE);
    struct tensor *amax = op_tensor(DTYPE_U32, 1, 1, SCALE_NONE);
    float code_max = 448;
    struct delayed_args d = { history, multiplier, factor, amax, &code_max, 0, false };
    struct err e;
    for (int i = 0; i < 4; i++) {
        *(uint32_t *)amax->data = f32_bits(AMAX[i]);
        assert_int_equal(b->ops->delayed_update(b, LANE_COMPUTE, &d, &e), OK);
        assert_true(op_stored(multiplier, 0, 0) == MULTIPLIER[i]);
    }
    op_free();
}

static void test_refuses(void **state) {
    struct backend *b = op_backend(1, NULL);
    struct tensor *history = op_tensor(DTYPE_F32, 2, 3, SCALE_NONE);
    struct tensor *vector = op_tensor(DTYPE_F32, 3, 1, SCALE_NONE);
    struct tensor *narrow = op_tensor(DTYPE_F32, 2, 1, SCALE_NONE);
    struct tensor *amax = op_tensor(DTYPE_U32, 3, 1, SCALE_NONE);
    struct tensor *empty = op_tensor(DTYPE_F32, 0, 3, SCALE_NONE);
    float code_max[3] = { 448, 448, 448 };
    const struct delayed_args BAD[] = {
        { NULL, vector, vector, amax, code_max, 0, false },
        { empty, vector, vector, amax, code_max, 0, false },
        { history, narrow, vector, amax, code_max, 0, false },
        { history, vector, narrow, amax, code_max, 0, false },
        { history, vector, vector, vector, code_max, 0, false },
        { history, vector, vector, amax, NULL, 0, false },
    };
    struct err e;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        assert_int_equal(b->ops->delayed_update(b, LANE_COMPUTE, &BAD[i], &e), ERR_ARG);
    op_free();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_a_history_of_three),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
