/* Verdicts on further sets of held-out data (eval.also): what would mislead comes first. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/compare_loss.h"
#include "runner/compare/stats.h"
#include "tests/bundle/compare_scene.h"

static const char ONE[] = "{\"code\":\"aa\"}";
static const char FOUR[] = "{\"code\":\"aa\",\"law\":\"bb\",\"maths\":\"cc\",\"prose\":\"dd\"}";

/* Six runs with the sets; the losses of FP8's are higher on each set by shift[seed][set]. */
static void with_sets(struct run_fixture runs[6], const char *sets, const double (*shift)[4]) {
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].sets = sets;
        if (i >= 3) runs[i].set_shift = shift[i - 3];
    }
}

/* About 0.26 % of the loss of 2.33 at step 20; in pairs the scatter is 0.09 %. */
static const double NEAR[3][4] = { { 0.004, 0, 0, 0 }, { 0.006, 0, 0, 0 }, { 0.008, 0, 0, 0 } };

/* The set's entry in the first family; NULL: there is none. */
static const json_t *set_named(const struct scene *s, const char *name) {
    const json_t *sets = json_object_get(json_array_get(losses_of(s), 0), "sets"), *set;
    size_t i;
    json_array_foreach(sets, i, set)
        if (!strcmp(json_text(set, "name", ""), name)) return set;
    return NULL;
}

static const json_t *row_of(const struct scene *s, const char *name) {
    const json_t *row = json_array_get(json_object_get(set_named(s, name), "rows"), 0);
    assert_non_null(row);
    return row;
}

static void set_verdict_is(const struct scene *s, const char *name, const char *verdict,
                           const char *why) {
    const json_t *row = row_of(s, name);
    assert_string_equal(json_text(row, "verdict", "none"), verdict);
    if (!strstr(json_text(row, "why", ""), why))
        fail_msg("%s: \"%s\" is not in \"%s\"", name, why, json_text(row, "why", ""));
}

static void text_lacks(const struct scene *s, const char *words) {
    struct err e = { 0 };
    char *text = NULL;
    CHECK(compare_text(&s->c, false, &text, &e));
    if (strstr(text, words)) fail_msg("\"%s\" is in\n%s", words, text);
    free(text);
}

static const json_t *last_of(const struct scene *s, size_t run, const char *name) {
    const json_t *row = json_array_get(json_object_get(s->c.report, "runs"), run);
    return json_object_get(json_object_get(row, "eval_sets"), name);
}

/* The same losses hold on one set, but not as the best of four: each set is a test. */
static void many_sets_are_many_tests(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    with_sets(runs, ONE, NEAR);
    compare(&s, runs, 6);
    set_verdict_is(&s, "code", "holds", "");
    text_says(&s, "bounds: one-sided, 95 % each (Student's t)");
    text_lacks(&s, "Bonferroni");
    finish(&s);
    with_sets(runs, FOUR, NEAR);
    compare(&s, runs, 6);
    set_verdict_is(&s, "code", "undecided", "it would take about 4 seeds per side");
    set_verdict_is(&s, "prose", "holds", "");
    text_says(&s, "bounds: one-sided, 98.75 % each: 4 sets are as many tests");
    /* The bounds are Student's t at 0.05 / 4: 6.2053 with 2 degrees of freedom. */
    const json_t *row = row_of(&s, "code");
    double mean = json_number_value(json_object_get(row, "baseline_mean"));
    double half = json_number_value(json_object_get(row, "high")) -
                  json_number_value(json_object_get(row, "relative"));
    assert_float_equal(half * mean, 6.2053 * 0.002 / sqrt(3), 2e-5);
    finish(&s);
}

