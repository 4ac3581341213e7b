/* The rule of `advise`, clause by clause (runner/advise/README.md), its forecast on made-up
 * operators, and the census: the dry backend is given the operators that the CPU runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/advise/advice.h"
#include "runner/advise/attention_way.h"
#include "runner/advise/link.h"
#include "runner/plan/dry_backend.h"
#include "tests/support/tiny.h"

static void need(enum status st, const struct err *e) {
    if (st != OK) fail_msg("%s", e->text);
}

/* ---- the rule */

/* A row that runs; step_us 0: no forecast. */
static struct advice_row row(enum recipe_kind kind, double step_us) {
    struct advice_row r = { .kind = kind, .fits = true, .way = { WAY_NATIVE, "" },
                            .bytes = 1, .memory = 2, .tokens = 1, .ranks = 1 };
    r.forecast.known = step_us > 0;
    r.forecast.step_us = step_us;
    return r;
}

static struct advice three(double bf16, double tensorwise, double blockwise) {
    struct advice a = { .count = 3, .timed = true };
    a.row[0] = row(RECIPE_BF16, bf16);
    a.row[1] = row(RECIPE_TENSORWISE, tensorwise);
    a.row[2] = row(RECIPE_BLOCKWISE, blockwise);
    return a;
}

static void best_is(struct advice *a, int kind) {
    advice_rank(a);
    const struct advice_row *best = advice_best(a);
    assert_int_equal(best ? (int)best->kind : -1, kind);
    for (int64_t i = 0; i < a->count; i++)
        assert_int_equal(!*a->row[i].reason, &a->row[i] == best);
}

static const struct advice_row *find(const struct advice *a, enum recipe_kind kind) {
    for (int64_t i = 0; i < a->count; i++)
        if (a->row[i].kind == kind) return &a->row[i];
    return NULL;
}

static void what_cannot_run_is_not_advised(void **state) {
    struct advice a = three(100, 50, 70);
    a.row[1].fits = false;
    best_is(&a, RECIPE_BLOCKWISE);
    assert_non_null(strstr(find(&a, RECIPE_TENSORWISE)->reason, "GiB"));
    assert_int_equal(a.row[2].kind, RECIPE_TENSORWISE); /* last */
    a = three(100, 50, 70);
    a.row[1].way = (struct recipe_row){ WAY_REFUSED, "no code" };
    best_is(&a, RECIPE_BLOCKWISE);
    assert_string_equal(find(&a, RECIPE_TENSORWISE)->reason, "no code");
    a = three(100, 50, 70);
    for (int i = 0; i < 3; i++) a.row[i].fits = false;
    best_is(&a, -1);
    a = three(100, 90, 70);
    a.row[0].fits = false; /* without BF16 the fastest */
    best_is(&a, RECIPE_BLOCKWISE);
}

static void what_the_script_refuses_is_a_row_with_its_reason(void **state) {
    struct advice a = three(100, 50, 70);
    a.count = 2;
    advice_add_refused(&a, RECIPE_NVFP4, "train.exact: no form; use bf16");
    best_is(&a, RECIPE_TENSORWISE);
    assert_int_equal(a.row[2].kind, RECIPE_NVFP4);
    assert_int_equal(a.row[2].group, ADVICE_CANNOT);
    assert_string_equal(a.row[2].reason, "train.exact: no form; use bf16");
    a = (struct advice){ 0 };
    advice_add_refused(&a, RECIPE_BF16, "no such kernel");
    best_is(&a, -1);
}

static void a_loss_that_failed_is_not_advised(void **state) {
    struct advice a = three(100, 50, 70);
    a.row[1].loss.finding = EVIDENCE_FAILS;
    best_is(&a, RECIPE_BLOCKWISE);
    assert_non_null(strstr(find(&a, RECIPE_TENSORWISE)->reason, "does not hold"));
    a.row[0].loss.finding = EVIDENCE_FAILS; /* blockwise is there now */
    best_is(&a, RECIPE_BF16);
    a.row[0].fits = false; /* then nothing is left */
    best_is(&a, -1);
}

/* There is no BF16 to prefer, so any FP8 that runs is advised. */
static void a_bf16_that_cannot_run_sets_no_margin(void **state) {
    for (int i = 0; i < 2; i++) {
        struct advice a = three(100, 105, 119);
        if (i) a.row[0].fits = false;
        else a.row[0].loss.finding = EVIDENCE_FAILS;
        best_is(&a, RECIPE_TENSORWISE);
        a = three(100, 105, 106);
        if (i) a.row[0].fits = false;
        else a.row[0].loss.finding = EVIDENCE_FAILS;
        a.row[2].loss.finding = EVIDENCE_HOLDS; /* of the two the one that is proven */
        best_is(&a, RECIPE_BLOCKWISE);
    }
}

