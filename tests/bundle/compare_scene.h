/* For the tests of compare: bundles made-up runs and compares them. */
#ifndef FP8LAB_TESTS_COMPARE_SCENE_H
#define FP8LAB_TESTS_COMPARE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/bundle/bundle.h"
#include "runner/compare/compare.h"
#include "tests/support/run_fixture.h"

enum { RUNS_MAX = 16 };

struct scene {
    char parent[PATH_CAP], path[RUNS_MAX][PATH_CAP];
    struct comparison c;
};

static const struct bundle_options DROP = { .checkpoints = BUNDLE_CHECKPOINTS_NONE, .threads = 1 };

/* Bundles the runs, in folders of their own, and compares the files. */
static inline void compare_by(struct scene *s, const struct run_fixture *runs, int64_t count,
                              const struct compare_options *options) {
    struct err e = { 0 };
    const char *paths[RUNS_MAX];
    scratch_directory(s->parent);
    for (int64_t i = 0; i < count; i++) {
        struct bundle_result result;
        char parent[PATH_CAP], dir[PATH_CAP];
        snprintf(dir, sizeof dir, "run-%d", (int)i);
        CHECK(path_join(parent, s->parent, dir, &e));
        run_fixture_write(parent, &runs[i], dir);
        CHECK(bundle_finish(dir, &DROP, &result, &e));
        strcpy(s->path[i], result.path);
        paths[i] = s->path[i];
    }
    CHECK(compare_runs(paths, count, options, &s->c, &e));
}

static inline void compare(struct scene *s, const struct run_fixture *runs, int64_t count) {
    compare_by(s, runs, count, NULL);
}

static inline void finish(struct scene *s) {
    struct err e = { 0 };
    compare_free(&s->c);
    CHECK(tree_remove(s->parent, &e));
}

/* Three seeds of BF16, then three of fp8.delayed. */
static inline void two_sides(struct run_fixture runs[6]) {
    for (int i = 0; i < 6; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 3 ? "bf16" : "fp8.delayed";
        runs[i].seed = 1 + i % 3;
    }
}

static inline void text_says(const struct scene *s, const char *words) {
    struct err e = { 0 };
    char *text = NULL;
    CHECK(compare_text(&s->c, false, &text, &e));
    if (!strstr(text, words)) fail_msg("\"%s\" is not in\n%s", words, text);
    free(text);
}

/* The page of the comparison; owned by the caller. Not inlined: gcc 12 would take the text for a
 * pointer to the local variable. */
__attribute__((noinline, unused)) static char *page_of(const struct scene *s) {
    struct err e = { 0 };
    char path[PATH_CAP], *html = NULL;
    size_t size = 0;
    CHECK(path_join(path, s->parent, "page.html", &e));
    CHECK(compare_html(&s->c, path, &e));
    CHECK(file_read(path, 1 << 24, &html, &size, &e));
    return html;
}

/* ---- the rule on losses ---- */

static inline const json_t *losses_of(const struct scene *s) {
    return json_object_get(json_object_get(s->c.report, "statistics"), "losses");
}

/* The first row of the first family. */
static inline const json_t *loss_row(const struct scene *s) {
    const json_t *family = json_array_get(losses_of(s), 0);
    return json_array_get(json_object_get(family, "rows"), 0);
}

static inline void verdict_is(const struct scene *s, const char *verdict, const char *why) {
    const json_t *row = loss_row(s);
    assert_non_null(row);
    if (verdict) assert_string_equal(json_text(row, "verdict", "none"), verdict);
    else assert_true(json_is_null(json_object_get(row, "verdict")));
    if (!strstr(json_text(row, "why", ""), why))
        fail_msg("\"%s\" is not in \"%s\"", why, json_text(row, "why", ""));
}

static inline const char *first_missing(const struct scene *s) {
    const json_t *statistics = json_object_get(s->c.report, "statistics");
    return json_text(json_array_get(json_object_get(statistics, "losses_missing"), 0), "why", "");
}

static inline const char *missing_why(const struct scene *s) {
    assert_int_equal(json_array_size(losses_of(s)), 0);
    return first_missing(s);
}

#endif
