/* What --require asks of a comparison: each way to meet and to miss it, on made-up runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/compare/compare_require.h"
#include "tests/bundle/compare_scene.h"

/* Three seeds a side on a GPU. The row is `ratio` times as fast, with a scatter of a percent, and
 * `shift` nats above the baseline. */
static void on_gpu(struct run_fixture runs[6], double ratio, double shift) {
    static const double SCATTER[3] = { 0.99, 1.00, 1.01 };
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].backend = "cuda";
        runs[i].steps = 60;
        runs[i].eval_every = 30;
        runs[i].speed = SCATTER[i % 3] * (i < 3 ? 1 : ratio);
        runs[i].loss_shift = i < 3 ? 0 : shift + 1e-3 * (i % 3 - 1);
    }
}

/* Asks one thing of the runs; `found` is in the first row's answer. */
static void ask(const struct run_fixture *runs, int64_t count, const char *text, bool want,
                const char *found) {
    struct scene s;
    struct err e = { 0 };
    struct requirement r;
    bool met;
    compare(&s, runs, count);
    CHECK(requirement_read(text, &r, &e));
    CHECK(compare_require(&s.c, &r, 1, &met, &e));
    const json_t *item = json_array_get(json_object_get(s.c.report, "requirements"), 0);
    const json_t *row = json_array_get(json_object_get(item, "rows"), 0);
    if (met != want || json_is_true(json_object_get(item, "met")) != want)
        fail_msg("%s is%s met: %s", text, met ? "" : " not", json_text(row, "found", "?"));
    if (!strstr(json_text(row, "found", ""), found))
        fail_msg("\"%s\" is not in \"%s\"", found, json_text(row, "found", ""));
    finish(&s);
}

