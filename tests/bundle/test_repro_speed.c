/* The speed of a repeated run beside the bundle's: what may be compared, and what is said of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/cli.h"
#include "runner/repro/repro_speed.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

struct side {
    const char *product, *backend, *driver, *throttled;
    int64_t world, steps, step_us, power_w, clock_mhz, others;
    bool mig;
    const char *code;
    int64_t rows_at_once; /* 0: it was alone */
};
static const struct side H200 = {
    "NVIDIA H200", "cuda", "570.124", NULL, 1, 50, 40000, 700, 1980, 0, false, "aa", 0
};

/* A run as far as its speed is asked. */
static struct run_view view_of(const struct side *s) {
    struct run_view v = { 0 };
    char *text = malloc((size_t)s->steps * 60 + 1);
    size_t n = 0;
    assert_non_null(text);
    for (int64_t i = 1; i <= s->steps; i++) /* the first steps are slower */
        n += (size_t)sprintf(text + n, "{\"step\":%lld,\"step_time_us\":%lld}\n", (long long)i,
                             (long long)(s->step_us * (i < 5 ? 3 : 1) + i % 3));
    if (n) MUST(columns_of_lines(text, n, "train.jsonl", &v.columns.of[STREAM_TRAIN], E));
    free(text);
    v.facts = json_pack("{s:s?, s:s, s:b, s:I}", "gpu.product_name", s->product, "gpu.driver",
                        s->driver, "gpu.mig", s->mig, "gpu.power_limit_w", (json_int_t)s->power_w);
    v.decisions = json_pack("{s:s, s:I}", "backend", s->backend, "world", (json_int_t)s->world);
    v.summary = json_pack("{s:s?, s:I, s:I}", "gpu_throttle_reasons", s->throttled,
                          "gpu_clock_sm_mhz_median", (json_int_t)s->clock_mhz,
                          "gpu_processes_other_max", (json_int_t)s->others);
    v.run = json_pack("{s:{s:s}, s:[{s:{s:I}}]}", "inputs", "code", s->code, "attempts",
                      "side_by_side", "rows_at_once", (json_int_t)s->rows_at_once);
    assert_true(v.facts && v.decisions && v.summary && v.run);
    return v;
}

/* The text and the exit code of a run `now` beside the bundle's. */
static void speed_is(struct side then, struct side now, bool comparable, const char *allowed,
                     const char *wanted, int wanted_code) {
    struct run_view a = view_of(&then), b = view_of(&now);
    struct repro_speed s;
    char text[REPRO_SPEED_CAP];
    double band;
    MUST(repro_speed_band(allowed, &band, E));
    MUST(repro_speed_judge(&a, &b, comparable, band, &s, E));
    repro_speed_text(&s, text);
    assert_string_equal(text, wanted);
    assert_int_equal(repro_speed_exit_code(&s, EXIT_OK), wanted_code);
    assert_int_equal(repro_speed_exit_code(&s, EXIT_DIFFERS), EXIT_DIFFERS);
    repro_speed_free(&s);
    run_view_free(&a);
    run_view_free(&b);
}

static void speeds_of_the_same_gpu_are_compared(void **state) {
    struct side now = H200, then = H200;
    speed_is(H200, now, true, NULL, "1.000 of the bundle's (same GPU)", EXIT_OK);
    now.step_us = 44000;
    speed_is(H200, now, true, NULL, "0.909 of the bundle's (same GPU)", EXIT_OK);
    speed_is(H200, now, true, "10%", "0.909 of the bundle's, within the 0.9 of --speed (same GPU)",
             EXIT_OK);
    speed_is(H200, now, true, "5%", "0.909 of the bundle's, below the 0.95 of --speed (same GPU)",
             EXIT_DIFFERS);
    speed_is(now, H200, true, "0%", "1.100 of the bundle's, within the 1 of --speed (same GPU)",
             EXIT_OK);
    then.steps = 13; /* the same steps of both count */
    speed_is(then, now, true, NULL, "0.909 of the bundle's (same GPU)", EXIT_OK);
}

static void what_may_have_changed_it_is_named(void **state) {
    struct side now = H200;
    now.driver = "580.95";
    now.code = "bb";
    now.clock_mhz = 1975; /* a quarter of a percent is none */
    speed_is(H200, now, true, NULL,
             "1.000 of the bundle's (same GPU; driver 580.95, not 570.124; another build of "
             "fp8lab)", EXIT_OK);
    now = H200;
    now.step_us = 50000;
    now.throttled = "thermal (hardware)";
    now.others = 2;
    now.power_w = 600;
    now.clock_mhz = 1500;
    speed_is(H200, now, true, "5%",
             "0.800 of the bundle's, below the 0.95 of --speed (same GPU; throttled: thermal "
             "(hardware); 2 other processes used the GPU; power limit 600 W, not 700; SM clock "
             "1500 MHz, not 1980)", EXIT_DIFFERS);
    now = H200;
    now.others = 1;
    speed_is(H200, now, true, NULL,
             "1.000 of the bundle's (same GPU; 1 other process used the GPU)", EXIT_OK);
    struct side capped = H200; /* both are, as every large model is */
    capped.throttled = "power cap";
    speed_is(capped, capped, true, NULL, "1.000 of the bundle's (same GPU)", EXIT_OK);
}

