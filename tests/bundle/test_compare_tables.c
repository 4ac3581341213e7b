/* compare --csv and --md: text that a spreadsheet would run, and the verdict on speed. */
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

static void table_has(const struct scene *s, enum compare_format format, const char *words,
                      bool has) {
    struct err e = { 0 };
    char *text = NULL;
    CHECK(compare_table(&s->c, format, &text, &e));
    if (!strstr(text, words) == has)
        fail_msg("\"%s\" is %sin\n%s", words, has ? "not " : "", text);
    free(text);
}

/* Names and the like are of strangers: a spreadsheet must not take them for formulas. */
static void a_cell_of_text_is_no_formula(void **state) {
    static const struct { const char *name, *csv; } CASES[] = {
        { "=1+2", ",'=1+2," }, { "+1-2", ",'+1-2," }, { "-1+2", ",'-1+2," },
        { "@SUM(A1)", ",'@SUM(A1)," },
        { "=HYPERLINK(\"a\",\"b\")", ",\"'=HYPERLINK(\"\"a\"\",\"\"b\"\")\"," },
        { "\t=1", ",?=1," }, { "\r=1", ",?=1," }, { "a=1", ",a=1," }, { "5", ",5," },
    };
    struct scene s;
    struct run_fixture runs[2] = { run_fixture_default(), run_fixture_default() };
    compare(&s, runs, 2);
    json_t *row = json_array_get(json_object_get(s.c.report, "runs"), 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        assert_int_equal(json_object_set_new(row, "name", json_string(CASES[i].name)), 0);
        table_has(&s, COMPARE_CSV, CASES[i].csv, true);
    }
    assert_int_equal(json_object_set_new(row, "seed", json_integer(-7)), 0);
    table_has(&s, COMPARE_CSV, ",-7,", true);
    assert_int_equal(json_object_set_new(row, "loss_final", json_real(-0.5)), 0);
    table_has(&s, COMPARE_CSV, ",-0.5,", true);
    assert_int_equal(json_object_set_new(row, "label", json_string("=1+2")), 0);
    table_has(&s, COMPARE_MARKDOWN, "| =1+2 |", true);
    finish(&s);
}

/* Three seeds a side on a GPU; the row is 1.5 times as fast. */
static void on_gpu(struct run_fixture runs[6]) {
    static const double SCATTER[3] = { 0.99, 1.00, 1.01 };
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].backend = "cuda";
        runs[i].planned = runs[i].steps = 60;
        runs[i].eval_every = 30;
        runs[i].speed = SCATTER[i % 3] * (i < 3 ? 1 : 1.5);
    }
}

static void tables_have_the_verdict_on_speed(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs);
    compare(&s, runs, 6);
    table_has(&s, COMPARE_CSV, ",speed_runs,speed_tokens_per_s,speed_ratio,speed_low,speed_high,"
                               "speed_verdict,speed_why\n", true);
    table_has(&s, COMPARE_CSV, ",60,122880.0,3,", true);
    table_has(&s, COMPARE_CSV, ",faster,\n", true);
    table_has(&s, COMPARE_CSV, ",,,,,,,,,,,,,,,,\n", true); /* the baseline's own */
    table_has(&s, COMPARE_MARKDOWN, "| recipe | baseline | speed | runs | tokens/s | to the "
                                    "baseline | lower 95 % bound | upper |\n"
                                    "|---|---|---|---:|---:|---:|---:|---:|\n", true);
    table_has(&s, COMPARE_MARKDOWN, "| D… fp8.delayed, 3 seeds | A | faster | 3 | ", true);
    table_has(&s, COMPARE_MARKDOWN, " | 1.500x | 1.4", true);
    table_has(&s, COMPARE_MARKDOWN, "does not count", false);
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].steps = 11; /* too few */
    compare(&s, runs, 6);
    table_has(&s, COMPARE_MARKDOWN, "| A | no verdict: row and baseline need 2 runs each that "
                                    "count; here are 0 and 3", true);
    table_has(&s, COMPARE_MARKDOWN, " | 0 | - | - | - | - |\n", true);
    table_has(&s, COMPARE_MARKDOWN, "\n\nD does not count: it has ", true);
    finish(&s);
}

static void without_a_baseline_there_is_no_table_of_speed(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs);
    compare(&s, runs, 3);
    table_has(&s, COMPARE_MARKDOWN, "| speed |", false);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_of_text_is_no_formula),
        cmocka_unit_test(tables_have_the_verdict_on_speed),
        cmocka_unit_test(without_a_baseline_there_is_no_table_of_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
