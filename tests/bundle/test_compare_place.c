/* After how many tokens losses are compared, and which runs that place is of. */
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

/* What a run learned after the place of the comparison says nothing about that place. */
static void what_counts_is_learned_until_the_comparison(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].planned = 300;
        runs[i].steps = i < 3 ? 300 : 8 + i; /* of FP8 steps 11 to 13, evaluated at step 10 */
        runs[i].status = i < 3 ? "done" : "time_limit";
        runs[i].guess_loss = 1.5; /* the baseline has 1.84 at step 10, 0.42 at the end */
    }
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "token occurs: its mean loss is 1.8");
    finish(&s);
    runs[0].guess_loss = 3.5; /* one that learned more shows that the recipe can */
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "other runs went on to step 300, and early in training recipes are alike");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].guess_loss = 3.5;
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "other runs went on to step 300");
    finish(&s);
}

/* Four seeds of BF16, then four of FP8 whose loss is 0.5 nats above from step 11 on. */
static void four_pairs(struct run_fixture runs[9]) {
    for (int i = 0; i < 9; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 4 ? "bf16" : "fp8.tensorwise";
        runs[i].seed = 1 + i % 4;
        runs[i].planned = runs[i].steps = 60;
        runs[i].loss_late = i < 4 ? 0 : 0.5;
    }
}

static int64_t step_of(const struct scene *s) {
    return json_integer_value(json_object_get(json_array_get(losses_of(s), 0), "step"));
}

/* One run of another seed that ended early must not turn "does not hold" into "holds". */
static void a_run_in_no_pair_does_not_shorten_the_comparison(void **state) {
    static const struct { int64_t steps; size_t left_out; const char *why; } CASES[] = {
        { 11, 1, "without I (to step 10)" }, { 45, 1, "without I (to step 40)" },
        { 60, 0, "on the 4 seeds that both have" },
    };
    struct run_fixture runs[9];
    four_pairs(runs);
    runs[8].seed = 9;
    runs[8].status = "time_limit";
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < 3; k++) {
            struct scene s;
            runs[8].recipe = side ? "fp8.tensorwise" : "bf16";
            runs[8].loss_late = 0;
            runs[8].steps = CASES[k].steps;
            compare(&s, runs, 9);
            const json_t *family = json_array_get(losses_of(&s), 0);
            verdict_is(&s, "does not hold", CASES[k].why);
            assert_int_equal(step_of(&s), 60);
            assert_int_equal(json_array_size(json_object_get(family, "left_out")),
                             CASES[k].left_out);
            if (k == 1)
                text_says(&s, "    I is left out: it was evaluated to step 40, and its seed is "
                             "in no pair\n");
            finish(&s);
        }
    struct scene s;
    runs[3].seed = 8; /* three pairs suffice */
    runs[8].steps = 45;
    compare(&s, runs, 9);
    verdict_is(&s, "does not hold", "on the 3 seeds that both have; without I (to step 40)");
    assert_int_equal(step_of(&s), 60);
    finish(&s);
}

/* Nor must one of a paired seed. Without it and its pair three seeds must remain. */
static void a_short_run_of_a_row_is_left_out_and_named(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    four_pairs(runs);
    runs[7].status = "time_limit";
    runs[7].steps = 11;
    compare(&s, runs, 8);
    verdict_is(&s, "does not hold", "on the 3 seeds that both have; without H (to step 10)");
    assert_int_equal(step_of(&s), 60);
    text_says(&s, "    H is left out: it was evaluated to step 10, others of its row to step 60\n");
    finish(&s);
    runs[6].steps = 12;
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "row and baseline need 3 seeds each; here are 4 and 2; without G (to step "
                         "10), H (to step 10)");
    finish(&s);
    four_pairs(runs);
    runs[0].steps = 11; /* of the baseline */
    compare(&s, runs, 8);
    verdict_is(&s, "does not hold", "on the 3 seeds that both have; without A (to step 10)");
    finish(&s);
    four_pairs(runs);
    runs[7].steps = 30; /* half: the others are compared there */
    compare(&s, runs, 8);
    verdict_is(&s, "does not hold", "");
    assert_int_equal(step_of(&s), 30);
    finish(&s);
}

/* The run whose pair was left out is in no pair either. */
static void a_pair_without_one_of_its_runs_is_none(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    four_pairs(runs);
    runs[3].steps = 11; /* D, of the baseline, which leaves H alone */
    runs[7].steps = 45;
    compare(&s, runs, 8);
    verdict_is(&s, "does not hold", "without D (to step 10), H (to step 40)");
    assert_int_equal(step_of(&s), 60);
    finish(&s);
    four_pairs(runs);
    runs[7].steps = 11; /* H; with G's seed in no pair two pairs remain, so all have a say */
    runs[6].seed = 9;
    runs[6].steps = 45;
    compare(&s, runs, 8);
    verdict_is(&s, "does not hold", "without H (to step 10)");
    assert_int_equal(step_of(&s), 40);
    finish(&s);
}

