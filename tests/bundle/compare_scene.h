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

#endif
