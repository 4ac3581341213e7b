/* Comparisons of made-up runs whose differences are known. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/recipe_name.h"
#include "runner/compare/seed_band.h"
#include "runner/compare/stats.h"
#include "tests/bundle/compare_scene.h"

static const json_t *first_divergence(const struct scene *s) {
    return json_array_get(json_object_get(s->c.report, "divergences"), 0);
}

/* The number of occurrences of `what` in `text`. */
static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
    return n;
}

static void equal_runs_are_equal(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    compare(&s, two, 2);
    assert_true(s.c.equal);
    assert_string_equal(json_text(s.c.report, "verdict", ""),
                        "same inputs: the results must be equal bit for bit");
    assert_int_equal(json_array_size(json_object_get(s.c.report, "differences")), 0);
    assert_int_equal(json_integer_value(json_object_get(first_divergence(&s), "common_steps")), 20);
    finish(&s);
}

static void one_flipped_bit_is_found(void **state) {
    static const struct {
        int64_t step, tensor;
        const char *name;
    } CASES[] = { { 1, 0, "layers.0.qkv.weight" }, { 3, 4, "layers.4.qkv.weight" },
                  { 20, 5, "layers.5.qkv.weight" } };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct scene s;
        struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
        two[1].flip_step = CASES[i].step;
        two[1].flip_tensor = CASES[i].tensor;
        compare(&s, two, 2);
        const json_t *row = first_divergence(&s);
        assert_false(s.c.equal);
        assert_int_equal(json_integer_value(json_object_get(row, "step")), CASES[i].step);
        assert_string_equal(json_text(row, "tensor", ""), CASES[i].name);
        assert_string_equal(json_text(row, "stream", ""), "trace");
        uint64_t a = strtoull(json_text(row, "a_bits", ""), NULL, 16);
        uint64_t b = strtoull(json_text(row, "b_bits", ""), NULL, 16);
        assert_true((a ^ b) == UINT64_C(1) << 17);
        finish(&s);
    }
}

static void a_loss_beyond_the_trace_is_found(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[1].tensors = 0;
    two[1].loss_shift = 1e-4;
    compare(&s, two, 2);
    const json_t *row = first_divergence(&s);
    assert_string_equal(json_text(row, "stream", ""), "train.loss");
    assert_int_equal(json_integer_value(json_object_get(row, "step")), 1);
    finish(&s);
    two[1] = run_fixture_default();
    two[1].steps = 15; /* stopped early, equal so far */
    compare(&s, two, 2);
    assert_false(s.c.equal);
    row = first_divergence(&s);
    assert_true(json_is_null(json_object_get(row, "step")));
    assert_non_null(strstr(json_text(row, "note", ""), "one has 20 steps, the other 15"));
    finish(&s);
}

/* The reference loss is so small that a ratio to it overflows: the comparison leaves the ratio
 * out. */
static void a_ratio_beyond_doubles_is_null(void **state) {
    char parent[PATH_CAP], dir[8][PATH_CAP], line[200], *text = NULL;
    const char *paths[8];
    struct comparison c = { 0 };
    struct err e = { 0 };
    json_t *band = NULL;
    scratch_directory(parent);
    for (int64_t i = 0; i < 8; i++) {
        struct run_fixture f = run_fixture_default();
        snprintf(line, sizeof line, "20261121T02482%dZ-tiny-0badcafe", (int)i);
        f.id = line;
        f.seed = i % 4 + 1;
        f.recipe = i < 4 ? "bf16" : "fp8.delayed";
        run_fixture_write(parent, &f, dir[i]);
        paths[i] = dir[i];
        put_file(dir[i], "data/metrics/train.jsonl",
                 "{\"step\":1,\"loss\":%s,\"loss_bits\":\"00000000\"}\n",
                 i < 4 ? "5e-324" : "1e308");
        put_file(dir[i], "data/metrics/eval.jsonl",
                 "{\"step\":1,\"loss\":%s,\"loss_bits\":\"00000000\"}\n",
                 i < 4 ? "5e-324" : "1e308");
    }
    CHECK(compare_runs(paths, 8, NULL, &c, &e));
    const json_t *ratio = json_object_get(json_array_get(json_object_get(c.report, "runs"), 7),
                                          "ratio");
    assert_true(json_is_null(json_object_get(ratio, "loss")));
    assert_true(json_is_null(json_object_get(ratio, "eval_loss")));
    CHECK(compare_text(&c, false, &text, &e));
    free(text);
    compare_free(&c);
    CHECK(compare_runs(paths + 4, 4, NULL, &c, &e));
    assert_int_equal(seed_band_make(&c, &band, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "has no loss at step 1 that a spread could be made of"));
    compare_free(&c);
    CHECK(tree_remove(parent, &e));
}

