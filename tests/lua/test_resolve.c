/* From script to configuration: bytes, matrices, overrides, smoke, layers, patterns of files. */
#include <stdlib.h>

#include "runner/base/canonical.h"
#include "runner/plan/options.h"
#include "tests/lua/resolve_scene.h"

/* ---- canonical bytes ------------------------------------------------------------------------- */
static void key_order_and_spelling_change_no_byte(void **state) {
    (void)state;
    static const char *const SAME[] = {
        "return experiment { name = 'a', model = { vocab = 256, seq_len = 64, layers = 2, width = "
        "64, heads = 4, ffn = 96, rope = { theta = 10000 } }, recipe = fp8.delayed {}, data = text "
        "'a.txt', train = { steps = 10, global_batch = 8, micro_batch = 4, time_limit = '1h1s', "
        "optimizer = adamw { lr = 0.001 } } }",
        "local m = preset { ffn = 96.0, heads = 4, width = 64, layers = 1 }\n"
        "return experiment { train = { time_limit = 3601, micro_batch = 4.0, global_batch = 8,\n"
        "  optimizer = adamw { lr = 1e-3, betas = { 9e-1, 0.95 } }, steps = 2 * 5 },\n"
        "  data = text { paths = { 'a.txt' } }, recipe = fp8.delayed,\n"
        "  model = m { seq_len = 64, layers = 2, vocab = 256 }, name = 'a' }",
    };
    struct resolution first, other;
    resolve_text(SAME[0], false, NULL, &first);
    for (int round = 0; round < 3; round++) { /* the string hash has another seed each time */
        resolve_text(SAME[1], false, NULL, &other);
        assert_string_equal(first.runs[0].config, other.runs[0].config);
        assert_string_equal(first.runs[0].config_sha256, other.runs[0].config_sha256);
        resolution_destroy(&other);
    }
    resolution_destroy(&first);
}

/* "fp8" is the default of each GEMM: to write it changes no hash, so no run is made twice. */
static void a_gemm_in_fp8_is_as_if_not_named(void **state) {
    (void)state;
    static const char *const SAME[][2] = {
        { "fp8.delayed", "fp8.delayed { fprop = 'fp8', dgrad = 'fp8', wgrad = 'fp8' }" },
        { "fp8.rowwise", "fp8.rowwise { wgrad = 'fp8', fprop = 'fp8' }" },
        { "fp4.nvfp4 { dgrad = 'bf16' }", "fp4.nvfp4 { dgrad = 'bf16', wgrad = 'fp8' }" },
    };
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        struct resolution r[2];
        for (int k = 0; k < 2; k++) {
            char text[1024];
            snprintf(text, sizeof text, HEAD "return one { recipe = %s }", SAME[i][k]);
            resolve_text(text, false, NULL, &r[k]);
        }
        assert_string_equal(r[0].runs[0].config, r[1].runs[0].config);
        assert_string_equal(r[0].runs[0].config_sha256, r[1].runs[0].config_sha256);
        resolution_destroy(&r[0]);
        resolution_destroy(&r[1]);
    }
}

/* A whole small configuration: every key, every default. A change here changes inputs_sha256, so
 * its commit must say so. */
static void a_configuration_is_complete(void **state) {
    (void)state;
    struct resolution r;
    resolve_text("return experiment { name = 'a', model = { vocab = 256, seq_len = 64, layers = 2, "
                 "width = 64, heads = 4, ffn = 96 }, recipe = fp8.delayed, data = synthetic, train "
                 "= { steps = 10, global_batch = 8 } }", false, NULL, &r);
    assert_int_equal(r.run_count, 1);
    assert_string_equal(
        r.runs[0].config,
        "{\"about\":\"\",\"archive\":\"none\",\"checkpoint\":null,\"data\":{\"kind\":\"synthetic\","
        "\"seed\":1234},\"env\":{},\"eval\":null,\"hardware\":{\"gpus\":1,\"query\":null},\"image\""
        ":null,\"model\":{\"activation\":\"swiglu\",\"bias\":false,\"ffn\":96,\"head_dim\":16,"
        "\"heads\":4,\"init_std\":0.02,\"kv_heads\":4,\"layers\":2,\"norm\":\"rmsnorm\","
        "\"norm_eps\":1e-05,\"positions\":\"rope\",\"qk_norm\":false,\"rope\":{\"scaling\":null,"
        "\"theta\":10000.0},\"seq_len\":64,\"tied\":false,\"vocab\":256,\"width\":64},\"name\":"
        "\"a\",\"recipe\":{\"accumulate\":{\"dgrad\":\"split\",\"fprop\":\"fast\",\"wgrad\":"
        "\"split\"},\"algo\":\"max\",\"constants\":\"te\",\"fallback\":null,\"first_bf16\":0,"
        "\"format\":\"hybrid\",\"history\":1024,\"kind\":\"fp8.delayed\",\"last_bf16\":0,"
        "\"layers\":[],\"lm_head\":\"bf16\",\"margin\":0,\"param_gather\":false,\"roll\":"
        "\"microbatch\"},\"schema\":\"fp8lab.experiment/1\",\"trace\":{\"every\":0,\"first\":20},"
        "\"train\":{\"epochs\":null,\"global_batch\":8,\"grad_dtype\":\"f32\",\"head_chunk\":1024,"
        "\"micro_batch\":1,\"optimizer\":{\"betas\":[0.9,0.95],\"clip\":1.0,\"eps\":1e-08,"
        "\"kind\":\"adamw\",\"lr\":0.0003,\"master\":\"f32\",\"offload\":false,\"state\":\"f32\","
        "\"weight_decay\":0.1},\"recompute\":\"none\","
        "\"schedule\":{\"decay\":0,\"final\":1.0,\"kind\":\"constant\",\"warmup\":0},\"seed\":1234,"
        "\"shard\":\"optimizer\",\"steps\":10,\"time_limit_s\":null}}");
    resolution_destroy(&r);
}

