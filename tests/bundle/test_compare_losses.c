/* Does the loss hold? Each clause of the rule in runner/compare/README.md, on made-up runs. */
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

#include "runner/compare/compare_loss.h"
#include "runner/compare/stats.h"
#include "tests/bundle/compare_scene.h"

/* A time limit leaves one side with more steps; only common steps are compared. */
static void runs_are_compared_at_equal_tokens(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].planned = 50;
        runs[i].steps = i < 3 ? 48 : 37 + i; /* evaluated up to step 40 */
    }
    runs[3].steps = 35; /* up to step 30 */
    compare(&s, runs, 6);
    const json_t *family = json_array_get(losses_of(&s), 0);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 30);
    assert_int_equal(json_array_size(json_object_get(family, "cut")), 5);
    verdict_is(&s, "holds", "");
    assert_true(json_number_value(json_object_get(loss_row(&s), "relative")) == 0);
    assert_string_equal(json_text(s.c.report, "verdict", ""),
                        "one factor: recipe; but the runs made 35 to 48 steps");
    const json_t *ratio = json_object_get(
        json_array_get(json_object_get(s.c.report, "runs"), 3), "ratio");
    assert_true(json_is_null(json_object_get(ratio, "eval_loss")));
    assert_true(json_is_null(json_object_get(ratio, "loss")));
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "evaluation losses at step 30, after 61440 tokens, the last that "
                                 "all evaluated; "
                                 "later evaluations are left out, of A (to step 40), B (to step "
                                 "40)"));
    free(text);
    finish(&s);
}

/* Seeds that agree on a short text say nothing of other texts. */
static void a_short_held_out_text_is_told(void **state) {
    static const struct { int64_t tokens; bool few; } SIZES[] = {
        { 512, true }, { LOSS_TOKENS_FEW - 1, true }, { LOSS_TOKENS_FEW, false },
    };
    for (size_t k = 0; k < sizeof SIZES / sizeof *SIZES; k++) {
        struct scene s;
        struct err e = { 0 };
        struct run_fixture runs[6];
        char *html = NULL, *text = NULL, want[80];
        two_sides(runs);
        for (int i = 0; i < 6; i++) runs[i].eval_tokens = SIZES[k].tokens;
        compare(&s, runs, 6);
        verdict_is(&s, "holds", "");
        CHECK(compare_text(&s.c, false, &text, &e));
        html = page_of(&s);
        snprintf(want, sizeof want, "each loss is the mean of %lld tokens of held-out data",
                 (long long)SIZES[k].tokens);
        assert_non_null(strstr(text, want));
        assert_non_null(strstr(html, want));
        assert_int_equal(strstr(text, "other data may give another verdict") != NULL, SIZES[k].few);
        assert_int_equal(strstr(html, "other data may give another verdict") != NULL, SIZES[k].few);
        free(html);
        free(text);
        finish(&s);
    }
}

static void without_a_common_step_there_is_no_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 3; i++) runs[i].eval_every = 15;
    for (int i = 0; i < 6; i++) runs[i].planned = 50;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "no step at which all were evaluated; the last are A 15, B 15, C 15, D");
    finish(&s);
    for (int i = 0; i < 3; i++) runs[i].eval_every = 0;
    runs[5].steps = 5;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "F was never evaluated");
    finish(&s);
    runs[5].steps = 20;
    runs[4].eval_tokens = 8192;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "A was evaluated on 4096 tokens, E on 8192");
    assert_true(json_is_null(json_object_get(json_array_get(losses_of(&s), 0), "seconds")));
    const json_t *same = json_object_get(loss_row(&s), "same_loss");
    assert_true(json_is_null(json_object_get(json_object_get(same, "tokens"), "factor")));
    const json_t *ratio = json_object_get(
        json_array_get(json_object_get(s.c.report, "runs"), 4), "ratio");
    assert_true(json_is_null(json_object_get(ratio, "eval_loss")));
    assert_true(json_is_number(json_object_get(ratio, "loss")));
    assert_string_equal(json_text(s.c.report, "verdict", ""),
                        "one factor: recipe; but the last evaluations are of 4096 to 8192 tokens");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].eval_every = 10;
    runs[0].eval_tokens = runs[4].eval_tokens = -1; /* not recorded: no reason against it */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
}

