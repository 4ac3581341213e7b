/* Losses at equal time and times to one loss, if the baseline or a recipe diverged after it had
 * reached a low loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/run_files.h"
#include "tests/bundle/compare_scene.h"

/* Two sides with evaluations at steps 10 to 60. The second one's losses are a little higher, so
 * that the first one reaches its lowest loss before its last evaluation. */
static void long_sides(struct run_fixture runs[6]) {
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].steps = runs[i].planned = 60;
        runs[i].loss_shift = i < 3 ? 0 : 0.1;
    }
}

/* Whether the row has any number of the second table. */
static bool has_speed(const struct scene *s) {
    const json_t *time = json_object_get(loss_row(s), "at_time");
    const json_t *same = json_object_get(loss_row(s), "same_loss");
    return json_is_number(json_object_get(time, "mean")) ||
           json_is_number(json_object_get(same, "loss")) ||
           json_is_number(json_object_get(json_object_get(same, "time"), "factor")) ||
           json_is_number(json_object_get(json_object_get(same, "tokens"), "factor"));
}

enum { TABLE, SAYS_DIVERGED, NEITHER };

/* What text and page both have: the second table, that a run of the baseline diverged, or neither.
 * The legend is there with the table only. */
static int second_part(const struct scene *s) {
    struct err e = { 0 };
    char *text = NULL, *html = page_of(s);
    CHECK(compare_text(&s->c, false, &text, &e));
    bool says = strstr(text, COMPARE_NO_SPEED) != NULL;
    bool table = strstr(text, "at equal time      at ") != NULL;
    assert_int_equal(strstr(html, COMPARE_NO_SPEED) != NULL, says);
    assert_int_equal(strstr(html, "<h3>At equal time") != NULL, table);
    assert_int_equal(strstr(text, "same loss: the lowest") != NULL, table);
    assert_int_equal(strstr(html, "same loss: the lowest") != NULL, table);
    assert_false(says && table);
    free(text);
    free(html);
    return says ? SAYS_DIVERGED : table ? TABLE : NEITHER;
}

static void without_divergence_there_are_times(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    long_sides(runs);
    compare(&s, runs, 6);
    assert_true(has_speed(&s));
    assert_int_equal(second_part(&s), TABLE);
    finish(&s);
}

/* An emulation on a CPU, whose cores several runs may share, says nothing about a GPU's times. */
static void times_of_a_cpu_have_a_caveat(void **state) {
    for (int cpu = 0; cpu < 2; cpu++) {
        struct scene s;
        struct err e = { 0 };
        struct run_fixture runs[6];
        char *text = NULL, *html = NULL;
        long_sides(runs);
        for (int i = 0; i < 6; i++) runs[i].backend = cpu ? "cpu" : "cuda";
        compare(&s, runs, 6);
        assert_int_equal(second_part(&s), TABLE);
        html = page_of(&s);
        CHECK(compare_text(&s.c, false, &text, &e));
        assert_int_equal(strstr(text, "    " COMPARE_CPU_TIMES "\n") != NULL, cpu);
        assert_int_equal(strstr(html, COMPARE_CPU_TIMES ".</p>") != NULL, cpu);
        free(text);
        free(html);
        finish(&s);
    }
}

static void a_baseline_that_diverged_has_no_times(void **state) {
    struct scene s;
    for (int count = 1; count <= 3; count++) { /* of its seeds */
        for (int ends = 0; ends < 2; ends++) {
            struct run_fixture runs[6];
            long_sides(runs);
            for (int i = 0; i < count; i++) {
                if (!ends) runs[i].eval_last = 9;  /* the loss rises */
                else runs[i].status = "failed";    /* ended at a NaN */
            }
            compare(&s, runs, 6);
            verdict_is(&s, NULL, "A diverged: ");
            assert_false(has_speed(&s));
            const json_t *family = json_array_get(losses_of(&s), 0);
            assert_true(json_is_null(json_object_get(family, "seconds")));
            assert_int_equal(second_part(&s), SAYS_DIVERGED);
            finish(&s);
        }
    }
}

/* There is no other row, and so no table. */
static void a_row_that_diverged_has_no_times(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    long_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].loss_shift = i < 3 ? 0.1 : 0;
    runs[3].eval_last = 9;
    compare(&s, runs, 6);
    verdict_is(&s, "does not hold", "D diverged: ");
    assert_false(has_speed(&s));
    assert_int_equal(second_part(&s), NEITHER);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_divergence_there_are_times),
        cmocka_unit_test(times_of_a_cpu_have_a_caveat),
        cmocka_unit_test(a_baseline_that_diverged_has_no_times),
        cmocka_unit_test(a_row_that_diverged_has_no_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
