/* Spikes in `compare`: those of each run, and the warning beside a verdict. */
#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

static const int64_t NONE[] = { 0 };
static const int64_t TWO[] = { 211, 262, 0 }, THREE[] = { 151, 211, 272, 0 };
static const int64_t LATE[] = { 321, 352, 389, 0 };

/* Three seeds a side; each run has the spikes of its side. */
static void compare_spiky(struct scene *s, const int64_t *bf16, const int64_t *fp8, int64_t steps,
                          int64_t steps_fp8) {
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].steps = i < 3 ? steps : steps_fp8;
        runs[i].planned = steps_fp8;
        if (runs[i].steps < steps_fp8) runs[i].status = "interrupted";
        runs[i].spikes = i < 3 ? bf16 : fp8;
    }
    compare(s, runs, 6);
}

static const json_t *test_of(const struct scene *s, const char *metric) {
    return json_object_get(json_object_get(loss_row(s), "spikes"), metric);
}

/* Whether the text, the page's text and the table have `what`. */
static bool text_has(const struct scene *s, const char *what) {
    struct err e = { 0 };
    char *text = NULL;
    CHECK(compare_text(&s->c, false, &text, &e));
    bool has = strstr(text, what) != NULL;
    free(text);
    return has;
}
static bool table_has(const struct scene *s, enum compare_format format, const char *what) {
    struct err e = { 0 };
    char *text = NULL;
    CHECK(compare_table(&s->c, format, &text, &e));
    bool has = strstr(text, what) != NULL;
    free(text);
    return has;
}

static void each_run_has_its_spikes(void **state) {
    struct scene s;
    compare_spiky(&s, NONE, THREE, 300, 300);
    const json_t *runs = json_object_get(s.c.report, "runs");
    const json_t *first = json_array_get(runs, 0), *fourth = json_array_get(runs, 3);
    assert_int_equal(json_int(first, "spikes_loss"), 0);
    assert_true(json_is_null(json_object_get(first, "spikes")));
    assert_int_equal(json_int(fourth, "spikes_loss"), 3);
    assert_int_equal(json_int(fourth, "spikes_grad_norm"), 0);
    assert_true(text_has(&s, "spikes of D: 3 of the loss (steps 151, 211, 272), the largest +"));
    assert_false(text_has(&s, "spikes of A"));
    assert_true(table_has(&s, COMPARE_CSV, ",spikes_loss,spikes_grad_norm,"));
    finish(&s);
}

/* The four spikes of BF16 are periodic, and FP8 has them, too. Its two further ones break the row
 * of equal distances, so that all six counted: "18, not 0". */
static void periodic_spikes_count_on_both_sides(void **state) {
    static const int64_t ROW[] = { 150, 180, 210, 240, 0 };
    static const int64_t MORE[] = { 150, 159, 180, 210, 237, 244, 0 };
    struct scene s;
    compare_spiky(&s, ROW, MORE, 300, 300);
    const json_t *first = json_array_get(json_object_get(s.c.report, "runs"), 0);
    assert_int_equal(json_int(first, "spikes_loss"), 0);
    assert_int_equal(json_int(test_of(&s, "loss"), "count"), 18);
    assert_int_equal(json_int(test_of(&s, "loss"), "baseline_count"), 12);
    assert_false(text_has(&s, "clearly more"));
    finish(&s);
    compare_spiky(&s, NONE, ROW, 300, 300); /* of the same data BF16 has none: FP8 is the cause */
    assert_true(text_has(&s, "D has clearly more spikes of the loss than A: 12 in"));
    finish(&s);
}

static void a_side_with_clearly_more_has_a_warning(void **state) {
    static const char WARNING[] = "D has clearly more spikes of the loss than A: 9 in 804 steps, "
                                  "not 0 in 804 (p = 0.002)";
    struct scene s;
    compare_spiky(&s, NONE, THREE, 300, 300);
    verdict_is(&s, "holds", "");
    assert_true(json_is_true(json_object_get(test_of(&s, "loss"), "clearly_more")));
    assert_true(json_is_false(json_object_get(test_of(&s, "grad_norm"), "clearly_more")));
    assert_true(text_has(&s, WARNING));
    assert_true(table_has(&s, COMPARE_MARKDOWN, WARNING));
    char *html = page_of(&s);
    assert_non_null(strstr(html, WARNING));
    assert_non_null(strstr(html, "Spikes of D: 3 of the loss"));
    free(html);
    finish(&s);
}