static void fp8_must_be_faster_by_the_margin(void **state) {
    struct advice a = three(109, 100, 105);
    best_is(&a, RECIPE_BF16);
    a = three(111, 100, 105);
    best_is(&a, RECIPE_TENSORWISE);
    assert_true(fabs(a.row[0].speed - 1.11) < 1e-9);
    a = three(120, 100, 119);
    a.row[1].forecast.assumed = 0.2; /* rough: 25 % */
    best_is(&a, RECIPE_BF16);
    assert_non_null(strstr(find(&a, RECIPE_TENSORWISE)->reason, "rough"));
    a = three(126, 100, 119);
    a.row[1].forecast.outside = true;
    best_is(&a, RECIPE_TENSORWISE);
    a = three(0, 100, 119); /* a BF16 without a time */
    best_is(&a, RECIPE_BF16);
    assert_true(find(&a, RECIPE_TENSORWISE)->speed <= 0);
    assert_non_null(strstr(find(&a, RECIPE_TENSORWISE)->reason, "no time to compare"));
}

static void a_loss_that_holds_decides_between_near_recipes(void **state) {
    struct advice a = three(150, 100, 109);
    a.row[2].loss.finding = EVIDENCE_HOLDS;
    best_is(&a, RECIPE_BLOCKWISE);
    assert_non_null(strstr(find(&a, RECIPE_TENSORWISE)->reason, "say less of its loss"));
    a = three(150, 100, 111); /* not near */
    a.row[2].loss.finding = EVIDENCE_HOLDS;
    best_is(&a, RECIPE_TENSORWISE);
    a = three(150, 100, 109);
    a.row[1].loss.finding = a.row[2].loss.finding = EVIDENCE_HOLDS;
    best_is(&a, RECIPE_TENSORWISE);
}

static void without_times_bf16_then_native_then_emulated(void **state) {
    struct advice a = three(0, 0, 0);
    a.timed = false;
    a.row[1].way = (struct recipe_row){ WAY_EMULATED, "no such cores" };
    best_is(&a, RECIPE_BF16);
    assert_int_equal(a.row[1].kind, RECIPE_BLOCKWISE);
    assert_non_null(strstr(a.row[2].reason, "emulated: no such cores"));
    a = three(0, 0, 0);
    a.row[0].fits = false;
    best_is(&a, RECIPE_TENSORWISE);
}

/* It multiplies as BF16 does, and casts besides: a shorter forecast is wrong. */
static void emulated_is_never_faster_than_bf16(void **state) {
    const struct recipe_row emulated = { WAY_EMULATED, "no such cores" };
    struct advice a = three(100, 50, 95);
    a.row[1].way = emulated;
    best_is(&a, RECIPE_BF16);
    assert_int_equal(a.row[2].kind, RECIPE_TENSORWISE);
    assert_true(a.row[2].forecast.step_us >= 100 && a.row[2].speed <= 1);
    assert_string_equal(a.row[2].reason, "emulated: no such cores");
    a = three(100, 50, 70);
    a.row[1].way = emulated;
    a.row[0].fits = false; /* without BF16 its time is as wrong */
    best_is(&a, RECIPE_BLOCKWISE);
    a = three(100, 150, 70);
    a.row[1].way = emulated;
    best_is(&a, RECIPE_BLOCKWISE);
    assert_true(a.row[2].forecast.step_us >= 150 && a.row[2].speed < 0.7);
    assert_string_equal(a.row[2].reason, "emulated: no such cores");
}

/* Half of the bytes of two ranks cross the link, at 100 GB/s: more than a tenth of the step. */
static void bytes_between_ranks_make_a_short_step_rough(void **state) {
    struct advice a = three(120, 100, 119);
    a.row[1].comm_bytes = 1e9;
    best_is(&a, RECIPE_TENSORWISE); /* with one rank there is no link */
    a = three(120, 100, 119);
    a.row[1].ranks = 2;
    a.row[1].comm_bytes = 2 * 9.9 * 1e5;
    best_is(&a, RECIPE_TENSORWISE);
    a = three(120, 100, 119);
    a.row[1].ranks = 2;
    a.row[1].comm_bytes = 2 * 10.1 * 1e5;
    best_is(&a, RECIPE_BF16);
    assert_true(advice_is_rough(find(&a, RECIPE_TENSORWISE)));
    a = three(120, 100, 119); /* the same, if they are in the forecast */
    a.row[1].ranks = 2;
    a.row[1].comm_bytes = 2 * 10.1 * 1e5;
    a.row[1].link_us = 10.1;
    best_is(&a, RECIPE_TENSORWISE);
}

