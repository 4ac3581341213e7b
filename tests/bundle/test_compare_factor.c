/* compare --factor: the effect of one key, judged on rows that differ in nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

enum { NINE = 9 };
#define GRAD_FP8 ",\"grad_dtype\":\"fp8\""
#define GRAD_F32 ",\"grad_dtype\":\"f32\""

/* Three seeds each of BF16 and fp8.delayed with gradients of f32, and fp8.delayed with FP8's. Each
 * is 0.3 % worse than the one before. */
static void three_sides(struct run_fixture runs[NINE]) {
    for (int i = 0; i < NINE; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 3 ? "bf16" : "fp8.delayed";
        runs[i].seed = 1 + i % 3;
        runs[i].train = i < 6 ? GRAD_F32 : GRAD_FP8;
        runs[i].loss_shift = 0.004 * (i / 3);
    }
}

static const json_t *family_row(const struct scene *s, size_t family, size_t row, int64_t *base) {
    const json_t *f = json_array_get(losses_of(s), family);
    *base = f ? json_integer_value(json_object_get(f, "baseline")) : -1;
    return json_array_get(json_object_get(f, "rows"), row);
}

/* The effect of a key is judged on rows that differ in nothing else. "holds" is then not about
 * BF16, from which this row is 0.6 % away: the verdict names its baseline and the key. */
static void a_factor_is_judged_within_its_recipe(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[NINE];
    const struct compare_options by_grad = { .factor = "train.grad_dtype=f32" };
    int64_t base;
    char *text = NULL;
    three_sides(runs);
    compare_by(&s, runs, NINE, NULL);
    assert_non_null(family_row(&s, 0, 0, &base)); /* without it, the last row has no verdict */
    assert_string_equal(first_missing(&s), "it differs from A, which is BF16, in more than its "
                                           "recipe: train.grad_dtype");
    finish(&s);
    compare_by(&s, runs, NINE, &by_grad);
    const json_t *row = family_row(&s, 0, 0, &base);
    assert_int_equal(base, 0);
    assert_int_equal(json_integer_value(json_object_get(row, "group")), 1);
    assert_string_equal(json_text(row, "verdict", "none"), "holds");
    assert_true(json_is_null(json_object_get(row, "factor")));
    row = family_row(&s, 1, 0, &base);
    assert_int_equal(base, 1);
    assert_int_equal(json_integer_value(json_object_get(row, "group")), 2);
    assert_string_equal(json_text(row, "verdict", "none"), "holds");
    assert_string_equal(json_text(row, "factor", ""), "train.grad_dtype");
    assert_true(json_number_value(json_object_get(row, "relative")) < 0.004);
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "    G differs from the baseline only in train.grad_dtype\n"));
    assert_non_null(strstr(text, "from D"));
    free(text);
    finish(&s);
    for (int i = 6; i < NINE; i++) runs[i].loss_shift = 0.1;
    compare_by(&s, runs, NINE, &by_grad);
    row = family_row(&s, 1, 0, &base);
    assert_string_equal(json_text(row, "verdict", "none"), "does not hold");
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].recipe = "bf16"; /* of BF16 too */
    for (int i = 3; i < 6; i++) runs[i].train = GRAD_FP8;
    compare_by(&s, runs, 6, &by_grad);
    verdict_is(&s, "holds", "");
    finish(&s);
}

/* Rows that differ in more, or that have no partner, get no verdict and a reason. */
static void a_factor_needs_rows_that_are_equal_otherwise(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[NINE];
    struct compare_options by_grad = { .factor = "train.grad_dtype=f32" };
    struct comparison c;
    const char *paths[NINE];
    three_sides(runs);
    for (int i = 6; i < NINE; i++) runs[i].train = GRAD_FP8 ",\"global_batch\":2";
    compare_by(&s, runs, NINE, &by_grad);
    assert_int_equal(json_array_size(losses_of(&s)), 1);
    assert_string_equal(first_missing(&s), "it differs from D, which has train.grad_dtype = f32, "
                                           "in more: train.global_batch");
    for (int i = 0; i < NINE; i++) paths[i] = s.path[i];
    by_grad.factor = "train.grad_dtype=f64";
    CHECK(compare_runs(paths, NINE, &by_grad, &c, &e));
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(c.report, "statistics"), "losses")), 0);
    compare_free(&c);
    by_grad.factor = "train.grad_dtype";
    assert_int_equal(compare_runs(paths, NINE, &by_grad, &c, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "write KEY=VALUE"));
    by_grad.factor = "recipe.margin=0"; /* BF16 has no such key; FP8 rows that have it as before */
    CHECK(compare_runs(paths, 6, &by_grad, &c, &e));
    assert_int_equal(json_array_size(json_object_get(
                         json_object_get(c.report, "statistics"), "losses")), 1);
    compare_free(&c);
    finish(&s);
}

