/* The rules of fp8lab health, by the cases in which each would mislead. A case is a run of a
 * tensor's records, step by step, and the symptoms that it has. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "model/ground/json_safe.h"
#include "runner/health/health.h"
#include "runner/health/heat.h"
#include "runner/record/npy.h"
#include "tests/support/run_fixture.h"
#include "tests/support/tiny.h"

/* A whole configuration; %s: the recipe's kind and options. */
static const char CONFIG[] =
    "{\"about\":\"\",\"archive\":\"none\",\"checkpoint\":null,\"data\":{\"kind\":\"synthetic\","
    "\"seed\":1},\"env\":{},\"eval\":null,\"hardware\":{\"gpus\":1,\"query\":null},\"image\":null,"
    "\"model\":{\"activation\":\"swiglu\",\"bias\":false,\"ffn\":128,\"head_dim\":16,\"heads\":4,"
    "\"init_std\":0.02,\"kv_heads\":4,\"layers\":2,\"norm\":\"rmsnorm\",\"norm_eps\":1e-05,"
    "\"positions\":\"rope\",\"qk_norm\":false,\"rope\":{\"scaling\":null,\"theta\":10000.0},"
    "\"seq_len\":32,\"tied\":false,\"vocab\":256,\"width\":64},\"name\":\"h\",\"recipe\":{"
    "\"accumulate\":{\"dgrad\":\"split\",\"fprop\":\"fast\",\"wgrad\":\"split\"},\"constants\":"
    "\"te\",\"fallback\":null,\"first_bf16\":0,\"format\":\"hybrid\",\"last_bf16\":0,\"layers\":[],"
    "\"lm_head\":\"bf16\",\"param_gather\":false,%s},\"schema\":\"fp8lab.experiment/1\",\"trace\":"
    "{\"every\":0,\"first\":20},\"train\":{\"epochs\":null,\"global_batch\":4,\"grad_dtype\":"
    "\"f32\",\"head_chunk\":1024,\"micro_batch\":2,\"optimizer\":{\"betas\":[0.9,0.95],\"clip\":1,"
    "\"eps\":1e-08,\"kind\":\"adamw\",\"lr\":0.0003,\"master\":\"f32\",\"offload\":false,\"state\":"
    "\"f32\",\"weight_decay\":0.1},\"recompute\":\"none\",\"schedule\":{\"decay\":0,\"final\":1.0,"
    "\"kind\":\"constant\",\"warmup\":0},\"seed\":1,\"shard\":\"optimizer\",\"steps\":6,"
    "\"time_limit_s\":null}}";
static const char DELAYED[] = "\"algo\":\"max\",\"history\":1024,\"kind\":\"fp8.delayed\","
                              "\"margin\":0,\"roll\":\"microbatch\"";
static const char BLOCKWISE[] = "\"kind\":\"fp8.blockwise\",\"pow2\":true";
static const char TENSORWISE[] = "\"kind\":\"fp8.tensorwise\",\"pow2\":false";

/* Five labels: a norm, a BF16 head, and three FP8 operands. The case is of X. */
enum { NORM, HEAD, WEIGHT, X, DY, LABELS };
static const char NAMES[] = "[\"layers.0.norm1.weight\",\"head.dy\",\"layers.0.qkv.weight\","
                            "\"layers.1.ffn_out.x\",\"layers.1.ffn_out.dy\"]";

/* The values of X in a step; the counts are of a million elements. */
struct values { double amax, scale, saturated, underflow, snr_db, rms; };
typedef struct values (*filler)(int64_t step, int64_t steps);

