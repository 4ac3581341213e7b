/* How much faster? Each case in which a ratio of tokens/s would mislead, on made-up runs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/compare_faster.h"
#include "tests/bundle/speed_scene.h"

/* ---- the verdict --------------------------------------------------------------------------- */

static void repeats_of_one_seed_count(void **state) {
    static const struct { double ratio; const char *verdict; } CASES[] = {
        { 1.5, "faster" }, { 0.8, "slower" }, { 1.005, "not shown" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct err e = { 0 };
        struct run_fixture runs[6];
        char *text = NULL;
        on_gpu(runs, CASES[k].ratio);
        compare(&s, runs, 6);
        speed_is(&s, CASES[k].verdict, "");
        CHECK(compare_text(&s.c, false, &text, &e));
        char *html = page_of(&s); /* where the time goes is asked of a row that is no faster */
        assert_int_equal(strstr(text, "fp8lab bench step SCRIPT") != NULL, k > 0);
        assert_int_equal(strstr(html, "fp8lab bench step SCRIPT") != NULL, k > 0);
        free(text);
        free(html);
        assert_int_equal(json_int(speed_row(&s), "runs"), 3);
        assert_int_equal(json_int(speed_family(&s), "runs"), 3);
        assert_true(fabs(number(speed_row(&s), "ratio") / CASES[k].ratio - 1) < 1e-3);
        assert_string_equal(json_text(speed_row(&s), "why", "?"), "");
        assert_int_equal(json_array_size(json_object_get(json_object_get(s.c.report, "statistics"),
                                                         "speed_builds")), 0); /* one build */
        finish(&s);
    }
}

/* By hand: logs of 0.99, 1, 1.01 have the variance 1.00017e-4. Welch: 4 degrees of freedom (3 after
 * rounding down, since the sums differ in the last bits), t = 2.1318 or 2.3534. */
static void the_bounds_are_welchs_on_logarithms(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.5);
    compare(&s, runs, 6);
    double low = log(number(speed_row(&s), "low")), high = log(number(speed_row(&s), "high"));
    double half = (high - low) / 2, error = sqrt(2 * 1.00017e-4 / 3);
    assert_true(half > 2.12 * error && half < 2.37 * error);
    assert_true(fabs((high + low) / 2 - log(1.5)) < 1e-3);
    finish(&s);
    /* A tenth of the scatter, still more than the microsecond of a step of 40 ms. */
    for (int i = 0; i < 6; i++) runs[i].speed = (1 + (i % 3 - 1) * 1e-3) * (i < 3 ? 1 : 1.5);
    compare(&s, runs, 6);
    low = log(number(speed_row(&s), "low")), high = log(number(speed_row(&s), "high"));
    half = (high - low) / 2, error = sqrt(2 * 1e-6 / 3);
    assert_true(half > 2.1 * error && half < 2.4 * error);
    finish(&s);
}

/* Two runs a side with the same median, at 0.6 ms a step: the bounds had no width. Each side
 * scatters by a microsecond at least, of 614 and 596. By hand: Welch's 1.998 degrees of freedom are
 * rounded down to 1, t = 6.3138. */
static void equal_medians_still_have_bounds(void **state) {
    struct scene s;
    struct run_fixture six[6], runs[4];
    on_gpu(six, 1);
    for (int i = 0; i < 4; i++) {
        runs[i] = six[i < 2 ? i : i + 1];
        runs[i].speed = i < 2 ? 66 : 66 * 1.03;
    }
    compare(&s, runs, 4);
    double low = log(number(speed_row(&s), "low")), high = log(number(speed_row(&s), "high"));
    assert_true(fabs((high - low) / 2 - 6.3138 / 605) < 1e-4);
    speed_is(&s, "faster", "");
    finish(&s);
}

