/* The division of the time after a stop request, and the advice if it was too short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "runner/job/stop_grace.h"

static void test_shares(void **state) {
    (void)state;
    assert_int_equal(stop_grace_worker_s(0), STOP_GRACE_WORKER_S);
    assert_int_equal(stop_grace_worker_s(1), 1);
    assert_int_equal(stop_grace_worker_s(2), 1);
    assert_int_equal(stop_grace_worker_s(10), 8);
    assert_int_equal(stop_grace_worker_s(180), 135);
    assert_int_equal(stop_grace_worker_s(3600), 3540);
    for (int64_t s = 2; s < 400; s++) /* more time is never less for the worker */
        assert_true(stop_grace_worker_s(s) >= stop_grace_worker_s(s - 1));
}

static void test_packing(void **state) {
    (void)state;
    assert_true(stop_grace_packs(0, 1000000, INT64_MAX));
    assert_true(stop_grace_packs(10, 0, 8 << 20));
    assert_false(stop_grace_packs(10, 0, (int64_t)1 << 30));
    assert_true(stop_grace_packs(60, 0, (int64_t)1 << 30));
    assert_false(stop_grace_packs(60, 58000, (int64_t)1 << 30)); /* the worker used it up */
    assert_false(stop_grace_packs(1, 0, 0));
}

static void test_variable(void **state) {
    (void)state;
    static const char *const WRONG[] = { "0", "-5", "10s", "1e3", "86401", "99999999999999999999" };
    int64_t s = -1;
    struct err e = { 0 };
    unsetenv("FP8LAB_STOP_GRACE");
    assert_int_equal(stop_grace_read(&s, &e), OK);
    assert_int_equal(s, 0);
    setenv("FP8LAB_STOP_GRACE", "45", 1);
    assert_int_equal(stop_grace_read(&s, &e), OK);
    assert_int_equal(s, 45);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        setenv("FP8LAB_STOP_GRACE", WRONG[i], 1);
        assert_int_equal(stop_grace_read(&s, &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, WRONG[i]));
    }
    unsetenv("FP8LAB_STOP_GRACE");
}

/* The number after `head` in `text`. */
static int64_t number_after(const char *text, const char *head) {
    const char *at = strstr(text, head);
    assert_non_null(at);
    return strtoll(at + strlen(head), NULL, 10);
}

static void test_advice(void **state) {
    (void)state;
    char text[400];
    struct attempt slow = { .end = ATTEMPT_SIGNAL, .last_step = 7, .longest_gap_ms = 90000 };
    stop_grace_explain(10, &slow, text, sizeof text);
    assert_non_null(strstr(text, "at step 7"));
    int64_t advised = number_after(text, "--stop-timeout ");
    assert_int_equal(advised, number_after(text, "FP8LAB_STOP_GRACE="));
    assert_true(stop_grace_worker_s(advised) >= 180); /* a step and a checkpoint of 90 s each */
    slow.longest_gap_ms = 0; /* unknown: the advice is more than the present time */
    stop_grace_explain(10, &slow, text, sizeof text);
    assert_true(stop_grace_worker_s(number_after(text, "--stop-timeout ")) >=
                2 * stop_grace_worker_s(10));
    stop_grace_explain(0, &slow, text, sizeof text); /* not in a container */
    assert_null(strstr(text, "--stop-timeout"));
    slow.end = ATTEMPT_TIME_LIMIT; /* no signal: no container stops it */
    stop_grace_explain(10, &slow, text, sizeof text);
    assert_null(strstr(text, "--stop-timeout"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares), cmocka_unit_test(test_packing),
        cmocka_unit_test(test_variable), cmocka_unit_test(test_advice),
    };
    return cmocka_run_group_tests_name("stop_grace", tests, NULL, NULL);
}
