/* For the tests that resolve scripts: resolving a file or a text, and looking at the result. */
#ifndef FP8LAB_TESTS_RESOLVE_SCENE_H
#define FP8LAB_TESTS_RESOLVE_SCENE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/run_files.h"
#include "runner/script/resolve.h"
#include "tests/support/run_fixture.h"

/* Resolves a script with a NULL-terminated list of overrides; asserts that it resolves. */
static inline void resolve_file(const char *path, bool smoke, const char *const *overrides,
                                struct resolution *out) {
    struct err e = { 0 };
    int64_t count = 0;
    while (overrides && overrides[count]) count++;
    struct resolve_options options = { .path = path, .overrides = overrides,
                                       .override_count = count, .smoke = smoke };
    enum status st = resolve_experiment(&options, out, &e);
    if (st != OK) fail_msg("%s: %s\n%s", path, e.text, out->log ? out->log : "");
}

/* The same for a source text in a fresh folder. */
static inline void resolve_text(const char *source, bool smoke, const char *const *overrides,
                                struct resolution *out) {
    char folder[PATH_CAP], path[PATH_CAP];
    scratch_directory(folder);
    put_file(folder, "x.lua", "%s", source);
    assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
    resolve_file(path, smoke, overrides, out);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

#define OVERRIDES(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define HEAD                                                                                  \
    "local tiny = require 'models.tiny'\n"                                                    \
    "local function one(t) t.name, t.data = t.name or 'x', t.data or synthetic\n"             \
    "t.model, t.recipe = t.model or tiny.llama, t.recipe or bf16\n"                           \
    "t.train = t.train or { steps = 10, global_batch = 8 } return experiment(t) end\n"

/* ---- values ---------------------------------------------------------------------------------- */
/* The member at a dotted path of a run's configuration. */
static inline const json_t *at(const struct resolved_run *run, const char *path) {
    const json_t *v = run->config_json;
    char part[64];
    while (v && *path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    if (!v) fail_msg("no %s in %s", path, run->config);
    return v;
}

static inline int64_t int_at(const struct resolved_run *run, const char *path) {
    assert_true(json_is_integer(at(run, path)));
    return json_integer_value(at(run, path));
}

static inline const char *string_at(const struct resolved_run *run, const char *path) {
    return json_is_null(at(run, path)) ? NULL : json_string_value(at(run, path));
}

#endif