static void one_run_a_side_gives_no_bounds(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture six[6], runs[2];
    char *text = NULL;
    on_gpu(six, 1.5);
    runs[0] = six[0];
    runs[1] = six[3];
    compare(&s, runs, 2);
    speed_is(&s, NULL, "row and baseline need 2 runs each that count; here are 1 and 1; "
                       "fp8lab run --repeat 3 tiny.lua");
    assert_true(json_is_number(json_object_get(speed_row(&s), "ratio")));
    assert_true(json_is_null(json_object_get(speed_row(&s), "low")));
    CHECK(compare_text(&s.c, false, &text, &e));
    says(text, "How much faster?");
    says(text, "B    fp8.delayed         1          75200    1.500x                   -  no "
               "verdict: row and baseline need 2 runs each");
    free(text);
    finish(&s);
    compare(&s, six + 2, 4);
    speed_is(&s, NULL, "row and baseline need 2 runs each that count; here are 3 and 1");
    finish(&s);
    six[4] = six[3]; /* a copy counts neither here nor among the N of --repeat */
    const struct run_fixture copied[3] = { six[0], six[3], six[4] };
    compare(&s, copied, 3);
    speed_is(&s, NULL, "here are 1 and 1; fp8lab run --repeat 3 tiny.lua");
    finish(&s);
}

/* A smoke run does not count, and a command that is cut may be another one. */
static void the_command_makes_runs_that_count(void **state) {
    char words[700];
    struct { const char *argv; bool smoke; const char *why; } cases[] = {
        { ",\"--smoke\",\"--set\",\"a=b c\",\"--again\",\"--repeat\",\"2\"", true,
          "here are 0 and 0; fp8lab run --repeat 3 tiny.lua --set 'a=b c'" },
        { words, false, "here are 1 and 1; run the command of both again with --repeat 3" },
    };
    snprintf(words, sizeof words, ",\"--set\",\"name=%0600d\"", 1);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct scene s;
        struct run_fixture six[6];
        on_gpu(six, 1.5);
        struct run_fixture runs[2] = { six[0], six[3] };
        runs[0].argv = runs[1].argv = cases[k].argv;
        runs[0].smoke = runs[1].smoke = cases[k].smoke;
        compare(&s, runs, 2);
        const char *why = json_text(speed_row(&s), "why", "");
        assert_string_equal(strstr(why, "here are"), cases[k].why);
        finish(&s);
    }
}

/* Where steps are missing, more runs of as few steps do not help. */
static void the_command_makes_runs_that_are_long_enough(void **state) {
    static const struct { int64_t steps, planned; int runs; const char *argv, *why; } CASES[] = {
        { 11, 11, 3, ",\"--repeat\",\"3\"",
          "here are 0 and 0; fp8lab run tiny.lua --repeat 3 --set train.steps=60" },
        { 12, 12, 2, NULL, NULL }, /* ten of them are steady */
        { 11, 11, 1, ",\"--repeat\",\"1\"",
          "here are 0 and 0; fp8lab run --repeat 3 tiny.lua --set train.steps=60" },
        { STEPS, STEPS, 1, ",\"--repeat=1\"", "here are 1 and 1; fp8lab run --repeat 3 tiny.lua" },
        { 11, STEPS, 1, NULL, "here are 0 and 0; raise time_limit: the runs have too few "
                                "steps" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        int n = CASES[k].runs;
        few_on_gpu(runs, n, CASES[k].steps);
        for (int i = 0; i < 2 * n; i++) {
            runs[i].planned = CASES[k].planned;
            runs[i].argv = CASES[k].argv;
        }
        compare(&s, runs, 2 * n);
        const char *why = json_text(speed_row(&s), "why", "");
        if (CASES[k].planned == 11)
            left_out_is(&s, (size_t)(2 * n), 0, "it has 9 steady steps; 10 are needed: raise "
                                                "train.steps");
        if (!CASES[k].why) speed_is(&s, "faster", "");
        else assert_string_equal(strstr(why, "here are"), CASES[k].why);
        finish(&s);
    }
}

static void two_commands_are_not_one(void **state) {
    static const struct { int64_t steps; int runs; const char *why; } CASES[] = {
        { STEPS, 1, "; run both in turns (--again)" },
        { 11, 1, "; run both in turns (--again) with --set train.steps=60" },
        { 11, 2, "; run both with --set train.steps=60" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[4];
        int n = CASES[k].runs;
        few_on_gpu(runs, n, CASES[k].steps);
        for (int i = n; i < 2 * n; i++) runs[i].argv = ",\"--set\",\"a=b\"";
        compare(&s, runs, 2 * n);
        assert_string_equal(strstr(json_text(speed_row(&s), "why", ""), "; run"), CASES[k].why);
        finish(&s);
    }
}

/* A baseline of 4,151, 12,208 and 3,382 tokens/s: the ratio of medians was printed alone. */
static void scattered_runs_show_nothing(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 2);
    runs[0].speed = 4.151;
    runs[1].speed = 12.208;
    runs[2].speed = 3.382;
    compare(&s, runs, 6);
    speed_is(&s, "not shown", "");
    assert_true(number(speed_row(&s), "low") < 1 && number(speed_row(&s), "high") < 1.2);
    finish(&s);
}

static void scatter_within_a_run_counts(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.1);
    runs[4].jitter = 0.3;
    runs[4].speed *= 1.15; /* its median stays near the others' */
    compare(&s, runs, 6);
    speed_is(&s, "not shown", "within a run the quartiles of the step times are 2");
    finish(&s);
}