/* Their time is forecast over NVLink alone, and only if it joins all GPUs of the ranks. */
static void bytes_between_ranks_have_a_rate_over_nvlink(void **state) {
    static const struct { const char *facts; int ranks; bool nvlink; } CASES[] = {
        { "{\"gpu.count\": 8, \"gpu.nvlink\": true}", 8, true },
        { "{\"gpu.count\": 8, \"gpu.nvlink\": true}", 16, false }, /* two hosts */
        { "{\"gpu.count\": 2, \"gpu.nvlink\": false}", 2, false },
        { "{\"gpu.count\": 2, \"gpu.nvlink\": null, \"gpu.links\": null}", 2, false },
        { "{\"gpu.count\": 2, \"gpu.nvlink\": true, \"gpu.links\": \"nvlink x18\"}", 2, true },
        { "{\"gpu.count\": 2, \"gpu.nvlink\": true, \"gpu.links\": \"nvlink x4\"}", 2, false },
        { "{\"gpu.count\": 2, \"gpu.nvlink\": true, \"gpu.links\": \"sys\"}", 2, false },
        { "{\"gpu.count\": 3, \"gpu.nvlink\": true,"
          " \"gpu.links\": \"nvlink x12: 0-1; nvlink x18: 0-2 1-2\"}", 3, true },
        { "{\"gpu.count\": 3, \"gpu.nvlink\": true,"
          " \"gpu.links\": \"nvlink x18: 0-1; node: 0-2 1-2\"}", 3, false },
        { "{}", 2, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *facts = json_loads(CASES[i].facts, 0, NULL);
        assert_non_null(facts);
        if (link_is_nvlink(facts, CASES[i].ranks) != CASES[i].nvlink)
            fail_msg("%d ranks on %s", CASES[i].ranks, CASES[i].facts);
        json_decref(facts);
    }
    assert_true(link_us(4e5, 4) > 2.99 && link_us(4e5, 4) < 3.01);
    assert_true(link_us(4e5, 1) <= 0);
}

/* ---- FP8 attention */

static void fp8_attention_is_emulated_but_for_cudnn(void **state) {
    enum { NONE = ATTENTION_WAY_PLAIN, HERE = ATTENTION_WAY_EMULATED, ELSE = ATTENTION_WAY_EITHER,
           ENDS = ATTENTION_WAY_CUDNN };
    static const struct {
        int cc, length, head_dim, window;
        const char *precision, *backend, *mask;
        int wanted;
    } CASES[] = {
        { 90, 1024, 128, 0, "fp8", NULL, "none", HERE },
        { 90, 1024, 128, 0, "bf16", NULL, "none", NONE },
        { 0, 1024, 128, 0, "fp8", NULL, "none", NONE }, /* the CPU defines it */
        { 89, 1024, 128, 0, "fp8", NULL, "none", HERE },
        { 120, 1024, 128, 0, "fp8", NULL, "none", HERE },
        { 100, 1024, 128, 0, "fp8", NULL, "none", ELSE },
        { 100, 1024, 128, 0, "fp8", "auto", "none", ELSE },
        { 100, 1024, 128, 0, "fp8", "own", "none", HERE },
        { 100, 1024, 128, 0, "fp8", "cudnn", "none", ENDS },
        { 100, 128, 128, 0, "fp8", NULL, "none", HERE },  /* shapes without a plan */
        { 100, 1000, 128, 0, "fp8", NULL, "none", HERE },
        { 100, 1024, 48, 0, "fp8", NULL, "none", HERE },
        { 100, 1024, 256, 0, "fp8", NULL, "none", HERE },
        { 100, 1024, 128, 256, "fp8", NULL, "none", HERE },
        { 100, 1024, 128, 1024, "fp8", NULL, "none", ELSE }, /* a window of the whole sequence */
        { 100, 1024, 128, 0, "fp8", NULL, "document", HERE },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *config = json_pack(
            "{s:{s:i,s:i,s:i},s:{s:s,s:s*},s:{s:s}}", "model", "seq_len", CASES[i].length,
            "head_dim", CASES[i].head_dim, "window", CASES[i].window, "attention", "precision",
            CASES[i].precision, "backend", CASES[i].backend, "data", "mask", CASES[i].mask);
        assert_non_null(config);
        enum attention_way way = attention_way(config, CASES[i].cc);
        assert_int_equal(way, CASES[i].wanted);
        assert_true(!*attention_way_text(way) == (way == ATTENTION_WAY_PLAIN));
        assert_true(!attention_way_name(way) == (way == ATTENTION_WAY_PLAIN));
        assert_true(!*attention_way_hint(way) == (way != ATTENTION_WAY_EMULATED));
        json_decref(config);
    }
}

/* ---- the forecast */

static struct step_work gemm(enum dtype t, enum scale_kind scale, int64_t n, double time_us) {
    struct step_work w;
    memset(&w, 0, sizeof w);
    snprintf(w.op, sizeof w.op, "matmul");
    w.kind = WORK_GEMM;
    w.gemm = (struct gemm_shape){ .m = 1024, .n = n, .k = 1024, .a = t, .b = t, .a_scale = scale,
                                  .b_scale = scale, .out = DTYPE_BF16 };
    w.calls = 1;
    w.bytes = 1e6;
    w.time_us = time_us;
    return w;
}

static void a_forecast_follows_near_shapes(void **state) {
    struct step_work known[] = { gemm(DTYPE_BF16, SCALE_NONE, 1024, 100),
                                 gemm(DTYPE_BF16, SCALE_NONE, 4096, 800) };
    struct measured_step step = { .recipe = RECIPE_BF16, .works = { known, 2, 2 }, .step_us = 900,
                                  .parts_us = 900 };
    struct measured m = { .step = &step, .count = 1, .copy_bytes_per_us = 1e6 };
    struct step_work one = gemm(DTYPE_BF16, SCALE_NONE, 1024, 0);
    struct step_works works = { &one, 1, 1 };
    struct forecast f;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.known && f.assumed <= 0);
    assert_true(fabs(f.step_us / 100 - 1) < 0.05); /* what was measured */
    assert_true(fabs(f.part_us[PART_GEMM] / f.step_us - 1) < 1e-9);
    one.gemm.n = 2048; /* between the two */
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.step_us > 200 && f.step_us < 400);
    one.calls = 10;
    one.bytes *= 10;
    double ten = f.step_us * 10;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(fabs(f.step_us / ten - 1) < 1e-9);
    one.gemm.direction = GEMM_WGRAD; /* the nearest class, and it says so */
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.known && fabs(f.assumed - 1) < 1e-9);
    one.gemm.n = 1; /* short operators: launches decide */
    one.calls = 1;
    one.bytes = 0;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.known && f.outside);
}

