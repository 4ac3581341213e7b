/* The slowest rank of a step, and how long the others waited for it. */
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

/* Rank 0 is longest in collectives, but arithmetic hides that: it is not the slowest. */
static void the_slowest_has_least_idle_time(void **state) {
    static struct pace p;
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

/* Of two ranks with equal idle time the lower is the slowest, in any order of events. */
static void ties_have_an_order(void **state) {
    static struct pace p;
    pace_begin(&p, 3);
    assert_null(tell(&p, 2, 1, 100, 30, 5));
    assert_null(tell(&p, 1, 1, 100, 20, 5));
    json_t *r = tell(&p, 0, 1, 100, 10, 6);
    assert_int_equal(whole(r, "slowest_rank"), 1);
    assert_int_equal(whole(r, "comm_us_least"), 20);
    json_decref(r);
}

/* A runner that was blocked may read all events of one rank before the events of the other. */
static void steps_overlap(void **state) {
    enum { APART = 16384 };
    static struct pace p;
    pace_begin(&p, 2);
    for (int64_t step = 1; step <= APART; step++)
        assert_null(tell(&p, 0, step, 100, 5, step % 2 ? 5 : 7));
    for (int64_t step = 1; step <= APART; step++) {
        json_t *record = tell(&p, 1, step, 100, 6, 6);
        assert_int_equal(whole(record, "step"), step);
        assert_int_equal(whole(record, "slowest_rank"), step % 2 ? 0 : 1);
        json_decref(record);
    }
    assert_int_equal(p.lost, 0);
    assert_true(sizeof p <= (1 << 20) + 64);
}

/* Steps overwritten by newer ones are counted; the others are complete. */
static void steps_too_far_apart(void **state) {
    static struct pace p;
    pace_begin(&p, 2);
    for (int64_t step = 1; step <= PACE_STEPS + 3; step++)
        assert_null(tell(&p, 0, step, 100, 5, 5));
    assert_int_equal(p.lost, 3);
    for (int64_t step = 1; step <= 3; step++) assert_null(tell(&p, 1, step, 100, 6, 6));
    json_t *record = tell(&p, 1, 4, 100, 6, 6);
    assert_int_equal(whole(record, "step"), 4);
    json_decref(record);
    assert_int_equal(p.lost, 3);
    assert_null(tell(&p, 2, 5, 100, 5, 5)); /* no such rank */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_has_least_idle_time),
        cmocka_unit_test(ties_have_an_order),
        cmocka_unit_test(steps_overlap),
        cmocka_unit_test(steps_too_far_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
