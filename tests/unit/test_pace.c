/* Who was the slowest rank of a step, and how long the others stood still for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>

#include "runner/job/pace.h"

static json_t *tell(struct pace *p, int64_t rank, int64_t step, int64_t step_us, int64_t comm_us,
                    int64_t exposed_us) {
    json_t *record = NULL;
    struct err e = { 0 };
    json_t *event = json_pack("{s:I,s:I,s:I,s:I}", "step", (json_int_t)step, "step_time_us",
                              (json_int_t)step_us, "comm_us", (json_int_t)comm_us, "exposed_us",
                              (json_int_t)exposed_us);
    assert_non_null(event);
    assert_int_equal(pace_put(p, rank, event, &record, &e), OK);
    json_decref(event);
    return record;
}

static json_int_t whole(const json_t *record, const char *key) {
    return json_integer_value(json_object_get(record, key));
}

static double real(const json_t *record, const char *key) {
    return json_real_value(json_object_get(record, key));
}

/* Rank 0 waits most on its lane of communication, but behind arithmetic: that
 * makes no rank slow. */
static void the_slowest_stands_still_least(void **state) {
    struct pace p;
    pace_begin(&p, 3);
    assert_null(tell(&p, 0, 1, 1000, 400, 40));
    assert_null(tell(&p, 2, 1, 1010, 100, 70));
    json_t *r = tell(&p, 1, 1, 990, 200, 10);
    assert_non_null(r);
    assert_int_equal(whole(r, "slowest_rank"), 1);
    assert_int_equal(whole(r, "exposed_us_least"), 10);
    assert_int_equal(whole(r, "comm_us_least"), 200);
    assert_int_equal(whole(r, "wait_us_max"), 60);
    assert_int_equal(whole(r, "step_time_us_max"), 1010);
    assert_float_equal(real(r, "exposed_share"), 40.0 / 1010, 1e-12);
    assert_float_equal(real(r, "wait_share"), 30.0 / 1010, 1e-12);
    json_decref(r);
}

/* Ranks are a step apart at times; a rank that tells of a step long past is not heard. */
static void steps_overlap(void **state) {
    struct pace p;
    pace_begin(&p, 2);
    assert_null(tell(&p, 0, 1, 100, 5, 5));
    assert_null(tell(&p, 0, 2, 100, 7, 7));
    json_t *first = tell(&p, 1, 1, 100, 1, 1), *second = tell(&p, 1, 2, 100, 9, 9);
    assert_int_equal(whole(first, "step"), 1);
    assert_int_equal(whole(first, "slowest_rank"), 1);
    assert_int_equal(whole(second, "step"), 2);
    assert_int_equal(whole(second, "slowest_rank"), 0);
    json_decref(first);
    json_decref(second);
    assert_null(tell(&p, 0, 1 + PACE_STEPS, 100, 5, 5));
    assert_null(tell(&p, 1, 1, 100, 5, 5));
    assert_null(tell(&p, 2, 1 + PACE_STEPS, 100, 5, 5)); /* no such rank */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_stands_still_least),
        cmocka_unit_test(steps_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