/* The quantiles of tables, where they are sums and where they are an expansion. */
static void quantiles(void **state) {
    static const struct { int64_t n, tests; double t; } TABLE[] = {
        { 2, 2, 12.7062 }, { 3, 2, 4.30265 }, { 11, 2, 2.22814 }, { 41, 5, 2.42326 },
        { 301, 2, 1.96790 }, { 301, 10, 2.59232 },
    };
    for (size_t i = 0; i < sizeof TABLE / sizeof *TABLE; i++) {
        struct stats_scatter s = { .y = (double)TABLE[i].n, .n = TABLE[i].n, .m = TABLE[i].n,
                                   .pairs = true, .tests = TABLE[i].tests };
        assert_float_equal(stats_half(&s), TABLE[i].t, 2e-4);
    }
    struct stats_scatter one = { .y = 5, .n = 5, .m = 5, .pairs = true }, two = one;
    two.tests = 1;
    assert_true(stats_half(&one) == stats_half(&two));
    two.tests = 16;
    assert_true(stats_seeds_for(&two, 1.5) > stats_seeds_for(&one, 1.5));
}

static void a_small_set_is_told(void **state) {
    static const int64_t TOKENS[] = { 300, LOSS_TOKENS_FEW };
    for (int k = 0; k < 2; k++) {
        struct scene s;
        struct run_fixture runs[6];
        char want[80];
        with_sets(runs, ONE, NEAR);
        for (int i = 0; i < 6; i++) runs[i].set_tokens = TOKENS[k];
        compare(&s, runs, 6);
        snprintf(want, sizeof want, "each loss is the mean of %lld tokens of the set",
                 (long long)TOKENS[k]);
        text_says(&s, want);
        if (k == 0) text_says(&s, "so few that other text of its kind may give another verdict");
        else text_lacks(&s, "so few that other text of its kind");
        finish(&s);
    }
}

/* One name, two texts: neither a ratio nor a verdict, nor a difference bit by bit. */
static void other_files_are_not_compared(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    with_sets(runs, ONE, NEAR);
    for (int i = 3; i < 6; i++) runs[i].sets = "{\"code\":\"ee\"}";
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    set_verdict_is(&s, "code", "none",
                   "no comparison of D: its set has other files than the baseline's");
    text_says(&s, "code of D has no x: its loss is of other files");
    text_says(&s, "left out: D, E, F: its set has other files than the baseline's under the same");
    assert_true(json_is_null(json_object_get(last_of(&s, 3, "code"), "ratio")));
    assert_true(json_is_number(json_object_get(last_of(&s, 1, "code"), "ratio")));
    finish(&s);
    /* One run of three: the others are too few, and the verdict is not of two. */
    for (int i = 3; i < 5; i++) runs[i].sets = ONE;
    compare(&s, runs, 6);
    set_verdict_is(&s, "code", "none", "row and baseline need 3 seeds each; here are 3 and 2");
    finish(&s);
}

static double loss_in(const json_t *last) {
    return json_number_value(json_object_get(last, "loss"));
}

/* The table has the last evaluation, and its ratio is to the first run. */
static void the_last_losses_are_compared(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    with_sets(runs, FOUR, NEAR);
    runs[1].steps = 30;
    runs[2].set_tokens = 50000;
    compare(&s, runs, 6);
    const json_t *first = last_of(&s, 0, "code"), *other = last_of(&s, 5, "code");
    const struct columns *sets = s.c.run[0].columns.of[STREAM_EVAL_SETS];
    assert_int_equal(json_int(first, "step"), 20);
    assert_int_equal(json_int(first, "loss_tokens"), 100000);
    assert_float_equal(loss_in(first), eval_set_loss(sets, 1, 0), 1e-9);
    assert_float_equal(loss_in(last_of(&s, 0, "prose")), loss_in(first) + 3, 1e-6);
    assert_float_equal(json_number_value(json_object_get(other, "ratio")),
                       loss_in(other) / loss_in(first), 1e-12);
    text_says(&s, "code of B has no x: its loss is of another step");
    text_says(&s, "prose of C has no x: its loss is of another number of tokens");
    finish(&s);
}

