/* Records that no run of ours writes, in bundles with correct manifests: steps out of order, an
 * evaluation more than an equal run has, JSON of very many levels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/bundle/archive.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/run_view.h"
#include "runner/bundle/unpack.h"
#include "runner/compare/compare.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

#define TRAIN "data/metrics/train.jsonl"
#define EVAL "data/metrics/eval.jsonl"

static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_NONE,
                                            .keep_directory = true, .threads = 1 };
static const struct archive_options PACKING = { .threads = 1, .level = 3 };

struct scene {
    char parent[PATH_CAP], dir[PATH_CAP], bundle[PATH_CAP];
};

static int set_up(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    struct run_fixture f = run_fixture_default();
    scratch_directory(s->parent);
    run_fixture_write(s->parent, &f, s->dir);
    snprintf(s->bundle, PATH_CAP, "%.*s.tar.zst", PATH_CAP - 16, s->dir);
    *state = s;
    return 0;
}

static int tear_down(void **state) {
    struct scene *s = *state;
    MUST(tree_remove(s->parent, E));
    free(s);
    return 0;
}

static char *text_of(const struct scene *s, const char *name) {
    char path[PATH_CAP], *text = NULL;
    MUST(path_join(path, s->dir, name, E));
    MUST(file_read(path, 1 << 24, &text, &(size_t){ 0 }, E));
    return text;
}

/* Replaces the only occurrence of `old` in the file by `new`. */
static void edit(const struct scene *s, const char *name, const char *old, const char *new) {
    char *text = text_of(s, name), *at = strstr(text, old);
    if (!at) fail_msg("%s holds no %s", name, old);
    *at = 0;
    put_file(s->dir, name, "%s%s%s", text, new, at + strlen(old));
    free(text);
}

static void close_run(const struct scene *s, char problem[512]) {
    struct bundle_result result;
    MUST(bundle_finish(s->dir, &KEEP, &result, E));
    snprintf(problem, 512, "%s", result.problem);
}

/* Packs what is in the directory with manifests that fit. */
static void sign_and_pack(const struct scene *s) {
    static const struct bag_info INFO = { "forged", "a run", "2026-11-21", "a forger" };
    struct tree list;
    char identity[SHA256_HEX];
    int64_t bytes;
    MUST(bag_write(s->dir, &INFO, &list, identity, &bytes, E));
    MUST(archive_pack(s->dir, &list, strrchr(s->dir, '/') + 1, s->bundle, &PACKING, NULL, E));
    tree_free(&list);
}

/* The directory is then like that of a live run. */
static void remove_manifests(const struct scene *s) {
    static const char *const NAMES[] = { "tagmanifest-sha256.txt", "manifest-sha256.txt" };
    for (int i = 0; i < 2; i++) {
        char path[PATH_CAP];
        MUST(path_join(path, s->dir, NAMES[i], E));
        MUST(tree_remove(path, E));
    }
}

/* ---- the order of steps ---------------------------------------------------------------------- */

static const struct { const char *file, *old, *new, *words; } ORDERS[] = {
    { TRAIN, "\"step\":7,", "\"step\":6,", TRAIN ": record 7 has step 6, behind one of step 6" },
    { TRAIN, "\"step\":7,", "\"step\":3,", TRAIN ": record 7 has step 3, behind one of step 6" },
    { TRAIN, "\"step\":1,", "\"step\":-1,", TRAIN ": record 1 has step -1, which no run reaches" },
    { TRAIN, "\"step\":20,", "\"step\":9007199254740993,",
      TRAIN ": record 20 has step 9007199254740993, which no run reaches" },
    { TRAIN, "\"step\":7,", "", TRAIN ": not every record has a whole number as its step" },
    { TRAIN, "\"step\":7,", "\"step\":7.5,",
      TRAIN ": not every record has a whole number as its step" },
    { EVAL, "\"step\":20,", "\"step\":5,", EVAL ": record 2 has step 5, behind one of step 10" },
    { EVAL, "\"step\":10,", "\"step\":\"x\",",
      EVAL ": not every record has a whole number as its step" },
};

