/* The shipped experiments and presets: each resolves, alone and from a bundle's files, and has the
 * sizes and flags that others published. */
#include <dirent.h>
#include <stdlib.h>

#include "runner/base/canonical.h"
#include "runner/plan/options.h"
#include "tests/lua/resolve_scene.h"

static void check_shipped(const char *path, bool smoke) {
    struct resolution r;
    resolve_file(path, smoke, NULL, &r);
    assert_true(r.run_count >= 1);
    if (!strchr(r.about, '?')) fail_msg("%s: about asks no question: %s", path, r.about);
    for (int64_t i = 0; i < r.run_count; i++) {
        struct run_options options; /* the options of the worker */
        struct err e = { 0 };
        char *again;
        size_t bytes;
        if (options_read(r.runs[i].config_json, &options, &e) != OK)
            fail_msg("%s, %s: %s", path, r.runs[i].name, e.text);
        if (recipe_check(&options.recipe, &options.model, &e) != OK)
            fail_msg("%s, %s: %s", path, r.runs[i].name, e.text);
        options_free(&options);
        assert_int_equal(json_canonical(r.runs[i].config_json, &again, &bytes, NULL), OK);
        assert_string_equal(again, r.runs[i].config);
        free(again);
        if (smoke) assert_true(int_at(&r.runs[i], "model.width") >= 256);
        if (smoke) assert_true(int_at(&r.runs[i], "model.layers") >= 2);
    }
    resolution_destroy(&r);
}

static void every_shipped_experiment_checks(void **state) {
    (void)state;
    int count = 0;
    DIR *folder = opendir("experiments");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *end = strstr(entry->d_name, ".lua");
        char path[PATH_CAP];
        if (!end || end[4]) continue;
        snprintf(path, sizeof path, "experiments/%s", entry->d_name);
        check_shipped(path, false);
        check_shipped(path, true);
        count++;
    }
    closedir(folder);
    assert_true(count >= 13);
}

/* A script's files in a bundle are enough to resolve it elsewhere to the same bytes. */
static void recorded_files_resolve_to_the_same_bytes(void **state) {
    (void)state;
    static const char *const SCRIPTS[] = { "experiments/h200_recipes.lua",
                                           "experiments/quickstart.lua",
                                           "experiments/gh200_llama31_8b.lua" };
    for (size_t i = 0; i < sizeof SCRIPTS / sizeof *SCRIPTS; i++) {
        char folder[PATH_CAP], path[PATH_CAP];
        struct resolution first, again;
        struct err e = { 0 };
        resolve_file(SCRIPTS[i], false, NULL, &first);
        scratch_directory(folder);
        for (int64_t k = 0; k < first.file_count; k++)
            put_file(folder, first.files[k].name, "%s", first.files[k].text);
        assert_int_equal(path_join(path, folder, "main.lua", NULL), OK);
        struct resolve_options options = { .path = path, .lib = "/nonexistent" };
        if (resolve_experiment(&options, &again, &e) != OK) fail_msg("%s", e.text);
        assert_int_equal(again.run_count, first.run_count);
        for (int64_t k = 0; k < first.run_count; k++)
            assert_string_equal(again.runs[k].config, first.runs[k].config);
        resolution_destroy(&first);
        resolution_destroy(&again);
        assert_int_equal(tree_remove(folder, NULL), OK);
    }
}

/* A suite of scripts gives the same runs as the scripts alone, so no row runs twice. */
static void a_suite_of_scripts_has_their_configurations(void **state) {
    (void)state;
    struct resolution suite, one;
    resolve_file("experiments/h200_recipes.lua", false, NULL, &suite);
    resolve_file("experiments/h200_blockwise.lua", false, NULL, &one);
    assert_int_equal(suite.run_count, 5);
    assert_string_equal(suite.runs[4].config_sha256, one.runs[0].config_sha256);
    resolution_destroy(&suite);
    resolution_destroy(&one);
}

