/* `advise` reads the cache of certificates: each of its three words, as text and as JSON, and what
 * a failure makes of a recipe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/certify/certify_cache.h"
#include "runner/certify/ways.h"
#include "runner/hardware/facts.h"
#include "runner/script/resolve.h"
#include "tests/support/must.h"

static const char FACTS[] = "tests/facts/h200.json", SCRIPT[] = "tests/cli/tiny.lua";

/* What a run does not use after this way failed, as the backend names it: "e4m3 row x e4m3 row" of
 * "gemm e4m3 row x e4m3 row -> bf16, ...". Without operands in FP8 there is no other way. */
static json_t *forbid_of(const char *way) {
    int section = (int)strcspn(way, " ") + 1;
    const char *end = strstr(way, " -> ");
    if (!end || !strstr(way, "gemm e")) return json_null();
    return json_stringn(way + section, (size_t)(end - way - section));
}

/* Adds certificates of all ways of a recipe; those whose text starts with `fails` failed. */
static void certify_recipe(json_t *list, const char *recipe, const char *fails) {
    char set[64], text[WAY_TEXT_CAP];
    const char *overrides[] = { set };
    struct resolution r;
    struct ways ways;
    snprintf(set, sizeof set, "recipe=%s", recipe);
    const struct resolve_options options = { .path = SCRIPT, .overrides = overrides,
                                             .override_count = 1 };
    MUST(resolve_experiment(&options, &r, E));
    MUST(ways_of_config(r.runs[0].config_json, 1, TWINS_TRANSPOSED, &ways, E));
    for (int64_t i = 0; i < ways.count; i++) {
        certify_way_text(&ways.way[i], text);
        bool failed = fails && !strncmp(text, fails, strlen(fails));
        json_t *one = json_pack("{s:s,s:s,s:s,s:s?,s:o}", "way", text, "section",
                                way_section_name(ways.way[i].section), "outcome",
                                failed ? "failed" : "passed", "fault",
                                failed ? "ignored scale" : NULL, "forbid",
                                failed ? forbid_of(text) : json_null());
        assert_int_equal(json_array_append_new(list, one), 0);
    }
    ways_free(&ways);
    resolution_destroy(&r);
}

/* Keeps a list for the machine of FACTS, with another driver if one is named. */
static void keep(const char *folder, const char *driver, json_t *list) {
    struct certify_cache cache;
    char problem[KEPT_PROBLEM_CAP];
    json_t *facts;
    MUST(facts_load(FACTS, &facts, E));
    if (driver) json_object_set_new(facts, "gpu.driver", json_string(driver));
    const struct certify_device gpu = { .backend = "cuda" };
    MUST(certify_cache_open(&cache, folder, NULL, facts, &gpu, E));
    MUST(certify_cache_add(&cache, list, problem, E));
    assert_string_equal(problem, "");
    certify_cache_close(&cache);
    json_decref(facts);
    json_decref(list);
}

/* What `advise` prints; the caller frees it. */
static char *advise(const char *folder, const char *flags) {
    char command[2048];
    char *text = NULL;
    size_t size = 0, n;
    char part[512];
    snprintf(command, sizeof command, "XDG_CACHE_HOME='%s' '%s' advise %s --facts %s -q "
             "--runs '%s/runs' %s", folder, getenv("FP8LAB"), SCRIPT, FACTS, folder, flags);
    FILE *from = popen(command, "r"), *to = open_memstream(&text, &size);
    assert_non_null(from);
    assert_non_null(to);
    while ((n = fread(part, 1, sizeof part, from)) > 0) fwrite(part, 1, n, to);
    assert_int_equal(pclose(from), 0);
    fclose(to);
    return text;
}

/* The word of a recipe in the table of --detail: after the name and the way. */
static void table_says(const char *text, const char *recipe, const char *word) {
    char name[32], way[32];
    snprintf(name, sizeof name, "\n%s ", recipe);
    const char *line = strstr(text, name);
    int at = 0;
    if (!line) fail_msg("no row of %s in:\n%s", recipe, text);
    else if (sscanf(line, " %31s %31s %n", name, way, &at) < 2 ||
             strncmp(line + at, word, strlen(word)) != 0)
        fail_msg("%s is not %s in:\n%s", recipe, word, text);
}

static const json_t *row_of(const json_t *advice, const char *recipe) {
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(advice, "rows"), i, row)
        if (!strcmp(json_string_value(json_object_get(row, "recipe")), recipe)) return row;
    fail_msg("no row of %s", recipe);
    return NULL;
}

static void json_says(const json_t *advice, const char *recipe, const char *word, int all) {
    const json_t *c = json_object_get(row_of(advice, recipe), "certified");
    const char *failed = json_string_value(json_object_get(c, "failed"));
    json_int_t ways = json_integer_value(json_object_get(c, "ways"));
    json_int_t tried = json_integer_value(json_object_get(c, "tried"));
    assert_string_equal(json_string_value(json_object_get(c, "finding")), word);
    assert_true(ways > 0 && (tried == ways) == all);
    assert_int_equal(failed != NULL, !strcmp(word, "failed"));
    if (!failed) return;
    assert_int_equal(strncmp(failed, "gemm e4m3 row", 13), 0);
    assert_string_equal(json_string_value(json_object_get(c, "fault")), "ignored scale");
}