/* With one or two seeds per side there are numbers, and no output mentions a verdict. */
static void few_seeds_give_no_verdict(void **state) {
    static const int64_t SIDES[][2] = { { 1, 1 }, { 3, 1 }, { 1, 3 }, { 2, 2 } };
    for (size_t k = 0; k < sizeof SIDES / sizeof *SIDES; k++) {
        struct scene s;
        struct err e = { 0 };
        struct run_fixture six[6], runs[6];
        char *html = NULL, *text = NULL;
        int64_t n = 0;
        two_sides(six);
        for (int i = 0; i < 6; i++)
            if (i % 3 < SIDES[k][i / 3]) runs[n++] = six[i];
        runs[n - 1].loss_shift = 0.4;
        compare(&s, runs, n);
        verdict_is(&s, NULL, "row and baseline need 3 seeds each");
        CHECK(compare_text(&s.c, false, &text, &e));
        html = page_of(&s);
        assert_non_null(strstr(text, "no verdict: row and baseline need 3 seeds each"));
        assert_null(strstr(text, "holds"));
        assert_null(strstr(text, "not hold"));
        assert_null(strstr(html, ">holds"));
        assert_null(strstr(html, "not hold"));
        free(html);
        free(text);
        finish(&s);
    }
}

/* A diverged recipe does not hold, for any number of seeds. If BF16 diverged, there is no
 * verdict. */
static void a_diverged_run_does_not_hold(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    runs[5].eval_last = 67000;
    compare(&s, runs, 6);
    verdict_is(&s, "does not hold", "F diverged: evaluation loss 67000 at step 20, its first");
    finish(&s);
    compare(&s, (struct run_fixture[]){ runs[0], runs[5] }, 2);
    verdict_is(&s, "does not hold", "B diverged");
    finish(&s);
    runs[0].eval_last = 67000;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "A diverged");
    finish(&s);
    two_sides(runs); /* one evaluation only, worse than a guess among 256 bytes */
    for (int i = 0; i < 6; i++) {
        runs[i].model = "{\"vocab\":256}";
        runs[i].eval_every = 20;
    }
    runs[4].eval_last = 6.2;
    compare(&s, runs, 6);
    verdict_is(&s, "does not hold", "E diverged: evaluation loss 6.2 at step 20, guessing reaches");
    finish(&s);
}

/* A batch of chats without an answer has no loss: that is no divergence. */
static void a_step_without_loss_is_no_divergence(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].lossless_step = 7;
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
}

/* A run that ended at a NaN has few evaluations; it does not shorten the comparison of the
 * others. */
static void a_value_that_is_not_finite_is_divergence(void **state) {
    struct scene s;
    struct run_fixture runs[7];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].planned = 20;
    runs[6] = runs[5];
    runs[6].recipe = "fp8.tensorwise";
    runs[6].status = "failed";
    runs[6].steps = 6;
    compare(&s, runs, 7);
    const json_t *family = json_array_get(losses_of(&s), 0);
    const json_t *rows = json_object_get(family, "rows");
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 20);
    assert_string_equal(json_text(json_array_get(rows, 0), "verdict", ""), "holds");
    assert_string_equal(json_text(json_array_get(rows, 1), "verdict", ""), "does not hold");
    assert_string_equal(json_text(json_array_get(rows, 1), "why", ""),
                        "G diverged: loss is nan at step 7");
    finish(&s);
}

/* A lower loss always holds, and the place of BF16 in the list does not matter. */
static void a_better_recipe_holds_in_any_order(void **state) {
    struct scene s;
    struct run_fixture runs[6], turned[6];
    two_sides(runs);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = -0.5;
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    assert_true(json_number_value(json_object_get(loss_row(&s), "relative")) < -0.3);
    finish(&s);
    for (int i = 0; i < 6; i++) turned[i] = runs[5 - i];
    compare(&s, turned, 6);
    verdict_is(&s, "holds", "");
    assert_int_equal(json_integer_value(json_object_get(loss_row(&s), "group")), 0);
    finish(&s);
    for (int i = 0; i < 3; i++) turned[i].loss_shift = 0.5;
    compare(&s, turned, 6);
    verdict_is(&s, "does not hold", "");
    finish(&s);
}