static void each_requirement_is_met_or_missed(void **state) {
    static const struct {
        double ratio, shift;
        const char *text;
        bool met;
        const char *found;
    } CASES[] = {
        { 1.5, 0, "holds", true, "holds" },
        { 1.5, 0.2, "holds", false, "does not hold" },
        { 1.5, 0, "speed>=1.15x", true, "1.5x (95 % bounds 1.4" },
        { 1.5, 0, "speed>=1.6x", false, "1.5x (95 % bounds 1.4" },
        { 1.5, 0, "speed>=1.49x", false, ", undecided: 1.49x is between the bounds" },
        { 1.0, 0, "speed>=0.9x", true, "x (95 % bounds 0.9" }, /* not shown, but decided */
        { 0.8, 0, "speed>=1x", false, "0.8x (95 % bounds" },
        { 1.5, 0.2, "eval_loss<=1.5x", true, "1.2" }, /* which does not hold */
        { 1.5, 0.2, "eval_loss<=1.1x", false, "1.2" },
        { 1.5, 0, "eval_loss<=1.01x", true, "1x (95 % bounds" },
        { 1.5, 0, "eval_loss<=1x", false, ", undecided: 1x is between the bounds" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct run_fixture runs[6];
        on_gpu(runs, CASES[k].ratio, CASES[k].shift);
        ask(runs, 6, CASES[k].text, CASES[k].met, CASES[k].found);
    }
}

/* Neither is a pass: no verdict, for any reason. */
static void no_verdict_is_a_miss(void **state) {
    struct run_fixture runs[6];
    on_gpu(runs, 1.5, 0);
    struct run_fixture two[2] = { runs[0], runs[3] };
    ask(two, 2, "holds", false, "no verdict: row and baseline need 3 seeds each");
    ask(two, 2, "eval_loss<=2x", false, "no verdict: row and baseline need 3 seeds each");
    ask(two, 2, "speed>=0.5x", false, "no verdict: row and baseline need 2 runs each");
    for (int i = 0; i < 6; i++) runs[i].backend = "cpu";
    ask(runs, 6, "speed>=0.5x", false, "no verdict: a CPU emulates FP8");
    on_gpu(runs, 1.1, 0);
    runs[4].jitter = 0.3;
    runs[4].speed *= 1.15;
    ask(runs, 6, "speed>=1.01x", false, "not shown: within a run the quartiles");
    on_gpu(runs, 0.9, 0);
    runs[4].jitter = 0.3;
    runs[4].speed *= 1.15;
    ask(runs, 6, "speed>=0.5x", false, "not shown: within a run the quartiles");
    on_gpu(runs, 1.5, 0);
    runs[4].eval_last = 9; /* it diverged: its mean says nothing */
    ask(runs, 6, "eval_loss<=9x", false, "does not hold: E diverged");
    on_gpu(runs, 1.5, 0);
    for (int i = 3; i < 6; i++) runs[i].world = 2;
    ask(runs, 6, "holds", false, "no verdict: it differs from A, which is BF16");
    ask(runs, 6, "speed>=0.5x", false, "no verdict: it differs from A, which is BF16");
    ask(runs, 3, "holds", false, ""); /* BF16 alone: no row at all */
    ask(runs, 3, "speed>=0.5x", false, "");
}

/* A miss of the first row, though the second one holds. */
static void one_row_that_misses_is_a_miss(void **state) {
    struct run_fixture runs[9], six[6];
    on_gpu(six, 1.5, 0.2);
    for (int i = 0; i < 9; i++) {
        runs[i] = six[i < 6 ? i : i - 6];
        if (i >= 6) runs[i].recipe = "fp8.rowwise";
    }
    ask(runs, 9, "holds", false, "does not hold");
}

/* Four seeds a side, evaluated to step 60. H, of the FP8 row, was stopped at step 11. */
static void one_stopped(struct run_fixture runs[8], double shift) {
    for (int i = 0; i < 8; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 4 ? "bf16" : "fp8.tensorwise";
        runs[i].seed = 1 + i % 4;
        runs[i].planned = runs[i].steps = 60;
        runs[i].loss_late = i < 4 ? 0 : shift;
    }
    runs[7].status = "stopped";
    runs[7].steps = 11;
}

/* Who stops the run whose loss climbs must not get the ratio of the others. */
static void a_bad_run_that_was_stopped_is_a_miss(void **state) {
    struct run_fixture runs[8];
    one_stopped(runs, 0.01); /* about 1.2 %: above the tolerance of "holds" */
    ask(runs, 8, "eval_loss<=1.02x", true, "1.0");
    runs[7].loss_shift = 0.1;
    ask(runs, 8, "eval_loss<=1.02x", false, "; H was at +5.4");
    ask(runs, 8, "eval_loss<=1.10x", false, "H was at +5.4"); /* as if the others were lower: */
    for (int i = 4; i < 7; i++) runs[i].loss_late = 0;
    ask(runs, 8, "eval_loss<=1.10x", false, "no verdict: on the 3 seeds that both have; without H");
    runs[7].loss_shift = 0.007; /* 0.4 %: "holds" allows it, what is asked does not */
    ask(runs, 8, "eval_loss<=1.005x", true, "1x");
    ask(runs, 8, "eval_loss<=1.002x", false, "; but H, which is left out, was at +0.3");
    ask(runs, 8, "eval_loss<=1.002x", false, " % from the baseline of its seed at step 10: let it "
                                             "go on (fp8lab run --resume RUN)");
    one_stopped(runs, -0.3); /* less is asked, which no run has at step 10 */
    ask(runs, 8, "eval_loss<=0.9x", true, "0.6");
    one_stopped(runs, 0.01);
    runs[7].seed = 9; /* in no pair: its own rise counts */
    runs[7].steps = 25;
    ask(runs, 8, "eval_loss<=1.02x", true, "1.0");
    runs[7].loss_late = 0.6;
    ask(runs, 8, "eval_loss<=1.02x", false, " % above its lowest loss there: let it go on");
}

/* Whatever withholds "holds" from a quiet row must not let a noisier one pass. */
static void what_withholds_a_verdict_is_a_miss_for_a_noisy_row(void **state) {
    static const double SCATTER[3] = { -1, 0, 1 };
    for (int noisy = 0; noisy < 2; noisy++) {
        struct run_fixture runs[6];
        two_sides(runs);
        for (int i = 0; i < 6; i++) {
            runs[i].planned = runs[i].steps = 60;
            if (i >= 3) runs[i].loss_shift = noisy * 0.01 * SCATTER[i - 3];
        }
        ask(runs, 6, "holds", !noisy, noisy ? "undecided" : "holds");
        ask(runs, 6, "eval_loss<=1.1x", true, "1x");
        for (int i = 3; i < 6; i++) runs[i].steps = 21;
        ask(runs, 6, "eval_loss<=1.1x", false, "other runs went on to step 60");
    }
}

/* Not rounded to what is asked, which would contradict the answer. */
static void bounds_are_told_from_what_is_asked(void **state) {
    struct run_fixture runs[6];
    on_gpu(runs, 1.5, 0);
    ask(runs, 6, "speed>=1.47x", true, "1.5x (95 % bounds 1.475 to");
    ask(runs, 6, "speed>=1.475x", true, "(95 % bounds 1.4755 to");
    ask(runs, 6, "speed>=1.4755x", false, "to 1.525), undecided: 1.4755x is between the bounds");
}

/* Its loss was finite at the place, where the row is far above the baseline. */
static void a_run_that_diverged_later_is_a_miss(void **state) {
    struct run_fixture runs[8];
    one_stopped(runs, 0.5);
    for (int i = 0; i < 8; i++) runs[i].steps = 20;
    ask(runs, 8, "eval_loss<=2x", true, "1.3");
    runs[7].steps = 60;
    runs[7].status = "failed";
    ask(runs, 8, "eval_loss<=2x", false, "does not hold: H diverged");
}

/* An optimisation without a change of bits: both builds are one row, without a baseline. Beside
 * another recipe nothing is asked of them. */
static void builds_are_asked_if_nothing_else_is(void **state) {
    static const struct {
        const char *other; /* the recipe of runs 6 to 11, at half the speed; NULL: no such runs */
        const char *text, *found;
        bool met;
    } CASES[] = {
        { NULL, "speed>=1.3x", "1.5x (95 %", true },
        { NULL, "speed>=1.6x", "1.5x (95 %", false },
        { NULL, "holds", "", false },
        { "fp8.tensorwise", "speed>=1.3x", "1.5x (95 %", true },
        { "bf16", "speed>=1.8x", "2x (95 %", true }, /* the first build of each */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct run_fixture runs[12], six[6];
        on_gpu(six, 1.5, 0);
        for (int k = 0; k < 12; k++) {
            static const char *const IDS[12] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j",
                                                 "k", "l" };
            runs[k] = six[k % 6];
            runs[k].id = IDS[k];
            runs[k].recipe = k < 6 || !CASES[i].other ? "fp8.delayed" : CASES[i].other;
            runs[k].loss_shift = 0;
            runs[k].code = k % 6 < 3 ? "b1" : "b2";
            if (k > 5) runs[k].speed *= 0.5;
        }
        ask(runs, CASES[i].other ? 12 : 6, CASES[i].text, CASES[i].met, CASES[i].found);
    }
}

