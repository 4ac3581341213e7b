/* The curve of a run's evaluations: the time that counts, the place that runs share, the loss at a
 * time and the time of a loss (runner/compare/curve.h). */
#include <math.h>
#include <stdio.h>

#include "runner/compare/curve.h"
#include "tests/support/must.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))

/* ---- from records ---------------------------------------------------------------------------- */

/* A run with these records and this summary. */
struct made {
    struct run_view v;
    struct curve curve;
};

static void make(struct made *m, const char *train, const char *eval, const char *summary) {
    *m = (struct made){ .v = { .path = "" } };
    MUST(columns_of_lines(train, strlen(train), "train.jsonl", &m->v.columns.of[STREAM_TRAIN], E));
    MUST(columns_of_lines(eval, strlen(eval), "eval.jsonl", &m->v.columns.of[STREAM_EVAL], E));
    m->v.summary = json_loads(summary, 0, NULL);
    assert_non_null(m->v.summary);
    MUST(curve_make(&m->v, &m->curve, E));
}

static void drop(struct made *m) {
    curve_free(&m->curve);
    columns_destroy(m->v.columns.of[STREAM_TRAIN]);
    columns_destroy(m->v.columns.of[STREAM_EVAL]);
    json_decref(m->v.summary);
}

/* Step 1 takes long and allocates; an evaluation is after its step. */
static const char TRAIN[] = "{\"step\":1,\"tokens\":64,\"step_time_us\":9000000}\n"
                            "{\"step\":2,\"tokens\":48,\"step_time_us\":1000000}\n"
                            "{\"step\":3,\"tokens\":64,\"step_time_us\":3000000}\n"
                            "{\"step\":4,\"tokens\":60,\"step_time_us\":4000000}\n";
static const char EVAL[] = "{\"step\":2,\"loss\":4,\"tokens\":100,\"loss_tokens\":90}\n"
                           "{\"step\":4,\"loss\":3,\"tokens\":200,\"loss_tokens\":180}\n";
static const char STEADY[] = "{\"step_time_us_median\":2000000,\"steady_from\":2}";

static void steps_before_the_steady_window_count_as_the_median(void **state) {
    struct made m;
    make(&m, TRAIN, EVAL, STEADY);
    assert_int_equal(m.curve.points, 2);
    assert_true(m.curve.seconds[0] == 3 && m.curve.seconds[1] == 10);
    assert_true(m.curve.step[1] == 4 && m.curve.loss[1] == 3);
    assert_true(m.curve.tokens[0] == 128 && m.curve.tokens[1] == 256);
    assert_true(m.curve.evaluated[1] == 200 && m.curve.counted[1] == 180);
    drop(&m);
}

static void without_a_window_each_step_counts_as_it_is(void **state) {
    static const char *const SUMMARIES[] = { "{}", "{\"steady_from\":2}",
                                             "{\"step_time_us_median\":2000000}",
                                             "{\"step_time_us_median\":null,\"steady_from\":2}" };
    for (int64_t i = 0; i < COUNT(SUMMARIES); i++) {
        struct made m;
        make(&m, TRAIN, EVAL, SUMMARIES[i]);
        assert_true(m.curve.seconds[0] == 10 && m.curve.seconds[1] == 17);
        drop(&m);
    }
}

static void what_the_records_lack_is_not_known(void **state) {
    struct made m;
    make(&m, "{\"step\":1}\n{\"step\":2}\n", "{\"step\":2,\"loss\":4}\n", STEADY);
    assert_true(m.curve.tokens[0] == 2); /* the step itself */
    assert_true(isnan(m.curve.seconds[0]));
    assert_true(isnan(m.curve.evaluated[0]) && isnan(m.curve.counted[0]));
    drop(&m);
    make(&m, "{\"step\":1,\"tokens\":0,\"step_time_us\":1}\n",
         "{\"step\":1,\"loss\":4,\"tokens\":100}\n", STEADY);
    assert_true(m.curve.tokens[0] == 1);
    assert_true(m.curve.counted[0] == 100); /* all of them */
    drop(&m);
    make(&m, TRAIN, "{\"step\":2,\"tokens\":100}\n", STEADY);
    assert_int_equal(m.curve.points, 0);
    assert_true(isinf(curve_lowest(&m.curve)));
    drop(&m);
}

