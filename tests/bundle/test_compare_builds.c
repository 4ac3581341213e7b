/* Runs of several builds: they share a row only where a run shows that both builds compute the
 * same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/run_files.h"
#include "tests/bundle/compare_scene.h"

enum { RUNS = 8 };

/* Seeds 1 and 2 of both recipes by an old build, seeds 2 and 3 by a new one: BF16 first. No two
 * have the same losses. */
static void two_builds(struct run_fixture runs[RUNS]) {
    for (int i = 0; i < RUNS; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 4 ? "bf16" : "fp8.delayed";
        runs[i].seed = 1 + i % 4 - (i % 4 > 1);
        runs[i].code = i % 4 < 2 ? "old" : "new";
        runs[i].loss_shift = 1e-5 * i;
    }
}

static void same_bits(const struct run_fixture *a, struct run_fixture *b) {
    b->loss_shift = a->loss_shift;
}

static const json_t *group(const struct scene *s, size_t at) {
    const json_t *statistics = json_object_get(s->c.report, "statistics");
    return json_array_get(json_object_get(statistics, "groups"), at);
}

static void groups_are(const struct scene *s, int64_t count) {
    const json_t *statistics = json_object_get(s->c.report, "statistics");
    assert_int_equal(json_array_size(json_object_get(statistics, "groups")), count);
}

static bool is_factor(const struct scene *s, const char *name) {
    size_t i;
    const json_t *factor;
    json_array_foreach(json_object_get(s->c.report, "factors"), i, factor)
        if (!strcmp(json_string_value(factor), name)) return true;
    return false;
}

static const json_t *first_row(const struct scene *s) {
    const json_t *losses = json_object_get(json_object_get(s->c.report, "statistics"), "losses");
    return json_array_get(json_object_get(json_array_get(losses, 0), "rows"), 0);
}

static void builds_of_unknown_bits_stay_apart(void **state) {
    struct scene s;
    struct run_fixture runs[RUNS];
    two_builds(runs);
    compare(&s, runs, RUNS);
    groups_are(&s, 4);
    assert_true(is_factor(&s, "code"));
    assert_true(json_is_null(json_object_get(first_row(&s), "verdict")));
    finish(&s);
}

static void other_bits_of_one_seed_keep_builds_apart(void **state) {
    struct scene s;
    struct run_fixture runs[RUNS];
    two_builds(runs);
    same_bits(&runs[0], &runs[3]); /* of two seeds, which shows nothing */
    compare(&s, runs, RUNS);
    groups_are(&s, 4);
    finish(&s);
}

static void a_run_that_failed_shows_nothing(void **state) {
    struct scene s;
    struct run_fixture runs[RUNS];
    two_builds(runs);
    same_bits(&runs[1], &runs[2]);
    runs[2].status = "interrupted";
    compare(&s, runs, RUNS);
    groups_are(&s, 4);
    finish(&s);
}

/* Nothing is known of the FP8 kernels: each build's rows have their own verdict. */
static void same_bits_of_one_recipe_join_that_alone(void **state) {
    struct scene s;
    struct run_fixture runs[RUNS];
    two_builds(runs);
    same_bits(&runs[1], &runs[2]);
    compare(&s, runs, RUNS);
    groups_are(&s, 3);
    const json_t *statistics = json_object_get(s.c.report, "statistics");
    const json_t *losses = json_object_get(statistics, "losses");
    assert_int_equal(json_array_size(losses), 1);
    assert_int_equal(json_array_size(json_object_get(json_array_get(losses, 0), "rows")), 2);
    assert_int_equal(json_array_size(json_object_get(statistics, "losses_missing")), 0);
    assert_true(is_factor(&s, "code"));
    finish(&s);
}

static void builds_of_the_same_bits_share_a_row(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[RUNS];
    char *text = NULL;
    two_builds(runs);
    same_bits(&runs[1], &runs[2]);
    same_bits(&runs[5], &runs[6]);
    compare(&s, runs, RUNS);
    groups_are(&s, 2);
    for (size_t g = 0; g < 2; g++) {
        assert_int_equal(json_integer_value(json_object_get(group(&s, g), "seeds")), 3);
        assert_int_equal(json_integer_value(json_object_get(group(&s, g), "builds")), 2);
    }
    assert_string_equal(json_text(first_row(&s), "verdict", ""), "holds");
    assert_false(is_factor(&s, "code"));
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: recipe");
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, COMPARE_BUILDS));
    char *html = page_of(&s);
    assert_non_null(strstr(html, COMPARE_BUILDS));
    free(text);
    free(html);
    finish(&s);
}

/* Which build is faster: then the build is what differs. */
static void two_builds_of_one_row_differ_in_their_code(void **state) {
    struct scene s;
    struct run_fixture runs[2] = { run_fixture_default(), run_fixture_default() };
    runs[0].code = "old", runs[1].code = "new", runs[1].speed = 1.5;
    compare(&s, runs, 2);
    groups_are(&s, 1);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: code");
    finish(&s);
}

/* A first and a third build have no seed in common, but both have one with the second. */
static void a_build_between_joins_two(void **state) {
    struct scene s;
    struct run_fixture runs[4];
    static const char *const CODE[] = { "first", "third", "second", "second" };
    for (int i = 0; i < 4; i++) {
        runs[i] = run_fixture_default();
        runs[i].code = CODE[i];
        runs[i].seed = 1 + i % 2;
        runs[i].loss_shift = 1e-5 * i;
    }
    same_bits(&runs[0], &runs[2]);
    same_bits(&runs[1], &runs[3]);
    compare(&s, runs, 4);
    groups_are(&s, 1);
    assert_int_equal(json_integer_value(json_object_get(group(&s, 0), "builds")), 3);
    assert_int_equal(json_integer_value(json_object_get(group(&s, 0), "seeds")), 2);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_of_unknown_bits_stay_apart),
        cmocka_unit_test(other_bits_of_one_seed_keep_builds_apart),
        cmocka_unit_test(a_run_that_failed_shows_nothing),
        cmocka_unit_test(same_bits_of_one_recipe_join_that_alone),
        cmocka_unit_test(builds_of_the_same_bits_share_a_row),
        cmocka_unit_test(two_builds_of_one_row_differ_in_their_code),
        cmocka_unit_test(a_build_between_joins_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
