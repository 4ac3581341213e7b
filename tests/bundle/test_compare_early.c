/* Rows and runs that ended far before the others: what they must not move, nor hide. */
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

/* Three seeds each of BF16, fp8.tensorwise and fp8.delayed. */
static void three_rows(struct run_fixture runs[9]) {
    static const char *const RECIPES[] = { "bf16", "fp8.tensorwise", "fp8.delayed" };
    for (int i = 0; i < 9; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = RECIPES[i / 3];
        runs[i].seed = 1 + i % 3;
        runs[i].planned = runs[i].steps = 60;
    }
}

static void stop_row(struct run_fixture runs[9], int row, int64_t steps) {
    for (int i = 3 * row; i < 3 * row + 3; i++) {
        runs[i].steps = steps;
        runs[i].status = "time_limit";
    }
}

static const json_t *family_at(const struct scene *s, size_t at) {
    return json_array_get(losses_of(s), at);
}

static void row_is(const json_t *family, int64_t step, size_t rows, const char *verdict,
                   const char *why) {
    const json_t *all = json_object_get(family, "rows"), *row = json_array_get(all, 0);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), step);
    assert_int_equal(json_array_size(all), rows);
    if (verdict) assert_string_equal(json_text(row, "verdict", "none"), verdict);
    else assert_true(json_is_null(json_object_get(row, "verdict")));
    if (!strstr(json_text(row, "why", ""), why))
        fail_msg("\"%s\" is not in \"%s\"", why, json_text(row, "why", ""));
}

static void verdict_lacks(const struct scene *s, const char *words) {
    const char *why = json_text(loss_row(s), "why", "");
    if (strstr(why, words)) fail_msg("\"%s\" is in \"%s\"", words, why);
}

/* The loss of the long row is spoiled from step 11 on. A row that ended at step 11 must not take
 * the comparison to step 10, where the long one holds; nor does it hold itself, so early. */
static void a_row_that_ended_early_moves_no_other(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    three_rows(runs);
    for (int i = 3; i < 6; i++) runs[i].loss_late = 0.5;
    stop_row(runs, 2, 11);
    compare(&s, runs, 9);
    assert_int_equal(json_array_size(losses_of(&s)), 2);
    row_is(family_at(&s, 0), 60, 1, "does not hold", "");
    row_is(family_at(&s, 1), 10, 1, NULL, "other runs went on to step 60, and early in training "
                                          "recipes are alike");
    text_says(&s, "    rows that ended before half of that are judged by themselves, below\n");
    assert_int_equal(compare_reference(s.c.report), 0); /* both have one baseline */
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].loss_late = 0;
    for (int i = 6; i < 9; i++) runs[i].loss_shift = 0.5; /* the short row is the bad one */
    compare(&s, runs, 9);
    row_is(family_at(&s, 0), 60, 1, "holds", "");
    row_is(family_at(&s, 1), 10, 1, "does not hold", "other runs went on to step 60");
    finish(&s);
}

/* Rows of about one length remain side by side, at one place. */
static void rows_of_about_one_length_have_one_place(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    three_rows(runs);
    stop_row(runs, 2, 30);
    compare(&s, runs, 9);
    assert_int_equal(json_array_size(losses_of(&s)), 1);
    row_is(family_at(&s, 0), 30, 2, "holds", "");
    finish(&s);
    three_rows(runs);
    stop_row(runs, 0, 11); /* without the baseline no row goes further */
    compare(&s, runs, 9);
    assert_int_equal(json_array_size(losses_of(&s)), 1);
    row_is(family_at(&s, 0), 10, 2, NULL, "other runs went on to step 60");
    finish(&s);
}

/* The only row failed where it can hardly differ: its baseline went on. */
static void a_row_that_failed_early_does_not_hold(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    three_rows(runs);
    stop_row(runs, 1, 21);
    for (int i = 3; i < 6; i++) runs[i].status = "killed";
    compare(&s, runs, 6);
    row_is(family_at(&s, 0), 20, 1, NULL, "other runs went on to step 60");
    finish(&s);
    stop_row(runs, 1, 30); /* half of it is enough */
    compare(&s, runs, 6);
    row_is(family_at(&s, 0), 30, 1, "holds", "");
    finish(&s);
}