static void differences_and_factors_are_named(void **state) {
    struct scene s;
    char *text = NULL;
    struct err e = { 0 };
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[0].recipe = "bf16";
    compare(&s, two, 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: recipe");
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "recipe                       A bf16 · B fp8.delayed"));
    assert_non_null(strstr(text, "one seed per side: no statistical verdict on losses"));
    free(text);
    finish(&s);
    two[1].seed = 2;
    two[1].steps = 30;
    compare(&s, two, 2);
    assert_string_equal(
        json_text(s.c.report, "verdict", ""),
        "many factors (3): recipe, seed, train.steps: no single cause can be named");
    finish(&s);
}

#define SCHEDULE(decay) ",\"schedule\":{\"decay\":" decay ",\"kind\":\"cosine\",\"warmup\":2}"

/* A decay that follows from the steps is no factor of its own; one that somebody chose is. */
static void a_decay_that_follows_from_the_steps_is_no_factor(void **state) {
    struct scene s;
    char *text = NULL;
    struct err e = { 0 };
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[1].steps = 30;
    two[0].train = SCHEDULE("18");
    two[1].train = SCHEDULE("28");
    compare(&s, two, 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: train.steps");
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_null(strstr(text, "decay"));
    free(text);
    finish(&s);
    two[1].train = SCHEDULE("10");
    compare(&s, two, 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""),
                        "many factors (2): train.schedule.decay, train.steps: no single cause can "
                        "be named");
    finish(&s);
    two[1].steps = two[0].steps;
    two[1].train = ",\"schedule\":{\"decay\":15,\"kind\":\"cosine\",\"warmup\":5}";
    compare(&s, two, 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: train.schedule.warmup");
    finish(&s);
}

/* More ranks sum in another order: a factor, and not a repeat of a run on fewer. */
static void a_number_of_ranks_is_a_factor(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[0].world = 1;
    two[1].world = 4;
    compare(&s, two, 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: ranks");
    finish(&s);
    two[1].seed = 2;
    compare(&s, two, 2);
    const json_t *statistics = json_object_get(s.c.report, "statistics");
    assert_int_equal(json_array_size(json_object_get(statistics, "groups")), 2);
    finish(&s);
}

/* On a GPU each run measures its own table. That is a factor if it is the only difference, and none
 * beside another recipe. */
static void a_choice_table_is_no_second_factor(void **state) {
    static const struct {
        const char *recipe; /* of the second run; the first one's is bf16 */
        int64_t seed;
        const char *verdict;
    } CASES[] = { { "fp8.delayed", 1, "one factor: recipe" },
                  { "bf16", 1, "one factor: choices" },
                  { "bf16", 2, "one factor: seed" } };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct scene s;
        struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
        two[0].recipe = "bf16";
        two[0].choices = "aaaa";
        two[1].recipe = CASES[i].recipe;
        two[1].seed = CASES[i].seed;
        two[1].choices = "bbbb";
        compare(&s, two, 2);
        assert_string_equal(json_text(s.c.report, "verdict", ""), CASES[i].verdict);
        finish(&s);
    }
}

/* The text shows the recipes, not the keys that their kinds imply. */
static void keys_implied_by_the_recipe_are_left_out(void **state) {
    struct scene s;
    char *text = NULL;
    struct err e = { 0 };
    struct run_fixture three[3] = { run_fixture_default(), run_fixture_default(),
                                    run_fixture_default() };
    three[0].recipe = "bf16";
    compare(&s, three, 2);
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_null(strstr(text, "margin"));
    assert_non_null(strstr(text, "(1 more with --all"));
    free(text);
    CHECK(compare_text(&s.c, true, &text, &e));
    assert_non_null(strstr(text, "recipe.kind "));
    assert_non_null(strstr(text, "recipe.margin                A - · B 0"));
    free(text);
    finish(&s);
    three[2].margin = 3; /* runs of one kind differ in it, so no kind implies it */
    compare(&s, three, 3);
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "A bf16 · B,C fp8.delayed"));
    assert_non_null(strstr(text, "recipe.margin                A - · B 0 · C 3"));
    free(text);
    finish(&s);
}

