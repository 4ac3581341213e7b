/* Joules of steps and operators, by a stand-in of the driver's counter: each reading says 0.5 J
 * more than the one before. What was not measured is never 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/bench/bench_measure.h"
#include "runner/bench/step_energy.h"
#include "runner/hardware/telemetry.h"
#include "tests/support/nvml.h"
#include "tests/support/tiny.h"

enum { PER_READING_MJ = 500 };

static void need(enum status st, const struct err *e) {
    if (st != OK) fail_msg("%s", e->text);
}

/* A meter without a window: two readings are enough. */
static struct energy_meter meter_of(struct telemetry *t) {
    assert_non_null(t);
    return (struct energy_meter){ .telemetry = t };
}

static void a_window_lies_between_two_movements(void **state) {
    struct telemetry *t = telemetry_open();
    struct energy_meter meter = meter_of(t);
    struct energy_watch watch;
    struct energy energy;
    energy_watch_begin(&watch, &meter);
    assert_true(energy_watch_add(&watch, 1000, &energy)); /* before the window: does not count */
    assert_false(energy_watch_add(&watch, 4, &energy));
    assert_true(fabs(energy.joules - PER_READING_MJ * 1e-3 / 4) < 1e-12);
    telemetry_close(t);
}

/* A counter that stands still: no result, and an end. */
static void a_counter_that_stands_still_gives_no_result(void **state) {
    assert_int_equal(setenv("FAKE_ENERGY", "0", 1), 0);
    struct telemetry *t = telemetry_open();
    struct energy_meter meter = meter_of(t);
    struct energy_watch watch;
    struct energy energy;
    energy_watch_begin(&watch, &meter);
    while (energy_watch_add(&watch, 1, &energy)) continue;
    assert_true(energy.joules == 0 && energy.time_us == 0);
    telemetry_close(t);
    assert_int_equal(unsetenv("FAKE_ENERGY"), 0);
}

static void joules_are_words_if_not_measured(void **state) {
    char text[ENERGY_TEXT_CAP];
    energy_text(0, text);
    assert_string_equal(text, "not measured");
    energy_text(12.3456, text);
    assert_string_equal(text, "12.346");
}

/* One timed step of `run`. */
static struct timed_record record_of(struct tiny_run *run) {
    struct timed *timed = NULL;
    struct timed_record r;
    struct step_result result;
    struct err e;
    need(timed_start(run->backend, &timed, &e), &e);
    need(trainer_step(run->trainer, false, &result, &e), &e);
    need(timed_step_done(timed, &e), &e);
    timed_stop(timed, &r);
    return r;
}

static void check_operators(enum recipe_kind kind, double rate, struct telemetry *t) {
    struct tiny_run run;
    struct err e;
    struct energy_meter meter = meter_of(t), nothing = { 0 };
    tiny_run_init(&run, kind, 4);
    need(tiny_run_open(&run, &e), &e);
    struct timed_record r = record_of(&run);
    const struct backend_ops *ops = run.backend->ops;
    run.train.optimizer.lr = rate;
    run.train.optimizer.weight_decay = rate;
    const struct trainer_inputs in = { &run.model, &run.recipe, &run.train, run.data };
    for (int64_t i = 0; i < r.call_count; i++) r.call[i].time_us = 1e6; /* all take long enough */
    need(energy_of_operators(run.backend, &in, &nothing, &r, &e), &e);
    for (int64_t i = 0; i < r.call_count; i++) assert_true(r.call[i].joules == 0);
    need(energy_of_operators(run.backend, &in, &meter, &r, &e), &e);
    assert_ptr_equal(run.backend->ops, ops); /* the table is restored */
    for (int64_t i = 0; i < r.call_count; i++)
        if (!(r.call[i].joules > 0) || r.call[i].joules > PER_READING_MJ * 1e-3)
            fail_msg("%s: %g J", r.call[i].op, r.call[i].joules);
    timed_record_free(&r);
    tiny_run_close(&run);
}