/* One that was never evaluated takes no verdict from the others, and has none. */
static void a_row_without_an_evaluation_takes_no_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    three_rows(runs);
    stop_row(runs, 1, 5);
    compare(&s, runs, 9);
    assert_int_equal(json_array_size(losses_of(&s)), 2);
    row_is(family_at(&s, 0), 60, 1, "holds", "");
    row_is(family_at(&s, 1), 0, 1, NULL, "D was never evaluated");
    finish(&s);
}

/* Whoever stops the run whose loss climbs, and keeps the others, must not get "holds" for it. */
static void a_bad_run_that_ended_early_is_not_dropped(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    for (int i = 0; i < 9; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 4 ? "bf16" : "fp8.tensorwise";
        runs[i].seed = 1 + i % 4;
        runs[i].planned = runs[i].steps = 60;
    }
    runs[7].status = "stopped";
    runs[7].steps = 11;
    compare(&s, runs, 8);
    verdict_is(&s, "holds", "without H (to step 10)");
    finish(&s);
    runs[7].loss_shift = 0.1;
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "without H (to step 10); H was at +5.");
    verdict_is(&s, NULL, " % from the baseline of its seed there, which is more than allowed: let "
                         "it go on");
    finish(&s);
    runs[3].steps = 12; /* its pair ended early, too */
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "H was at +5.");
    finish(&s);
    runs[7].loss_shift = 0; /* what its pair did not see, its own rise shows */
    runs[7].steps = 25;
    runs[7].loss_late = 0.6;
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "% above its lowest loss there: let it go on (fp8lab run --resume RUN)");
    finish(&s);
    runs[7].status = "done"; /* it cannot */
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "% above its lowest loss there");
    verdict_lacks(&s, "go on");
    finish(&s);
    runs[8] = run_fixture_default(); /* its pair was killed, and made again */
    runs[8].recipe = "bf16";
    runs[8].seed = 4;
    runs[8].planned = runs[8].steps = 60;
    compare(&s, runs, 9);
    verdict_is(&s, NULL, " % from the baseline of its seed there");
    finish(&s);
    runs[7].status = "stopped";
    runs[7].steps = 11;
    runs[7].loss_late = 0;
    runs[3].steps = 60;
    runs[7].loss_shift = 0;
    runs[3].loss_shift = 0.5; /* a bad run of the baseline says nothing against FP8 */
    compare(&s, runs, 8);
    verdict_is(&s, "holds", "");
    finish(&s);
    runs[3].loss_shift = 0;
    runs[7].seed = 9; /* in no pair: its own rise counts */
    runs[7].steps = 25;
    runs[7].loss_late = 0.6;
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "% above its lowest loss there");
    finish(&s);
}

/* It diverged, so its row does not hold, wherever it ended. */
static void a_diverged_run_that_ended_early_counts(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    three_rows(runs);
    stop_row(runs, 2, 11);
    for (int i = 6; i < 9; i++) runs[i].status = "failed";
    compare(&s, runs, 9);
    const json_t *rows = json_object_get(family_at(&s, 0), "rows");
    assert_int_equal(json_array_size(rows), 2);
    assert_string_equal(json_text(json_array_get(rows, 0), "verdict", ""), "holds");
    assert_string_equal(json_text(json_array_get(rows, 1), "verdict", ""), "does not hold");
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_that_ended_early_moves_no_other),
        cmocka_unit_test(rows_of_about_one_length_have_one_place),
        cmocka_unit_test(a_row_that_failed_early_does_not_hold),
        cmocka_unit_test(a_row_without_an_evaluation_takes_no_verdict),
        cmocka_unit_test(a_bad_run_that_ended_early_is_not_dropped),
        cmocka_unit_test(a_diverged_run_that_ended_early_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
