/* The references of a run's speed: peaks by exact product, MFU. And the usable memory of a machine
 * with one memory for CPU and GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/run_files.h"
#include "runner/bundle/summary.h"
#include "runner/doctor/probe.h"
#include "runner/plan/recipe_table.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/peaks.h"
#include "runner/plan/fit.h"
#include "runner/plan/mfu.h"
#include "runner/script/resolve.h"

static json_t *facts_file(const char *path) {
    json_t *facts = NULL;
    struct err e;
    if (facts_load(path, &facts, &e) != OK) fail_msg("%s", e.text);
    return facts;
}

/* The configuration of tests/cli/tiny.lua with one override. */
static json_t *config_with(const char *const *overrides, int64_t count) {
    struct resolve_options options = { .path = "tests/cli/tiny.lua", .overrides = overrides,
                                       .override_count = count };
    struct resolution r = { 0 };
    struct err e;
    if (resolve_experiment(&options, &r, &e) != OK) fail_msg("%s", e.text);
    json_t *config = json_incref(r.runs[0].config_json);
    resolution_destroy(&r);
    return config;
}

static json_t *tiny_config(const char *override) { return config_with(&override, 1); }

static void peaks_are_of_the_exact_product(void **state) {
    const struct peak *h200 = peak_find("NVIDIA H200", "9.0");
    assert_non_null(h200);
    assert_true(h200->bf16_tflops == 989 && h200->fp8_tflops == 1979 && !h200->derived);
    assert_true(peak_find("NVIDIA H200 NVL", "9.0")->bf16_tflops < h200->bf16_tflops);
    assert_true(peak_find("NVIDIA GB10", "12.1")->derived);
    assert_true(h200->fp4_tflops <= 0);
    const struct peak *gb300 = peak_find("NVIDIA GB300", "10.3");
    assert_non_null(gb300);
    assert_true(gb300->fp8_tflops == 4900 && gb300->fp4_tflops == 14700 && !gb300->derived);
    assert_true(peak_find("NVIDIA GeForce RTX 5090", "12.0")->fp4_tflops == 1676);
    assert_null(peak_find("NVIDIA H200", "9.1"));
    assert_null(peak_find("NVIDIA H20", "9.0"));
    assert_null(peak_find("H200", "9.0"));
}

static void a_step_is_measured_against_peak_and_gemm(void **state) {
    json_t *facts = facts_file("tests/facts/h200.json"), *config = tiny_config("recipe=bf16");
    json_object_set_new(facts, "gpu.gemm_bf16_tflops", json_real(700));
    struct mfu m;
    struct err e;
    assert_int_equal(mfu_make(&m, config, facts, 2, &e), OK);
    assert_false(m.fp8);
    /* 2 ranks, 1000 tokens in 1 us: 500 tokens a rank. */
    json_t *record = json_pack("{s:i,s:i}", "tokens", 1000, "step_time_us", 1);
    assert_int_equal(mfu_add(&m, record, &e), OK);
    double tflops = json_number_value(json_object_get(record, "model_tflops"));
    assert_true(fabs(tflops - m.flop_per_token * 500 * 1e-6) < 1e-9 * tflops);
    double peak = json_number_value(json_object_get(record, "mfu_peak"));
    double gemm = json_number_value(json_object_get(record, "mfu_gemm"));
    assert_true(fabs(peak - tflops / 989) < 1e-12 && fabs(gemm - tflops / 700) < 1e-12);
    char text[512];
    mfu_text(&m, text, sizeof text);
    assert_non_null(strstr(text, "peak 989 TFLOP/s dense BF16 (NVIDIA H200: H200 data sheet,"));
    assert_non_null(strstr(text, "measured GEMM 700 TFLOP/s BF16"));
    json_decref(record);
    json_decref(config);
    json_decref(facts);
}

static void fp8_is_measured_against_fp8(void **state) {
    json_t *facts = facts_file("tests/facts/h200.json"), *config = tiny_config("train.steps=2");
    struct mfu m;
    struct err e;
    assert_int_equal(mfu_make(&m, config, facts, 1, &e), OK);
    assert_true(m.fp8 && m.peak_tflops == 1979 && m.ceiling_tflops == 0);
    json_t *record = json_pack("{s:i,s:i}", "tokens", 10, "step_time_us", 5);
    assert_int_equal(mfu_add(&m, record, &e), OK);
    assert_non_null(json_object_get(record, "mfu_peak"));
    assert_null(json_object_get(record, "mfu_gemm")); /* absent without a measurement */
    json_decref(record);
    json_decref(config);
    json_decref(facts);
}