/* So does tensorboard: null is off, a table or `true` is on. */
static void tensorboard_is_a_switch(void **state) {
    (void)state;
    static const struct { const char *set, *found; } CASES[] = {
        { "tensorboard=false", "null" }, { "tensorboard=true", "{}" },
        { "tensorboard=null", "null" },  { "train.seed=1", NULL },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct resolution r;
        resolve_text(HEAD "return one {}", false, OVERRIDES(CASES[i].set), &r);
        assert_int_equal(r.run_count, 1);
        const json_t *found = json_object_get(r.runs[0].config_json, "tensorboard");
        char *text = json_dumps(found, JSON_ENCODE_ANY);
        if (CASES[i].found) assert_string_equal(text, CASES[i].found);
        else assert_null(found);
        free(text);
        resolution_destroy(&r);
    }
}

/* These keys stand in the configuration only if they are set. */
static void some_keys_are_absent_unless_set(void **state) {
    (void)state;
    static const char SOURCE[] =
        "return experiment { name = 'a', model = { vocab = 256, seq_len = 64, layers = 2, width = "
        "64, heads = 4, ffn = 96 }, recipe = bf16, data = synthetic, train = { steps = 10, "
        "global_batch = 8 } }";
    for (int set = 0; set < 2; set++) {
        struct err e = { 0 };
        struct resolution r;
        struct run_options run;
        resolve_text(SOURCE, false, set ? OVERRIDES("model.window=24", "fp8_error=0",
                                                        "train.audit.every=7")
                                            : NULL, &r);
        json_t *config = json_loads(r.runs[0].config, 0, NULL);
        assert_int_equal(strstr(r.runs[0].config, "window") != NULL, set);
        assert_int_equal(strstr(r.runs[0].config, "fp8_error") != NULL, set);
        assert_int_equal(options_read(config, &run, &e), OK);
        assert_int_equal(run.model.window, set ? 24 : 0);
        assert_int_equal(run.train.fp8_error, set ? 0 : 100);
        assert_int_equal(run.train.audit.every, set ? 7 : AUDIT_BY_BACKEND);
        assert_int_equal(run.train.audit.outputs, AUDIT_OUTPUTS);
        options_free(&run);
        json_decref(config);
        resolution_destroy(&r);
    }
}

/* The value and the text of each default stand side by side in model/recipe_kinds.h. */
static void a_bare_recipe_is_its_descriptors_defaults(void **state) {
    (void)state;
    for (int kind = 0; kind < RECIPE_KIND_COUNT; kind++) {
        struct err e = { 0 };
        struct resolution r;
        struct run_options run;
        char source[1024];
        snprintf(source, sizeof source, HEAD "return one { recipe = %s }", RECIPE_KIND_NAMES[kind]);
        resolve_text(source, false, NULL, &r);
        assert_int_equal(options_read(r.runs[0].config_json, &run, &e), OK);
        const struct recipe_options *got = run.recipe.site;
        const struct recipe_options *want = &recipe_info((enum recipe_kind)kind)->defaults;
        assert_ptr_equal(recipe_info_named(RECIPE_KIND_NAMES[kind]),
                         recipe_info((enum recipe_kind)kind));
        assert_int_equal(got->kind, kind);
#define SAME(field, value, text) assert_int_equal(got->field, want->field);
#define SAME_SPEED(fprop, dgrad, wgrad)                                                       \
    assert_int_equal(got->fprop_fast, want->fprop_fast);                                      \
    assert_int_equal(got->dgrad_fast, want->dgrad_fast);                                      \
    assert_int_equal(got->wgrad_fast, want->wgrad_fast);
#define COMPARE(kind_, name)                                                                  \
    if (kind == RECIPE_##kind_) { RECIPE_OPTIONS_##kind_(SAME, SAME_SPEED) }
        RECIPE_FP8_KINDS(COMPARE)
        options_free(&run);
        resolution_destroy(&r);
    }
}

static void recipe_defaults_are_the_named_projects(void **state) {
    (void)state;
    static const struct { const char *recipe, *path, *value; } ROWS[] = {
        { "fp8.tensorwise", "recipe.format", "hybrid" },
        { "fp8.tensorwise", "recipe.constants", "te" },
        { "fp8.rowwise", "recipe.format", "e4m3" },
        { "fp8.rowwise", "recipe.constants", "torchao" },
        { "fp8.rowwise", "recipe.wgrad", "fp8" },
        { "fp8.rowwise", "recipe.accumulate.wgrad", "fast" },
        { "fp8.blockwise", "recipe.format", "e4m3" },
        { "fp8.blockwise", "recipe.accumulate.fprop", "split" },
        { "fp8.mxfp8", "recipe.format", "e4m3" },
        { "fp4.nvfp4", "recipe.accumulate.fprop", "split" },
        { "bf16", "recipe.kind", "bf16" },
        { "f32", "recipe.kind", "f32" },
    };
    static const struct { const char *recipe; bool pow2; } POW2[] = {
        { "fp8.tensorwise", false }, { "fp8.rowwise", true }, { "fp8.blockwise", true },
        { "fp8.blockwise { constants = 'deepseek' }", false },
    };
    char source[1024];
    struct resolution r;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        snprintf(source, sizeof source, HEAD "return one { recipe = %s }", ROWS[i].recipe);
        resolve_text(source, false, NULL, &r);
        assert_string_equal(string_at(&r.runs[0], ROWS[i].path), ROWS[i].value);
        resolution_destroy(&r);
    }
    for (size_t i = 0; i < sizeof POW2 / sizeof *POW2; i++) {
        snprintf(source, sizeof source, HEAD "return one { recipe = %s }", POW2[i].recipe);
        resolve_text(source, false, NULL, &r);
        assert_int_equal(json_is_true(at(&r.runs[0], "recipe.pow2")), POW2[i].pow2);
        resolution_destroy(&r);
    }
}