/* The steps of a long run are thinned, but not the last one, where its time ends. */
static void the_times_of_many_steps_are_thinned(void **state) {
    static const int64_t STEPS[] = { 1, 4, 999, 1000, 1001, 2500 };
    for (int64_t k = 0; k < COUNT(STEPS); k++) {
        static char text[2500 * 64];
        struct made m;
        struct step_times times;
        size_t used = 0;
        for (int64_t s = 1; s <= STEPS[k]; s++)
            used += (size_t)snprintf(text + used, sizeof text - used, "{\"step\":%d,\"tokens\":8,"
                                     "\"step_time_us\":1000000}\n", (int)s);
        make(&m, text, EVAL, "{}");
        MUST(step_times_make(&m.v, &times, E));
        assert_true(times.tokens == 8 && times.step[0] == 1 && times.seconds[0] == 1);
        assert_in_range(times.points, STEPS[k] < 1000 ? STEPS[k] : 500, STEP_TIMES_MAX + 1);
        for (int64_t i = 0; i < times.points; i++) assert_true(times.seconds[i] == times.step[i]);
        assert_true(times.step[times.points - 1] == (double)STEPS[k]);
        step_times_free(&times);
        drop(&m);
    }
}

/* ---- places on curves ------------------------------------------------------------------------ */

/* A curve of n points. */
static struct curve curve_of(double *tokens, double *seconds, double *loss, int64_t n) {
    return (struct curve){ .points = n, .tokens = tokens, .seconds = seconds, .loss = loss };
}

static void the_common_place_is_the_last_that_all_have(void **state) {
    double a[] = { 10, 20, 30, 40 }, b[] = { 20, 30, 50 }, c[] = { 10, 30 }, none[] = { 15 };
    const struct curve x = curve_of(a, a, a, 4), y = curve_of(b, b, b, 3), z = curve_of(c, c, c, 2),
                       other = curve_of(none, none, none, 1), first = curve_of(a, a, a, 1),
                       empty = { 0 };
    const struct curve *three[] = { &x, &y, &z }, *apart[] = { &x, &other },
                       *two[] = { &first, &z }, *lacking[] = { &x, &empty };
    assert_true(curve_common(three, 3) == 30);
    assert_true(curve_common(two, 2) == 10);
    assert_true(curve_common(three, 1) == 40);
    assert_true(isnan(curve_common(apart, 2)));
    assert_true(isnan(curve_common(lacking, 2)));
    assert_true(isnan(curve_common(three, 0)));
    for (int64_t i = 0; i < 4; i++) assert_int_equal(curve_find(&x, a[i]), i);
    assert_int_equal(curve_find(&x, 25), -1);
    assert_int_equal(curve_find(&x, 5), -1);
    assert_int_equal(curve_find(&x, 45), -1);
}

static void the_loss_at_a_time_is_on_the_line(void **state) {
    double seconds[] = { 1, 3, 7 }, loss[] = { 5, 4, 2 };
    const struct curve c = curve_of(seconds, seconds, loss, 3);
    assert_true(curve_at_time(&c, 1) == 5 && curve_at_time(&c, 7) == 2);
    assert_true(curve_at_time(&c, 2) == 4.5 && curve_at_time(&c, 4) == 3.5);
    assert_true(isnan(curve_at_time(&c, 0.5)) && isnan(curve_at_time(&c, 8)));
    assert_true(curve_lowest(&c) == 2);
}

/* The first time, on the line before it. */
static void a_loss_is_reached_once(void **state) {
    double tokens[] = { 10, 20, 30, 40, 50 }, seconds[] = { 1, 2, 4, 5, 6 };
    double loss[] = { 5, 4, 3, 3.5, 2 };
    const struct curve c = curve_of(tokens, seconds, loss, 5), empty = { 0 };
    double at, when;
    assert_true(curve_reach(&c, 3.25, &at, &when));
    assert_true(at == 27.5 && when == 3.5);
    assert_true(curve_reach(&c, 3, &at, &when));
    assert_true(at == 30 && when == 4);
    assert_true(curve_reach(&c, 5, &at, &when)); /* at its first evaluation */
    assert_true(at == 10 && when == 1);
    assert_false(curve_reach(&c, 5.5, &at, &when)); /* before it: nobody knows when */
    assert_false(curve_reach(&c, 1.5, &at, &when));
    assert_false(curve_reach(&empty, 3, &at, &when));
    assert_true(curve_lowest(&c) == 2);
    loss[4] = 3.2;
    assert_true(curve_lowest(&c) == 3); /* not the last */
    loss[1] = (double)NAN; /* it is not known when the loss was 4 */
    assert_false(curve_reach(&c, 4, &at, &when));
    loss[2] = 4.5;
    assert_true(curve_reach(&c, 4, &at, &when) && at == 35 && when == 4.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_before_the_steady_window_count_as_the_median),
        cmocka_unit_test(without_a_window_each_step_counts_as_it_is),
        cmocka_unit_test(what_the_records_lack_is_not_known),
        cmocka_unit_test(the_times_of_many_steps_are_thinned),
        cmocka_unit_test(the_common_place_is_the_last_that_all_have),
        cmocka_unit_test(the_loss_at_a_time_is_on_the_line),
        cmocka_unit_test(a_loss_is_reached_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
