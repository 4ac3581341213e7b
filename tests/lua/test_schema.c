/* The exact text of every schema error: golden/X.lua against golden/X.txt. A first line
 * "-- overrides: a=b c=d" gives --set arguments. `test_schema --write` writes new texts; read
 * the difference before committing it. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/script/resolve.h"
#include "runner/script/schema_tables.h"

static const char GOLDEN[] = "tests/lua/golden";
enum { OVERRIDES_MAX = 8, CASES_MAX = 64 };

/* ---- one case -------------------------------------------------------------------------------- */
static void resolve_case(const char *path, struct resolution *out, enum status *st) {
    char *source, *overrides[OVERRIDES_MAX];
    size_t bytes;
    struct err e = { 0 };
    int64_t count = 0;
    assert_int_equal(file_read(path, 1 << 20, &source, &bytes, &e), OK);
    char *line = strtok(source, "\n");
    if (line && strncmp(line, "-- overrides: ", 14) == 0)
        for (char *at = strtok(line + 14, " "); at; at = strtok(NULL, " ")) overrides[count++] = at;
    struct resolve_options options = { .path = path,
                                       .overrides = (const char *const *)overrides,
                                       .override_count = count };
    *st = resolve_experiment(&options, out, &e);
    free(source);
}

static void errors_text(const struct resolution *r, struct text *out) {
    for (int64_t i = 0; i < r->error_count; i++) {
        char *text = resolved_error_text(&r->errors[i]);
        assert_non_null(text);
        text_puts(out, text);
        free(text);
    }
}

static int compare_names(const void *a, const void *b) { return strcmp(a, b); }

/* The golden scripts in order of their names, without ".lua". */
static size_t list_cases(char names[CASES_MAX][64]) {
    size_t count = 0;
    DIR *folder = opendir(GOLDEN);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strstr(entry->d_name, ".lua");
        if (!end || end[4]) continue;
        assert_true(count < CASES_MAX);
        snprintf(names[count++], 64, "%.*s", (int)(end - entry->d_name), entry->d_name);
    }
    closedir(folder);
    qsort(names, count, sizeof *names, compare_names);
    return count;
}

static void check_case(const char *name, bool write) {
    char path[PATH_CAP];
    struct resolution r;
    struct text found = { 0 };
    enum status st;
    snprintf(path, sizeof path, "%s/%s.lua", GOLDEN, name);
    resolve_case(path, &r, &st);
    assert_int_equal(st, ERR_CONFIG);
    assert_int_equal(r.run_count, 0);
    errors_text(&r, &found);
    snprintf(path, sizeof path, "%s/%s.txt", GOLDEN, name);
    if (write) {
        assert_int_equal(file_replace(path, found.bytes, found.size, NULL), OK);
    } else {
        char *expected;
        size_t bytes;
        assert_int_equal(file_read(path, 1 << 20, &expected, &bytes, NULL), OK);
        if (strcmp(expected, found.bytes) != 0)
            fail_msg("%s\n---- expected\n%s---- found\n%s", path, expected, found.bytes);
        free(expected);
    }
    text_free(&found);
    resolution_destroy(&r);
}

static void error_texts_are_exact(void **state) {
    char names[CASES_MAX][64];
    size_t count = list_cases(names);
    assert_true(count >= 10);
    for (size_t i = 0; i < count; i++) check_case(names[i], *state != NULL);
}

/* ---- runner/script/KEYS.md names every key --------------------------------------------------- */
static void look_for_keys(const struct schema *schema, const char *reference, int depth) {
    assert_true(depth < 8);
    for (const struct field *f = schema->fields; f->key; f++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "`%s`", f->key);
        if (!strstr(reference, quoted)) fail_msg("runner/script/KEYS.md does not name %s", quoted);
        if (f->schema) look_for_keys(f->schema, reference, depth + 1);
        for (int i = 0; f->variants && f->variants[i]; i++)
            look_for_keys(f->variants[i], reference, depth + 1);
    }
}

/* The row of a kind: "| `KIND` | format, ... | constants, ... | accumulate | `KEY` (DEFAULT) |".
 * The first word of a list is the default. */
static void check_recipe_row(const struct schema *kind, const char *reference) {
    char row[512], begin[256], gemms[64] = "";
    const char *format = NULL, *constants = NULL;
    snprintf(begin, sizeof begin, "\n| `%s` |", kind->name);
    const char *at = strstr(reference, begin);
    if (!at) fail_msg("runner/script/KEYS.md has no row of %s", kind->name);
    snprintf(row, sizeof row, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    for (const struct field *f = kind->fields; f->key; f++) {
        char plain[96], word[96];
        if (!strcmp(f->key, "format")) format = f->initial;
        if (!strcmp(f->key, "constants")) constants = f->initial;
        for (const struct field *g = f->schema ? f->schema->fields : NULL; g && g->key; g++)
            snprintf(gemms + strlen(gemms), sizeof gemms - strlen(gemms), " %s", g->initial);
        snprintf(plain, sizeof plain, "`%s` (", f->key);
        const char *option = strstr(row, plain);
        if (!option || !f->initial) continue;
        snprintf(plain, sizeof plain, "`%s` (%s", f->key, f->initial);
        snprintf(word, sizeof word, "`%s` (\"%s\"", f->key, f->initial);
        if (strstr(row, plain) != option && strstr(row, word) != option)
            fail_msg("the default of %s is %s; KEYS.md says: %s", f->key, f->initial, row);
    }
    snprintf(begin, sizeof begin, "| `%s` | %s", kind->name, format);
    if (strncmp(row, begin, strlen(begin)) != 0) fail_msg("the default format is not in %s", row);
    const char *next = strchr(row + strlen(begin), '|');
    snprintf(begin, sizeof begin, "| %s", constants);
    if (!next || strncmp(next, begin, strlen(begin)) != 0)
        fail_msg("the default constants, %s, are not in %s", constants, row);
    next = strchr(next + 1, '|');
    snprintf(begin, sizeof begin, "|%s", gemms);
    if (!next || strncmp(next, begin, strlen(begin)) != 0)
        fail_msg("the accumulators,%s, are not in %s", gemms, row);
}

static void the_key_reference_is_complete(void **state) {
    (void)state;
    char *reference;
    size_t bytes;
    assert_int_equal(file_read("runner/script/KEYS.md", 1 << 20, &reference, &bytes, NULL), OK);
    look_for_keys(&SCHEMA_EXPERIMENT, reference, 0);
    for (const struct schema *const *kind = SCHEMA_RECIPES; *kind; kind++)
        if (!strncmp((*kind)->name, "fp8.", 4)) check_recipe_row(*kind, reference);
    free(reference);
}

int main(int argc, char **argv) {
    static bool write = true;
    void *state = argc > 1 && strcmp(argv[1], "--write") == 0 ? &write : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(error_texts_are_exact, state),
        cmocka_unit_test(the_key_reference_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