static void other_texts_are_errors(void **state) {
    static const char *const BAD[] = { "", "hold", "speed", "speed>=", "speed>=1.15", "speed>=x",
                                       "speed<=1.15x", "speed>=0x1.2p0x", "speed>=-1x",
                                       "speed>=nanx", "speed>=1e0x", "speed>=1x ",
                                       "eval_loss>=1x", "memory<=1x" };
    for (size_t k = 0; k < sizeof BAD / sizeof *BAD; k++) {
        struct err e = { 0 };
        struct requirement r;
        assert_int_equal(requirement_read(BAD[k], &r, &e), ERR_ARG);
        assert_non_null(strstr(e.text, "write holds, speed>=1.15x or eval_loss<=1.01x"));
    }
}

static void junit_has_a_case_for_each_row(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    struct requirement list[2];
    char path[PATH_CAP], *text = NULL;
    size_t size = 0;
    bool met;
    on_gpu(runs, 1.5, 0);
    compare(&s, runs, 6);
    CHECK(requirement_read("holds", &list[0], &e));
    CHECK(requirement_read("speed>=1.6x", &list[1], &e));
    CHECK(compare_require(&s.c, list, 2, &met, &e));
    CHECK(path_join(path, s.parent, "junit.xml", &e));
    CHECK(compare_junit(&s.c, path, &e));
    CHECK(file_read(path, 1 << 20, &text, &size, &e));
    assert_non_null(strstr(text, "<testsuite name=\"fp8lab compare\" tests=\"2\" failures=\"1\">"));
    assert_non_null(strstr(text, "<testcase classname=\"holds\" name=\"D fp8.delayed\">"
                                 "</testcase>"));
    assert_non_null(strstr(text, "<testcase classname=\"speed&gt;=1.6x\" name=\"D fp8.delayed\">"
                                 "<failure message=\"1.5x (95 % bounds 1.4"));
    free(text);
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_requirement_is_met_or_missed),
        cmocka_unit_test(no_verdict_is_a_miss),
        cmocka_unit_test(one_row_that_misses_is_a_miss),
        cmocka_unit_test(a_bad_run_that_was_stopped_is_a_miss),
        cmocka_unit_test(a_run_that_diverged_later_is_a_miss),
        cmocka_unit_test(what_withholds_a_verdict_is_a_miss_for_a_noisy_row),
        cmocka_unit_test(bounds_are_told_from_what_is_asked),
        cmocka_unit_test(builds_are_asked_if_nothing_else_is),
        cmocka_unit_test(other_texts_are_errors),
        cmocka_unit_test(junit_has_a_case_for_each_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
