/* Two models on the same questions. The cases that would mislead come first; then values that were
 * computed outside. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/infer/paired.h"
#include "tests/support/must.h"

enum { MANY = 400 };

/* Questions of three completions with a token each; of question i number `right` is right. */
struct scene {
    struct questions q;
    struct question question[MANY];
    struct completion row[3 * MANY];
    struct answer ours[3 * MANY], theirs[3 * MANY];
};

static void choose(struct answer *a, int64_t best) {
    for (int64_t k = 0; k < 3; k++) a[k] = (struct answer){ k == best ? 1 : 2, 1, 1 };
}

static void set(struct scene *s, int64_t count) {
    memset(s, 0, sizeof *s);
    s->q = (struct questions){ .question = s->question, .row = s->row, .count = count,
                               .rows = 3 * count, .has_bytes = true };
    for (int64_t i = 0; i < count; i++) {
        s->question[i] = (struct question){ .number = i + 1, .row = 3 * i, .completions = 3 };
        choose(s->ours + 3 * i, 0);
        choose(s->theirs + 3 * i, 0);
    }
}

static void says(const struct paired *p, const char *words) {
    char text[PAIRED_TEXT_CAP];
    paired_text(p, text);
    if (strcmp(text, words) != 0) fail_msg("\"%s\"; wanted \"%s\"", text, words);
}

/* ---- what would mislead -----------------------------------------------------------------------*/

/* Each of the two is wrong where the other is right: the accuracy alone says "the same". */
static void equal_accuracy_hides_changed_answers(void **state) {
    static struct scene s;
    set(&s, 100);
    for (int i = 0; i < 20; i++) choose(s.ours + 3 * i, 1), choose(s.theirs + 3 * (20 + i), 1);
    for (int i = 40; i < 45; i++) choose(s.ours + 3 * i, 1), choose(s.theirs + 3 * i, 2);
    struct paired p = paired_of(&s.q, RULE_SUM, s.ours, s.theirs);
    assert_int_equal(p.both, 55);
    assert_int_equal(p.only_this, 20);
    assert_int_equal(p.only_that, 20);
    assert_int_equal(p.neither, 5);
    assert_int_equal(p.changed, 45); /* also from one wrong answer to another */
    says(&p, "no difference shown: fewer than 12.5 points either way (95 %). With 100 "
             "questions a smaller difference cannot be seen. As many are right, but 45 answers "
             "differ");
    assert_false(paired_is_same(&s.q, s.ours, s.theirs));
}

/* All of the same questions are right, by other losses: no difference, but not the same answers. */
static void the_same_answers_are_the_same_bits(void **state) {
    static struct scene s;
    set(&s, 50);
    assert_true(paired_is_same(&s.q, s.ours, s.theirs));
    s.ours[7].nats = nextafter(2, 3);
    assert_false(paired_is_same(&s.q, s.ours, s.theirs));
    s.ours[7].nats = 2;
    s.ours[7].tokens = 2;
    assert_false(paired_is_same(&s.q, s.ours, s.theirs));
    struct paired p = paired_of(&s.q, RULE_SUM, s.ours, s.theirs);
    assert_int_equal(p.both, 50);
    assert_int_equal(p.changed, 0);
    says(&p, "no difference shown: fewer than 7.2 points either way (95 %). With 50 "
             "questions a smaller difference cannot be seen");
}

/* Five questions of which one model answers all and the other none: 100 points, and not shown. */
static void few_questions_show_nothing(void **state) {
    struct paired p = { .only_this = 5 };
    paired_judge(&p);
    assert_true(p.difference == 1 && p.p == 0.0625);
    assert_int_equal(p.verdict, PAIRED_NOT_SHOWN);
    says(&p, "no difference shown: fewer than 100.0 points either way (95 %). Too few questions: "
             "with 5 no difference can be shown");
    p = (struct paired){ .only_this = 6 };
    paired_judge(&p);
    assert_int_equal(p.verdict, PAIRED_BETTER);
}

/* Two models that guess do not differ; that says nothing of them. */
static void two_that_guess_are_named(void **state) {
    static struct scene s;
    set(&s, 90);
    for (int i = 0; i < 90; i++) { /* right: 33 and 30 of 90; 38 is above guessing */
        choose(s.ours + 3 * i, i < 33 ? 0 : 1);
        choose(s.theirs + 3 * i, i < 30 ? 0 : 1);
    }
    struct paired p = paired_of(&s.q, RULE_SUM, s.ours, s.theirs);
    assert_true(fabs(p.chance - 1.0 / 3) < 1e-12);
    says(&p, "no difference shown: fewer than 9.4 points either way (95 %). With 90 questions a "
             "smaller difference cannot be seen. Neither is above guessing (33.3 %): these "
             "questions are too hard to tell them apart");
    for (int i = 33; i < 37; i++) choose(s.ours + 3 * i, 0);
    assert_true(paired_of(&s.q, RULE_SUM, s.ours, s.theirs).guess);
    choose(s.ours + 3 * 37, 0);
    assert_false(paired_of(&s.q, RULE_SUM, s.ours, s.theirs).guess);
    assert_false(paired_of(&s.q, RULE_SUM, s.theirs, s.ours).guess);
}