/* The loss of another step is none of the place of the comparison. */
static void a_set_counts_where_it_was_evaluated(void **state) {
    static const char WHY[] = "no comparison of A: it was not evaluated on the set there";
    for (int k = 0; k < 2; k++) { /* before the set's first evaluation, or after its last one */
        struct scene s;
        struct run_fixture runs[6];
        with_sets(runs, ONE, NEAR);
        for (int i = 0; i < 6; i++) {
            runs[i].steps = k ? 30 : i < 3 ? 20 : 10;
            runs[i].planned = 30;
            runs[i].status = "killed";
            if (i < 3) runs[i].set_every = 20;
        }
        compare(&s, runs, 6);
        set_verdict_is(&s, "code", "none", WHY);
        finish(&s);
    }
}

/* A run that is left out of the main verdict is left out of those on sets. */
static void a_short_run_is_left_out_here_too(void **state) {
    struct scene s;
    struct run_fixture runs[7];
    with_sets(runs, ONE, NEAR);
    runs[6] = runs[5];
    runs[6].seed = 4;
    runs[6].steps = 5;
    runs[6].planned = 20;
    runs[6].status = "killed";
    for (int i = 0; i < 7; i++) runs[i].eval_every = 5;
    compare(&s, runs, 7);
    verdict_is(&s, "holds", "");
    set_verdict_is(&s, "code", "holds", "");
    assert_int_equal(json_int(loss_row(&s), "seeds"), 3);
    assert_int_equal(json_int(row_of(&s, "code"), "seeds"), 3);
    finish(&s);
}

/* How the run's own data are cut says nothing of a set, and the reverse. */
static void evaluations_of_other_sizes(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    with_sets(runs, ONE, NEAR);
    runs[4].eval_tokens = 2048;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "A was evaluated on 4096 tokens, E on 2048");
    set_verdict_is(&s, "code", "holds", "");
    finish(&s);
    with_sets(runs, FOUR, NEAR);
    runs[4].set_tokens = 50000;
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    set_verdict_is(&s, "maths", "holds", "");
    set_verdict_is(&s, "prose", "none", "A was evaluated on 131072 tokens, E on 81072");
    finish(&s);
}

/* What withholds each verdict withholds those on sets, whatever these have. */
static void a_smoke_run_has_no_verdict(void **state) {
    static const double BAD[3][4] = { { 0 }, { (double)INFINITY }, { 0 } };
    for (int k = 0; k < 2; k++) {
        struct scene s;
        struct run_fixture runs[6];
        with_sets(runs, ONE, BAD);
        for (int i = 0; i < 6; i++) runs[i].smoke = true;
        for (int i = 3; i < 6 && k; i++) runs[i].sets = NULL;
        compare(&s, runs, 6);
        set_verdict_is(&s, "code", "none", "a smoke run, whose sizes and steps are shrunk");
        finish(&s);
    }
}

static void equal_training_is_equal(void **state) {
    struct scene s;
    struct run_fixture runs[3];
    static const double SHIFT[] = { 1 };
    for (int i = 0; i < 3; i++) {
        runs[i] = run_fixture_default();
        runs[i].sets = i == 1 ? "{\"code\":\"ee\"}" : ONE;
        if (i) runs[i].set_shift = SHIFT; /* of other text, or another result of the same */
    }
    compare(&s, runs, 3);
    const json_t *list = json_object_get(s.c.report, "divergences");
    assert_true(json_is_null(json_object_get(json_array_get(list, 0), "stream")));
    assert_string_equal(json_text(json_array_get(list, 1), "stream", ""), "eval_sets.loss");
    assert_string_equal(json_text(json_array_get(list, 1), "tensor", ""), "code");
    finish(&s);
}

/* Runs without the set, on either side. */
static void runs_may_lack_the_set(void **state) {
    for (int side = 0; side < 2; side++) {
        struct scene s;
        struct run_fixture runs[6];
        with_sets(runs, ONE, NEAR);
        for (int i = 0; i < 3; i++) runs[3 * side + i].sets = NULL;
        if (side) runs[1].sets = runs[2].sets = NULL; /* only A has it */
        compare(&s, runs, 6);
        set_verdict_is(&s, "code", "none", side ? "no comparison of D: it has no such set"
                                                : "no comparison of A: the baseline has no such");
        assert_true(json_is_null(last_of(&s, side ? 3 : 0, "code")));
        text_lacks(&s, "nan tokens");
        if (!side) text_says(&s, "code of D has no x: the run of ratios lacks the set");
        verdict_is(&s, "holds", "");
        finish(&s);
    }
}