/* One of the two streams of a run. fill NULL: every step is healthy. */
static struct columns *records(enum stream_id stream, int64_t steps, int64_t every, filler fill) {
    struct npy layout;
    npy_layout(&STREAMS[stream], LABELS, &layout);
    layout.rows = steps / every;
    char *bytes = malloc((size_t)(NPY_HEADER_MAX + layout.rows * layout.row_bytes));
    assert_non_null(bytes);
    int64_t n = npy_header(&layout, bytes);
    for (int64_t step = every; step <= steps; step += every, n += layout.row_bytes) {
        struct fp8_slot slot[LABELS];
        struct values v = fill ? fill(step, steps) : (struct values){ 4, 112, 0, 0, 31.4, 1 };
        for (int i = 0; i < LABELS; i++) {
            bool fp8 = i >= WEIGHT;
            slot[i] = (struct fp8_slot){ .amax_bits = f32_bits(4), .scale = fp8 ? 112 : 1,
                                         .elements = 1000000, .rms = fp8 ? 1 : (double)NAN,
                                         .snr_db = fp8 ? i == DY ? 25.4 : 31.4 : (double)NAN };
        }
        slot[X].amax_bits = f32_bits((float)v.amax);
        slot[X].scale = (float)v.scale;
        slot[X].saturated = (int64_t)(1e6 * v.saturated);
        slot[X].underflow = (int64_t)(1e6 * v.underflow);
        slot[X].snr_db = v.snr_db;
        slot[X].rms = v.rms;
        struct stream_source source = { .step_number = step, .slot = slot, .width = LABELS };
        npy_row(&STREAMS[stream], &source, &layout, bytes + n);
    }
    struct columns *c = NULL;
    struct err e = { 0 };
    CHECK(columns_parse(bytes, (size_t)n, ROWS_COMPLETE, "fp8.npy", &c, &e));
    c->labels = json_loads(NAMES, 0, NULL);
    assert_non_null(c->labels);
    return c;
}

/* measured: every so many steps; 0: never. */
static struct run_view view_of(const char *recipe, int64_t steps, int64_t measured, filler fill) {
    char text[sizeof CONFIG + 200];
    struct run_view v = { .path = "a-run" };
    snprintf(text, sizeof text, CONFIG, recipe);
    v.resolved = json_loads(text, 0, NULL);
    v.run = json_object();
    assert_non_null(v.resolved);
    v.columns.of[STREAM_FP8] = records(STREAM_FP8, steps, 1, fill);
    if (measured)
        v.columns.of[STREAM_FP8_ERROR] = records(STREAM_FP8_ERROR, steps, measured, fill);
    return v;
}

/* ---- the cases ---- */

