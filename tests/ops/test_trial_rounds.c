/* Which algorithms are timed, how often, and in which order: the rules of kernels/cuda/trial.cu,
 * with times from a list instead of a device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "kernels/base.h"
#include "kernels/cuda/trial_rounds.h"

enum { MAX = 8 };

struct clock {
    float us[MAX];  /* of each candidate; negative: it fails */
    float falls_us; /* added to each timing after the one before */
    int timings[MAX], runs[MAX], total;
};

static float time_of(void *context, int i, int runs) {
    struct clock *c = context;
    c->timings[i]++;
    c->runs[i] += runs;
    if (c->us[i] < 0.0f) return -1.0f;
    return c->us[i] + c->falls_us * (float)c->total++;
}

static const struct trial_hint COUNTS = { true, -1.0f };

static void test_unknown(void **state) {
    struct clock c = { .us = { 100, 110, 190, 210, -1 } };
    float us[MAX];
    rounds_run(time_of, &c, 5, NULL, us);
    assert_int_equal(c.timings[0], 1 + ROUNDS);
    assert_int_equal(c.runs[0], 2 + (ROUNDS - 1) * RUNS);
    assert_int_equal(c.timings[2], 1 + ROUNDS); /* of short runs one timing tells less */
    assert_int_equal(c.timings[3], 2);          /* warm-up, and once */
    assert_int_equal(c.timings[4], 1);
    assert_true(us[0] == 100 && us[1] == 110 && us[3] == 210 && us[4] < 0);
}

static void test_long(void **state) {
    struct clock c = { .us = { 6000, 6100, 7400, 7600 } };
    float us[MAX];
    rounds_run(time_of, &c, 4, NULL, us);
    assert_int_equal(c.runs[0], 3);
    assert_int_equal(c.runs[2], 3);
    assert_int_equal(c.runs[3], 2);
    assert_true(us[3] == 7600);
}

/* A run just before replaces the warm-up, and leaves out what was far slower. */
static void test_seen(void **state) {
    struct clock c = { .us = { 6000, 6100, 9000, 5900 } };
    const struct trial_hint hint[] = { { true, 6100 }, { true, 6000 }, { true, 9100 },
                                       { true, -1 } };
    float us[MAX];
    rounds_run(time_of, &c, 4, hint, us);
    assert_int_equal(c.runs[0], 2);
    assert_int_equal(c.runs[2], 0);
    assert_int_equal(c.runs[3], 2); /* it was not seen */
    assert_true(us[2] == ROUNDS_TOO_SLOW && us[3] == 5900);
}

/* Short runs are timed whatever was seen: launches were part of it. */
static void test_seen_short(void **state) {
    struct clock c = { .us = { 10, 9 } };
    const struct trial_hint hint[] = { { true, 12 }, { true, 40 } };
    float us[MAX];
    rounds_run(time_of, &c, 2, hint, us);
    assert_int_equal(c.timings[0], ROUNDS);
    assert_int_equal(c.timings[1], ROUNDS);
    assert_true(us[1] == 9);
}

/* Fast ones outside the class leave no candidate of the class untimed, and are timed once. */
static void test_outside(void **state) {
    struct clock c = { .us = { 1000, 2000, 2100, 2900 } };
    const struct trial_hint hint[] = { { false, 1000 }, { true, 2100 }, { true, 2000 },
                                       { false, 2900 } };
    float us[MAX];
    rounds_run(time_of, &c, 4, hint, us);
    assert_int_equal(c.runs[0], 1);
    assert_int_equal(c.runs[1], 2);
    assert_int_equal(c.runs[2], 2);
    assert_int_equal(c.runs[3], 0);
    assert_true(us[0] == 1000 && us[1] == 2000 && us[2] == 2100);
}

/* Nothing seen, as on devices without a test of classes: all the same, after a warm-up. */
static void test_outside_unseen(void **state) {
    struct clock c = { .us = { 1000, 2000, 2100 } };
    const struct trial_hint hint[] = { { false, -1 }, COUNTS, COUNTS };
    float us[MAX];
    rounds_run(time_of, &c, 3, hint, us);
    assert_int_equal(c.runs[0], 2);
    assert_int_equal(c.runs[1], 3);
    assert_int_equal(c.runs[2], 3);
}

static void test_decided(void **state) {
    float us[MAX], sum[MAX];
    struct clock clear = { .us = { 400, 500 } }, brief = { .us = { 10, 10.5f } };
    struct clock failed = { .us = { -1, 500 } };
    rounds_settled(time_of, &clear, 2, sum, us);
    assert_int_equal(clear.timings[0], 3);
    rounds_settled(time_of, &brief, 2, sum, us);
    assert_int_equal(brief.timings[0], 1 + ROUNDS);
    rounds_settled(time_of, &failed, 2, sum, us);
    assert_true(us[0] < 0 && us[1] == 500);
}

/* Two equal candidates have equal times, although the clock falls all the while. */
static void test_settled(void **state) {
    struct clock c = { .us = { 500, 500 }, .falls_us = 2 };
    float us[MAX], sum[MAX];
    rounds_settled(time_of, &c, 2, sum, us);
    assert_int_equal(c.timings[0], 3 + 1 + SLICES);
    assert_true(fabsf(us[0] - us[1]) < 0.01f);
    assert_in_range(c.runs[0] * 500, SETTLE_US + SLICES * SLICE_US,
                    2 * (SETTLE_US + SLICES * SLICE_US));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_seen),       cmocka_unit_test(test_seen_short),
        cmocka_unit_test(test_outside),    cmocka_unit_test(test_outside_unseen),
        cmocka_unit_test(test_decided),    cmocka_unit_test(test_settled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