/* ---- runs that do not count ---------------------------------------------------------------- */

static void a_copy_is_no_repeat(void **state) {
    struct scene s;
    struct run_fixture six[6], runs[4];
    on_gpu(six, 1.5);
    runs[0] = runs[1] = six[0];
    runs[2] = runs[3] = six[3];
    compare(&s, runs, 4);
    speed_is(&s, NULL, "here are 1 and 1");
    left_out_is(&s, 2, 1, "it is the same run as A");
    finish(&s);
}

/* Two recipes may even be as fast, to the bit. */
static void equal_ids_of_two_recipes_are_two_runs(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1);
    for (int i = 0; i < 6; i++) runs[i].id = "a";
    compare(&s, runs, 6);
    assert_int_equal(json_int(speed_row(&s), "runs"), 3);
    assert_int_equal(json_array_size(json_object_get(speed_family(&s), "left_out")), 0);
    speed_is(&s, "not shown", "");
    finish(&s);
}

static void disturbed_runs_do_not_count(void **state) {
    static const struct { struct run_fixture f; const char *why; } CASES[] = {
        { { .telemetry = "{\"step\":40,\"rank\":0,\"gpu_throttle\":32}\n" },
          "a GPU was slowed down in its steady window: thermal (software)" },
        { { .telemetry = "{\"step\":40,\"rank\":1,\"gpu_throttle\":68}\n" },
          "slowed down in its steady window: thermal (hardware)" },
        { { .telemetry = "{\"step\":40,\"rank\":0,\"gpu_processes_other\":2}\n" },
          "2 other processes used a GPU in its steady window" },
        { { .status = "interrupted", .planned = 2 * STEPS },
          "it did not end as planned: interrupted" },
        { { .smoke = true }, "it is a smoke run" },
        { { .attempts = "[{\"from_step\":0},{\"from_step\":25}]" },
          "it was resumed after step 25: its steps are of 2 attempts" },
        { { .steps = 11, .planned = STEPS },
          "it has 9 steady steps; 10 are needed: raise time_limit" },
        { { .eval_every = 3 }, "16 of its 48 steady steps are beside an evaluation" },
        { { .checkpoint = "{\"every\":2,\"keep\":1}" }, "24 of its 48 steady steps are beside" },
        { { .facts = ",\"gpu.power_limit_w\":450" },
          "its gpu.power_limit_w is 450, and that of A is not known" },
        { { .telemetry = "{\"step\":40,\"rank\":0,\"gpu_throttle\":2}\n" },
          "its clocks were set by a user, and those of A were not" },
        { { .train = ",\"audit\":{\"every\":1}" }, "records other things in a step than A "
                                                   "(train.audit)" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        const struct run_fixture *f = &CASES[k].f;
        struct err e = { 0 };
        char *text = NULL;
        on_gpu(runs, 1.5);
        runs[4].telemetry = f->telemetry;
        runs[4].attempts = f->attempts;
        runs[4].checkpoint = f->checkpoint;
        runs[4].facts = f->facts;
        runs[4].train = f->train;
        runs[4].smoke = f->smoke;
        runs[4].planned = f->planned;
        runs[4].speed = 9; /* if it counted, the ratio would tell */
        if (f->status) runs[4].status = f->status;
        if (f->steps) runs[4].steps = f->steps;
        if (f->eval_every) runs[4].eval_every = f->eval_every;
        for (int i = 0; i < 6; i++) /* train.steps is a factor */
            if (f->planned) runs[i].planned = f->planned;
        compare(&s, runs, 6);
        left_out_is(&s, 1, 4, CASES[k].why);
        assert_int_equal(json_int(speed_row(&s), "runs"), 2);
        speed_is(&s, "faster", "");
        assert_true(fabs(number(speed_row(&s), "ratio") / 1.5 - 1) < 0.01);
        CHECK(compare_text(&s.c, false, &text, &e));
        says(text, "E does not count: ");
        free(text);
        finish(&s);
    }
}

/* The baseline's settings count, also if its runs come last. */
static void settings_are_compared_with_the_baselines(void **state) {
    struct scene s;
    struct run_fixture six[6], runs[6];
    on_gpu(six, 1.5);
    for (int i = 0; i < 6; i++) runs[i] = six[(i + 3) % 6];
    runs[0].facts = ",\"gpu.power_limit_w\":450";
    compare(&s, runs, 6);
    left_out_is(&s, 1, 0, "its gpu.power_limit_w is 450, and that of D is not known");
    finish(&s);
}

/* Before the steady window and at its power cap a GPU may do what it likes. */
static void harmless_reports_change_nothing(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.5);
    runs[4].telemetry = "{\"step\":2,\"rank\":0,\"gpu_throttle\":32,\"gpu_processes_other\":1}\n"
                        "{\"step\":40,\"rank\":0,\"gpu_throttle\":4,\"gpu_processes_other\":0}\n";
    compare(&s, runs, 6);
    speed_is(&s, "faster", "");
    assert_int_equal(json_array_size(json_object_get(speed_family(&s), "left_out")), 0);
    finish(&s);
}

