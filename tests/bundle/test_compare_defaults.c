/* A configuration that lacks a key and one that has its default are one. */
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "runner/compare/recipe_name.h"
#include "tests/bundle/compare_scene.h"

/* The difference with this key; NULL: there is none. */
static const json_t *difference(const struct scene *s, const char *key) {
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(s->c.report, "differences"), i, row)
        if (!strcmp(json_text(row, "key", ""), key)) return row;
    return NULL;
}

static void values_are(const struct scene *s, const char *key, const char *const *want) {
    const json_t *row = difference(s, key);
    assert_non_null(row);
    for (size_t i = 0; want[i]; i++) {
        char *found = value_words(json_array_get(json_object_get(row, "values"), i), 80);
        assert_string_equal(found, want[i]);
        free(found);
    }
}

static void an_absent_key_is_its_default(void **state) {
    static const struct { const char *recipe, *options, *key; bool differs; } CASES[] = {
        { "fp8.delayed", ",\"wgrad\":\"fp8\"", "recipe.wgrad", false },
        { "fp8.delayed", ",\"wgrad\":\"bf16\"", "recipe.wgrad", true },
        { "fp8.rowwise", ",\"wgrad\":\"fp8\"", "recipe.wgrad", false },
        { "fp8.delayed", ",\"history\":1024", "recipe.history", false },
        { "fp8.delayed", ",\"history\":1023", "recipe.history", true },
        { "fp8.delayed", ",\"param_gather\":false", "recipe.param_gather", false },
        { "fp8.delayed", ",\"param_gather\":true", "recipe.param_gather", true },
        { "fp8.delayed", ",\"fallback\":null", "recipe.fallback", false },
        { "fp8.delayed", ",\"fallback\":\"bf16\"", "recipe.fallback", true },
        { "fp8.delayed", ",\"accumulate\":{\"fprop\":\"fast\"}", "recipe.accumulate.fprop", false },
        { "fp8.delayed", ",\"accumulate\":{\"dgrad\":\"fast\"}", "recipe.accumulate.dgrad", true },
        { "fp8.blockwise", ",\"pow2\":true", "recipe.pow2", false },
        { "fp8.blockwise", ",\"pow2\":false", "recipe.pow2", true },
        { "fp8.delayed", ",\"pow2\":false", "recipe.pow2", true }, /* a key that it has not */
        { "fp9.unknown", ",\"wgrad\":\"fp8\"", "recipe.wgrad", true },
        { "fp8.delayed", ",\"accumulate\":{\"sum\":\"fast\"}", "recipe.accumulate.sum", true },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[2] = { run_fixture_default(), run_fixture_default() };
        runs[0].recipe = runs[1].recipe = CASES[k].recipe;
        runs[1].options = CASES[k].options;
        compare(&s, runs, 2);
        if (!difference(&s, CASES[k].key) == CASES[k].differs)
            fail_msg("%s with%s: %s is %sa difference", CASES[k].recipe, CASES[k].options,
                     CASES[k].key, CASES[k].differs ? "no " : "");
        finish(&s);
    }
}

/* DeepSeek's constants have another default of pow2. */
static void a_default_may_follow_from_another_key(void **state) {
    struct scene s;
    struct run_fixture runs[2] = { run_fixture_default(), run_fixture_default() };
    runs[0].recipe = runs[1].recipe = "fp8.blockwise";
    runs[0].options = ",\"constants\":\"deepseek\"";
    runs[1].options = ",\"constants\":\"deepseek\",\"pow2\":false";
    compare(&s, runs, 2);
    assert_null(difference(&s, "recipe.pow2"));
    finish(&s);
}

/* A table of differences has the default in place of "-", but a kind without the key lacks it. */
static void a_difference_shows_the_default(void **state) {
    static const char *const WANT[] = { "fp8", "bf16", "fp8", "none", NULL };
    struct scene s;
    struct run_fixture runs[4];
    for (int i = 0; i < 4; i++) runs[i] = run_fixture_default();
    runs[1].options = ",\"wgrad\":\"bf16\"";
    runs[2].recipe = "fp8.rowwise";
    runs[2].options = ",\"wgrad\":\"fp8\"";
    runs[3].recipe = "bf16";
    compare(&s, runs, 4);
    values_are(&s, "recipe.wgrad", WANT);
    finish(&s);
}

/* Also of a key outside the recipe that older bundles lack. */
static void codes_of_weights_are_kept_if_no_key_says(void **state) {
    static const char *const WANT[] = { "kept", "kept", "made", NULL };
    struct scene s;
    struct run_fixture runs[3];
    for (int i = 0; i < 3; i++) runs[i] = run_fixture_default();
    runs[1].train = ",\"weight_codes\":\"kept\"";
    compare(&s, runs, 2);
    assert_null(difference(&s, "train.weight_codes"));
    finish(&s);
    runs[2].train = ",\"weight_codes\":\"made\"";
    compare(&s, runs, 3);
    values_are(&s, "train.weight_codes", WANT);
    finish(&s);
}

/* So they are repeats, and their verdict is of one row. */
static void runs_with_and_without_a_default_are_repeats(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    runs[4].options = ",\"wgrad\":\"fp8\",\"param_gather\":false";
    compare(&s, runs, 6);
    assert_int_equal(json_integer_value(json_object_get(loss_row(&s), "seeds")), 3);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_absent_key_is_its_default),
        cmocka_unit_test(a_default_may_follow_from_another_key),
        cmocka_unit_test(a_difference_shows_the_default),
        cmocka_unit_test(codes_of_weights_are_kept_if_no_key_says),
        cmocka_unit_test(runs_with_and_without_a_default_are_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