/* A row without a baseline has no verdict, so its sets are no tests. */
static void sets_of_other_rows_are_no_tests(void **state) {
    struct scene s;
    struct run_fixture runs[7];
    with_sets(runs, ONE, NEAR);
    runs[6] = runs[5];
    runs[6].sets = "{\"art\":\"bb\",\"code\":\"aa\"}";
    runs[6].train = ",\"x\":1,\"y\":1";
    compare(&s, runs, 7);
    set_verdict_is(&s, "code", "holds", "");
    assert_int_equal(json_int(set_named(&s, "code"), "tests"), 1);
    assert_null(set_named(&s, "art"));
    text_says(&s, "         art        code\n"); /* the titles in order, whoever has the sets */
    finish(&s);
}

/* The sets move nothing else in the report, and a report without sets has none of this. */
static void the_main_verdict_is_untouched(void **state) {
    static const double FAR[3][4] = { { 0.9 }, { 0.91 }, { 0.89 } };
    struct scene with, without;
    struct run_fixture runs[6];
    with_sets(runs, ONE, FAR);
    compare(&with, runs, 6);
    set_verdict_is(&with, "code", "does not hold", "");
    two_sides(runs);
    compare(&without, runs, 6);
    json_t *a = json_array_get(losses_of(&with), 0), *b = json_array_get(losses_of(&without), 0);
    assert_int_equal(json_array_size(json_object_get(b, "sets")), 0);
    text_lacks(&without, "urther set");
    json_object_del(a, "sets");
    json_object_del(b, "sets");
    assert_true(json_equal(a, b));
    finish(&with);
    finish(&without);
}

/* A loss that is not finite is no missing seed. */
static void a_loss_that_is_not_finite(void **state) {
    static const double BAD[3][4] = { { 0 }, { (double)INFINITY }, { 0 } };
    struct scene s;
    struct run_fixture runs[9];
    with_sets(runs, ONE, BAD);
    compare(&s, runs, 6);
    set_verdict_is(&s, "code", "does not hold", "E diverged: its loss on the set is not finite");
    finish(&s);
    for (int i = 0; i < 3; i++) { /* of another row, which says nothing of this one */
        runs[i + 6] = runs[i + 3];
        runs[i + 6].recipe = "fp8.tensorwise";
        runs[i + 3].set_shift = NULL;
    }
    compare(&s, runs, 9);
    set_verdict_is(&s, "code", "holds", "");
    text_says(&s, "does not hold: H diverged: its loss on the set is not finite");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].set_shift = BAD[1]; /* on both sides */
    compare(&s, runs, 6);
    set_verdict_is(&s, "code", "none", "");
    finish(&s);
}

static void contains(const char *text, const char *words) {
    if (!strstr(text, words)) fail_msg("\"%s\" is not in\n%s", words, text);
}

static void page_and_tables_have_them(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    with_sets(runs, FOUR, NEAR);
    compare(&s, runs, 6);
    CHECK(compare_table(&s.c, COMPARE_CSV, &text, &e));
    contains(text, ",set_code_loss,set_code_ratio,set_code_relative,");
    contains(text, ",undecided,it would take about 4 seeds per side,");
    free(text);
    CHECK(compare_table(&s.c, COMPARE_MARKDOWN, &text, &e));
    contains(text, "|  | code | law | maths | prose |");
    contains(text, "| code | D… fp8.delayed, 3 seeds | A | undecided: it would take about 4 seeds");
    contains(text, "98.75 % each: 4 sets are as many tests");
    free(text);
    text = page_of(&s);
    contains(text, "<h3>Does the loss hold on the further set code?</h3>");
    contains(text, "98.75 % each: 4 sets are as many tests");
    free(text);
    finish(&s);
}

