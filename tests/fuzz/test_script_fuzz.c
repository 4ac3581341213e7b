/* Broken scripts: the shipped ones with bytes changed, doubled and dropped. The evaluation must end
 * with runs or with error texts. It must not crash its child process (a sanitizer's report counts
 * as a crash) or end without a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/run_files.h"
#include "runner/script/resolve.h"
#include "tests/support/run_fixture.h"

enum { ROUNDS = 60, SEED = 20261121, SOURCE_MAX = 1 << 16 };

static uint64_t next(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Cuts, copies and exchanges pieces of `text`, and inserts characters that mean something in
 * Lua. */
static void mutate(char *text, uint64_t *random) {
    static const char SPICE[] = "{}()[]=,;.\"'\\-#~<>^0195efx\n \x80\xff";
    for (uint64_t edits = 1 + next(random) % 4; edits > 0; edits--) {
        size_t n = strlen(text);
        size_t at = next(random) % (n + 1), length = next(random) % 12;
        if (at + length > n) length = n - at;
        switch (next(random) % 3) {
        case 0: /* drop */
            memmove(text + at, text + at + length, n - at - length + 1);
            break;
        case 1: /* double */
            if (n + length + 1 > SOURCE_MAX) break;
            memmove(text + at + length, text + at, n - at + 1);
            break;
        default: /* change */
            if (at < n) text[at] = SPICE[next(random) % (sizeof SPICE - 1)];
        }
    }
}

static void check_mutant(const char *path, const char *text) {
    struct resolution r;
    struct err e = { 0 };
    char *shown;
    struct resolve_options options = { .path = path, .lib = "experiments/lib",
                                       .smoke = strlen(text) % 2 };
    enum status st = resolve_experiment(&options, &r, &e);
    if (st != OK && st != ERR_CONFIG) fail_msg("%s: %s\n%s", path, e.text, text);
    if (strstr(e.text, "ended without a result")) fail_msg("%s\n%s", e.text, text);
    assert_true(st == OK ? r.run_count > 0 || r.suite : r.error_count > 0);
    for (int64_t i = 0; i < r.error_count; i++) {
        shown = resolved_error_text(&r.errors[i]);
        assert_non_null(shown);
        free(shown);
    }
    resolution_destroy(&r);
}

static void fuzz_file(const char *source, const char *folder, uint64_t *random) {
    char *original, path[PATH_CAP];
    char *text = malloc(SOURCE_MAX);
    size_t bytes;
    assert_non_null(text);
    assert_int_equal(file_read(source, SOURCE_MAX / 2, &original, &bytes, NULL), OK);
    assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
    for (int round = 0; round < ROUNDS; round++) {
        memcpy(text, original, bytes + 1);
        mutate(text, random);
        assert_int_equal(file_replace(path, text, strlen(text), NULL), OK);
        check_mutant(path, text);
    }
    free(original);
    free(text);
}

static void broken_scripts_end_with_errors(void **state) {
    static const char *const SOURCES[] = {
        "experiments/quickstart.lua",      "experiments/shapes.lua",
        "experiments/margins.lua",         "experiments/lib/h200_llama3_8b.lua",
        "tests/lua/golden/recipes.lua",    "tests/lua/golden/layers.lua",
        "tests/lua/golden/combinations.lua",
    };
    (void)state;
    char folder[PATH_CAP];
    uint64_t random = SEED;
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof SOURCES / sizeof *SOURCES; i++)
        fuzz_file(SOURCES[i], folder, &random);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(broken_scripts_end_with_errors) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