/* With manifests and without. */
static void readers_reject_steps_out_of_order(void **state) {
    struct scene *s = *state;
    char problem[512];
    for (size_t i = 0; i < sizeof ORDERS / sizeof *ORDERS; i++) {
        struct unpack_report report;
        struct run_view view;
        close_run(s, problem);
        assert_string_equal(problem, "");
        char *good = text_of(s, ORDERS[i].file);
        edit(s, ORDERS[i].file, ORDERS[i].old, ORDERS[i].new);
        sign_and_pack(s);
        MUST_FAIL(ERR_FORMAT, ORDERS[i].words,
                  bundle_unpack(s->bundle, NULL, &BUNDLE_LIMITS, &report, E));
        MUST_FAIL(ERR_FORMAT, ORDERS[i].words,
                  run_view_load(s->bundle, RUN_VIEW_FULL, &view, E));
        remove_manifests(s);
        MUST_FAIL(ERR_FORMAT, ORDERS[i].words, run_view_load(s->dir, RUN_VIEW_FULL, &view, E));
        put_file(s->dir, ORDERS[i].file, "%s", good);
        free(good);
    }
}

/* A run that is closed with such records says so, and its summary is without them. */
static void closing_names_steps_out_of_order(void **state) {
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof ORDERS / sizeof *ORDERS; i++) {
        struct run_view view;
        char problem[512];
        char *good = text_of(s, ORDERS[i].file);
        edit(s, ORDERS[i].file, ORDERS[i].old, ORDERS[i].new);
        close_run(s, problem);
        if (!strstr(problem, ORDERS[i].words)) fail_msg("%s", problem);
        MUST(run_view_load(s->bundle, RUN_VIEW_FULL, &view, E));
        assert_null(view.columns.of[strcmp(ORDERS[i].file, TRAIN) ? STREAM_EVAL : STREAM_TRAIN]);
        run_view_free(&view);
        put_file(s->dir, ORDERS[i].file, "%s", good);
        free(good);
    }
}

/* ---- equal runs ------------------------------------------------------------------------------ */

/* A run with one more evaluation has other results than a run of the same inputs without it. */
static void a_record_more_is_not_equal(void **state) {
    struct scene *s = *state;
    struct run_fixture f = run_fixture_default();
    struct comparison c;
    char other[PATH_CAP], problem[512], path[PATH_CAP], *text, *last;
    f.id = "20261121T024824Z-tiny-0badcafe";
    run_fixture_write(s->parent, &f, other);
    close_run(s, problem);
    struct bundle_result result;
    MUST(bundle_finish(other, &KEEP, &result, E));
    const char *both[2] = { s->bundle, result.path };
    MUST(compare_runs(both, 2, NULL, &c, E));
    assert_true(c.equal);
    compare_free(&c);
    text = text_of(s, EVAL);
    last = strstr(text, "{\"step\":20,");
    assert_non_null(last);
    put_file(s->dir, EVAL, "%s{\"step\":21,%s", text, last + strlen("{\"step\":20,"));
    free(text);
    close_run(s, problem);
    MUST(compare_runs(both, 2, NULL, &c, E));
    assert_false(c.equal);
    assert_string_equal(json_text(json_array_get(json_object_get(c.report, "divergences"), 0),
                                  "note", ""),
                        "all common records are equal, results_sha256 is not: one run has records "
                        "that the other lacks");
    MUST(path_join(path, s->parent, "page.html", E));
    MUST(compare_html(&c, path, E));
    compare_free(&c);
}

/* ---- nesting --------------------------------------------------------------------------------- */

static void deep_json_is_rejected(void **state) {
    struct scene *s = *state;
    char problem[512], deep[256];
    struct run_view view;
    close_run(s, problem);
    for (int levels = 63; levels <= 64; levels++) { /* and the object around them */
        memset(deep, '[', (size_t)levels);
        memset(deep + levels, ']', (size_t)levels);
        deep[2 * levels] = 0;
        put_file(s->dir, "data/system/facts.json", "{\"cpu\":%s}", deep);
        sign_and_pack(s);
        if (levels == 64)
            MUST_FAIL(ERR_FORMAT, "data/system/facts.json: more than 64 levels of nesting",
                      run_view_load(s->bundle, RUN_VIEW_FULL, &view, E));
        else {
            MUST(run_view_load(s->bundle, RUN_VIEW_FULL, &view, E));
            run_view_free(&view);
        }
    }
    put_file(s->dir, "data/system/facts.json", "{}");
    put_file(s->dir, "data/metrics/samples.jsonl", "{\"step\":1,\"text\":%s}\n", deep);
    sign_and_pack(s);
    MUST_FAIL(ERR_FORMAT, "samples.jsonl: a record of more than 64 levels of nesting",
              run_view_load(s->bundle, RUN_VIEW_FULL, &view, E));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(readers_reject_steps_out_of_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_names_steps_out_of_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_record_more_is_not_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deep_json_is_rejected, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