/* Two builds with equal bits are one group; of the builds only that of the baseline counts. */
static void another_build_does_not_count(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.5);
    runs[4].code = "dd";
    runs[4].speed = 9;
    compare(&s, runs, 6);
    assert_int_equal(json_array_size(json_object_get(speed_family(&s), "rows")), 1);
    left_out_is(&s, 1, 4, "it is of another build than A");
    speed_is(&s, "faster", "");
    finish(&s);
}

/* ---- sides that cannot be compared --------------------------------------------------------- */

static void a_cpu_says_nothing_of_fp8(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    on_gpu(runs, 0.5);
    for (int i = 0; i < 6; i++) runs[i].backend = "cpu";
    compare(&s, runs, 6);
    speed_is(&s, NULL, "a CPU emulates FP8: its times say nothing about FP8's speed");
    assert_true(json_is_null(json_object_get(speed_row(&s), "ratio")));
    CHECK(compare_text(&s.c, false, &text, &e));
    char *html = page_of(&s);
    says(text, "         -                   -  no verdict: a CPU emulates FP8");
    says(html, "a CPU emulates FP8");
    assert_null(strstr(text, "  slower"));
    assert_null(strstr(text, "bench step SCRIPT"));
    assert_null(strstr(html, ">slower"));
    free(text);
    free(html);
    finish(&s);
    const struct compare_options options = { .baseline = "bf16" };
    for (int cpu = 0; cpu < 2; cpu++) { /* on one side */
        for (int i = 0; i < 6; i++) runs[i].backend = i / 3 == cpu ? "cpu" : "cuda";
        compare_by(&s, runs, 6, &options);
        speed_is(&s, NULL, "a CPU emulates FP8");
        assert_true(json_is_null(json_object_get(speed_row(&s), "ratio")));
        finish(&s);
    }
}