/* The interval may exclude 0 while the exact test, which is stricter, does not: no verdict. (The
 * data of Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014), p. 2850.) */
static void the_exact_test_decides(void **state) {
    struct paired p = { .both = 1, .only_this = 1, .only_that = 7, .neither = 12 };
    paired_judge(&p);
    assert_true(p.high < 0 && p.p > 0.05);
    assert_int_equal(p.verdict, PAIRED_NOT_SHOWN);
}

/* A longer completion has a larger sum: each rule has its own pairs. */
static void each_rule_has_its_own_pairs(void **state) {
    static struct scene s;
    set(&s, 10);
    for (int i = 0; i < 10; i++) {
        s.theirs[3 * i] = (struct answer){ 9, 1, 9 };     /* right; 9 a token, 1 a byte */
        s.theirs[3 * i + 1] = (struct answer){ 8, 2, 4 }; /* 4 a token, 2 a byte */
        s.theirs[3 * i + 2] = (struct answer){ 20, 2, 2 };
    }
    struct paired sum = paired_of(&s.q, RULE_SUM, s.ours, s.theirs);
    struct paired byte = paired_of(&s.q, RULE_BYTE, s.ours, s.theirs);
    struct paired token = paired_of(&s.q, RULE_TOKEN, s.ours, s.theirs);
    assert_int_equal(sum.only_this, 10);
    assert_int_equal(byte.both, 10);
    assert_int_equal(token.only_this, 10);
    says(&sum, "better: 44.5 to 100.0 points more right answers (95 %)");
}

/* ---- values -----------------------------------------------------------------------------------*/

/* Bounds: the score statistic with a numerically constrained maximum of the likelihood, solved in
 * Python; the first is also published (-0.517 to -0.026). p: sums of binomials as whole numbers. */
static void the_values_are_those_of_the_formulas(void **state) {
    static const struct { int64_t b, c, n; double low, high, p; } CASES[] = {
        { 1, 7, 21, -0.517232, -0.026003, 0.0703125 },
        { 12, 2, 50, 0.061112, 0.344709, 0.01293945312 },
        { 0, 0, 100, -0.036993, 0.036993, 1 },
        { 6, 0, 60, 0.033811, 0.201495, 0.03125 },
        { 5, 3, 60, -0.069275, 0.140852, 0.7265625 },
        { 43, 0, 44, 0.818506, 0.995977, 2.273736754e-13 },
        { 0, 1, 44, -0.118077, 0.059393, 1 },
        { 300, 260, 10042, -0.000637, 0.008627, 0.09925587006 },
        { 500, 500, 10042, -0.006182, 0.006182, 1 },
        { 0, 0, 1, -0.793451, 0.793451, 1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct paired p = { .both = CASES[i].n - CASES[i].b - CASES[i].c,
                            .only_this = CASES[i].b, .only_that = CASES[i].c };
        struct paired back = { .neither = p.both, .only_this = CASES[i].c,
                               .only_that = CASES[i].b };
        paired_judge(&p);
        paired_judge(&back);
        if (fabs(p.low - CASES[i].low) > 1e-6 || fabs(p.high - CASES[i].high) > 1e-6 ||
            fabs(p.p / CASES[i].p - 1) > 1e-8)
            fail_msg("case %zu: %.6f to %.6f, p %.10g", i, p.low, p.high, p.p);
        assert_true(fabs(back.low + p.high) < 1e-9 && fabs(back.high + p.low) < 1e-9);
        assert_true(fabs(back.p / p.p - 1) < 1e-9);
    }
    struct paired many = { .only_this = 1200, .only_that = 1100 }; /* 2^-2300 is no double */
    paired_judge(&many);
    assert_true(fabs(many.p - 0.038966852684) < 1e-9);
}

static void a_verdict_says_who_is_ahead(void **state) {
    struct paired p = { .both = 300, .only_this = 12, .only_that = 48, .neither = 40 };
    paired_judge(&p);
    assert_true(p.high < 0);
    says(&p, "worse: 5.4 to 12.9 points fewer right answers (95 %)");
    assert_string_equal(paired_word(&p), "worse");
    p = (struct paired){ .both = 300, .only_this = 48, .only_that = 12, .neither = 40 };
    paired_judge(&p);
    says(&p, "better: 5.4 to 12.9 points more right answers (95 %)");
    assert_string_equal(paired_word(&p), "better");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_accuracy_hides_changed_answers),
        cmocka_unit_test(the_same_answers_are_the_same_bits),
        cmocka_unit_test(few_questions_show_nothing),
        cmocka_unit_test(two_that_guess_are_named),
        cmocka_unit_test(the_exact_test_decides),
        cmocka_unit_test(each_rule_has_its_own_pairs),
        cmocka_unit_test(the_values_are_those_of_the_formulas),
        cmocka_unit_test(a_verdict_says_who_is_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