/* ---- matrices -------------------------------------------------------------------------------- */
static void a_matrix_expands_in_a_stable_order(void **state) {
    (void)state;
    static const char *const NAMES[] = {
        "s-fp8.delayed-margin-1-seed-1", "s-fp8.delayed-margin-1-seed-2",
        "s-fp8.delayed-margin-2-seed-1", "s-fp8.delayed-margin-2-seed-2",
        "s-bf16-seed-1",                 "s-bf16-seed-2",
        "s-z-seed-1",                    "s-z-seed-2",
    };
    struct resolution r;
    resolve_text("local tiny = require 'models.tiny' return suite { name = 's', about = 'why?', "
                 "model = tiny.llama, data = synthetic, train = { steps = 1, global_batch = 1 }, "
                 "matrix = { seed = { 1, 2 }, recipe = { fp8.delayed { margin = 1 }, fp8.delayed { "
                 "margin = 2 }, bf16, z = fp8.blockwise } } }", false, NULL, &r);
    assert_true(r.suite);
    assert_string_equal(r.name, "s");
    assert_string_equal(r.about, "why?");
    assert_int_equal(r.run_count, 8);
    for (int i = 0; i < 8; i++) {
        assert_string_equal(r.runs[i].name, NAMES[i]);
        assert_string_equal(string_at(&r.runs[i], "name"), NAMES[i]);
        assert_int_equal(int_at(&r.runs[i], "train.seed"), i % 2 + 1);
        assert_int_equal(json_integer_value(json_object_get(r.runs[i].cell, "train.seed")),
                         i % 2 + 1);
    }
    assert_int_equal(int_at(&r.runs[2], "recipe.margin"), 2);
    assert_string_equal(json_text(r.runs[6].cell, "recipe", ""), "z");
    assert_string_equal(string_at(&r.runs[6], "recipe.kind"), "fp8.blockwise");
    resolution_destroy(&r);
}

/* What a suite's comparison asks: kept from the schema of its runs, and checked. */
static void a_suite_names_its_factor(void **state) {
    (void)state;
    static const char SUITE[] =
        "local tiny = require 'models.tiny' return suite { name = 's', model = tiny.llama, "
        "recipe = bf16, factor = 'train.grad_dtype=f32', data = synthetic, train = { steps = 1, "
        "global_batch = 1 }, matrix = { ['train.grad_dtype'] = { 'f32', 'fp8' } } }";
    struct resolution r;
    resolve_text(SUITE, false, NULL, &r);
    assert_string_equal(r.factor, "train.grad_dtype=f32");
    assert_int_equal(r.run_count, 2);
    assert_null(json_object_get(r.runs[0].config_json, "factor"));
    resolution_destroy(&r);
}