static void directories_live_runs_and_bundles_compare_alike(void **state) {
    struct scene s;
    struct err e = { 0 };
    char dir[PATH_CAP], parent[PATH_CAP];
    struct comparison c;
    struct run_fixture f = run_fixture_default();
    compare(&s, &f, 1);
    f.status = "running";
    CHECK(path_join(parent, s.parent, "live", &e));
    run_fixture_write(parent, &f, dir);
    const char *paths[2] = { s.path[0], dir };
    CHECK(compare_runs(paths, 2, NULL, &c, &e));
    assert_true(c.equal);
    compare_free(&c);
    f.id = "20261121T024823Z-live-0badcafe"; /* the trace of a directory is compared too */
    f.flip_step = 5;
    run_fixture_write(parent, &f, dir);
    CHECK(compare_runs(paths, 2, NULL, &c, &e));
    assert_string_equal(c.divergence[1].stream, "trace");
    assert_int_equal(c.divergence[1].step, 5);
    compare_free(&c);
    finish(&s);
}

static void four_seeds_a_side_get_a_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[8];
    for (int i = 0; i < 8; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 4 ? "bf16" : "fp8.delayed";
        runs[i].seed = i % 4;
        runs[i].loss_shift = i < 4 ? 0 : 0.1;
    }
    compare(&s, runs, 8);
    const json_t *statistics = json_object_get(s.c.report, "statistics");
    const json_t *test = json_array_get(json_object_get(statistics, "tests"), 0);
    assert_string_equal(json_text(test, "metric", ""), "eval_loss_final");
    assert_string_equal(json_text(test, "verdict", ""), "differs");
    double p = json_number_value(json_object_get(test, "p"));
    assert_true(fabs(p - 2.0 / 70) < 1e-12);
    assert_true(json_number_value(json_object_get(test, "effect_low")) > 0);
    /* The seeds make the runs differ, but as repeats, not as a factor. */
    assert_int_equal(json_array_size(json_object_get(statistics, "groups")), 2);
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: recipe");
    finish(&s);
}

/* Without the records that only plots need, the report is the same. */
static void a_lean_comparison_says_the_same(void **state) {
    struct scene s;
    struct comparison lean;
    struct err e = { 0 };
    struct run_fixture runs[6];
    const struct compare_options options = { .lean = true };
    const char *paths[6];
    two_sides(runs);
    runs[4].flip_amax_step = 7;
    runs[2].steps = 33;
    compare(&s, runs, 6);
    for (int i = 0; i < 6; i++) paths[i] = s.path[i];
    CHECK(compare_runs(paths, 6, &options, &lean, &e));
    assert_true(json_equal(s.c.report, lean.report));
    const struct columns *train = lean.run[4].columns.of[STREAM_TRAIN];
    assert_int_equal(train->count, 2);
    assert_null(columns_find(train, "grad_norm"));
    assert_non_null(columns_find(s.c.run[4].columns.of[STREAM_TRAIN], "grad_norm"));
    assert_null(lean.run[4].columns.of[STREAM_FP8]);
    compare_free(&lean);
    finish(&s);
}

/* Energy a token: of both GPUs, in the steady window. Runs without the driver's power have none. */
static void energy_is_of_all_gpus(void **state) {
    struct scene s;
    struct run_fixture runs[2] = { run_fixture_default(), run_fixture_default() };
    runs[0].power_mw = 600000;
    runs[1].recipe = "bf16"; /* the reference of ratios, by its recipe */
    compare(&s, runs, 2);
    const json_t *list = json_object_get(s.c.report, "runs"), *row = json_array_get(list, 0);
    double speed = json_number_value(json_object_get(row, "tokens_per_s_median"));
    assert_float_equal(json_number_value(json_object_get(row, "energy_j_per_token")),
                       2 * 600 / speed, 1e-9);
    assert_true(json_is_null(json_object_get(json_array_get(list, 1), "energy_j_per_token")));
    assert_int_equal(json_integer_value(json_object_get(s.c.report, "reference")), 1);
    const json_t *ratio = json_object_get(json_array_get(list, 1), "ratio");
    assert_true(json_number_value(json_object_get(ratio, "step_time")) == 1);
    const json_t *first = json_array_get(list, 0);
    assert_true(json_number_value(json_object_get(first, "eval_loss_best")) <=
                json_number_value(json_object_get(first, "eval_loss_final")));
    finish(&s);
}