/* A folder of caches of its own, and the one in it that `advise` reads. */
static void make_folder(char folder[512], char kept[600]) {
    snprintf(folder, 512, "%s/advise-XXXXXX", getenv("TEST_TMP"));
    assert_non_null(mkdtemp(folder));
    snprintf(kept, 600, "%s/fp8lab", folder);
}

/* fp8.blockwise has certificates too, but of another driver. */
static void the_cache_has_three_answers(void **state) {
    char folder[512], kept[600];
    make_folder(folder, kept);
    char *text = advise(folder, "--detail");
    table_says(text, "bf16", "not tried"); /* an empty cache */
    free(text);
    json_t *list = json_array();
    certify_recipe(list, "bf16", NULL);
    certify_recipe(list, "fp8.rowwise", "gemm e4m3 row");
    keep(kept, NULL, list);
    list = json_array();
    certify_recipe(list, "fp8.blockwise", NULL);
    keep(kept, "another driver", list);

    text = advise(folder, "--detail");
    table_says(text, "bf16", "certified ");
    table_says(text, "fp8.rowwise", "failed ");
    table_says(text, "fp8.blockwise", "not tried ");
    if (!strstr(text, "; certified here; ")) fail_msg("the first line: %s", text);
    if (!strstr(text, "failed its certificate: ignored scale")) fail_msg("the row: %s", text);
    free(text);

    text = advise(folder, "--json");
    json_t *advice = json_loads(text, 0, NULL);
    json_says(advice, "bf16", "certified", true);
    json_says(advice, "fp8.rowwise", "failed", true);
    json_says(advice, "fp8.blockwise", "not tried", false);
    json_decref(advice);
    free(text);
}

static void row_says(const json_t *advice, const char *recipe, const char *key, const char *word) {
    const char *found = json_string_value(json_object_get(row_of(advice, recipe), key));
    if (!found || strncmp(found, word, strlen(word)) != 0)
        fail_msg("%s of %s is %s, not %s", key, recipe, found ? found : "absent", word);
}

/* A run widens the operands of a product that failed, so the times of native ones are not its own.
 * With a fallback and no product left, BF16's are. */
static void a_product_that_failed_is_emulated(void **state) {
    static const char BENCH[] = "--bench experiments/reference/figures/bench_h200.json";
    char folder[512], kept[600], flags[300];
    make_folder(folder, kept);
    json_t *list = json_array();
    certify_recipe(list, "fp8.rowwise", "gemm e4m3 row");
    certify_recipe(list, "fp8.delayed", "gemm e4m3 tensor x e4m3"); /* some of its products */
    keep(kept, NULL, list);
    snprintf(flags, sizeof flags, "%s --json", BENCH);
    char *text = advise(folder, flags);
    json_t *advice = json_loads(text, 0, NULL);
    static const char *const FAILED[] = { "fp8.rowwise", "fp8.delayed" };
    for (int i = 0; i < 2; i++) {
        const json_t *row = row_of(advice, FAILED[i]);
        row_says(advice, FAILED[i], "way", "emulated");
        row_says(advice, FAILED[i], "reason", i ? "emulated: gemm e4m3 tensor x e4m3 tensor failed "
                                                  "its certificate: ignored scale"
                                                : "emulated: gemm e4m3 row x e4m3 row failed its "
                                                  "certificate: ignored scale");
        assert_true(json_is_null(json_object_get(row, "forecast")));
    }
    row_says(advice, "fp8.blockwise", "way", "native");
    json_decref(advice);
    free(text);

    snprintf(flags, sizeof flags, "%s --json --set recipe=fp8.rowwise "
             "--set recipe.fallback=bf16", BENCH);
    text = advise(folder, flags);
    advice = json_loads(text, 0, NULL);
    row_says(advice, "fp8.rowwise", "way", "fallback");
    row_says(advice, "fp8.rowwise", "reason", "falls back to bf16: gemm e4m3 row x e4m3 row fail");
    assert_true(json_equal(json_object_get(row_of(advice, "fp8.rowwise"), "forecast"),
                           json_object_get(row_of(advice, "bf16"), "forecast")));
    json_decref(advice);
    free(text);
}

/* A cast has no other way: a run ends. */
static void a_way_without_another_is_not_advised(void **state) {
    char folder[512], kept[600];
    make_folder(folder, kept);
    json_t *list = json_array();
    certify_recipe(list, "fp8.blockwise", "cast");
    keep(kept, NULL, list);
    char *text = advise(folder, "--json");
    json_t *advice = json_loads(text, 0, NULL);
    row_says(advice, "fp8.blockwise", "group", "cannot");
    row_says(advice, "fp8.blockwise", "reason", "cast bf16 to e4m3 ");
    row_says(advice, "bf16", "group", "untimed");
    json_decref(advice);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cache_has_three_answers),
        cmocka_unit_test(a_product_that_failed_is_emulated),
        cmocka_unit_test(a_way_without_another_is_not_advised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