/* A mistyped factor must not give the answer to another question. */
static void a_factor_must_be_a_key_of_the_runs(void **state) {
    static const struct { const char *factor, *words; } CASES[] = {
        { "train.grad_dtpe=f32", "--factor train.grad_dtpe=f32: no row has a value of "
                                 "train.grad_dtpe; did you mean train.grad_dtype?" },
        { "grad_dtype=f32", "no row has a value of grad_dtype; did you mean train.grad_dtype?" },
        { "nokey=1", "no row has a value of nokey" },
        { "train=f32", "train is a table; name one of its keys, such as train." },
        { "recipe=bf16", "recipes are judged against BF16 without a factor" },
        { "recipe.kind=bf16", "recipes are judged against BF16 without a factor" },
        { "train.seed=1", "runs that differ in their seed are repeats of one row" },
        { "name=tiny", "name is not a factor: for compare it is a key that changes no result" },
    };
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[NINE];
    struct comparison c;
    const char *paths[NINE];
    three_sides(runs);
    compare(&s, runs, NINE);
    for (int i = 0; i < NINE; i++) paths[i] = s.path[i];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct compare_options options = { .factor = CASES[i].factor };
        assert_int_equal(compare_runs(paths, NINE, &options, &c, &e), ERR_ARG);
        if (!strstr(e.text, CASES[i].words))
            fail_msg("\"%s\" is not in \"%s\"", CASES[i].words, e.text);
    }
    finish(&s);
}

/* A number is the same however it is written. */
static void a_factor_is_compared_by_value(void **state) {
    static const struct { const char *factor; bool found; } CASES[] = {
        { "train.optimizer.lr=0.0003", true },   { "train.optimizer.lr=3e-4", true },
        { "train.optimizer.lr=0.00030", true },  { "train.optimizer.lr=3.1e-4", false },
        { "train.optimizer.lr=3e-4x", false },   { "train.optimizer.lr=nan", false },
        { "train.global_batch=8", true },        { "train.global_batch=8.0", true },
        { "train.global_batch=eight", false },   { "train.exact=true", true },
        { "train.exact=1", false },              { "train.optimizer.kind=adamw", true },
        { "train.optimizer.kind=adam", false },
        { "train.optimizer.betas=[0.9,0.95]", true },
        { "train.optimizer.betas=[0.90, 9.5e-1]", true },
        { "train.optimizer.betas=[0.9,0.96]", false },
    };
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[2];
    const char *paths[2];
    for (int i = 0; i < 2; i++) {
        runs[i] = run_fixture_default();
        runs[i].train = i == 0 ? ",\"optimizer\":{\"kind\":\"adamw\",\"lr\":3e-4,\"betas\":"
                                 "[0.9,0.95]},\"global_batch\":8,\"exact\":true"
                               : ",\"optimizer\":{\"kind\":\"sgd\",\"lr\":6e-4,\"betas\":"
                                 "[0.9,0.99]},\"global_batch\":16,\"exact\":false";
    }
    compare(&s, runs, 2);
    for (int i = 0; i < 2; i++) paths[i] = s.path[i];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct compare_options options = { .factor = CASES[i].factor };
        struct scene t = { .path = { "" } };
        CHECK(compare_runs(paths, 2, &options, &t.c, &e));
        bool found = strstr(first_missing(&t), "no row has") == NULL;
        if (found != CASES[i].found) fail_msg("%s: %s", CASES[i].factor, first_missing(&t));
        compare_free(&t.c);
    }
    finish(&s);
}