/* A run that does not say what computed it may be a CPU's. */
static void an_unknown_backend_counts_as_a_cpu(void **state) {
    struct run_view v = { 0 };
    assert_true(compare_on_cpu(&v));
    v.decisions = json_pack("{s:s}", "backend", "cuda");
    assert_false(compare_on_cpu(&v));
    run_view_free(&v);
}

static void emulation_on_a_gpu_gives_no_verdict(void **state) {
    static const char WAYS[] = ",\"gemm_ways\":{\"emulated\":48,\"bf16\":3}";
    for (int side = 0; side < 2; side++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 0.5);
        for (int i = 0; i < 3; i++) runs[3 * side + i].decisions = WAYS;
        compare(&s, runs, 6);
        speed_is(&s, NULL, "48 GEMMs are emulated, since this GPU lacks their FP8");
        finish(&s);
    }
}

/* Another GPU, number of GPUs, batch, model or build has no BF16 row as its baseline. */
static void other_rows_have_no_baseline(void **state) {
    static const struct { struct run_fixture f; const char *factor; } CASES[] = {
        { { .facts = ",\"gpu.product_name\":\"NVIDIA B200\"" }, "gpu" },
        { { .world = 2 }, "ranks" },
        { { .train = ",\"global_batch\":8" }, "train.global_batch" },
        { { .train = ",\"micro_batch\":8" }, "train.micro_batch" },
        { { .model = "{\"width\":64}" }, "model" },
        { { .code = "dd" }, "code" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++) runs[i].world = 1;
        for (int i = 3; i < 6; i++) {
            runs[i].facts = CASES[k].f.facts;
            runs[i].train = CASES[k].f.train;
            runs[i].model = CASES[k].f.model;
            runs[i].code = CASES[k].f.code;
            if (CASES[k].f.world) runs[i].world = CASES[k].f.world;
        }
        compare(&s, runs, 6);
        assert_null(speed_row(&s));
        says(missing_why(&s), CASES[k].factor);
        finish(&s);
        const struct compare_options options = { .baseline = "bf16" };
        compare_by(&s, runs, 6, &options); /* with a chosen one there is a reason */
        speed_is(&s, NULL, "it differs from the baseline also in");
        finish(&s);
    }
}

/* One factor may be asked about, unless it is the machine or the work. */
static void one_other_factor_may_be_asked(void **state) {
    static const struct { struct run_fixture f; const char *why; } CASES[] = {
        { { .code = "dd" }, NULL },
        { { .train = ",\"micro_batch\":8" }, NULL },
        { { .world = 2 }, "it differs from the baseline in ranks" },
        { { .model = "{\"width\":64}" }, "it differs from the baseline in model" },
        { { .data_hash = "ee" }, "it differs from the baseline in data" },
        { { .facts = ",\"cpu.model\":\"slow\"" }, "it differs from the baseline in cpu" },
    };
    const struct compare_options options = { .baseline = "a" };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++) {
            runs[i].recipe = "bf16";
            runs[i].world = 1;
            runs[i].loss_shift = i < 3 ? 0 : 0.25; /* equal bits would join the builds */
        }
        for (int i = 3; i < 6; i++) {
            runs[i].train = CASES[k].f.train;
            runs[i].model = CASES[k].f.model;
            runs[i].code = CASES[k].f.code;
            runs[i].data_hash = CASES[k].f.data_hash;
            runs[i].facts = CASES[k].f.facts;
            if (CASES[k].f.world) runs[i].world = CASES[k].f.world;
        }
        compare_by(&s, runs, 6, &options);
        speed_is(&s, CASES[k].why ? NULL : "faster", CASES[k].why ? CASES[k].why : "");
        finish(&s);
    }
}

