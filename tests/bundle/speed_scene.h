/* For the tests of "How much faster?": made-up runs on a GPU, and what the report says of them. */
#ifndef FP8LAB_TESTS_SPEED_SCENE_H
#define FP8LAB_TESTS_SPEED_SCENE_H

#include "runner/compare/compare_faster.h"
#include "tests/bundle/compare_scene.h"

/* Speeds of three runs a side: the row is 1.5 times as fast, and they scatter by a percent. */
static const double SCATTER[3] = { 0.99, 1.00, 1.01 };
enum { STEPS = 60 }; /* the steady window: steps 13 to 60 */

/* Three runs of one seed in BF16 and three in fp8.delayed, on a GPU, all distinct. */
static inline void on_gpu(struct run_fixture runs[6], double ratio) {
    static const char *const IDS[6] = { "a", "b", "c", "d", "e", "f" };
    for (int i = 0; i < 6; i++) {
        runs[i] = run_fixture_default();
        runs[i].id = IDS[i];
        runs[i].recipe = i < 3 ? "bf16" : "fp8.delayed";
        runs[i].backend = "cuda";
        runs[i].steps = STEPS;
        runs[i].eval_every = 30;
        runs[i].speed = SCATTER[i % 3] * (i < 3 ? 1 : ratio);
    }
}

/* The first n runs of each side, at most three; the row is 1.5 times as fast. */
static inline void few_on_gpu(struct run_fixture *runs, int n, int64_t steps) {
    struct run_fixture six[6];
    on_gpu(six, 1.5);
    for (int i = 0; i < 2 * n; i++) {
        runs[i] = six[i < n ? i : 3 + i - n];
        runs[i].steps = steps;
    }
}

static inline const json_t *speed_family(const struct scene *s) {
    const json_t *statistics = json_object_get(s->c.report, "statistics");
    return json_array_get(json_object_get(statistics, "speed"), 0);
}

static inline const json_t *speed_row(const struct scene *s) {
    return json_array_get(json_object_get(speed_family(s), "rows"), 0);
}

static inline void says(const char *text, const char *words) {
    if (*words && !strstr(text, words)) fail_msg("\"%s\" is not in \"%s\"", words, text);
}

/* The verdict of the first row, and words of its reason; NULL: none is given. */
static inline void speed_is(const struct scene *s, const char *verdict, const char *why) {
    const json_t *row = speed_row(s);
    assert_non_null(row);
    if (verdict) assert_string_equal(json_text(row, "verdict", "none"), verdict);
    else assert_true(json_is_null(json_object_get(row, "verdict")));
    says(json_text(row, "why", ""), why);
}

/* The number of runs left out, and words of the first one's reason. */
static inline void left_out_is(const struct scene *s, size_t count, int64_t run, const char *why) {
    const json_t *list = json_object_get(speed_family(s), "left_out");
    assert_int_equal(json_array_size(list), count);
    assert_int_equal(json_int(json_array_get(list, 0), "run"), run);
    says(json_text(json_array_get(list, 0), "why", ""), why);
}

static inline double number(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

#endif