/* A suite that cannot answer its own question is refused before it runs for hours. */
static void a_suite_has_rows_with_its_factor(void **state) {
    (void)state;
    static const struct {
        const char *factor, *words;
        bool smoke;
        const char *set; /* NULL: none */
    } CASES[] = {
        { "train.grad_dtype=f32", NULL, false, NULL },
        { "train.optimizer.lr=1e-3", NULL, false, NULL },
        { "train.optimizer.lr=0.00100", NULL, false, NULL },
        { "attention.precision=bf16", NULL, false, NULL }, /* where it is absent, it is BF16 */
        { "train.grad_dtpe=f32", "no row has a value of train.grad_dtpe; did you mean "
                                 "train.grad_dtype?", false, NULL },
        { "train.grad_dtype=f64", "no row has train.grad_dtype = f64", false, NULL },
        { "train.global_batch=8", NULL, false, NULL },
        { "train.global_batch=8", NULL, true, NULL }, /* --smoke shrinks it */
        { "train.globalbatch=8", "did you mean train.global_batch?", true, NULL },
        { "train=f32", "train is a table; name one of its keys, such as train.", false, NULL },
        { "data.seed=7", "losses on other data are not compared", false, NULL },
        { "train.seed=1", "runs that differ in their seed are repeats of one row", false, NULL },
        { "recipe.margin=0", "no row has a value of recipe.margin", false, NULL },
        { "train.grad_dtype=f32", NULL, false, "train.grad_dtype=fp8" },
        { "train.grad_dtype=f32", NULL, false, "matrix.grad_dtype=fp8,bf16" },
        { "train.grad_dtype=f32", NULL, false, "matrix.grad_dtype=f32,bf16" },
        { "train.grad_dtpe=f32", "no row has a value of train.grad_dtpe", false,
          "train.grad_dtype=fp8" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char folder[PATH_CAP], path[PATH_CAP];
        struct resolution r;
        struct err e = { 0 };
        scratch_directory(folder);
        put_file(folder, "x.lua",
                 "local tiny = require 'models.tiny' return suite { name = 's', model = tiny.llama,"
                 " recipe = bf16, data = synthetic, train = { steps = 1, global_batch = 8, "
                 "optimizer = adamw { lr = 1e-3 } }, factor = '%s', matrix = { "
                 "['train.grad_dtype'] = { 'f32', 'fp8' } } }", CASES[i].factor);
        assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
        const struct resolve_options options = { .path = path, .overrides = &CASES[i].set,
                                                 .override_count = CASES[i].set != NULL,
                                                 .smoke = CASES[i].smoke };
        enum status st = resolve_experiment(&options, &r, &e);
        if (st != (CASES[i].words ? ERR_CONFIG : OK)) fail_msg("case %zu: %s", i, e.text);
        if (CASES[i].words && !strstr(e.text, CASES[i].words)) fail_msg("%zu: %s", i, e.text);
        if (!CASES[i].words) /* after an override of its key there may be nothing to ask */
            assert_string_equal(r.factor, CASES[i].set && strstr(CASES[i].set, "=fp8")
                                              ? "" : CASES[i].factor);
        resolution_destroy(&r);
        assert_int_equal(tree_remove(folder, NULL), OK);
    }
}

static void a_matrix_reaches_any_key(void **state) {
    (void)state;
    struct resolution r;
    resolve_text("local tiny = require 'models.tiny' return suite { name = 's', data = synthetic, "
                 "model = tiny.llama, recipe = fp8.delayed, train = { steps = 1, global_batch = 1 "
                 "}, matrix = { ['model.ffn'] = { 64, 128 }, ['recipe.margin'] = { 1 }, "
                 "['eval.every'] = { 5 } } }", false, NULL, &r);
    assert_int_equal(r.run_count, 2);
    assert_int_equal(int_at(&r.runs[1], "model.ffn"), 128);
    assert_int_equal(int_at(&r.runs[1], "recipe.margin"), 1);
    assert_int_equal(int_at(&r.runs[1], "eval.every"), 5);
    assert_int_equal(int_at(&r.runs[0], "model.ffn"), 64);
    resolution_destroy(&r);
}

static void a_suite_may_list_experiments(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return suite { name = 's', one { name = 'a' }, one { name = 'b', recipe = "
                 "fp8.mxfp8 }, matrix = { seed = { 1, 2 } } }", false, NULL, &r);
    static const char *const NAMES[] = { "a-seed-1", "a-seed-2", "b-seed-1", "b-seed-2" };
    assert_int_equal(r.run_count, 4);
    for (int i = 0; i < 4; i++) assert_string_equal(r.runs[i].name, NAMES[i]);
    assert_string_equal(string_at(&r.runs[2], "recipe.kind"), "fp8.mxfp8");
    resolution_destroy(&r);
}

/* ---- overrides ------------------------------------------------------------------------------- */
static void overrides_are_typed_by_the_schema(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return one { eval = { every = 5 } }", false,
                 OVERRIDES("train.steps=20", "train.optimizer.lr=1e-2",
                           "train.optimizer.betas=0.8,0.9", "recipe=fp8.delayed",
                           "recipe.margin=2", "eval=null"), &r);
    assert_int_equal(int_at(&r.runs[0], "train.steps"), 20);
    assert_string_equal(string_at(&r.runs[0], "recipe.kind"), "fp8.delayed");
    assert_int_equal(int_at(&r.runs[0], "recipe.margin"), 2);
    assert_true(json_is_null(at(&r.runs[0], "eval")));
    assert_float_equal(json_real_value(at(&r.runs[0], "train.optimizer.lr")), 0.01, 0);
    assert_float_equal(json_real_value(json_array_get(at(&r.runs[0], "train.optimizer.betas"), 0)),
                       0.8, 0);
    resolution_destroy(&r);
    resolve_text(HEAD "return one {}", false,
                 OVERRIDES("name=renamed", "model.tied=true", "train.time_limit=1m30s", "seed=7",
                           "data.seed=3", "checkpoint.every=5", "env.OMP_NUM_THREADS=2"), &r);
    assert_string_equal(r.runs[0].name, "renamed");
    assert_true(json_is_true(at(&r.runs[0], "model.tied")));
    assert_int_equal(int_at(&r.runs[0], "train.time_limit_s"), 90);
    assert_int_equal(int_at(&r.runs[0], "train.seed"), 7);
    assert_int_equal(int_at(&r.runs[0], "data.seed"), 3);
    assert_int_equal(int_at(&r.runs[0], "checkpoint.every"), 5);
    assert_string_equal(string_at(&r.runs[0], "env.OMP_NUM_THREADS"), "2");
    resolution_destroy(&r);
}

static void an_override_may_be_a_json_list(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return one { data = text { 'a' }, sample = { every = 5 } }", false,
                 OVERRIDES("data.paths=[\"a,b.txt\", \"\u00e9\"]",
                           "train.optimizer.betas=[0.8, 0.9]",
                           "sample.prompts=[\"one, two\", [1, 2]]"), &r);
    const json_t *paths = at(&r.runs[0], "data.paths");
    const json_t *prompts = at(&r.runs[0], "sample.prompts");
    assert_int_equal(json_array_size(paths), 2);
    assert_string_equal(json_string_value(json_array_get(paths, 0)), "a,b.txt");
    assert_string_equal(json_string_value(json_array_get(paths, 1)), "\u00e9");
    assert_float_equal(json_real_value(json_array_get(at(&r.runs[0], "train.optimizer.betas"), 0)),
                       0.8, 0);
    assert_string_equal(json_string_value(json_array_get(prompts, 0)), "one, two");
    assert_int_equal(json_integer_value(json_array_get(json_array_get(prompts, 1), 1)), 2);
    resolution_destroy(&r);
}