/* ---- names ---------------------------------------------------------------------------------- */

static const char *label(const struct scene *s, size_t run) {
    return json_text(json_array_get(json_object_get(s->c.report, "runs"), run), "label", "");
}

/* Options of one kind, and an option that all FP8 rows share. */
static void a_row_name_has_the_differing_keys(void **state) {
    struct scene s;
    struct err e = { 0 };
    char *html = NULL, *text = NULL;
    struct run_fixture runs[4];
    for (int i = 0; i < 4; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i ? "fp8.tensorwise" : "bf16";
        runs[i].options = ",\"param_gather\":true,\"first_bf16\":0,\"last_bf16\":0";
    }
    runs[0].options = NULL;
    runs[2].options = ",\"param_gather\":true,\"first_bf16\":1,\"last_bf16\":1";
    runs[3].model = "{\"layers\":8,\"seq_len\":32768}";
    compare(&s, runs, 4);
    assert_string_equal(label(&s, 0), "bf16");
    assert_string_equal(label(&s, 1), "fp8.tensorwise");
    assert_string_equal(label(&s, 2), "fp8.tensorwise first_bf16=1 last_bf16=1");
    assert_string_equal(label(&s, 3), "fp8.tensorwise layers=8 seq_len=32768");
    CHECK(compare_text(&s.c, false, &text, &e));
    html = page_of(&s);
    assert_non_null(strstr(html, "C fp8.tensorwise first_bf16=1 last_bf16=1")); /* a legend */
    assert_non_null(strstr(html, "<td>fp8.tensorwise layers=8 seq_len=32768</td>"));
    assert_non_null(strstr(html, "<h2>FP8 by layer and step</h2>"));
    assert_non_null(strstr(html, "Underflow, % of the elements; at worst 25 of layers.0.qkv.dy"));
    assert_non_null(strstr(html, "<path class=\"heat\" d=\"M64 10h500v14h-500z\""));
    assert_int_equal(occurrences(text, "fp8.tensorwise first_bf16=1 last_bf16=1"), 4);
    free(html);
    free(text);
    finish(&s);
    compare(&s, (struct run_fixture[]){ runs[0], runs[2] }, 2); /* no other row shares it */
    assert_string_equal(label(&s, 1), "fp8.tensorwise param_gather=true first_bf16=1 last_bf16=1");
    finish(&s);
}

/* Two recipes with as many BF16 layers, but other ones, are two rows with two names. */
static void layers_are_part_of_a_name(void **state) {
    struct scene s;
    struct run_fixture runs[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = "fp8.tensorwise";
        runs[i].options = i == 1 ? ",\"layers\":[{\"layer\":0,\"gemm\":\"qkv\",\"recipe\":"
                                   "{\"kind\":\"bf16\"}}]"
                          : i == 2 ? ",\"layers\":[{\"layer\":3,\"gemm\":\"qkv\",\"recipe\":"
                                     "{\"kind\":\"bf16\"}}]" : NULL;
    }
    compare(&s, runs, 3);
    assert_string_equal(label(&s, 0), "fp8.tensorwise");
    assert_string_equal(label(&s, 1), "fp8.tensorwise layers=0.qkv:bf16");
    assert_string_equal(label(&s, 2), "fp8.tensorwise layers=3.qkv:bf16");
    finish(&s);
}

/* If no value is usual, every name has one; so do factors outside the configuration. */
static void row_names_are_unique(void **state) {
    struct scene s;
    struct run_fixture runs[4];
    for (int i = 0; i < 4; i++) runs[i] = run_fixture_default();
    runs[0].model = "{\"width\":64}";
    runs[1].model = "{\"width\":96}";
    runs[2].model = runs[3].model = "{\"width\":128}";
    runs[2].world = 1;
    runs[3].world = 4;
    compare(&s, runs, 4);
    assert_string_equal(label(&s, 0), "fp8.delayed width=64 world=none");
    assert_string_equal(label(&s, 2), "fp8.delayed width=128 world=1");
    assert_string_equal(label(&s, 3), "fp8.delayed width=128 world=4");
    finish(&s);
}

#define ROW(layer, gemm, kind)                                                          \
    "{\"layer\":" #layer ",\"gemm\":\"" gemm "\",\"recipe\":{\"kind\":\"" kind "\"}}"
#define ROWWISE "fp8.rowwise\",\"constants\":\"te"