/* A bundle's run that was slowed down lets a slow machine pass. */
static void a_disturbed_bundle_is_no_measure(void **state) {
    static const struct { struct side then; const char *why; } CASES[] = {
        { { .throttled = "power cap, thermal (software)" },
          "throttled: power cap, thermal (software)" },
        { { .throttled = "hardware slowdown" }, "throttled: hardware slowdown" },
        { { .throttled = "power brake" }, "throttled: power brake" },
        { { .others = 1 }, "1 other process used the GPU" },
        { { .power_w = 600 }, "power limit 600 W, this one 700" },
        { { .clock_mhz = 1900 }, "SM clock 1900 MHz, this one 1980" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct side then = H200;
        char text[300];
        then.throttled = CASES[i].then.throttled;
        then.others = CASES[i].then.others;
        if (CASES[i].then.power_w) then.power_w = CASES[i].then.power_w;
        if (CASES[i].then.clock_mhz) then.clock_mhz = CASES[i].then.clock_mhz;
        snprintf(text, sizeof text, "1.000 of the bundle's (same GPU; the bundle's run: %s)",
                 CASES[i].why);
        speed_is(then, H200, true, NULL, text, EXIT_OK);
        snprintf(text, sizeof text, "not compared: the bundle's run was slowed down: %s",
                 CASES[i].why);
        speed_is(then, H200, true, "5%", text, EXIT_HARDWARE);
    }
    struct side then = H200;
    then.rows_at_once = 4;
    speed_is(then, H200, true, NULL,
             "1.000 of the bundle's (same GPU; the bundle's run: one of 4 rows side by side)",
             EXIT_OK);
    speed_is(then, H200, true, "5%", "not compared: the bundle's run was one of 4 rows side by "
             "side, and this one is alone", EXIT_HARDWARE);
    then = H200; /* with a power cap a lower clock is the run's own */
    then.clock_mhz = 1900;
    then.throttled = "power cap";
    speed_is(then, H200, true, "5%",
             "1.000 of the bundle's, within the 0.95 of --speed (same GPU; the bundle's run: SM "
             "clock 1900 MHz, this one 1980)", EXIT_OK);
    then = H200;
    then.clock_mhz = 1950; /* a percent and a half */
    speed_is(then, H200, true, "5%",
             "1.000 of the bundle's, within the 0.95 of --speed (same GPU; the bundle's run: SM "
             "clock 1950 MHz, this one 1980)", EXIT_OK);
}

/* Nothing changes the exit code without --speed; with it, a speed that cannot be compared does. */
static void others_are_not_compared(void **state) {
    struct side now = H200, then = H200;
    now.product = "NVIDIA H100 80GB HBM3";
    speed_is(H200, now, true, NULL,
             "not compared: another GPU: NVIDIA H100 80GB HBM3, not NVIDIA H200", EXIT_OK);
    speed_is(H200, now, true, "5%",
             "not compared: another GPU: NVIDIA H100 80GB HBM3, not NVIDIA H200", EXIT_HARDWARE);
    then.product = NULL;
    speed_is(then, H200, true, NULL, "not compared: the bundle does not say which GPU", EXIT_OK);
    speed_is(H200, then, true, NULL, "not compared: this run does not say which GPU", EXIT_OK);
    now = H200;
    now.world = 4;
    speed_is(H200, now, true, NULL, "not compared: another number of GPUs: 4, not 1", EXIT_OK);
    now = H200;
    now.mig = true;
    speed_is(H200, now, true, NULL, "not compared: this one ran on a part of a GPU (MIG)", EXIT_OK);
    speed_is(H200, H200, false, NULL,
             "not compared: another configuration, or fewer steps than were asked for", EXIT_OK);
    now = H200;
    now.backend = "cpu";
    speed_is(H200, now, true, NULL, "not compared: another backend: cpu, not cuda", EXIT_OK);
    speed_is(now, now, true, NULL, "not compared: both ran on a CPU, which emulates FP8", EXIT_OK);
    now = H200;
    now.steps = 11;
    speed_is(H200, now, true, NULL, "not compared: only 9 steady steps; 10 are needed", EXIT_OK);
    now.steps = 0;
    speed_is(H200, now, true, NULL, "not compared: only 0 steady steps; 10 are needed", EXIT_OK);
    now = then = H200;
    now.step_us = -10;
    speed_is(H200, now, true, NULL, "not compared: the records have no step times", EXIT_OK);
}

static void a_band_is_a_percentage(void **state) {
    static const char *const BAD[] = { "", "5", "5 %", "-1%", "100%", "x%", "nan%" };
    double band;
    struct err e = { 0 };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(repro_speed_band(BAD[i], &band, &e), ERR_ARG);
        assert_non_null(strstr(e.text, "such as 5%"));
    }
    MUST(repro_speed_band("2.5%", &band, E));
    assert_true(band == 0.025);
    MUST(repro_speed_band(NULL, &band, E));
    assert_true(isnan(band));
}

static void json_has_the_numbers(void **state) {
    struct side now = H200;
    now.step_us = 44000;
    now.driver = "580.95";
    struct run_view a = view_of(&H200), b = view_of(&now);
    struct repro_speed s;
    MUST(repro_speed_judge(&a, &b, true, 0.05, &s, E));
    json_t *object = repro_speed_json(&s);
    assert_non_null(object);
    assert_true(json_number_value(json_object_get(object, "bundle_step_time_us")) == 40001);
    assert_true(json_number_value(json_object_get(object, "step_time_us")) == 44001);
    assert_int_equal(json_integer_value(json_object_get(object, "steps")), 40);
    assert_true(json_is_true(json_object_get(object, "slower")));
    assert_true(json_is_null(json_object_get(object, "why")));
    assert_int_equal(json_array_size(json_object_get(object, "notes")), 1);
    json_decref(object);
    repro_speed_free(&s);
    run_view_free(&a);
    run_view_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speeds_of_the_same_gpu_are_compared),
        cmocka_unit_test(what_may_have_changed_it_is_named),
        cmocka_unit_test(a_disturbed_bundle_is_no_measure),
        cmocka_unit_test(others_are_not_compared),
        cmocka_unit_test(a_band_is_a_percentage),
        cmocka_unit_test(json_has_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