/* A JSON list of values; a word is as without JSON, unless a comma would cut it. */
static void an_axis_may_be_a_json_list(void **state) {
    (void)state;
    static const char SUITE[] = HEAD "return suite { name = 's', model = tiny.llama, "
        "recipe = bf16, data = text { 'a' }, train = { steps = 1, global_batch = 1 } }";
    struct resolution r;
    resolve_text(SUITE, false,
                 OVERRIDES("matrix.data.paths=[[\"a,b.txt\"], [\"c.txt\", \"d.txt\"]]",
                           "matrix.seed=[1, 2]", "matrix.recipe=[\"bf16\"]",
                           "matrix.model.tied=[true]"), &r);
    assert_int_equal(r.run_count, 4);
    int64_t joined = 0, seeds = 0;
    for (int64_t i = 0; i < r.run_count; i++) {
        const json_t *paths = at(&r.runs[i], "data.paths");
        bool one = json_array_size(paths) == 1;
        assert_string_equal(json_string_value(json_array_get(paths, 0)), one ? "a,b.txt" : "c.txt");
        joined += one;
        seeds += int_at(&r.runs[i], "train.seed");
        assert_true(json_is_true(at(&r.runs[i], "model.tied")));
    }
    assert_int_equal(joined, 2);
    assert_int_equal(seeds, 6);
    assert_string_equal(r.runs[0].name, "s-paths1-tied-true-bf16-seed-1");
    resolution_destroy(&r);
}