/* The defaults are the schema's, of each kind. Layers with a recipe of their own are named. */
static void recipe_text_omits_defaults(void **state) {
    (void)state;
    static const char *const CASES[][2] = {
        { "{\"kind\":\"bf16\",\"layers\":[]}", "bf16" },
        { "{\"kind\":\"fp8.delayed\",\"margin\":0,\"history\":1024,\"algo\":\"max\"}",
          "fp8.delayed" },
        { "{\"kind\":\"fp8.delayed\",\"margin\":3,\"history\":16,\"lm_head\":\"fp8\"}",
          "fp8.delayed margin=3 history=16 lm_head=fp8" },
        { "{\"kind\":\"fp8.tensorwise\",\"format\":\"hybrid\",\"accumulate\":{\"fprop\":\"split\","
          "\"dgrad\":\"split\"}}", "fp8.tensorwise accumulate.fprop=split" },
        { "{\"kind\":\"fp8.rowwise\",\"pow2\":true,\"constants\":\"torchao\"}", "fp8.rowwise" },
        { "{\"kind\":\"fp8.blockwise\",\"pow2\":true,\"constants\":\"te\"}", "fp8.blockwise" },
        { "{\"kind\":\"fp8.blockwise\",\"pow2\":false,\"constants\":\"deepseek\"}",
          "fp8.blockwise constants=deepseek" },
        { "{\"kind\":\"fp8.mxfp8\",\"fallback\":\"bf16\"}", "fp8.mxfp8 fallback=bf16" },
        { "{\"kind\":\"fp8.mxfp8\",\"fallback\":null,\"newer\":2}", "fp8.mxfp8 newer=2" },
        { "{\"kind\":\"bf16\",\"layers\":[" ROW(0, "qkv", "bf16") "," ROW(0, "ffn_in", ROWWISE) ","
          ROW(1, "qkv", "bf16") "," ROW(1, "ffn_in", ROWWISE) "," ROW(4, "qkv", "bf16") ","
          ROW(4, "attn_out", "bf16") "," ROW(4, "ffn_in", "bf16") "," ROW(4, "ffn_out", "bf16")
          "]}", "bf16 layers=0-1.qkv:bf16,0-1.ffn_in:fp8.rowwise(constants=te),4:bf16" },
        { "{\"kind\":\"fp9\",\"margin\":3}", "fp9" },
        { "{}", "?" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *recipe = json_loads(CASES[i][0], 0, NULL);
        assert_non_null(recipe);
        char *text = recipe_text(recipe);
        assert_string_equal(text, CASES[i][1]);
        free(text);
        json_decref(recipe);
    }
}

static void the_page_is_one_file_with_escaped_text(void **state) {
    struct scene s;
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[1].recipe = "<script>alert(1)</script>";
    compare(&s, two, 2);
    char *html = page_of(&s);
    assert_int_equal(occurrences(html, "<script>"), 1); /* ours */
    assert_null(strstr(html, "<script>alert"));
    assert_null(strstr(html, "http://"));
    assert_null(strstr(html, "https://"));
    assert_non_null(strstr(html, "&lt;script&gt;"));
    assert_non_null(strstr(html, "<path class=\"data"));
    free(html);
    finish(&s);
}

/* Three seeds per side: one colour for each recipe, the verdict on top, the same numbers as in the
 * text. */
static void the_page_shows_the_verdict(void **state) {
    struct scene s;
    struct err e = { 0 };
    char *html = NULL, *text = NULL;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].loss_shift = 0.1 * (i % 3) + (i < 3 ? 0 : 0.4);
    compare(&s, runs, 6);
    CHECK(compare_text(&s.c, false, &text, &e));
    html = page_of(&s);
    assert_non_null(strstr(text, "A-C bf16 · D-F fp8.delayed"));
    assert_non_null(strstr(text, "\nDoes the loss hold?\n"));
    assert_true(strstr(text, "does not hold\n") < strstr(text, "\nBit by bit"));
    assert_non_null(strstr(text, "does not hold\n"));
    const char *verdict = strstr(html, "<td class=\"bad\">does not hold</td>");
    assert_non_null(verdict);
    assert_true(verdict < strstr(html, "<h2>Numbers</h2>"));
    assert_non_null(strstr(html, "A… bf16, 3 seeds"));
    assert_non_null(strstr(html, "D… fp8.delayed, 3 seeds"));
    assert_non_null(strstr(html, "class=\"data k1\""));
    assert_null(strstr(html, "class=\"data k2\""));
    assert_int_equal(occurrences(html, "<figure data-plot"), occurrences(html, "class=\"legend\""));
    assert_non_null(strstr(html, "Evaluation loss minus the baseline&#39;s"));
    char memory[32], cell[64]; /* the text's last column; the page has the same figure and unit */
    const char *row = strstr(text, "\nA   bf16");
    assert_non_null(row);
    assert_int_equal(sscanf(row, " A bf16 %*s %*s %*s %*s %*s %*s %31s", memory), 1);
    assert_string_not_equal(memory, "-");
    snprintf(cell, sizeof cell, "<td class=\"n\">%s</td>", memory);
    assert_non_null(strstr(html, cell));
    free(html);
    free(text);
    finish(&s);
}