static struct values healthy(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0.001, 31.2, 1 };
}
/* A gradient that is 0 in every element: nothing was lost. */
static struct values zeros(int64_t step, int64_t steps) {
    return (struct values){ 0, 1, 0, 0, (double)NAN, (double)NAN };
}
/* The first scale of delayed scaling is 1: the first steps lose nearly all. */
static struct values without_history(int64_t step, int64_t steps) {
    if (step > 2) return healthy(step, steps);
    return (struct values){ 1e-6, 1, 0, 1, 0.1, 1e-7 };
}
static struct values one_spike(int64_t step, int64_t steps) {
    struct values v = healthy(step, steps);
    if (step == steps - 3) v = (struct values){ 400, 112, 0.2, 0, 3, 100 };
    return v;
}
static struct values many_spikes(int64_t step, int64_t steps) {
    struct values v = healthy(step, steps);
    if (step % 5 == 0) v.saturated = 0.2;
    return v;
}
/* A frozen weight has the same figures in each step, also if one element is clipped. */
static struct values unchanging(int64_t step, int64_t steps) {
    return (struct values){ 0.125, 3584, 0.000122, 0.0001, 31.5, 0.02 };
}
static struct values softmax_gradient(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0.93, 30.9, 1e-3 };
}
static struct values exact_codes(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0, (double)INFINITY, 1 };
}
static struct values clipped_for_good(int64_t step, int64_t steps) {
    if (step < 60) return healthy(step, steps);
    return (struct values){ 40, 112, 0.02, 0.001, 12, 2 };
}
/* One step long before is not the beginning. */
static struct values clipped_once_then_for_good(int64_t step, int64_t steps) {
    return clipped_for_good(step == 5 ? 60 : step, steps);
}
/* Trouble that ended is no symptom of the run's end. */
static struct values clipped_once(int64_t step, int64_t steps) {
    if (step > 60) return healthy(step, steps);
    return (struct values){ 40, 112, 0.02, 0.001, 12, 2 };
}
static struct values clipped_with_gaps(int64_t step, int64_t steps) {
    if (step % 3 == 0) return healthy(step, steps);
    return clipped_for_good(step, steps);
}
static struct values vanishing(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0.8, 9, 1e-4 };
}
static struct values old_amax(int64_t step, int64_t steps) {
    double amax = step < 30 ? 4 : 0.004;
    return (struct values){ amax, 112, 0, 0.02, step < 30 ? 31 : 16, amax / 4 };
}
static struct values outliers(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0.1, 17, 4e-5 };
}
static struct values drifting(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0, step > 50 ? 27.5 : 31.4, 1 };
}
/* What the first third had is not what the first half had. */
static struct values falls_early(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0, step > steps / 3 ? 27 : 31, 1 };
}
/* The gradient of an untrained head has few different values, so its codes are nearly exact. */
static struct values untrained_head(int64_t step, int64_t steps) {
    return (struct values){ 4, 112, 0, 0, step > 50 ? 31.6 : 40.2, 1 };
}
/* Current scaling: many elements equal the amax, and the product rounds up. */
static struct values ties(int64_t step, int64_t steps) {
    return (struct values){ 0.3f, 448 / 0.3f, 0.02, 0, 31.4, 0.1 };
}
static struct values infinite(int64_t step, int64_t steps) {
    struct values v = healthy(step, steps);
    if (step == 3) v.amax = (double)INFINITY;
    return v;
}
static struct values not_a_number(int64_t step, int64_t steps) {
    struct values v = healthy(step, steps);
    if (step == steps) v.amax = (double)NAN;
    return v;
}

static const struct health_case {
    const char *name;
    const char *recipe;
    int64_t steps, measured;
    filler fill;
    const char *symptoms; /* of X: "level name since; ..." */
} CASES[] = {
    { "healthy", TENSORWISE, 100, 10, healthy, "" },
    { "healthy, not measured", TENSORWISE, 100, 0, healthy, "" },
    { "an all-zero gradient is no underflow", DELAYED, 100, 10, zeros, "" },
    { "no history yet", DELAYED, 100, 1, without_history, "" },
    { "no history yet, a short run", DELAYED, 5, 1, without_history, "" },
    { "a run of two steps", DELAYED, 2, 1, without_history, "" },
    { "one spike", DELAYED, 100, 1, one_spike, "" },
    { "spikes", DELAYED, 100, 10, many_spikes, "watch saturates now and then 0" },
    { "a frozen tensor", DELAYED, 100, 10, unchanging, "" },
    { "a frozen tensor, not measured", DELAYED, 100, 0, unchanging, "" },
    { "a softmax's gradient", TENSORWISE, 100, 10, softmax_gradient, "" },
    { "the same, not measured", TENSORWISE, 100, 0, softmax_gradient, "watch underflow 1" },
    { "codes without an error", TENSORWISE, 100, 10, exact_codes, "" },
    { "clipped since step 60", DELAYED, 100, 5, clipped_for_good,
      "trouble saturated 60; trouble low SNR 60; watch SNR falls 60" },
    { "the same, not measured", DELAYED, 100, 0, clipped_for_good, "watch saturated 60" },
    { "clipped once before", DELAYED, 100, 0, clipped_once_then_for_good, "watch saturated 60" },
    { "clipped long ago", DELAYED, 100, 5, clipped_once, "" },
    { "gaps do not move the beginning", DELAYED, 100, 0, clipped_with_gaps,
      "watch saturated 61" },
    { "most of it vanishes", TENSORWISE, 100, 10, vanishing,
      "trouble underflow 1; trouble outliers 10" },
    { "the scale of an amax long ago", DELAYED, 100, 5, old_amax,
      "trouble range unused 30; trouble low SNR 30; watch SNR falls 30" },
    { "small values of current scaling", TENSORWISE, 100, 0, old_amax, "" },
    { "outliers", TENSORWISE, 100, 10, outliers, "trouble outliers 10" },
    { "a falling SNR", TENSORWISE, 100, 5, drifting, "watch SNR falls 55" },
    { "a fall behind the first third", TENSORWISE, 100, 5, falls_early, "watch SNR falls 35" },
    { "too few measurements for a trend", TENSORWISE, 100, 25, drifting, "" },
    { "an SNR that falls to the format's own", TENSORWISE, 100, 5, untrained_head, "" },
    { "elements that equal the amax", TENSORWISE, 100, 0, ties, "" },
    { "outliers beside scales of blocks", BLOCKWISE, 100, 10, outliers, "trouble low SNR 10" },
    { "two measurements", TENSORWISE, 100, 50, outliers, "" },
    { "infinite once", TENSORWISE, 100, 10, infinite, "trouble not finite 3" },
    { "NaN at the end", TENSORWISE, 4, 0, not_a_number, "trouble not finite 4" },
};