static void durations_have_the_usual_notations(void **state) {
    (void)state;
    static const struct { const char *text; int64_t s; } CASES[] = {
        { "90", 90 },           { "90s", 90 },         { "1h56m", 6960 },     { "1.5h", 5400 },
        { "2d", 172800 },       { "0.25m", 15 },       { "1h1.5m", 3690 },    { "01:56:00", 6960 },
        { "1:00:01", 3601 },    { "100:00:00", 360000 }, { "2-01:56:00", 179760 },
        /* rejected: two numbers may be minutes and seconds, or hours and minutes */
        { "1:56", -1 },         { "01:56:60", -1 },    { "01:5:00", -1 },     { "1:02:03:04", -1 },
        { "01:56:00s", -1 },    { "-01:56:00", -1 },   { "1-1:56:00", -1 },   { "1.5:00:00", -1 },
        { "1.0001h", -1 },      { "0.5s", -1 },        { "1.h", -1 },         { ".5h", 1800 },
        { "1h2h", -1 },         { "1..5h", -1 },       { "1,5h", -1 },        { "1.5", -1 },
        { ".h", -1 },           { ".5", -1 },          { "-.5h", -1 },
        { "9999999h", -1 },     { "", -1 },            { "h", -1 },           { "1e3s", -1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char folder[PATH_CAP], path[PATH_CAP], limit[64];
        struct resolution r;
        struct err e = { 0 };
        scratch_directory(folder);
        put_file(folder, "x.lua", "%s", HEAD "return one {}");
        assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
        snprintf(limit, sizeof limit, "train.time_limit=%s", CASES[i].text);
        struct resolve_options options = { .path = path, .overrides = OVERRIDES(limit),
                                           .override_count = 1 };
        enum status st = resolve_experiment(&options, &r, &e);
        if (st != (CASES[i].s < 0 ? ERR_CONFIG : OK)) fail_msg("%s: %s", limit, e.text);
        if (st == OK) assert_int_equal(int_at(&r.runs[0], "train.time_limit_s"), CASES[i].s);
        resolution_destroy(&r);
        assert_int_equal(tree_remove(folder, NULL), OK);
    }
}

static void an_override_of_an_axis_removes_it(void **state) {
    (void)state;
    struct resolution r;
    resolve_file("experiments/quickstart.lua", false, OVERRIDES("recipe=fp8.mxfp8", "name=q"), &r);
    assert_int_equal(r.run_count, 1);
    assert_string_equal(r.runs[0].name, "q");
    assert_string_equal(string_at(&r.runs[0], "recipe.kind"), "fp8.mxfp8");
    resolution_destroy(&r);
}

/* --set matrix.AXIS gives an axis other values, or makes one. */
static void an_override_sets_an_axis(void **state) {
    (void)state;
    static const char SUITE[] =
        HEAD "return suite { name = 's', data = synthetic, model = tiny.llama,\n"
             "train = { steps = 10, global_batch = 8 },\n"
             "matrix = { recipe = { bf16, fp8.delayed }, ['train.seed'] = { 1, 2, 3 } } }";
    struct resolution r;
    resolve_text(SUITE, false, OVERRIDES("matrix.seed=7,8", "matrix.recipe=fp8.mxfp8",
                                         "matrix.model.tied=true,false"), &r);
    assert_int_equal(r.run_count, 4);
    assert_string_equal(r.runs[0].name, "s-tied-true-fp8.mxfp8-seed-7");
    assert_string_equal(r.runs[3].name, "s-tied-false-fp8.mxfp8-seed-8");
    assert_int_equal(int_at(&r.runs[3], "train.seed"), 8);
    assert_string_equal(string_at(&r.runs[3], "recipe.kind"), "fp8.mxfp8");
    assert_int_equal(json_integer_value(json_object_get(r.runs[3].cell, "train.seed")), 8);
    resolution_destroy(&r);
    /* The error for a pattern names the --set that removed the axis. */
    struct err e = { 0 };
    resolve_text(SUITE, false, OVERRIDES("recipe=fp8.mxfp8"), &r);
    assert_int_equal(r.run_count, 3);
    assert_int_equal(resolution_keep(&r, OVERRIDES("*mxfp8*"), 1, &e), ERR_ARG);
    if (!strstr(e.text, "--set replaced the axis recipe, so no name contains its value"))
        fail_msg("%s", e.text);
    resolution_destroy(&r);
}

/* ---- errors ---------------------------------------------------------------------------------- */
/* The source line and the caret line that an error at `key` in a long line shows. */
static void check_excerpt(const char *source, const char *key, const char *line) {
    char folder[PATH_CAP], path[PATH_CAP];
    struct resolution r;
    struct err e = { 0 };
    scratch_directory(folder);
    put_file(folder, "x.lua", "%s", source);
    assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
    struct resolve_options options = { .path = path };
    assert_int_equal(resolve_experiment(&options, &r, &e), ERR_CONFIG);
    int64_t i = 0;
    while (i < r.error_count && strcmp(r.errors[i].key, key) != 0) i++;
    if (i == r.error_count) fail_msg("no error of %s", key);
    char *text = resolved_error_text(&r.errors[i]);
    assert_non_null(text);
    const char *shown = strchr(text, '\n');
    assert_non_null(shown);
    if (strcmp(shown + 1, line) != 0) fail_msg("expected:\n%sfound:\n%s", line, shown + 1);
    free(text);
    resolution_destroy(&r);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

static void a_long_line_is_cut_around_the_column(void **state) {
    (void)state;
    char source[10400], line[400], fill[5000], wide[61];
    memset(fill, 'y', sizeof fill);
    fill[sizeof fill - 1] = '\0';
    for (int i = 0; i < 30; i++) memcpy(wide + 2 * i, "\u00e9", 2);
    wide[60] = '\0';
    snprintf(source, sizeof source, "return experiment { one = 1, about = \"%s\", two = \"%s\", "
             "three = \"%s\", four = 4 }", fill, wide, fill);
    snprintf(line, sizeof line, "    1 | return experiment { one = 1, about = \"%.62s...\n"
             "      | %20s^\n", fill, "");
    check_excerpt(source, "one", line);
    snprintf(line, sizeof line, "    1 | ...%.47s\", two = \"%.44s...\n"
             "      |    %50s^\n", fill, wide, "");
    check_excerpt(source, "two", line);
    snprintf(line, sizeof line, "    1 | ...%.87s\", four = 4 }\n      |    %90s^\n", fill, "");
    check_excerpt(source, "four", line);
}

/* ---- layers ---------------------------------------------------------------------------------- */
static void layers_become_a_table(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return one { recipe = fp8.tensorwise { layers = function(index, gemm, n) "
                 "if index == n - 1 then return bf16 end if gemm == 'ffn_out' and index == 1 "
                 "then return fp8.delayed { margin = 1 } end end } }", false, NULL, &r);
    const json_t *layers = at(&r.runs[0], "recipe.layers");
    static const char *const GEMMS[] = { "ffn_out", "qkv", "attn_out", "ffn_in", "ffn_out" };
    assert_int_equal(json_array_size(layers), 5); /* of 3 layers: one GEMM of 1, all of 2 */
    for (size_t i = 0; i < 5; i++) {
        const json_t *entry = json_array_get(layers, i);
        assert_int_equal(json_integer_value(json_object_get(entry, "layer")), i == 0 ? 1 : 2);
        assert_string_equal(json_text(entry, "gemm", ""), GEMMS[i]);
        const json_t *recipe = json_object_get(entry, "recipe");
        assert_string_equal(json_text(recipe, "kind", ""), i == 0 ? "fp8.delayed" : "bf16");
        assert_null(json_object_get(recipe, "lm_head"));
        if (i == 0) assert_int_equal(json_integer_value(json_object_get(recipe, "history")), 1024);
    }
    resolution_destroy(&r);
}

/* ---- smoke ----------------------------------------------------------------------------------- */
static void smoke_keeps_the_recipe_and_shrinks_the_rest(void **state) {
    (void)state;
    struct resolution full, r;
    resolve_file("experiments/h200_loss.lua", false, NULL, &full);
    resolve_file("experiments/h200_loss.lua", true, NULL, &r);
    const struct resolved_run *run = &r.runs[4]; /* the first and the last layer in BF16 */
    assert_true(r.smoke);
    assert_true(json_equal(at(&full.runs[4], "recipe"), at(run, "recipe")));
    assert_int_equal(int_at(run, "model.layers"), 4); /* two in FP8 between two in BF16 */
    for (int64_t i = 0; i < r.run_count; i++) /* other rows too: one factor stays one */
        assert_true(json_equal(at(&r.runs[i], "model"), at(run, "model")));
    assert_int_equal(int_at(run, "model.width"), 256);
    assert_int_equal(int_at(run, "model.heads"), 4);
    assert_int_equal(int_at(run, "model.kv_heads"), 1); /* 32:8 as 4:1 */
    assert_int_equal(int_at(run, "model.ffn"), 896);    /* 14336:4096 as 896:256 */
    assert_true(int_at(run, "model.seq_len") <= 64 && int_at(run, "model.vocab") <= 512);
    assert_int_equal(int_at(run, "train.global_batch"), 2 * int_at(run, "train.micro_batch"));
    assert_int_equal(int_at(run, "train.steps"), int_at(run, "eval.every"));
    assert_int_equal(int_at(run, "train.steps"), 2 * int_at(run, "checkpoint.every"));
    assert_string_equal(string_at(run, "data.kind"), "synthetic"); /* SlimPajama is not here */
    assert_int_equal(int_at(run, "hardware.gpus"), 1);
    resolution_destroy(&full);
    resolution_destroy(&r);
}

static void smoke_keeps_data_that_is_there(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return one { data = text 'README.md' }", true,
                 OVERRIDES("data.paths=Makefile"), &r);
    assert_string_equal(string_at(&r.runs[0], "data.kind"), "text");
    assert_int_equal(int_at(&r.runs[0], "model.vocab"), 256);
    resolution_destroy(&r);
}

static void smoke_calls_layers_for_the_small_model(void **state) {
    (void)state;
    struct resolution r;
    resolve_text(HEAD "return one { model = tiny.llama { layers = 30 }, recipe = fp8.tensorwise { "
                 "layers = function(i, _, n) if i == n - 1 then return bf16 end end } }", true,
                 NULL, &r);
    assert_int_equal(int_at(&r.runs[0], "model.layers"), 2);
    assert_int_equal(json_array_size(at(&r.runs[0], "recipe.layers")), 4);
    resolution_destroy(&r);
}

/* ---- patterns among data.paths --------------------------------------------------------------- */
/* Both separated by spaces; expected "": rejected. */
struct pattern_case { const char *paths, *expected; };

static const struct pattern_case PATTERNS[] = {
    { "*.txt", "a.txt b.txt c1.txt c2.txt odd[1].txt" },
    { "b.txt *.txt", "b.txt a.txt c1.txt c2.txt odd[1].txt" }, /* none twice */
    { "c?.txt a.txt", "c1.txt c2.txt a.txt" },
    { "c[!2-9].txt", "c1.txt" },
    { "[ab].txt", "a.txt b.txt" },
    { "*/*.txt", "one/x.txt two/y.txt" },
    { "o*e/*", "one/x.txt" }, /* folders and names with a leading dot do not match */
    { "one/.h*", "one/.hidden.txt" },
    { "./[a]*.txt", "./a.txt" },
    { "odd[1].txt", "odd[1].txt" }, /* a file has exactly this name */
    { "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", "" },
    { "none*", "" },
    { "a.txt none/*", "" },
    { "*/*/*", "" },
};

static void expect_paths(const struct pattern_case *c, enum status st, const json_t *config,
                         const char *why) {
    struct text found = { 0 };
    size_t i;
    const json_t *path;
    text_puts(&found, "");
    json_array_foreach(json_object_get(json_object_get(config, "data"), "paths"), i, path) {
        if (i) text_puts(&found, " ");
        text_puts(&found, json_string_value(path));
    }
    if (st != (*c->expected ? OK : ERR_CONFIG)) fail_msg("%s: %s", c->paths, why);
    if (st == OK && strcmp(found.bytes, c->expected) != 0)
        fail_msg("%s: expected %s, found %s", c->paths, c->expected, found.bytes);
    if (st != OK && !strstr(why, "data.paths: ")) fail_msg("%s: %s", c->paths, why);
    text_free(&found);
}

/* The same files from a folder and from the names in a bundle. */
static void patterns_become_sorted_files(void **state) {
    (void)state;
    static const char *const FILES[] = { "b.txt", "a.txt", "c2.txt", "c1.txt", "odd[1].txt",
        ".dot.txt", "one/x.txt", "one/.hidden.txt", "one/deep/z.txt", "two/y.txt",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    char folder[PATH_CAP];
    json_t *known = json_array();
    scratch_directory(folder);
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        put_file(folder, FILES[i], "x");
        json_array_append_new(known, json_pack("{s:s}", "path", FILES[i]));
    }
    for (size_t i = 0; i < sizeof PATTERNS / sizeof *PATTERNS; i++) {
        for (int bundle = 0; bundle < 2; bundle++) {
            const struct pattern_case *c = &PATTERNS[i];
            struct pattern_source source = { .root = bundle ? NULL : folder,
                                             .known = bundle ? known : NULL, .must_match = true };
            char text[256];
            struct err e = { 0 };
            if (bundle && !strncmp(c->paths, "./", 2)) continue; /* a bundle compares names */
            json_t *paths = json_array();
            json_t *config = json_pack("{s:{s:O}}", "data", "paths", paths);
            snprintf(text, sizeof text, "%s", c->paths);
            for (char *at = strtok(text, " "); at; at = strtok(NULL, " "))
                json_array_append_new(paths, json_string(at));
            enum status st = data_patterns_expand(config, &source, &e);
            expect_paths(c, st, config, e.text);
            json_decref(config);
            json_decref(paths);
        }
    }
    json_decref(known);
    assert_int_equal(tree_remove(folder, NULL), OK);
}

/* ---- an untrusted configuration -------------------------------------------------------------- */
/* A configuration that no schema checked: counts beyond the model's layers are rejected before any
 * computation with them. */
static void layers_in_bf16_are_within_the_model(void **state) {
    (void)state;
    static const int64_t BAD[] = { INT64_MIN, -1, 5, INT64_MAX };
    static const char *const KEYS[] = { "first_bf16", "last_bf16", "margin", "history" };
    struct resolution r;
    resolve_text(HEAD "return one { recipe = fp8.delayed { first_bf16 = 1, last_bf16 = 1 } }",
                 false, NULL, &r);
    json_t *recipe = json_object_get(r.runs[0].config_json, "recipe");
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        int64_t good = json_integer_value(json_object_get(recipe, KEYS[k]));
        for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
            struct run_options options;
            struct err e = { 0 };
            if (k > 1 && BAD[i] == 5) continue; /* a margin and a history may be 5 */
            json_object_set_new(recipe, KEYS[k], json_integer(BAD[i]));
            assert_int_equal(options_read(r.runs[0].config_json, &options, &e), ERR_FORMAT);
            if (!strstr(e.text, KEYS[k])) fail_msg("%s", e.text);
        }
        json_object_set_new(recipe, KEYS[k], json_integer(good));
    }
    resolution_destroy(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_order_and_spelling_change_no_byte),
        cmocka_unit_test(a_gemm_in_fp8_is_as_if_not_named),
        cmocka_unit_test(a_configuration_is_complete),
        cmocka_unit_test(some_keys_are_absent_unless_set),
        cmocka_unit_test(tensorboard_is_a_switch),
        cmocka_unit_test(a_bare_recipe_is_its_descriptors_defaults),
        cmocka_unit_test(recipe_defaults_are_the_named_projects),
        cmocka_unit_test(a_matrix_expands_in_a_stable_order),
        cmocka_unit_test(a_suite_names_its_factor),
        cmocka_unit_test(a_suite_has_rows_with_its_factor),
        cmocka_unit_test(a_matrix_reaches_any_key),
        cmocka_unit_test(a_suite_may_list_experiments),
        cmocka_unit_test(overrides_are_typed_by_the_schema),
        cmocka_unit_test(an_override_may_be_a_json_list),
        cmocka_unit_test(durations_have_the_usual_notations),
        cmocka_unit_test(an_override_of_an_axis_removes_it),
        cmocka_unit_test(an_override_sets_an_axis),
        cmocka_unit_test(an_axis_may_be_a_json_list),
        cmocka_unit_test(a_long_line_is_cut_around_the_column),
        cmocka_unit_test(layers_become_a_table),
        cmocka_unit_test(smoke_keeps_the_recipe_and_shrinks_the_rest),
        cmocka_unit_test(smoke_keeps_data_that_is_there),
        cmocka_unit_test(smoke_calls_layers_for_the_small_model),
        cmocka_unit_test(patterns_become_sorted_files),
        cmocka_unit_test(layers_in_bf16_are_within_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