/* Runs that first differ at the same place share a line; two places take two lines. */
static void runs_that_diverge_at_one_place_share_a_line(void **state) {
    struct scene s;
    struct err e = { 0 };
    char *text = NULL;
    struct run_fixture four[4];
    for (int i = 0; i < 4; i++) {
        four[i] = run_fixture_default();
        four[i].flip_step = i == 0 ? 0 : i < 3 ? 3 : 5;
        four[i].flip_tensor = 4;
    }
    compare(&s, four, 4);
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "A and B, C: first differ at step 3, in layers.4.qkv.weight "
                                 "(trace)\n"));
    assert_non_null(strstr(text, "A and D: first differ at step 5, in layers.4.qkv.weight "
                                 "(trace: "));
    free(text);
    finish(&s);
}

static void rank_tests_have_the_right_p_values(void **state) {
    static const double LOW[4] = { 1, 2, 3, 4 }, HIGH[4] = { 5, 6, 7, 8 };
    static const double MIXED[4] = { 1.5, 2.5, 3.5, 4.5 }, TIED[4] = { 1, 2, 3, 4 };
    struct err e = { 0 };
    double u = 0, p = 0, low = 0, high = 0;
    CHECK(stats_mann_whitney(LOW, 4, HIGH, 4, &u, &p, &e));
    assert_true(u == 0 && fabs(p - 2.0 / 70) < 1e-15); /* 1 of C(8,4) orders, two sides */
    CHECK(stats_mann_whitney(LOW, 3, HIGH, 3, &u, &p, &e));
    assert_true(fabs(p - 0.1) < 1e-15); /* why three seeds cannot decide */
    CHECK(stats_mann_whitney(LOW, 4, MIXED, 4, &u, &p, &e));
    /* U = 6; of the 70 orders 1+1+2+3+5+5+7 = 24 have U <= 6. */
    assert_true(u == 6 && fabs(p - 48.0 / 70) < 1e-15);
    CHECK(stats_mann_whitney(LOW, 4, TIED, 4, &u, &p, &e));
    assert_true(u == 8 && p == 1);
    CHECK(stats_bootstrap_ratio(LOW, 4, HIGH, 4, &low, &high, &e));
    assert_true(low > 0.2 && low < high && high < 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_runs_are_equal),
        cmocka_unit_test(one_flipped_bit_is_found),
        cmocka_unit_test(a_loss_beyond_the_trace_is_found),
        cmocka_unit_test(a_ratio_beyond_doubles_is_null),
        cmocka_unit_test(differences_and_factors_are_named),
        cmocka_unit_test(a_decay_that_follows_from_the_steps_is_no_factor),
        cmocka_unit_test(a_number_of_ranks_is_a_factor),
        cmocka_unit_test(a_choice_table_is_no_second_factor),
        cmocka_unit_test(keys_implied_by_the_recipe_are_left_out),
        cmocka_unit_test(directories_live_runs_and_bundles_compare_alike),
        cmocka_unit_test(four_seeds_a_side_get_a_verdict),
        cmocka_unit_test(energy_is_of_all_gpus),
        cmocka_unit_test(a_lean_comparison_says_the_same),
        cmocka_unit_test(a_row_name_has_the_differing_keys),
        cmocka_unit_test(layers_are_part_of_a_name),
        cmocka_unit_test(row_names_are_unique),
        cmocka_unit_test(recipe_text_omits_defaults),
        cmocka_unit_test(the_page_is_one_file_with_escaped_text),
        cmocka_unit_test(the_page_shows_the_verdict),
        cmocka_unit_test(runs_that_diverge_at_one_place_share_a_line),
        cmocka_unit_test(rank_tests_have_the_right_p_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