static void every_operator_has_its_energy(void **state) {
    struct telemetry *t = telemetry_open();
    check_operators(RECIPE_BF16, 1e-3, t);
    check_operators(RECIPE_DELAYED, 1e-3, t);
    telemetry_close(t);
}

/* Each step multiplies the weights by a million. When one is infinite, the trainer rejects further
 * steps. */
static void trainers_that_fail_are_replaced(void **state) {
    struct telemetry *t = telemetry_open();
    check_operators(RECIPE_BF16, 1000, t);
    telemetry_close(t);
}

/* Calls of an operator that take less than 0.2 % of the time are left out. */
static void a_small_operator_is_not_measured(void **state) {
    struct telemetry *t = telemetry_open();
    struct energy_meter meter = meter_of(t);
    struct tiny_run run;
    struct err e;
    tiny_run_init(&run, RECIPE_BF16, 4);
    need(tiny_run_open(&run, &e), &e);
    struct timed_record r = record_of(&run);
    const struct trainer_inputs in = { &run.model, &run.recipe, &run.train, run.data };
    for (int64_t i = 0; i < r.call_count; i++)
        r.call[i].time_us = strcmp(r.call[i].op, "adamw") ? 1 : 1e9;
    need(energy_of_operators(run.backend, &in, &meter, &r, &e), &e);
    for (int64_t i = 0; i < r.call_count; i++)
        assert_int_equal(r.call[i].joules > 0, !strcmp(r.call[i].op, "adamw"));
    timed_record_free(&r);
    tiny_run_close(&run);
    telemetry_close(t);
}

static enum status nothing(void *calls, struct err *e) {
    ++*(int64_t *)calls;
    return OK;
}

/* A call is measured for energy only if a meter is given, in calls beside those for its time. */
static void one_repeated_call_has_its_energy(void **state) {
    struct tiny_run run;
    struct err e;
    tiny_run_init(&run, RECIPE_BF16, 1);
    need(tiny_run_open(&run, &e), &e);
    struct energy_meter meter = { .telemetry = telemetry_open(), .window_us = 1 };
    struct bench_effort effort = { .samples = 1, .sample_us = 0 };
    struct bench_time time;
    int64_t calls = 0;
    need(bench_measure(run.backend, &effort, nothing, &calls, &time, &e), &e);
    assert_true(time.joules == 0 && calls == 3);
    effort.meter = &meter;
    need(bench_measure(run.backend, &effort, nothing, &calls, &time, &e), &e);
    assert_true(time.joules > 0 && calls > 6);
    energy_meter_close(&meter);
    assert_null(meter.telemetry);
    tiny_run_close(&run);
}

static void steps_share_the_energy_of_their_window(void **state) {
    struct telemetry *t = telemetry_open();
    struct energy_meter meter = meter_of(t);
    struct tiny_run run;
    struct energy energy;
    struct err e;
    tiny_run_init(&run, RECIPE_BF16, 4);
    need(tiny_run_open(&run, &e), &e);
    need(energy_of_steps(run.trainer, &meter, &energy, &e), &e);
    assert_true(fabs(energy.joules - PER_READING_MJ * 1e-3) < 1e-12);
    assert_int_equal(trainer_pending(run.trainer), 0);
    tiny_run_close(&run);
    telemetry_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_lies_between_two_movements),
        cmocka_unit_test(a_counter_that_stands_still_gives_no_result),
        cmocka_unit_test(joules_are_words_if_not_measured),
        cmocka_unit_test(every_operator_has_its_energy),
        cmocka_unit_test(trainers_that_fail_are_replaced),
        cmocka_unit_test(a_small_operator_is_not_measured),
        cmocka_unit_test(one_repeated_call_has_its_energy),
        cmocka_unit_test(steps_share_the_energy_of_their_window),
    };
    return cmocka_run_group_tests(tests, nvml_load, nvml_drop);
}