static void scales_that_were_not_measured_have_no_forecast(void **state) {
    struct step_work known[] = { gemm(DTYPE_BF16, SCALE_NONE, 1024, 100),
                                 gemm(DTYPE_E4M3, SCALE_TENSOR, 1024, 60) };
    struct measured_step step = { .recipe = RECIPE_TENSORWISE, .works = { known, 2, 2 },
                                  .step_us = 160, .parts_us = 160 };
    struct measured m = { .step = &step, .count = 1, .copy_bytes_per_us = 1e6 };
    struct step_work one = gemm(DTYPE_E4M3, SCALE_1X128, 1024, 0);
    struct step_works works = { &one, 1, 1 };
    struct forecast f;
    forecast_step(&m, &works, RECIPE_BLOCKWISE, &f);
    assert_false(f.known);
    assert_non_null(strstr(f.missing, "e4m3"));
}

static struct step_work attention(int64_t seq_len, enum scale_kind codes, double time_us) {
    struct step_work w;
    memset(&w, 0, sizeof w);
    snprintf(w.op, sizeof w.op, "attention_fwd");
    w.kind = WORK_ATTENTION;
    w.part = PART_ATTENTION;
    w.attention = (struct attention_shape){ .batch = 1 << 20, .seq_len = seq_len, .heads = 1,
                                            .kv_heads = 1, .head_dim = 64, .act = DTYPE_BF16,
                                            .codes = codes };
    w.calls = 1;
    w.time_us = time_us;
    return w;
}

/* The diagonal's tiles are half for nothing: of 1024 tokens an eighth more work, of 256 half more.
 * Rows with the same codes come first. */