/* Six beside none may be chance: 1 in 64. */
static void a_few_more_are_no_warning(void **state) {
    struct scene s;
    compare_spiky(&s, NONE, TWO, 300, 300);
    const json_t *test = test_of(&s, "loss");
    assert_int_equal(json_int(test, "count"), 6);
    assert_float_equal(json_number_value(json_object_get(test, "p")), 1.0 / 64, 1e-6);
    assert_true(json_is_false(json_object_get(test, "clearly_more")));
    assert_false(text_has(&s, "clearly more"));
    finish(&s);
}

/* Two tests a row, of the loss and of the norm: 7 beside none (1 in 128) are no warning for one
 * row, 8 (1 in 256) are. For one of two rows 8 are none, and 9 (1 in 512) are. */
static void more_rows_need_more_spikes(void **state) {
    for (int rows = 1; rows <= 2; rows++)
        for (int more = 0; more < 2; more++) {
            int count = 6 + rows + more; /* of three runs, two or three each */
            struct run_fixture runs[9];
            struct scene s;
            two_sides(runs);
            for (int i = 0; i < 6; i++) runs[i].steps = runs[i].planned = 300;
            for (int i = 3; i < 6; i++) runs[i].spikes = i - 3 < count - 6 ? THREE : TWO;
            for (int i = 6; i < 9; i++) {
                runs[i] = runs[i - 6];
                runs[i].recipe = "fp8.tensorwise";
            }
            compare(&s, runs, 3 + 3 * rows);
            assert_int_equal(json_int(test_of(&s, "loss"), "count"), count);
            assert_int_equal(json_is_true(json_object_get(test_of(&s, "loss"), "clearly_more")),
                             more);
            finish(&s);
        }
}

static void spikes_of_both_sides_are_no_warning(void **state) {
    struct scene s;
    compare_spiky(&s, THREE, THREE, 300, 300);
    assert_int_equal(json_int(test_of(&s, "loss"), "baseline_count"), 9);
    assert_false(text_has(&s, "clearly more"));
    finish(&s);
    compare_spiky(&s, THREE, NONE, 300, 300); /* fewer */
    assert_float_equal(json_number_value(json_object_get(test_of(&s, "loss"), "p")), 1, 1e-6);
    assert_false(text_has(&s, "clearly more"));
    finish(&s);
}

/* Only the steps that both sides have: what came later may have come to the baseline, too. */
static void spikes_after_the_other_side_ended_do_not_count(void **state) {
    struct scene s;
    compare_spiky(&s, NONE, LATE, 300, 400);
    const json_t *test = test_of(&s, "loss");
    assert_int_equal(json_int(test, "count"), 0);
    assert_int_equal(json_int(test, "steps"), json_int(test, "baseline_steps"));
    assert_false(text_has(&s, "clearly more"));
    assert_true(text_has(&s, "spikes of D: 3 of the loss"));
    finish(&s);
}

static void short_runs_are_not_judged(void **state) {
    struct scene s;
    compare_spiky(&s, NONE, NONE, 30, 30);
    assert_true(json_is_null(test_of(&s, "loss")));
    const json_t *first = json_array_get(json_object_get(s.c.report, "runs"), 0);
    assert_true(json_is_null(json_object_get(first, "spikes_loss")));
    assert_false(text_has(&s, "spikes"));
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_run_has_its_spikes),
        cmocka_unit_test(periodic_spikes_count_on_both_sides),
        cmocka_unit_test(a_side_with_clearly_more_has_a_warning),
        cmocka_unit_test(a_few_more_are_no_warning),
        cmocka_unit_test(more_rows_need_more_spikes),
        cmocka_unit_test(spikes_of_both_sides_are_no_warning),
        cmocka_unit_test(spikes_after_the_other_side_ended_do_not_count),
        cmocka_unit_test(short_runs_are_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