/* "trouble saturated 60; ..." of the tensor. What comes and goes has no meaningful beginning. */
static void symptoms_of(const struct health *h, int64_t tensor, char out[400]) {
    static const char *const LEVELS[] = { "fine", "watch", "trouble" };
    size_t used = 0;
    *out = '\0';
    for (int64_t i = 0; i < h->finding_count; i++) {
        const struct health_finding *f = &h->finding[i];
        if (f->tensor != tensor) continue;
        const struct health_rule *rule = &HEALTH_RULES[f->rule];
        used += (size_t)snprintf(out + used, 400 - used, "%s%s %s %lld", used ? "; " : "",
                                 LEVELS[f->level], rule->name,
                                 rule->seldom ? 0 : (long long)f->since);
    }
}

static void cases_have_their_symptoms(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct health_case *c = &CASES[i];
        struct run_view v = view_of(c->recipe, c->steps, c->measured, c->fill);
        struct health h;
        struct err e = { 0 };
        char found[400], other[400];
        CHECK(health_make(&v, &h, &e));
        assert_int_equal(h.fp8_count, 3);
        symptoms_of(&h, X, found);
        if (strcmp(found, c->symptoms) != 0)
            fail_msg("%s: \"%s\", wanted \"%s\"", c->name, found, c->symptoms);
        for (int k = 0; k < LABELS; k++) {
            symptoms_of(&h, k, other);
            if (k != X && *other) fail_msg("%s, label %d: %s", c->name, k, other);
        }
        health_free(&h);
        run_view_free(&v);
    }
}

/* ---- who a label is ---- */