/* Without a BF16 group that differs only in the recipe there is no baseline. */
static void a_missing_verdict_has_its_reason(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    two_sides(runs);
    for (int i = 0; i < 3; i++) runs[i].recipe = "fp8.tensorwise";
    compare(&s, runs, 6);
    assert_string_equal(missing_why(&s), "no run is BF16; add recipe = bf16 with the same "
                        "seeds, or judge by another key: --factor KEY=VALUE");
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "no verdict on A, D: no run is BF16"));
    free(text);
    finish(&s);
    two_sides(runs);
    for (int i = 0; i < 3; i++) runs[i].model = "{\"width\":128}";
    compare(&s, runs, 6);
    assert_string_equal(missing_why(&s), "it differs from A, which is BF16, in more than its "
                                         "recipe: model.width");
    finish(&s);
    two_sides(runs); /* two models: each FP8 group has the BF16 group of its own model */
    runs[1].model = runs[4].model = "{\"width\":128}";
    compare(&s, (struct run_fixture[]){ runs[0], runs[1], runs[3], runs[4] }, 4);
    assert_int_equal(json_array_size(losses_of(&s)), 2);
    finish(&s);
}

static void a_smoke_run_gets_no_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].smoke = true;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "a smoke run");
    finish(&s);
}

/* Losses of a uniform guess are equal in all recipes: they say nothing. A divergence still does. */
static void runs_that_learned_nothing_get_no_verdict(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].model = "{\"vocab\":256}"; /* ln 256 = 5.545 */
        runs[i].eval_every = 20;
        runs[i].eval_last = 5.50;
    }
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "the baseline has learned nothing: its mean loss is 5.5, and a uniform "
                         "guess among 256 tokens has 5.5452; train longer");
    finish(&s);
    runs[5].eval_last = 6.2;
    compare(&s, runs, 6);
    verdict_is(&s, "does not hold", "F diverged");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].eval_last = 5.48; /* below 0.99 x 5.5452 = 5.4897 */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].eval_last = 5.5; /* the baseline's loss alone counts */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
    for (int i = 0; i < 6; i++) { /* the frequencies of bytes alone, as the runs recorded it */
        runs[i].eval_last = 3.13;
        runs[i].guess_loss = 3.15;
        runs[i].loss_shift += 3; /* so that training ends above it */
    }
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "the baseline has learned hardly more than how often each token occurs: "
                         "its mean loss is 3.13, and a guess by the frequencies in training has "
                         "3.15; train longer");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].eval_last = 3.7998; /* above the guess */
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "the baseline has learned less than how often each token occurs: its mean "
                         "loss is 3.7998, and a guess by the frequencies in training has 3.15; "
                         "train longer");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].eval_last = 3.13;
    runs[0].guess_loss = 0; /* an older program's run is left out, wherever it stands */
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "the baseline has learned hardly more than how often each token occurs: "
                         "its mean loss is 3.13, and a guess by the frequencies in training has "
                         "3.15; train longer");
    finish(&s);
    runs[0].guess_loss = 3.15;
    for (int i = 0; i < 6; i++) runs[i].loss_shift -= 3; /* training ends below: it overfits */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].loss_shift += 3;
    for (int i = 0; i < 6; i++) runs[i].eval_last = 3.1; /* below 0.99 x 3.15 = 3.1185 */
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
}

/* If one seed ran twice, the longer run counts. */
static void a_seed_counts_once(void **state) {
    struct scene s;
    struct run_fixture runs[7];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].planned = 20;
    runs[6] = runs[3];
    runs[3].steps = 12; /* evaluated at step 10 only */
    compare(&s, runs, 7);
    const json_t *family = json_array_get(losses_of(&s), 0);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 20);
    assert_int_equal(json_integer_value(json_object_get(loss_row(&s), "seeds")), 3);
    finish(&s);
}

static struct loss_judgement judged(double tolerance, const double *x, const double *y, int n,
                                    int m, json_int_t y_seed) {
    struct err e = { 0 };
    json_int_t seeds[2][8];
    double value[2][8];
    struct loss_judgement out;
    for (int i = 0; i < 8; i++) {
        seeds[0][i] = i;
        seeds[1][i] = y_seed + i;
        value[0][i] = i < n ? x[i] : 0;
        value[1][i] = i < m ? y[i] : 0;
    }
    const struct loss_sample a = { seeds[0], value[0], n }, b = { seeds[1], value[1], m };
    CHECK(loss_judge(&a, &b, tolerance, &out, &e));
    return out;
}

/* Differences of a few seeds about a mean. */
static const double WIDE[4] = { 1.96, 2.04, 2.00, 1.98 }, NEAR[3] = { 2.000, 2.001, 1.999 };
static const double UP[3] = { 2.020, 2.022, 2.018 }, ABOUT[3] = { 2.001, 2.002, 2.000 };

/* The bounds decide: the upper one within the tolerance, the lower one above it, or neither. t
 * quantiles of tables: one-sided 95 %, degrees of freedom rounded down. */
