/* Which directories beside their bundles `gc` removes: only those that hold nothing else. */
#include <string.h>

#include "runner/bundle/archive.h"
#include "runner/bundle/bundle.h"
#include "runner/run/removal.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

static const struct bundle_options KEEP = { .checkpoints = BUNDLE_CHECKPOINTS_FULL,
                                            .keep_directory = true, .threads = 1 };

/* A run that ended so, its bundle, and perhaps one more file in its directory. */
static void leaves(const char *status, const char *file, size_t removed, const char *spared) {
    char parent[PATH_CAP], dir[PATH_CAP];
    struct bundle_result result;
    struct run_fixture f = run_fixture_default();
    struct removal r = { 0 };
    f.status = status;
    scratch_directory(parent);
    run_fixture_write(parent, &f, dir);
    MUST(bundle_finish(dir, &KEEP, &result, E));
    if (file) put_file(dir, file, "%s", "mine");
    MUST(removal_add_garbage(&r, parent, E));
    assert_int_equal(r.count, removed);
    if (removed) assert_string_equal(r.item[0].path, dir);
    const json_t *first = json_array_get(r.spared, 0);
    if (!spared) assert_int_equal(json_array_size(r.spared), 0);
    else if (!strstr(json_text(first, "why", ""), spared))
        fail_msg("\"%s\" is not in \"%s\"", spared, json_text(first, "why", ""));
    removal_free(&r);
    MUST(tree_remove(parent, E));
}

static void the_directory_of_a_done_run_is_garbage(void **state) {
    leaves("done", NULL, 1, NULL);
}

/* Its directory is where it goes on; the bundle alone would have to be unpacked. */
static void a_run_that_can_be_resumed_keeps_its_directory(void **state) {
    static const char *const STATUS[] = { "interrupted", "killed", "failed", "time_limit" };
    for (size_t i = 0; i < sizeof STATUS / sizeof *STATUS; i++) leaves(STATUS[i], NULL, 0, NULL);
}

static void what_the_bundle_lacks_stays(void **state) {
    leaves("done", ARCHIVE_ASIDE "/step-000010/model.safetensors", 0,
           "it holds checkpoints that its bundle lacks");
    leaves("done", "data/notes.txt", 0, "it is not what its bundle holds");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_directory_of_a_done_run_is_garbage),
        cmocka_unit_test(a_run_that_can_be_resumed_keeps_its_directory),
        cmocka_unit_test(what_the_bundle_lacks_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