static void presets_have_the_published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int64_t layers, width, heads, kv_heads, ffn, vocab;
        double rope_factor; /* of RoPE's scaling; 0: none */
    } ROWS[] = {
            { "require('models.gpt2')['124m']", 12, 768, 12, 12, 3072, 50257, 0 },
            { "require('models.gpt2')['355m']", 24, 1024, 16, 16, 4096, 50257, 0 },
            { "require('models.gpt2')['774m']", 36, 1280, 20, 20, 5120, 50257, 0 },
            { "require('models.gpt2')['1558m']", 48, 1600, 25, 25, 6400, 50257, 0 },
            { "require('models.llama3').small", 12, 2048, 16, 4, 5504, 128256, 0 },
            { "require('models.llama3')['1b']", 16, 2048, 32, 8, 8192, 128256, 32 },
            { "require('models.llama3')['3b']", 28, 3072, 24, 8, 8192, 128256, 32 },
            { "require('models.llama3')['8b']", 32, 4096, 32, 8, 14336, 128256, 0 },
            { "require('models.llama3')['3.1-8b']", 32, 4096, 32, 8, 14336, 128256, 8 },
        };
    char source[1024];
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct resolution r;
        snprintf(source, sizeof source, HEAD "return one { model = %s }", ROWS[i].model);
        resolve_text(source, false, NULL, &r);
        assert_int_equal(int_at(&r.runs[0], "model.layers"), ROWS[i].layers);
        assert_int_equal(int_at(&r.runs[0], "model.width"), ROWS[i].width);
        assert_int_equal(int_at(&r.runs[0], "model.heads"), ROWS[i].heads);
        assert_int_equal(int_at(&r.runs[0], "model.kv_heads"), ROWS[i].kv_heads);
        assert_int_equal(int_at(&r.runs[0], "model.ffn"), ROWS[i].ffn);
        assert_int_equal(int_at(&r.runs[0], "model.vocab"), ROWS[i].vocab);
        if (strstr(ROWS[i].model, "llama3")) { /* a nested table keeps keys that a preset omits */
            const json_t *scaling = at(&r.runs[0], "model.rope.scaling");
            assert_float_equal(json_real_value(at(&r.runs[0], "model.rope.theta")), 500000, 0);
            assert_float_equal(json_real_value(json_object_get(scaling, "factor")),
                               ROWS[i].rope_factor, 0);
        }
        resolution_destroy(&r);
    }
}

/* The flags of the Megatron-LM report: --fp8-format hybrid and --fp8-param-gather in every FP8 row;
 * --fp8-amax-history-len 1024 and --fp8-amax-compute-algo max, which only delayed scaling reads. */
static void the_five_rows_have_the_reports_flags(void **state) {
    (void)state;
    static const struct { const char *kind; int64_t ends; } ROWS[] = {
        { "bf16", 0 }, { "fp8.delayed", 0 }, { "fp8.tensorwise", 0 }, { "fp8.tensorwise", 1 },
        { "fp8.blockwise", 0 },
    };
    struct resolution r;
    resolve_file("experiments/h200_recipes.lua", false, NULL, &r);
    assert_int_equal(r.run_count, 5);
    for (int i = 0; i < 5; i++) {
        const struct resolved_run *run = &r.runs[i];
        assert_string_equal(string_at(run, "recipe.kind"), ROWS[i].kind);
        if (i == 0) continue;
        assert_string_equal(string_at(run, "recipe.format"), "hybrid");
        assert_true(json_is_true(at(run, "recipe.param_gather")));
        assert_int_equal(int_at(run, "recipe.first_bf16"), ROWS[i].ends);
        assert_int_equal(int_at(run, "recipe.last_bf16"), ROWS[i].ends);
    }
    assert_int_equal(int_at(&r.runs[1], "recipe.history"), 1024);
    assert_string_equal(string_at(&r.runs[1], "recipe.algo"), "max");
    resolution_destroy(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shipped_experiment_checks),
        cmocka_unit_test(recorded_files_resolve_to_the_same_bytes),
        cmocka_unit_test(a_suite_of_scripts_has_their_configurations),
        cmocka_unit_test(presets_have_the_published_sizes),
        cmocka_unit_test(the_five_rows_have_the_reports_flags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