static void one_memory_keeps_a_reserve(void **state) {
    json_t *facts = facts_file("tests/facts/gb10.json"), *config = tiny_config("train.steps=2");
    struct fit fit;
    struct err e;
    assert_int_equal(fit_plan(config, facts, "cuda", 1, &fit, &e), OK);
    int64_t total = json_integer_value(json_object_get(facts, "memory.total"));
    assert_int_equal(fit.memory, total - (INT64_C(8) << 30)); /* an old file: no memory.available */
    assert_true(fit.fits && strstr(fit.where, "memory.total less"));
    fit_free(&fit);
    json_object_set_new(facts, "memory.available", json_integer(INT64_C(20) << 30));
    assert_int_equal(fit_plan(config, facts, "auto", 1, &fit, &e), OK);
    assert_int_equal(fit.memory, INT64_C(12) << 30);
    fit_free(&fit);
    json_object_set_new(facts, "memory.available", json_integer(INT64_C(3) << 30));
    assert_int_equal(fit_plan(config, facts, "auto", 1, &fit, &e), OK);
    assert_false(fit.fits); /* less than the reserve is available: nothing fits */
    fit_free(&fit);
    json_decref(config);
    json_decref(facts);
}

/* On a GB10 offloaded state is in the same memory: it counts, frees nothing, and is not proposed. A
 * GH200 has a memory of its own for the GPU. */
static void offloading_frees_nothing_in_one_memory(void **state) {
    json_t *here = facts_file("tests/facts/gb10.json");
    json_t *there = facts_file("tests/facts/gh200.json");
    json_t *kept = tiny_config("train.steps=2");
    json_t *moved = tiny_config("train.optimizer.offload=true");
    struct fit without, with, apart;
    struct err e;
    assert_int_equal(fit_plan(kept, here, "cuda", 1, &without, &e), OK);
    assert_int_equal(fit_plan(moved, here, "cuda", 1, &with, &e), OK);
    assert_int_equal(fit_plan(moved, there, "cuda", 1, &apart, &e), OK);
    assert_true(with.one_memory && with.plan.pinned_bytes > 0);
    assert_int_equal(with.bytes, with.plan.bytes + with.plan.gpu_bytes + with.plan.pinned_bytes);
    assert_true(with.bytes >= without.bytes);
    assert_non_null(strstr(with.note, "offload frees nothing here"));
    assert_string_equal(without.note, "");
    assert_string_equal(apart.note, "");
    assert_false(apart.one_memory);
    assert_int_equal(apart.bytes, apart.plan.bytes + apart.plan.gpu_bytes);
    fit_free(&without);
    fit_free(&with);
    fit_free(&apart);
    /* less than the reserve is there: what is proposed */
    json_object_set_new(here, "memory.available", json_integer(INT64_C(3) << 30));
    json_object_set_new(there, "gpu.memory", json_integer(1 << 20));
    assert_int_equal(fit_plan(kept, here, "cuda", 1, &without, &e), OK);
    assert_int_equal(fit_plan(kept, there, "cuda", 1, &apart, &e), OK);
    assert_non_null(strstr(without.less_memory, "--set train.optimizer.state=8bit"));
    assert_null(strstr(without.less_memory, "offload"));
    assert_non_null(strstr(apart.less_memory, "--set train.optimizer.offload=true"));
    fit_free(&without);
    fit_free(&apart);
    json_decref(kept);
    json_decref(moved);
    json_decref(here);
    json_decref(there);
}

static void a_probe_fills_the_facts_that_it_has(void **state) {
    json_t *facts = facts_file("tests/facts/h200.json");
    json_t *answer = json_pack(
        "{s:[{s:s,s:s},{s:s,s:n,s:s}],s:{s:f,s:n}}", "libraries", "name", "cublaslt", "version",
        "13.1.0", "name", "cudnn", "version", "problem", "not found", "ceilings", "bf16_tflops",
        812.5, "fp8_tflops");
    struct err e;
    json_object_set_new(facts, "cudnn.version", json_string("9.19.0"));
    assert_int_equal(probe_put_facts(answer, facts, &e), OK);
    assert_string_equal(json_string_value(json_object_get(facts, "cublaslt.version")), "13.1.0");
    assert_string_equal(json_string_value(json_object_get(facts, "cudnn.version")), "9.19.0");
    assert_true(json_number_value(json_object_get(facts, "gpu.gemm_bf16_tflops")) == 812.5);
    assert_true(json_is_null(json_object_get(facts, "gpu.gemm_fp8_tflops")));
    json_decref(answer);
    json_decref(facts);
}

static struct columns *columns_of(const char *lines) {
    struct columns *out = NULL;
    struct err e;
    if (columns_of_lines(lines, strlen(lines), "lines", &out, &e) != OK) fail_msg("%s", e.text);
    return out;
}

