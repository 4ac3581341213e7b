/* Rank tests of `compare`: whose losses they are of, and what they leave to other rules. */
#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

enum { SEEDS = 4 };

static const json_t *tests_of(const struct scene *s) {
    return json_object_get(json_object_get(s->c.report, "statistics"), "tests");
}

/* The test of a metric on a group; NULL: there is none. */
static const json_t *test_of(const struct scene *s, int64_t group, const char *metric) {
    const json_t *test;
    size_t i;
    json_array_foreach(tests_of(s), i, test)
        if (json_int(test, "group") == group && !strcmp(json_text(test, "metric", ""), metric))
            return test;
    return NULL;
}

/* Four seeds each of these recipes. */
static void rows_of(struct run_fixture *runs, const char *const *recipes, int count) {
    for (int i = 0; i < SEEDS * count; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = recipes[i / SEEDS];
        runs[i].seed = 1 + i % SEEDS;
        runs[i].planned = runs[i].steps = 60;
    }
}

/* One row ended early, so the baseline has two tables of losses. It is still the one baseline. */
static void rows_of_two_tables_are_tested_against_their_baseline(void **state) {
    static const char *const RECIPES[] = { "fp8.delayed", "fp8.tensorwise", "bf16" };
    struct scene s;
    struct run_fixture runs[3 * SEEDS];
    rows_of(runs, RECIPES, 3);
    for (int i = 0; i < SEEDS; i++) runs[i].steps = 20;
    for (int i = SEEDS; i < 2 * SEEDS; i++) runs[i].loss_shift = 0.5;
    compare(&s, runs, 3 * SEEDS);
    assert_int_equal(json_array_size(losses_of(&s)), 2);
    assert_int_equal(compare_group_of(s.c.report, compare_reference(s.c.report)), 2);
    assert_null(test_of(&s, 2, "eval_loss_final"));
    const json_t *late = test_of(&s, 1, "eval_loss_final");
    assert_non_null(late);
    assert_int_equal(json_int(late, "step"), 60); /* the first row ended at step 20 */
    assert_string_equal(json_text(test_of(&s, 0, "eval_loss_final"), "verdict", ""),
                        "no difference shown");
    text_says(&s, "  I… to E… fp8.tensorwise, eval loss at step 60: median +");
    finish(&s);
}

/* All runs of BF16 were throttled, so "How much faster?" gives no verdict. A rank test of tokens/s
 * said "differs", also on a CPU. */
static void speed_is_left_to_its_own_rule(void **state) {
    static const char *const RECIPES[] = { "bf16", "fp8.delayed" };
    static const char *const BACKENDS[] = { "cuda", "cpu" };
    static const double SCATTER[SEEDS] = { 0.998, 0.999, 1.001, 1.002 };
    for (int k = 0; k < 2; k++) {
        struct scene s;
        struct run_fixture runs[2 * SEEDS];
        rows_of(runs, RECIPES, 2);
        for (int i = 0; i < 2 * SEEDS; i++) {
            runs[i].backend = BACKENDS[k];
            runs[i].speed = SCATTER[i % SEEDS] * (i < SEEDS ? 1 : 1.5);
            if (i < SEEDS) runs[i].telemetry = "{\"step\":30,\"rank\":0,\"gpu_throttle\":64}\n";
        }
        compare(&s, runs, 2 * SEEDS);
        assert_non_null(test_of(&s, 1, "eval_loss_final"));
        assert_non_null(test_of(&s, 1, "loss_final"));
        assert_int_equal(json_array_size(tests_of(&s)), 2);
        text_says(&s, k ? "no verdict: a CPU emulates FP8" : "no verdict: row and baseline need 2");
        finish(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_two_tables_are_tested_against_their_baseline),
        cmocka_unit_test(speed_is_left_to_its_own_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