static void bounds_decide(void **state) {
    (void)state;
    struct loss_judgement j = judged(0.005, WIDE, UP, 3, 3, 10); /* no seed in common */
    assert_int_equal(j.gap.pairs, 0);
    assert_float_equal(j.high - j.relative, 2.9200 * 0.0231228 / 2, 1e-6); /* 2 degrees */
    assert_float_equal(j.relative - j.low, 2.9200 * 0.0231228 / 2, 1e-6);
    assert_int_equal(j.verdict, LOSS_UNDECIDED);
    assert_int_equal(judged(0.005, NEAR, UP, 3, 3, 10).verdict, LOSS_DOES_NOT_HOLD);
    assert_int_equal(judged(0.005, NEAR, ABOUT, 3, 3, 10).verdict, LOSS_HOLDS);
    assert_int_equal(judged(0.001, NEAR, ABOUT, 3, 3, 10).verdict, LOSS_UNDECIDED);
    assert_int_equal(judged(0.005, ABOUT, WIDE, 3, 4, 10).verdict, LOSS_UNDECIDED);
    assert_int_equal(judged(0.005, NEAR, ABOUT, 2, 3, 10).verdict, LOSS_NONE);
    /* The same variance in pairs: the common part of each seed cancels. */
    static const double PAIR[4] = { 1.962, 2.041, 2.003, 1.980 };
    j = judged(0.005, WIDE, PAIR, 4, 4, 0);
    assert_int_equal(j.gap.pairs, 4);
    assert_float_equal(j.relative, 0.0015 / 1.995, 1e-9);
    assert_float_equal(j.high - j.relative, 2.3534 * 0.0012909944 / 2 / 1.995, 1e-7);
    assert_int_equal(j.verdict, LOSS_HOLDS);
    /* Three of four seeds are common: those are compared in pairs. Two are not enough for pairs. */
    assert_int_equal(judged(0.005, WIDE, PAIR + 1, 4, 3, 1).gap.pairs, 3);
    assert_int_equal(judged(0.005, WIDE, PAIR, 4, 4, 2).gap.pairs, 0);
    assert_true(loss_tolerance("of a later version") == 0.005);
    assert_true(loss_tolerance("fp8.blockwise") == 0.0025 && loss_tolerance("fp8.mxfp8") == 0.005);
    double x[36], y[36]; /* 35 degrees of freedom: the t quantile is 1.689572 */
    for (int i = 0; i < 36; i++) x[i] = i % 2, y[i] = 0;
    struct stats_scatter s = stats_scatter_apart(x, 36, y, 36);
    struct stats_scatter one = stats_scatter_apart(x, 1, y, 9);
    assert_float_equal(stats_half(&s), 1.689572 * sqrt(0.25 / 35), 1e-5);
    assert_true(isnan(stats_half(&one)));
}

/* Equal losses hold, in pairs or not: there is no scatter to be unsure about. */
static void equal_losses_hold(void **state) {
    (void)state;
    static const double SAME[3] = { 2, 2, 2 };
    assert_int_equal(judged(0.005, WIDE, WIDE, 4, 4, 0).verdict, LOSS_HOLDS);
    assert_int_equal(judged(0.005, SAME, SAME, 3, 3, 10).verdict, LOSS_HOLDS);
    assert_int_equal(judged(0, SAME, SAME, 3, 3, 0).verdict, LOSS_HOLDS);
}

/* With the same mean and scatter, `needed` seeds decide and one fewer does not. */
static void undecided_says_how_many_seeds_it_takes(void **state) {
    (void)state;
    struct loss_judgement j = judged(0.005, ABOUT, WIDE, 3, 4, 10);
    struct stats_scatter s = j.gap.scatter;
    double margin = (0.005 - j.relative) * j.gap.baseline_mean;
    assert_true(j.needed > 4);
    s.n = s.m = j.needed;
    assert_true(stats_half(&s) <= margin);
    s.n = s.m = j.needed - 1;
    assert_true(stats_half(&s) > margin);
    assert_int_equal(judged(j.relative, ABOUT, WIDE, 3, 4, 10).needed, -1);
    assert_int_equal(judged(0.005, NEAR, ABOUT, 3, 3, 10).needed, 0);
    struct scene t;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 3; i++) runs[3 + i].loss_shift = 0.005 + 0.03 * (i - 1);
    compare(&t, runs, 6);
    verdict_is(&t, "undecided", "it would take about ");
    assert_true(json_integer_value(json_object_get(loss_row(&t), "seeds_needed")) > 3);
    finish(&t);
    runs[0].smoke = true; /* no verdict, so no number of seeds either */
    compare(&t, runs, 6);
    verdict_is(&t, NULL, "smoke");
    assert_true(json_is_null(json_object_get(loss_row(&t), "seeds_needed")));
    finish(&t);
}