/* The first fifth of the steps is ignored. Throttling at any moment is named; idle is no
 * throttling. */
static void a_summary_has_the_figures_of_the_device(void **state) {
    struct run_columns c = {
        .of[STREAM_TRAIN] = columns_of(
            "{\"step\":1,\"step_time_us\":9,\"mfu_peak\":0.1,\"mfu_gemm\":0.2}\n"
            "{\"step\":2,\"step_time_us\":5,\"mfu_peak\":0.5,\"mfu_gemm\":0.6}\n"
            "{\"step\":3,\"step_time_us\":5,\"mfu_peak\":0.7,\"mfu_gemm\":0.8}\n"),
        .of[STREAM_TELEMETRY] = columns_of(
            "{\"step\":1,\"gpu_clock_sm_mhz\":1980,\"gpu_power_mw\":500000,"
            "\"gpu_temperature_c\":40,\"gpu_throttle\":1,\"gpu_processes_other\":0}\n"
            "{\"step\":2,\"gpu_clock_sm_mhz\":1500,\"gpu_power_mw\":700000,"
            "\"gpu_temperature_c\":66,\"gpu_throttle\":36,\"gpu_processes_other\":2}\n"),
        .of[STREAM_RANKS] = columns_of("{\"step\":1,\"slowest_rank\":1}\n"
                                       "{\"step\":3,\"slowest_rank\":1}\n"),
    };
    static const struct { const char *key; double value; } WANTED[] = {
        { "mfu_peak_median", 0.6 }, { "mfu_gemm_median", 0.7 }, { "gpu_clock_sm_mhz_median", 1740 },
        { "gpu_power_w_median", 600 }, { "gpu_temperature_c_max", 66 },
        { "gpu_processes_other_max", 2 }, { "slowest_rank", 1 }, { "ranks_steps_missing", 1 },
    };
    json_t *summary = NULL;
    struct err e;
    assert_int_equal(summary_make(&c, NULL, &summary, &e), OK);
    for (size_t i = 0; i < sizeof WANTED / sizeof *WANTED; i++) {
        double got = json_number_value(json_object_get(summary, WANTED[i].key));
        if (fabs(got - WANTED[i].value) > 1e-9) fail_msg("%s is %g", WANTED[i].key, got);
    }
    const json_t *reasons = json_object_get(summary, "gpu_throttle_reasons");
    assert_string_equal(json_string_value(reasons), "power cap, thermal (software)");
    assert_true(json_is_null(json_object_get(summary, "model_tflops_median")));
    json_decref(summary);
    run_columns_free(&c);
}

/* Three attempts: with 4 ranks, with one rank that was cut off, and with one rank that resumed one
 * step earlier. */
static void steps_of_one_rank_are_not_missing(void **state) {
    struct run_columns c = {
        .of[STREAM_TRAIN] = columns_of("{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"step\":4}\n"),
        .of[STREAM_RANKS] = columns_of("{\"step\":1,\"slowest_rank\":1}\n"),
    };
    json_t *attempts = json_pack("[{s:i,s:i},{s:i,s:i},{s:i,s:i}]", "from_step", 0, "ranks", 4,
                                 "from_step", 3, "ranks", 1, "from_step", 2, "ranks", 1);
    json_t *summary = NULL;
    struct err e;
    assert_int_equal(summary_make(&c, attempts, &summary, &e), OK);
    const json_t *missing = json_object_get(summary, "ranks_steps_missing");
    assert_int_equal(json_integer_value(missing), 1);
    json_decref(attempts);
    json_decref(summary);
    run_columns_free(&c);
}

/* Every recipe on every device: native, emulated or refused, with a reason unless it is native. */
static void the_recipe_table_is_whole(void **state) {
    static const int DEVICES[] = { 0, 75, 80, 86, 89, 90, 100, 120, 121 };
    for (int kind = RECIPE_F32; kind < RECIPE_KIND_COUNT; kind++)
        for (size_t i = 0; i < sizeof DEVICES / sizeof *DEVICES; i++) {
            struct recipe_row row = recipe_on((enum recipe_kind)kind, DEVICES[i], NULL);
            assert_int_equal(row.way == WAY_NATIVE, *row.because == '\0');
        }
    assert_int_equal(recipe_on(RECIPE_BLOCKWISE, 90, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_BLOCKWISE, 89, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_BLOCKWISE, 100, NULL).way, WAY_EMULATED);
    assert_int_equal(recipe_on(RECIPE_BLOCKWISE, 121, NULL).way, WAY_NATIVE); /* our own kernel */
    assert_int_equal(recipe_on(RECIPE_ROWWISE, 120, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_TENSORWISE, 121, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_TENSORWISE, 80, NULL).way, WAY_EMULATED);
    assert_int_equal(recipe_on(RECIPE_MXFP8, 100, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_MXFP8, 90, NULL).way, WAY_EMULATED);
    assert_int_equal(recipe_on(RECIPE_NVFP4, 121, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_NVFP4, 90, NULL).way, WAY_EMULATED);
    assert_int_equal(recipe_on(RECIPE_BF16, 80, NULL).way, WAY_NATIVE);
    assert_int_equal(recipe_on(RECIPE_F32, 90, NULL).way, WAY_REFUSED);
    assert_int_equal(recipe_on(RECIPE_BF16, 75, NULL).way, WAY_REFUSED);
}