/* "holds" at step 10 is none if the seeds that went on are worse at step 20. */
static void a_row_that_got_worse_later_does_not_hold(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    four_pairs(runs);
    for (int i = 0; i < 8; i++) runs[i].steps = i < 7 ? 20 : 19;
    compare(&s, runs, 8);
    verdict_is(&s, NULL, "later evaluations got worse: +37.");
    verdict_is(&s, NULL, " % from the baseline at step 20, on 3 seeds");
    assert_int_equal(step_of(&s), 10);
    finish(&s);
    for (int i = 4; i < 8; i++) runs[i].loss_late = 0;
    compare(&s, runs, 8);
    verdict_is(&s, "holds", "");
    assert_string_equal(json_text(loss_row(&s), "why", ""), "");
    finish(&s);
    for (int i = 0; i < 8; i++) runs[i].loss_late = 0.6; /* the baseline's too */
    compare(&s, runs, 8);
    verdict_is(&s, "holds", "");
    assert_string_equal(json_text(loss_row(&s), "why", ""), "");
    finish(&s);
    for (int i = 0; i < 4; i++) runs[i].loss_late = 0;
    for (int i = 0; i < 8; i++) runs[i].steps = i < 4 ? 12 : 20; /* without a later baseline */
    for (int i = 4; i < 8; i++) runs[i].loss_late = 0.6;
    compare(&s, runs, 8);
    verdict_is(&s, "holds", "later evaluations got worse: the row's loss rises by 4.");
    finish(&s);
}

/* The last evaluation that a pair has, even if the other pairs ended before. */
static void one_pair_that_went_on_tells_what_came_later(void **state) {
    struct scene s;
    struct run_fixture runs[9];
    four_pairs(runs);
    for (int i = 0; i < 8; i++) {
        runs[i].eval_every = 4;
        runs[i].steps = i == 7 ? 11 : i % 4 == 0 ? 16 : 12;
    }
    compare(&s, runs, 8);
    assert_int_equal(step_of(&s), 8);
    verdict_is(&s, NULL, " % from the baseline at step 16, on 1 seed");
    finish(&s);
}

/* A verdict without its place cannot be compared with another one. */
static void tables_have_the_place_of_a_verdict(void **state) {
    static const struct { enum compare_format format; const char *words[2]; } CASES[] = {
        { COMPARE_CSV, { ",loss_why,loss_at_step,loss_at_tokens,",
                         ",does not hold,without I (to step 10),60,122880.0," } },
        { COMPARE_MARKDOWN, { "| allowed | at step | after tokens |\n",
                              "| does not hold: without I (to step 10) |" } },
        { COMPARE_MARKDOWN, { "%", "| 60 | 122880 |\n" } },
    };
    struct scene s;
    struct err e = { 0 };
    struct run_fixture runs[9];
    four_pairs(runs);
    runs[8].seed = 9;
    runs[8].steps = 11;
    compare(&s, runs, 9);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char *text = NULL;
        CHECK(compare_table(&s.c, CASES[i].format, &text, &e));
        for (int k = 0; k < 2; k++)
            if (!strstr(text, CASES[i].words[k]))
                fail_msg("\"%s\" is not in\n%s", CASES[i].words[k], text);
        free(text);
    }
    finish(&s);
}

/* Initial weights that no step changed hold in every recipe. They begin with a low loss, so that no
 * guess says whether the runs learned anything: the fall since an earlier evaluation does. */
static void given_weights_must_have_been_trained(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].init = "{\"from\":\"a\"}";
    compare(&s, runs, 6);
    verdict_is(&s, "holds", "");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].steps = 12; /* one evaluation */
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "whether the baseline learned anything is not known: the loss of its "
                         "initial weights is not recorded, and no evaluation is earlier");
    finish(&s);
    for (int i = 0; i < 6; i++) runs[i].steps = 20;
    for (int i = 0; i < 6; i++) runs[i].eval_last = 1.84; /* as the first evaluation */
    compare(&s, runs, 6);
    verdict_is(&s, NULL, "its mean loss was 1.84");
    verdict_is(&s, NULL, " at the first evaluation and is 1.84; evaluate earlier, or train longer");
    finish(&s);
    for (int i = 3; i < 6; i++) runs[i].eval_last = 1.9;
    compare(&s, runs, 6);
    verdict_is(&s, "does not hold", ""); /* FP8 spoiled them */
    finish(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_in_no_pair_does_not_shorten_the_comparison),
        cmocka_unit_test(a_short_run_of_a_row_is_left_out_and_named),
        cmocka_unit_test(a_pair_without_one_of_its_runs_is_none),
        cmocka_unit_test(a_row_that_got_worse_later_does_not_hold),
        cmocka_unit_test(one_pair_that_went_on_tells_what_came_later),
        cmocka_unit_test(tables_have_the_place_of_a_verdict),
        cmocka_unit_test(given_weights_must_have_been_trained),
        cmocka_unit_test(what_counts_is_learned_until_the_comparison),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