/* Labels that other runs have: of FP8 attention, of an FP8 head, of a weight that is cast once. */
static void rarer_labels_are_what_the_recipe_says(void **state) {
    static const struct {
        enum recipe_kind kind;
        const char *name;
        bool fp8, delayed;
        enum dtype code;
    } NAMED[] = {
        { RECIPE_TENSORWISE, "layers.0.attention.do", true, false, DTYPE_E5M2 },
        { RECIPE_TENSORWISE, "layers.0.attention.ds", true, true, DTYPE_E5M2 },
        { RECIPE_TENSORWISE, "layers.0.attention.qkv", true, false, DTYPE_E4M3 },
        { RECIPE_TENSORWISE, "layers.0.attention.p", true, true, DTYPE_E4M3 },
        { RECIPE_DELAYED, "layers.0.attention.do", true, true, DTYPE_E5M2 },
        { RECIPE_DELAYED, "layers.0.qkv.weight.dgrad", .fp8 = false },
        { RECIPE_DELAYED, "head.dy", true, true, DTYPE_E5M2 },
        { RECIPE_DELAYED, "embed.dy", .fp8 = false }, /* no GEMM reads it */
        { RECIPE_DELAYED, "embed.weight", true, true, DTYPE_E4M3 }, /* that of a tied head */
    };
    for (size_t i = 0; i < sizeof NAMED / sizeof *NAMED; i++) {
        struct recipe_options o = tiny_recipe_options(NAMED[i].kind), site[GEMM_SITE_COUNT];
        struct recipe r = tiny_recipe(&o, site, 1);
        struct health_tensor t = { .name = NAMED[i].name };
        r.attention_fp8 = true;
        r.head = o;
        health_identify(&t, &r, NULL);
        if (t.fp8 != NAMED[i].fp8 || t.delayed != NAMED[i].delayed ||
            (t.fp8 && t.code != NAMED[i].code))
            fail_msg("%s: %d %d %s", t.name, t.fp8, t.delayed, dtype_name(t.code));
    }
}

static void labels_are_what_the_recipe_says(void **state) {
    struct run_view v = view_of(DELAYED, 10, 0, healthy);
    struct health h;
    struct err e = { 0 };
    CHECK(health_make(&v, &h, &e));
    static const struct { int label; bool fp8; enum dtype code; } WANTED[] = {
        { NORM, false, 0 }, { HEAD, false, 0 }, { WEIGHT, true, DTYPE_E4M3 },
        { X, true, DTYPE_E4M3 }, { DY, true, DTYPE_E5M2 },
    };
    for (size_t i = 0; i < LABELS; i++) {
        const struct health_tensor *t = &h.tensor[WANTED[i].label];
        assert_true(t->known);
        assert_int_equal(t->fp8, WANTED[i].fp8);
        if (t->fp8) assert_true(t->code == WANTED[i].code && t->delayed);
    }
    assert_true(h.tensor[X].range_used == 1.0); /* 4 * 112 of 448 */
    health_free(&h);
    /* Where the device had no native FP8, BF16 ran instead. */
    v.decisions = json_pack("{s:[s]}", "fallback", "layers.1.ffn_out");
    CHECK(health_make(&v, &h, &e));
    assert_int_equal(h.fp8_count, 1);
    health_free(&h);
    /* A configuration that this version does not read: what the records show. */
    json_object_set_new(v.resolved, "model", json_null());
    CHECK(health_make(&v, &h, &e));
    assert_int_equal(h.fp8_count, 3);
    assert_false(h.tensor[X].known);
    assert_true(isnan(h.tensor[X].range_used));
    health_free(&h);
    run_view_free(&v);
}

/* A step that failed has no record; the run's error names the tensor. */
static void the_error_of_a_failed_run_counts(void **state) {
    struct run_view v = view_of(DELAYED, 12, 0, healthy);
    struct health h;
    struct err e = { 0 };
    char found[400];
    json_object_set_new(v.run, "error", json_pack("{s:s, s:s}", "code", "ERR_NUMERIC", "text",
                                                  "step 13: layers.1.ffn_out.x is not finite"));
    CHECK(health_make(&v, &h, &e));
    symptoms_of(&h, X, found);
    assert_string_equal(found, "trouble not finite 13");
    health_free(&h);
    run_view_free(&v);
}

/* ---- the report ---- */

static void append(void *to, enum health_level level, const char *line) {
    char *text = to;
    size_t used = strlen(text);
    snprintf(text + used, 8192 - used, "%s\n", line);
}

static void text_of(const char *recipe, int64_t steps, int64_t measured, filler fill,
                    char out[8192]) {
    struct run_view v = view_of(recipe, steps, measured, fill);
    struct health h;
    struct err e = { 0 };
    CHECK(health_make(&v, &h, &e));
    *out = '\0';
    health_print(&h, false, append, out);
    health_free(&h);
    run_view_free(&v);
}