/* Seven good seeds do not make up for one that diverged. */
static void one_of_eight_seeds_diverged(void **state) {
    struct scene s;
    struct run_fixture runs[16];
    for (int i = 0; i < 16; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 8 ? "bf16" : "fp8.delayed";
        runs[i].seed = 1 + i % 8;
        runs[i].loss_shift = i < 8 ? 0 : -0.2;
        runs[i].planned = 20;
    }
    runs[12].status = "failed";
    runs[12].steps = 6;
    compare(&s, runs, 16);
    verdict_is(&s, "does not hold", "M diverged: loss is nan at step 7");
    const json_t *family = json_array_get(losses_of(&s), 0);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 20);
    finish(&s);
}

/* Runs are paired by seed, not by place: here each pair differs by the same amount, while the seeds
 * differ by far more. */
static void seeds_in_another_order_are_paired(void **state) {
    struct scene s;
    struct run_fixture runs[6], turned[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].loss_shift = 0.5 * (i % 3) + (i < 3 ? 0 : 0.001);
    for (int i = 0; i < 6; i++) turned[i] = runs[(i * 5 + 2) % 6];
    compare(&s, turned, 6);
    verdict_is(&s, "holds", "");
    assert_int_equal(json_integer_value(json_object_get(loss_row(&s), "pairs")), 3);
    assert_true(json_number_value(json_object_get(loss_row(&s), "high")) < 0.001);
    finish(&s);
}

/* A run that its time limit ended is compared where the others were too. At its last loss alone it
 * would seem worse, since it had fewer tokens. */
static void a_time_limit_is_no_worse_recipe(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].planned = runs[i].steps = 60;
        if (i < 3) continue;
        runs[i].status = "time_limit";
        runs[i].steps = 31 + i;
    }
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    const json_t *family = json_array_get(losses_of(&s), 0);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 30);
    assert_true(json_number_value(json_object_get(family, "tokens")) == 30 * 2048);
    finish(&s);
}

static double figure(const json_t *row, const char *part, const char *of, const char *key) {
    const json_t *at = json_object_get(row, part);
    return json_number_value(json_object_get(of ? json_object_get(at, of) : at, key));
}

/* A recipe of the same losses and twice the speed: after equal time it is lower, and it takes half
 * the time and all of the tokens to the same loss. */
static void a_faster_recipe_is_ahead_at_equal_time(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    char *text = NULL;
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].steps = 60;
        runs[i].speed = i < 3 ? 1 : 2;
    }
    compare(&s, runs, 6);
    const json_t *row = loss_row(&s);
    verdict_is(&s, "holds", "");
    assert_true(figure(row, "at_time", NULL, "high") < -0.1);
    assert_float_equal(figure(row, "same_loss", "time", "factor"), 2, 1e-3);
    assert_float_equal(figure(row, "same_loss", "time", "low"), 2, 1e-2);
    assert_float_equal(figure(row, "same_loss", "tokens", "factor"), 1, 1e-9);
    const json_t *family = json_array_get(losses_of(&s), 0);
    double seconds = json_number_value(json_object_get(family, "seconds"));
    assert_true(seconds > 60 * 0.020 && seconds < 60 * 0.021); /* step 1 took 0.47 s: not counted */
    CHECK(compare_text(&s.c, false, &text, &e));
    const char *below = strstr(strstr(text, "at equal time"), "\n    time: ");
    static const char *const SENTENCES[] = { "time: ", "same loss: ", "x: ", "between two " };
    for (size_t i = 0; i < sizeof SENTENCES / sizeof *SENTENCES; i++) {
        assert_non_null(below);
        assert_memory_equal(below + strlen("\n    "), SENTENCES[i], strlen(SENTENCES[i]));
        assert_true(strcspn(below + 1, "\n") <= 100);
        below = strchr(below + 1, '\n');
    }
    free(text);
    finish(&s);
    compare(&s, (struct run_fixture[]){ runs[0], runs[3] }, 2); /* one seed: numbers, no bounds */
    row = loss_row(&s);
    assert_float_equal(figure(row, "same_loss", "time", "factor"), 2, 1e-3);
    assert_true(json_is_null(
        json_object_get(json_object_get(json_object_get(row, "same_loss"), "time"), "low")));
    finish(&s);
}