static void the_tables_have_each_number(void **state) {
    static const char *const TEXT[] = {
        "Further sets of held-out data: the last loss on each\n"
        "    recipe           seed        code letters_of_lawyers\n"
        "A   bf16                1     2.33224            3.33224\n"
        "B   bf16                2     2.33742            3.33742\n"
        "                               1.002x             1.002x\n",
        "E   fp8.delayed         2     2.34342            3.33742\n"
        "                               1.005x             1.002x\n"
        "F   fp8.delayed         3           -                  -\n"
        "G   fp8.delayed         4     2.33506                  -\n"
        "    nats per token; x: to A\n"
        "    code of G has no x: its loss is of other files\n",
        "Does the loss hold on the further set code? At step 20:\n"
        "     recipe          seeds      mean loss    from A              bounds  allowed\n"
        "A    bf16                3        2.33553\n"
        "D    fp8.delayed         2        2.33983   +0.18 %    -1.97 to +2.34 %   0.50 %  "
        "no verdict: row and baseline need 3 seeds each; here are 3 and 2\n"
        "    each loss is the mean of 100000 tokens of the set\n"
        "    left out: F: it has no such set\n"
        "    left out: G: its set has other files than the baseline's under the same name\n",
        "    left out: F, G: it has no such set\n"
        "    bounds: one-sided, 97.5 % each: 2 sets are as many tests",
    };
    static const char *const PAGE[] = {
        "</svg> A</th><td class=\"n\">2.33224</td><td class=\"n\">3.33224</td></tr>",
        "<td class=\"n\">2.34342<small>1.005×</small></td>",
        "<td class=\"n\">2.33506<small>its loss is of other files</small></td>"
        "<td class=\"n\">–</td>",
        "<td>no verdict</td><td class=\"n\">2.33983</td><td class=\"n\">+0.18 %</td>"
        "<td>-1.97 to +2.34 %</td><td class=\"n\">0.50 %</td>"
        "<td>row and baseline need 3 seeds each; here are 3 and 2</td>",
        "<p class=\"soft\">At step 20. each loss is the mean of 100000 tokens of the set. bounds:",
        "<p class=\"soft\">Left out: F, G: it has no such set.</p>",
    };
    struct scene s;
    struct run_fixture runs[7];
    with_sets(runs, "{\"code\":\"aa\",\"letters_of_lawyers\":\"bb\"}", NEAR);
    runs[6] = runs[3];
    runs[6].seed = 4;
    runs[6].sets = "{\"code\":\"ee\"}";
    runs[5].sets = NULL;
    compare(&s, runs, 7);
    for (size_t i = 0; i < sizeof TEXT / sizeof *TEXT; i++) text_says(&s, TEXT[i]);
    char *html = page_of(&s);
    for (size_t i = 0; i < sizeof PAGE / sizeof *PAGE; i++) contains(html, PAGE[i]);
    free(html);
    finish(&s);
}

int main(void) {

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_sets_are_many_tests), cmocka_unit_test(quantiles),
        cmocka_unit_test(a_small_set_is_told), cmocka_unit_test(other_files_are_not_compared),
        cmocka_unit_test(the_last_losses_are_compared),
        cmocka_unit_test(a_set_counts_where_it_was_evaluated),
        cmocka_unit_test(a_short_run_is_left_out_here_too),
        cmocka_unit_test(evaluations_of_other_sizes),
        cmocka_unit_test(a_smoke_run_has_no_verdict),
        cmocka_unit_test(equal_training_is_equal), cmocka_unit_test(runs_may_lack_the_set),
        cmocka_unit_test(sets_of_other_rows_are_no_tests),
        cmocka_unit_test(the_main_verdict_is_untouched),
        cmocka_unit_test(the_tables_have_each_number),
        cmocka_unit_test(a_loss_that_is_not_finite), cmocka_unit_test(page_and_tables_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