/* Versions that the backend refuses (kernels/cuda/native.h) and versions that it takes. */
static void the_recipe_table_knows_versions(void **state) {
    static const struct {
        enum recipe_kind kind;
        int cc;
        const char *version;
        bool fault;
    } CASE[] = {
        { RECIPE_NVFP4, 121, "13.4.0", true },    { RECIPE_NVFP4, 100, "13.4.0", true },
        { RECIPE_NVFP4, 121, "13.4.1", false },   { RECIPE_NVFP4, 121, "13.4", true },
        { RECIPE_NVFP4, 90, "13.4.0", false },    { RECIPE_NVFP4, 0, "13.4.0", false },
        { RECIPE_MXFP8, 121, "13.4.0", false },   { RECIPE_MXFP8, 121, "12.8.0", true },
        { RECIPE_NVFP4, 100, "12.8.0", true },    { RECIPE_MXFP8, 100, "12.8.1", false },
        { RECIPE_MXFP8, 121, NULL, false },       { RECIPE_MXFP8, 121, "", false },
        { RECIPE_TENSORWISE, 100, "12.8.0", false }, { RECIPE_BF16, 121, "12.8.0", false },
        { RECIPE_ROWWISE, 90, "12.8.1", true },   { RECIPE_BLOCKWISE, 90, "12.8.1", true },
        { RECIPE_BLOCKWISE, 90, "12.9.0", false }, { RECIPE_BLOCKWISE, 121, "12.8.1", false },
        { RECIPE_NVFP4, 75, "12.8.0", false },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct recipe_row row = recipe_on(CASE[i].kind, CASE[i].cc, CASE[i].version);
        bool fault = recipe_meets_fault(CASE[i].kind, CASE[i].cc, CASE[i].version);
        if (fault != CASE[i].fault) fail_msg("case %d: %s", (int)i, row.because);
        if (fault) assert_int_equal(row.way, WAY_EMULATED);
        if (fault) assert_non_null(strstr(row.because, "cuBLASLt"));
    }
}

/* A recipe that falls back where the device emulates it does so for a version that emulates it. */
static void a_plan_falls_back_for_a_version(void **state) {
    static const char *const FALLS[] = { "recipe=fp4.nvfp4", "recipe.fallback=bf16" };
    json_t *facts = facts_file("tests/facts/gb10.json"), *falls = config_with(FALLS, 2);
    json_t *bf16 = tiny_config("recipe=bf16");
    struct fit native, fallen, want;
    struct err e;
    assert_int_equal(fit_plan(falls, facts, "cuda", 1, &native, &e), OK);
    json_object_set_new(facts, "cublaslt.version", json_string("13.4.0"));
    assert_int_equal(fit_plan(falls, facts, "cuda", 1, &fallen, &e), OK);
    assert_int_equal(fit_plan(bf16, facts, "cuda", 1, &want, &e), OK);
    assert_int_equal(fallen.bytes, want.bytes);
    assert_true(native.bytes != want.bytes);
    fit_free(&native);
    fit_free(&fallen);
    fit_free(&want);
    json_decref(bf16);
    json_decref(falls);
    json_decref(facts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peaks_are_of_the_exact_product),
        cmocka_unit_test(a_step_is_measured_against_peak_and_gemm),
        cmocka_unit_test(fp8_is_measured_against_fp8),
        cmocka_unit_test(one_memory_keeps_a_reserve),
        cmocka_unit_test(offloading_frees_nothing_in_one_memory),
        cmocka_unit_test(a_probe_fills_the_facts_that_it_has),
        cmocka_unit_test(a_summary_has_the_figures_of_the_device),
        cmocka_unit_test(steps_of_one_rank_are_not_missing),
        cmocka_unit_test(the_recipe_table_is_whole),
        cmocka_unit_test(the_recipe_table_knows_versions),
        cmocka_unit_test(a_plan_falls_back_for_a_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