/* A factor that the user names is asked about, but no speed is of two models. */
static void a_named_factor_of_the_work_gives_no_verdict(void **state) {
    const struct compare_options options = { .factor = "model.width=32" };
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.5);
    for (int i = 0; i < 6; i++) {
        runs[i].recipe = "bf16";
        runs[i].model = i < 3 ? "{\"width\":32}" : "{\"width\":64}";
    }
    compare_by(&s, runs, 6, &options);
    speed_is(&s, NULL, "tokens/s of another model.width is no measure");
    finish(&s);
}

/* Two clocks in MHz, and what throttled the slower side. A power cap is part of what a recipe
 * costs. Other clocks were set or limited outside of it, so their ratio is no recipe's. */
static void clocks_need_a_reason(void **state) {
    static const struct {
        double ratio; int base, row, reason; const char *verdict, *why;
    } CASES[] = {
        { 1.5, 1200, 1980, 4, "faster", "" },
        { 1.5, 1200, 1980, 0, NULL, "its GPU clock was 1980 MHz, the baseline's 1200 MHz, and the "
                                    "driver reports no power cap" },
        { 1.09, 1800, 1980, 0, NULL, "its GPU clock was 1980 MHz, the baseline's 1800 MHz" },
        { 1.5, 1920, 1980, 0, NULL, "its GPU clock was 1980 MHz, the baseline's 1920 MHz" },
        { 0.9, 1980, 1800, 0, NULL, "its GPU clock was 1800 MHz, the baseline's 1980 MHz" },
        { 0.9, 1980, 1800, 4, "slower", "" },
        { 1.09, 1800, 1980, 4, "faster", "" },
        { 1.016, 1945, 1980, 0, "not shown", "its GPU clock was 1980 MHz, the baseline's 1945 MHz, "
                                             "which may be the difference" },
        { 1.01807, 1945, 1980, 0, "not shown", "which may be the difference" }, /* the bound is
                                                                              below the clocks' */
        { 0.984, 1980, 1945, 0, "not shown", "which may be the difference" },
        { 1.016, 1980, 1945, 0, "faster", "" },
        { 1.016, 1945, 1980, 4, "faster", "" },
        { 1.1, 1945, 1980, 0, "faster", "" },
    };
    static const double NARROW[3] = { 0.9999, 1, 1.0001 };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        char lines[2][128];
        on_gpu(runs, 1);
        for (int i = 0; i < 2; i++) {
            int clock = i ? CASES[k].row : CASES[k].base;
            bool slow = i == (CASES[k].row < CASES[k].base);
            snprintf(lines[i], sizeof lines[i], "{\"step\":40,\"rank\":0,\"gpu_clock_sm_mhz\":%d,"
                     "\"gpu_throttle\":%d}\n", clock, slow ? CASES[k].reason : 0);
        }
        for (int i = 0; i < 6; i++) {
            runs[i].telemetry = lines[i / 3];
            runs[i].speed = NARROW[i % 3] * (i < 3 ? 1 : CASES[k].ratio);
        }
        compare(&s, runs, 6);
        speed_is(&s, CASES[k].verdict, CASES[k].why);
        if (CASES[k].verdict && !*CASES[k].why)
            assert_string_equal(json_text(speed_row(&s), "why", "?"), "");
        finish(&s);
    }
}

/* A cap of one run explains the clocks of its side; a run without figures has no part in them. */
static void clocks_are_of_all_runs(void **state) {
    static const char SLOW[] = "{\"step\":40,\"rank\":0,\"gpu_clock_sm_mhz\":1200,"
                               "\"gpu_throttle\":0}\n";
    static const char CAPPED[] = "{\"step\":40,\"rank\":0,\"gpu_clock_sm_mhz\":1200,"
                                 "\"gpu_throttle\":4}\n";
    static const char FAST[] = "{\"step\":40,\"rank\":0,\"gpu_clock_sm_mhz\":1980}\n";
    for (int capped = 0; capped < 2; capped++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++) runs[i].telemetry = i == 1 ? NULL : i < 3 ? SLOW : FAST;
        if (capped) runs[0].telemetry = CAPPED;
        compare(&s, runs, 6);
        speed_is(&s, capped ? "faster" : NULL, capped ? "" : "the baseline's 1200 MHz");
        finish(&s);
    }
}