/* --baseline: any row, by its name, recipe, run name or id; others may differ in more. */
static void a_baseline_can_be_chosen(void **state) {
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[6];
    struct compare_options options = { .baseline = "fp8.delayed" };
    const char *paths[6];
    char *text = NULL;
    two_sides(runs);
    for (int i = 0; i < 3; i++) runs[i].train = ",\"global_batch\":2";
    compare_by(&s, runs, 6, &options);
    const json_t *family = json_array_get(losses_of(&s), 0);
    assert_int_equal(json_integer_value(json_object_get(family, "baseline")), 1);
    assert_int_equal(json_integer_value(json_object_get(loss_row(&s), "group")), 0);
    verdict_is(&s, "holds", "");
    CHECK(compare_text(&s.c, false, &text, &e));
    assert_non_null(strstr(text, "A differs from the baseline also in train.global_batch"));
    free(text);
    for (int i = 0; i < 6; i++) paths[i] = s.path[i];
    struct comparison c;
    options.baseline = "tiny"; /* the name of all runs */
    assert_int_equal(compare_runs(paths, 6, &options, &c, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "several rows have this name; the rows are \"bf16"));
    options.baseline = "bf17";
    assert_int_equal(compare_runs(paths, 6, &options, &c, &e), ERR_ARG);
    assert_non_null(strstr(e.text, "no row has this name"));
    finish(&s);
}

/* A baseline with half the batch is compared after twice as many steps. */
static void other_batches_are_compared_at_equal_tokens(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].steps = i < 3 ? 50 : 20;
        runs[i].step_tokens = i < 3 ? 2048 : 4096;
        runs[i].train = i < 3 ? ",\"global_batch\":1" : ",\"global_batch\":2";
    }
    compare_by(&s, runs, 6, &(struct compare_options){ .baseline = "bf16" });
    const json_t *family = json_array_get(losses_of(&s), 0), *row = loss_row(&s);
    assert_int_equal(json_integer_value(json_object_get(family, "step")), 40);
    assert_true(json_number_value(json_object_get(family, "tokens")) == 40 * 2048);
    assert_int_equal(json_array_size(json_object_get(family, "cut")), 3);
    double mean = json_number_value(json_object_get(row, "mean"));
    assert_true(mean > 5.5 / sqrt(20) + 0.1 && mean < 5.5 / sqrt(20) + 0.12);
    finish(&s);
}

static void a_tolerance_can_be_given(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    const double wide = 0.5, narrow = 0;
    two_sides(runs);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = 0.3;
    compare_by(&s, runs, 6, &(struct compare_options){ .tolerance = &wide });
    verdict_is(&s, "holds", "");
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = 0.001;
    compare_by(&s, runs, 6, &(struct compare_options){ .tolerance = &narrow });
    verdict_is(&s, "does not hold", "");
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_compared_at_equal_tokens),
        cmocka_unit_test(a_short_held_out_text_is_told),
        cmocka_unit_test(without_a_common_step_there_is_no_verdict),
        cmocka_unit_test(few_seeds_give_no_verdict),
        cmocka_unit_test(a_diverged_run_does_not_hold),
        cmocka_unit_test(a_step_without_loss_is_no_divergence),
        cmocka_unit_test(a_value_that_is_not_finite_is_divergence),
        cmocka_unit_test(a_better_recipe_holds_in_any_order),
        cmocka_unit_test(a_missing_verdict_has_its_reason),
        cmocka_unit_test(a_smoke_run_gets_no_verdict),
        cmocka_unit_test(runs_that_learned_nothing_get_no_verdict),
        cmocka_unit_test(a_seed_counts_once),
        cmocka_unit_test(bounds_decide),
        cmocka_unit_test(equal_losses_hold),
        cmocka_unit_test(undecided_says_how_many_seeds_it_takes),
        cmocka_unit_test(one_of_eight_seeds_diverged),
        cmocka_unit_test(seeds_in_another_order_are_paired),
        cmocka_unit_test(a_time_limit_is_no_worse_recipe),
        cmocka_unit_test(a_faster_recipe_is_ahead_at_equal_time),
        cmocka_unit_test(a_baseline_can_be_chosen),
        cmocka_unit_test(other_batches_are_compared_at_equal_tokens),
        cmocka_unit_test(a_tolerance_can_be_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