static void attention_is_forecast_by_whole_tiles_and_codes(void **state) {
    struct step_work known[] = { attention(1024, SCALE_NONE, 1e6),
                                 attention(1024, SCALE_1X16, 3e6) };
    struct measured_step step = { .recipe = RECIPE_NVFP4, .works = { known, 2, 2 },
                                  .step_us = 4e6, .parts_us = 4e6 };
    struct measured m = { .step = &step, .count = 1, .copy_bytes_per_us = 1e6 };
    struct step_work one = attention(256, SCALE_NONE, 0);
    struct step_works works = { &one, 1, 1 };
    struct forecast f;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.known && f.assumed <= 0);
    assert_true(fabs(f.step_us / (1e6 / 16 * 1.5 / 1.125) - 1) < 1e-3);
    one.attention.codes = SCALE_1X16;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(fabs(f.step_us / (3e6 / 16 * 1.5 / 1.125) - 1) < 1e-3);
    one.attention.codes = SCALE_TENSOR; /* never measured */
    forecast_step(&m, &works, RECIPE_BF16, &f);
    assert_true(f.known && fabs(f.assumed - 1) < 1e-9);
    one = attention(1024, SCALE_NONE, 0); /* a window of 128 has two edges: as much work again */
    one.attention.window = 128;
    forecast_step(&m, &works, RECIPE_BF16, &f);
    double keys = 128 - 128 * 128 / 2048.0;
    assert_true(fabs(f.step_us / (1e6 * (keys + 128) / (512 + 64)) - 1) < 1e-3);
}

/* ---- the census */

static void record(struct tiny_run *run, struct timed_record *out) {
    struct timed *timed = NULL;
    struct err e;
    need(tiny_run_open(run, &e), &e);
    need(timed_start(run->backend, &timed, &e), &e);
    need(trainer_queue(run->trainer, false, &e), &e);
    need(timed_step_done(timed, &e), &e);
    timed_stop(timed, out);
}

/* A GEMM that multiplies for longer than it moves, one that moves for longer, and an operator that
 * only moves; of a GB10: 125 and 250 TFLOP/s, 273 GB/s. */
static void the_data_sheet_gives_a_least_time(void **state) {
    const struct peak *gb10 = peak_find("NVIDIA GB10", "12.1");
    struct step_work work[] = {
        { .kind = WORK_GEMM, .calls = 2, .bytes = 1e6,
          .gemm = { .m = 1000, .n = 1000, .k = 125000, .a = DTYPE_E4M3, .b = DTYPE_E4M3 } },
        { .kind = WORK_GEMM, .calls = 1, .bytes = 273e6,
          .gemm = { .m = 1000, .n = 1000, .k = 125, .a = DTYPE_BF16, .b = DTYPE_BF16 } },
        { .kind = WORK_OTHER, .calls = 7, .bytes = 546e6 },
    };
    const struct step_works works = { .work = work, .count = 3 };
    assert_non_null(gb10);
    assert_float_equal(floor_step_us(gb10, &works, true), 2 * 1000 + 1000 + 2000, 1e-6);
    assert_float_equal(floor_step_us(gb10, &works, false), 2 * 2000 + 1000 + 2000, 1e-6);
    work[0].gemm.a = work[0].gemm.b = DTYPE_E2M1; /* twice the rate of FP8 here */
    assert_float_equal(floor_step_us(gb10, &works, true), 2 * 500 + 1000 + 2000, 1e-6);
    const struct step_works multiply = { .work = work, .count = 1 }; /* 500 TFLOP in all */
    const struct peak *b300 = peak_find("NVIDIA B300 SXM6 AC", "10.3");
    assert_non_null(b300); /* thrice the rate of FP8 */
    assert_float_equal(floor_step_us(b300, &multiply, true), 5e5 / 13500, 1e-6);
    work[0].gemm.a = work[0].gemm.b = DTYPE_E4M3;
    assert_float_equal(floor_step_us(b300, &multiply, true), 5e5 / 4500, 1e-6);
    const struct peak *rtx = peak_find("NVIDIA GeForce RTX 5090", "12.0");
    assert_non_null(rtx); /* block scales are twice as fast there */
    assert_float_equal(floor_step_us(rtx, &multiply, true), 5e5 / 419, 1e-6);
    work[0].gemm.a_scale = SCALE_1X32;
    assert_float_equal(floor_step_us(rtx, &multiply, true), 5e5 / 838, 1e-6);
    assert_float_equal(floor_step_us(b300, &multiply, true), 5e5 / 4500, 1e-6);
}