static void an_order_that_favours_a_side_is_told(void **state) {
    static const char *const IN_ORDER[] = { "2026-11-21T01", "2026-11-21T02", "2026-11-21T03",
                                            "2026-11-21T04", "2026-11-21T05", "2026-11-21T06" };
    static const char *const IN_TURNS[] = { "2026-11-21T01", "2026-11-21T03", "2026-11-21T05",
                                            "2026-11-21T02", "2026-11-21T04", "2026-11-21T06" };
    static const char *const WHY[] = { "the baseline's runs were first, on a colder GPU: run "
                                       "--repeat takes turns",
                                       "its runs were first, on a colder GPU: run --repeat takes "
                                       "turns", "" };
    for (int k = 0; k < 3; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++)
            runs[i].started = k == 2 ? IN_TURNS[i] : IN_ORDER[k ? (i + 3) % 6 : i];
        compare(&s, runs, 6);
        speed_is(&s, "faster", "");
        assert_string_equal(json_text(speed_row(&s), "why", "?"), WHY[k]);
        finish(&s);
    }
}

/* ---- the outputs --------------------------------------------------------------------------- */

static void all_outputs_have_the_verdict(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    on_gpu(runs, 1.5);
    runs[4].smoke = true;
    compare(&s, runs, 6);
    CHECK(compare_text(&s.c, false, &text, &e));
    char *html = page_of(&s);
    says(text, "     recipe           runs       tokens/s    from A         95 % bounds\n"
               "A    bf16                3          50638\n"
               "D    fp8.delayed         2          75956    1.500x      1.394 to 1.613  faster\n");
    says(text, "E does not count: it is a smoke run");
    says(html, "<h2>How much faster?</h2>");
    says(html, "<td class=\"good\">faster</td>");
    says(html, " Over 2 and 3 runs the speed is <strong>faster</strong> (95 % bounds 1.");
    says(html, " does not count: it is a smoke run.");
    free(text);
    free(html);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeats_of_one_seed_count),
        cmocka_unit_test(the_bounds_are_welchs_on_logarithms),
        cmocka_unit_test(equal_medians_still_have_bounds),
        cmocka_unit_test(one_run_a_side_gives_no_bounds),
        cmocka_unit_test(the_command_makes_runs_that_count),
        cmocka_unit_test(the_command_makes_runs_that_are_long_enough),
        cmocka_unit_test(two_commands_are_not_one),
        cmocka_unit_test(scattered_runs_show_nothing),
        cmocka_unit_test(scatter_within_a_run_counts),
        cmocka_unit_test(a_copy_is_no_repeat),
        cmocka_unit_test(equal_ids_of_two_recipes_are_two_runs),
        cmocka_unit_test(disturbed_runs_do_not_count),
        cmocka_unit_test(settings_are_compared_with_the_baselines),
        cmocka_unit_test(harmless_reports_change_nothing),
        cmocka_unit_test(another_build_does_not_count),
        cmocka_unit_test(a_cpu_says_nothing_of_fp8),
        cmocka_unit_test(an_unknown_backend_counts_as_a_cpu),
        cmocka_unit_test(emulation_on_a_gpu_gives_no_verdict),
        cmocka_unit_test(other_rows_have_no_baseline),
        cmocka_unit_test(one_other_factor_may_be_asked),
        cmocka_unit_test(a_named_factor_of_the_work_gives_no_verdict),
        cmocka_unit_test(clocks_need_a_reason),
        cmocka_unit_test(clocks_are_of_all_runs),
        cmocka_unit_test(an_order_that_favours_a_side_is_told),
        cmocka_unit_test(all_outputs_have_the_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