/* Absent, the key means attention in BF16: such a row is a baseline as well. */
static void attention_is_bf16_unless_it_is_set(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].recipe = "fp8.delayed";
    for (int i = 3; i < 6; i++) {
        runs[i].attention = "{\"precision\":\"fp8\"}";
        runs[i].loss_shift = 0.001;
    }
    compare_by(&s, runs, 6, &(struct compare_options){ .factor = "attention.precision=bf16" });
    verdict_is(&s, "holds", "");
    assert_string_equal(json_text(loss_row(&s), "factor", ""), "attention.precision");
    finish(&s);
}

/* A key that did nothing, such as gradients of 8 bits on one rank, does not hold the loss. */
static void a_factor_without_effect_gets_no_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[NINE];
    const struct compare_options by_grad = { .factor = "train.grad_dtype=f32" };
    int64_t base;
    three_sides(runs);
    for (int i = 6; i < NINE; i++) runs[i].loss_shift = runs[i - 3].loss_shift;
    compare_by(&s, runs, NINE, &by_grad);
    const json_t *row = family_row(&s, 1, 0, &base);
    assert_int_equal(base, 1);
    assert_true(json_is_null(json_object_get(row, "verdict")));
    assert_string_equal(json_text(row, "why", ""),
                        "train.grad_dtype had no effect: each seed has the baseline's bits");
    finish(&s);
}

/* A recipe that leaves no GEMM in FP8, or falls back everywhere, is BF16 under another name. */
static void a_recipe_without_effect_gets_no_verdict(void **state) {
    static const struct { const char *baseline, *why; } CASES[] = {
        { NULL, "the recipe had no effect: each seed has the baseline's bits" },
        { "bf16", "what differs had no effect: each seed has the baseline's bits" },
    };
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 3; i < 6; i++) runs[i].no_fp8 = true;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        compare_by(&s, runs, 6, &(struct compare_options){ .baseline = CASES[k].baseline });
        verdict_is(&s, NULL, CASES[k].why);
        finish(&s);
    }
    struct scene s;
    runs[5].loss_shift = 0.001; /* one seed with other bits */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
}

/* Without a baseline the report names the row that differs least; of two the first. */
static void the_nearest_row_is_named(void **state) {
    static const struct { int64_t world[2]; const char *more[2], *name; } CASES[] = {
        { { 2, 2 }, { "", ",\"micro_batch\":8" }, "it differs from A, " },
        { { 2, 2 }, { ",\"micro_batch\":8", "" }, "it differs from B, " },
        { { 2, 4 }, { "", "" }, "it differs from A, " },
    };
    const struct compare_options by_grad = { .factor = "train.grad_dtype=f32" };
    for (size_t k = 0; k < 2 * sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[3];
        char train[2][80];
        bool factor = k % 2;
        for (int i = 0; i < 3; i++) {
            runs[i] = run_fixture_default();
            runs[i].recipe = i < 2 && !factor ? "bf16" : "fp8.delayed";
            runs[i].world = i < 2 ? CASES[k / 2].world[i] : 1;
            runs[i].train = i < 2 ? train[i] : factor ? GRAD_FP8 : GRAD_F32;
            if (i < 2) snprintf(train[i], sizeof train[i], GRAD_F32 "%s", CASES[k / 2].more[i]);
        }
        compare_by(&s, runs, 3, factor ? &by_grad : NULL);
        if (!strstr(missing_why(&s), CASES[k / 2].name))
            fail_msg("\"%s\" is not in \"%s\"", CASES[k / 2].name, missing_why(&s));
        finish(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_factor_is_judged_within_its_recipe),
        cmocka_unit_test(a_factor_needs_rows_that_are_equal_otherwise),
        cmocka_unit_test(a_factor_must_be_a_key_of_the_runs),
        cmocka_unit_test(a_factor_is_compared_by_value),
        cmocka_unit_test(attention_is_bf16_unless_it_is_set),
        cmocka_unit_test(a_factor_without_effect_gets_no_verdict),
        cmocka_unit_test(a_recipe_without_effect_gets_no_verdict),
        cmocka_unit_test(the_nearest_row_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