static json_t *certificate(const char *way, const char *outcome, const char *fault) {
    return json_pack("{s:s,s:s,s:s?}", "way", way, "outcome", outcome, "fault", fault);
}

/* Of all ways of a recipe: each must have a certificate; one that failed is named. */
static void certificates_of_all_ways_count(void **state) {
    struct err e;
    struct ways ways;
    struct certified c;
    char text[WAY_TEXT_CAP];
    json_t *list = json_array();
    need(ways_standard(TWINS_UNTRANSPOSED, &ways, &e), &e);
    need(certified_judge(&ways, list, &c, &e), &e);
    assert_string_equal(certified_name(c.finding), "not tried");
    assert_int_equal(c.tried, 0);
    for (int64_t i = 0; i < ways.count; i++) {
        need(certified_judge(&ways, list, &c, &e), &e);
        assert_int_equal(c.finding, CERTIFIED_UNTRIED);
        assert_int_equal(c.tried, i);
        certify_way_text(&ways.way[i], text);
        json_array_append_new(list, certificate(text, "absent", NULL)); /* says nothing */
        json_array_append_new(list, certificate(text, "passed", NULL));
    }
    json_array_append_new(list, certificate("gemm of another shape", "failed", "stale output"));
    need(certified_judge(&ways, list, &c, &e), &e);
    assert_string_equal(certified_name(c.finding), "certified");
    certify_way_text(&ways.way[3], text); /* its other way passed */
    json_array_append_new(list, certificate(text, "failed", "ignored scale"));
    need(certified_judge(&ways, list, &c, &e), &e);
    assert_string_equal(certified_name(c.finding), "failed");
    assert_string_equal(c.way, text);
    assert_string_equal(c.fault, "ignored scale");
    json_decref(list);
    ways_free(&ways);
}

static void the_dry_backend_is_given_the_same_operators(void **state) {
    static const enum recipe_kind KINDS[] = { RECIPE_DELAYED, RECIPE_BLOCKWISE };
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++) {
        struct tiny_run cpu, dry;
        struct timed_record x, y;
        struct dry_backend backend;
        dry_backend_open(&backend, 1, true);
        tiny_run_init(&cpu, KINDS[k], 1);
        tiny_run_init(&dry, KINDS[k], 1);
        dry.backend = &backend.base;
        record(&cpu, &x);
        record(&dry, &y);
        assert_int_equal(x.call_count, y.call_count);
        for (int64_t i = 0; i < x.call_count; i++) {
            assert_string_equal(x.call[i].op, y.call[i].op);
            assert_int_equal(x.call[i].part, y.call[i].part);
            assert_int_equal(x.call[i].gemm, y.call[i].gemm);
            assert_int_equal(x.call[i].attention, y.call[i].attention);
            assert_true(fabs(x.call[i].bytes - y.call[i].bytes) < 1e-9);
        }
        assert_memory_equal(x.gemm, y.gemm, (size_t)x.gemm_count * sizeof *x.gemm);
        tiny_run_close(&cpu);
        tiny_run_close(&dry);
        timed_record_free(&x);
        timed_record_free(&y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_run_is_not_advised),
        cmocka_unit_test(what_the_script_refuses_is_a_row_with_its_reason),
        cmocka_unit_test(a_loss_that_failed_is_not_advised),
        cmocka_unit_test(a_bf16_that_cannot_run_sets_no_margin),
        cmocka_unit_test(fp8_must_be_faster_by_the_margin),
        cmocka_unit_test(a_loss_that_holds_decides_between_near_recipes),
        cmocka_unit_test(without_times_bf16_then_native_then_emulated),
        cmocka_unit_test(emulated_is_never_faster_than_bf16),
        cmocka_unit_test(bytes_between_ranks_make_a_short_step_rough),
        cmocka_unit_test(bytes_between_ranks_have_a_rate_over_nvlink),
        cmocka_unit_test(fp8_attention_is_emulated_but_for_cudnn),
        cmocka_unit_test(a_forecast_follows_near_shapes),
        cmocka_unit_test(scales_that_were_not_measured_have_no_forecast),
        cmocka_unit_test(attention_is_forecast_by_whole_tiles_and_codes),
        cmocka_unit_test(the_data_sheet_gives_a_least_time),
        cmocka_unit_test(certificates_of_all_ways_count),
        cmocka_unit_test(the_dry_backend_is_given_the_same_operators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