static void reports_say_it_in_words(void **state) {
    static char text[8192];
    text_of(TENSORWISE, 100, 10, healthy, text);
    assert_string_equal(text, "healthy: none of 3 FP8 tensors is in trouble; steps 1 to 100, "
                              "judged by the last 20; the lowest SNR is 25.4 dB, of "
                              "layers.1.ffn_out.dy\n");
    text_of(TENSORWISE, 100, 0, healthy, text);
    assert_non_null(strstr(text, "no step measured the error of casts (fp8_error)"));
    text_of(TENSORWISE, 3, 0, healthy, text);
    assert_string_equal(text, "3 steps are too few to judge 3 FP8 tensors by; at least 5\n");
    text_of("\"kind\":\"bf16\"", 100, 0, NULL, text);
    assert_string_equal(text, "nothing in FP8: the recipe is bf16\n");
    text_of(DELAYED, 100, 5, clipped_for_good, text);
    static const char *const WORDS[] = {
        "1 of 3 FP8 tensors in trouble, 0 to watch; steps 1 to 100, judged by the last 20; the "
        "lowest SNR is 12.0 dB, of layers.1.ffn_out.x\n",
        "trouble: saturated, 1 tensor\n", "  try     recipe.margin = 1",
        "  source  TransformerEngine, recipe.DelayedScaling (margin)",
        "    layers.1.ffn_out.x  since step 60: e4m3, range used 1e+03 %, saturated 2 %, "
        "underflow 0.1 %, SNR 12.0 dB (31.2 at first)\n",
    };
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (!strstr(text, WORDS[i])) fail_msg("\"%s\" is not in:\n%s", WORDS[i], text);
}

/* ---- the heat map ---- */

static struct values hot_in_step_990(int64_t step, int64_t steps) {
    struct values v = healthy(step, steps);
    if (step == 990) v = (struct values){ 400, 112, 0.02, 0, 8.5, 100 };
    return v;
}

/* One bad step of a thousand is in its cell, with the tensor's name and the step. */
static void heat_keeps_the_worst(void **state) {
    struct run_view v = view_of(DELAYED, 1000, 10, hot_in_step_990);
    struct heat h;
    struct err e = { 0 };
    CHECK(heat_make(&v, &h, &e));
    assert_int_equal(h.layers, 2); /* the head is not FP8 */
    assert_false(h.has_head);
    static const struct { enum heat_metric m; double value; } WORST[] = {
        { HEAT_SATURATED, 2 }, { HEAT_UNDERFLOW, 0.1 }, { HEAT_SNR, 23 },
    };
    for (size_t i = 0; i < HEAT_METRICS; i++) {
        const struct heat_worst *w = &h.worst[WORST[i].m][1];
        assert_int_equal(h.bins[i], HEAT_BINS);
        assert_true(fabs(w->value - WORST[i].value) < 1e-9);
        if (i != HEAT_UNDERFLOW) assert_int_equal(w->step, 990);
        assert_int_equal(w->tensor, X);
        for (int bin = 0; bin < HEAT_BINS; bin++) {
            bool hot = i != HEAT_UNDERFLOW && bin == 98;
            assert_int_equal(h.level[i][HEAT_BINS + bin], hot ? 3 : 0);
            assert_int_equal(h.level[i][bin], 0);
        }
    }
    heat_free(&h);
    run_view_free(&v);
}

static void heat_of_other_runs(void **state) {
    struct run_view v = view_of("\"kind\":\"bf16\"", 50, 0, NULL);
    struct heat h;
    struct err e = { 0 };
    CHECK(heat_make(&v, &h, &e));
    assert_int_equal(h.layers, 0);
    heat_free(&h);
    run_view_free(&v);
    v = view_of(TENSORWISE, 7, 0, healthy); /* a column a step; no measurement */
    CHECK(heat_make(&v, &h, &e));
    assert_int_equal(h.bins[HEAT_SATURATED], 7);
    assert_int_equal(h.bins[HEAT_SNR], 0);
    heat_free(&h);
    /* A foreign label of a layer that cannot be has no row. */
    json_array_set_new(v.columns.of[STREAM_FP8]->labels, X,
                       json_string("layers.99999999999.qkv.x"));
    json_object_set_new(v.resolved, "model", json_null());
    CHECK(heat_make(&v, &h, &e));
    assert_int_equal(h.layers, 2);
    heat_free(&h);
    run_view_free(&v);
}

/* A foreign run may have steps that cannot be, in any order, and other widths. */
static void foreign_numbers_end(void **state) {
    static const int64_t STEPS[] = { INT64_MIN, INT64_MAX, 3, -5, 0, (int64_t)1 << 53, 7, 2 };
    for (int which = 0; which < 3; which++) {
        struct run_view v = view_of(DELAYED, 8, 1, clipped_for_good);
        struct health h;
        struct heat heat;
        struct err e = { 0 };
        for (int s = 0; s < 2; s++) {
            struct columns *c = v.columns.of[s ? STREAM_FP8_ERROR : STREAM_FP8];
            const struct column *step = columns_find(c, "step");
            for (int64_t i = 0; which < 2 && i < 8; i++)
                memcpy((char *)(uintptr_t)column_row(step, i), &STEPS[(i + which * 4) % 8], 8);
        }
        if (which == 2) { /* the error of fewer tensors, without names */
            v.columns.of[STREAM_FP8_ERROR]->column[1].width = LABELS - 1;
            json_decref(v.columns.of[STREAM_FP8]->labels);
            v.columns.of[STREAM_FP8]->labels = NULL;
        }
        CHECK(health_make(&v, &h, &e));
        CHECK(heat_make(&v, &heat, &e));
        heat_free(&heat);
        health_free(&h);
        run_view_free(&v);
    }
}

/* Each rule has a reason, an advice, and a source for it. */
static void the_table_is_complete(void **state) {
    assert_true(HEALTH_RULE_COUNT <= HEALTH_RULES_MAX);
    for (int k = 0; k < HEALTH_RULE_COUNT; k++) {
        const struct health_rule *r = &HEALTH_RULES[k];
        assert_true(r->level > HEALTH_FINE && r->holds);
        assert_true(*r->name && *r->means && *r->why && *r->advice && *r->source);
    }
}

/* The SNR of a format: 6 dB a bit of mantissa; NVFP4's is that of normal values in its blocks. */
static void formats_have_their_snr(void **state) {
    static const struct { enum dtype code; double snr; } FORMATS[] = {
        { DTYPE_E4M3, 31.5 }, { DTYPE_E5M2, 25.5 }, { DTYPE_E2M1, 20.4 },
    };
    for (size_t i = 0; i < sizeof FORMATS / sizeof *FORMATS; i++) {
        struct health_tensor t = { .known = true, .code = FORMATS[i].code };
        assert_true(health_snr_format(&t) == FORMATS[i].snr);
        assert_true(health_snr_floor(&t) == FORMATS[i].snr - 6);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_have_their_snr),
        cmocka_unit_test(cases_have_their_symptoms),
        cmocka_unit_test(rarer_labels_are_what_the_recipe_says),
        cmocka_unit_test(labels_are_what_the_recipe_says),
        cmocka_unit_test(the_error_of_a_failed_run_counts),
        cmocka_unit_test(reports_say_it_in_words),
        cmocka_unit_test(heat_keeps_the_worst),
        cmocka_unit_test(heat_of_other_runs),
        cmocka_unit_test(foreign_numbers_end),
        cmocka_unit_test(the_table_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
