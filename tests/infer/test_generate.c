/* Draws have the distribution that the logits ask for, sequences end where they should, and text is
 * shown when nothing can change it. */
#include <math.h>
#include <stdlib.h>

#include "runner/generate/generator.h"
#include "runner/generate/text_loop.h"
#include "runner/generate/text_model.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

enum { IDS = 5, DRAWS = 20000 };

/* ---- draws ---- */

static void count_draws(const struct sampling *s, const float *logits, int count[IDS]) {
    struct candidate room[IDS];
    memset(count, 0, IDS * sizeof *count);
    for (int i = 0; i < DRAWS; i++) {
        int32_t id;
        MUST(sampling_next(s, logits, IDS, i % 7, i / 7, room, &id, E));
        assert_in_range(id, 0, IDS - 1);
        count[id]++;
    }
}

/* The share of each id is within four standard deviations of the wanted one. */
static void check_shares(const struct sampling *s, const float *logits, const double *wanted) {
    int count[IDS];
    count_draws(s, logits, count);
    for (int i = 0; i < IDS; i++) {
        double off = fabs((double)count[i] / DRAWS - wanted[i]);
        if (off > 4 * sqrt(wanted[i] * (1 - wanted[i]) / DRAWS))
            fail_msg("id %d: %d of %d draws, wanted a share of %g", i, count[i], DRAWS, wanted[i]);
    }
}

static void shares_of_draws(void **state) {
    /* e^logit: 1, 2, 4, 2, 1 */
    const float logits[IDS] = { 0, 0.6931472f, 1.3862944f, 0.6931472f, 0 };
    struct sampling s = { .temperature = 1, .top_p = 1, .seed = 5 };
    check_shares(&s, logits, (const double[]){ .1, .2, .4, .2, .1 });
    s.temperature = 0.5;
    check_shares(&s, logits, (const double[]){ 1 / 26., 4 / 26., 16 / 26., 4 / 26., 1 / 26. });
    s.temperature = 1;
    s.top_k = 2; /* of two with equal logits the first */
    check_shares(&s, logits, (const double[]){ 0, 1 / 3., 2 / 3., 0, 0 });
    s.top_k = 0;
    s.top_p = 0.7; /* 0.4 is less, 0.6 too, 0.8 is enough */
    check_shares(&s, logits, (const double[]){ 0, .25, .5, .25, 0 });
    s.top_p = 0;
    check_shares(&s, logits, (const double[]){ 0, 0, 1, 0, 0 });
    s = (struct sampling){ .temperature = 0, .top_p = 1 };
    check_shares(&s, (const float[]){ 1, 3, -2, 3, 0 }, (const double[]){ 0, 1, 0, 0, 0 });
    s.temperature = 0.001; /* weights that are 0 in double are never drawn */
    check_shares(&s, logits, (const double[]){ 0, 0, 1, 0, 0 });
}

static void bad_logits_are_named(void **state) {
    const struct sampling s = { .temperature = 1, .top_p = 1 };
    struct candidate room[IDS];
    float logits[IDS] = { 0 };
    int32_t id;
    logits[3] = NAN;
    MUST_FAIL(ERR_NUMERIC, "token 3", sampling_next(&s, logits, IDS, 0, 0, room, &id, E));
    logits[3] = -INFINITY;
    MUST_FAIL(ERR_NUMERIC, "token 3", sampling_next(&s, logits, IDS, 0, 0, room, &id, E));
}

/* ---- sequences ---- */

enum { T = 32, V = 96, PROMPTS = 5 };

static enum status stop_at_third(void *user, struct generation *x, struct err *e) {
    if (x->number == 1 && x->count == x->prompt + 3) x->end = GENERATION_STOP;
    return OK;
}

static void generate(struct tiny_run *r, int64_t tokens, int32_t stop, struct generation *x,
                     int32_t ids[PROMPTS][T]) {
    struct generator *g;
    const struct generator_sizes sizes = { 2, T, V, 90 };
    const struct generation_rules rules = { .sampling = { .temperature = 1, .top_p = 1, .seed = 9 },
                                            .tokens = tokens, .stop = &stop,
                                            .stop_count = stop >= 0, .added = stop_at_third };
    for (int i = 0; i < PROMPTS; i++) {
        x[i] = (struct generation){ .ids = ids[i], .prompt = 1 + 6 * i, .number = i };
        for (int k = 0; k < x[i].prompt; k++) ids[i][k] = (3 * i + k) % V;
    }
    MUST(generator_create(&g, r->trainer, &sizes, E));
    MUST(generator_run(g, &rules, x, PROMPTS, E));
    generator_destroy(g);
}

static void sequences_end(void **state) {
    struct tiny_run r;
    struct generation x[PROMPTS], again[PROMPTS];
    static int32_t ids[PROMPTS][T], same[PROMPTS][T];
    tiny_run_init(&r, RECIPE_BF16, 1);
    MUST(tiny_run_open(&r, E));
    generate(&r, 10, -1, x, ids);
    for (int i = 0; i < PROMPTS; i++) {
        int64_t wanted = i == 1 ? x[i].prompt + 3 : i == 4 ? T : x[i].prompt + 10;
        assert_int_equal(x[i].count, wanted);
        assert_int_equal(x[i].end, i == 1 ? GENERATION_STOP
                                   : i == 4 ? GENERATION_LENGTH : GENERATION_TOKENS);
        for (int64_t k = 0; k < x[i].count; k++) assert_in_range(ids[i][k], 0, 89);
    }
    /* The first new token of prompt 0 as a stop token: it ends there, and the rest is as it was. */
    int32_t stop = ids[0][1];
    generate(&r, 10, stop, again, same);
    assert_int_equal(again[0].end, GENERATION_STOP);
    assert_int_equal(again[0].count, 2);
    for (int i = 1; i < PROMPTS; i++)
        assert_memory_equal(ids[i], same[i], (size_t)again[i].count * sizeof **ids);
    tiny_run_close(&r);
}

/* `times` copies of 1 to `period` behind a prompt and `before` other tokens. */
static struct text_loop loop_of(int period, int times, int before, enum generation_end end) {
    int32_t ids[512];
    struct generation x = { .ids = ids, .prompt = 4, .end = end };
    while (x.count < x.prompt) ids[x.count++] = 1;
    for (int i = 0; i < before; i++) ids[x.count++] = 1000 + i;
    for (int i = 0; i < period * times; i++) ids[x.count++] = 1 + i % period;
    return text_loop_find(&x);
}

static void a_loop_at_the_end_is_found(void **state) {
    static const int CASES[][4] = { /* period, times, other tokens before; 1: a loop */
        { 1, 24, 0, 1 }, { 1, 23, 0, 0 }, { 1, 23, 40, 0 }, { 8, 3, 0, 1 }, { 7, 3, 0, 0 },
        { 40, 2, 0, 0 }, { 40, 3, 9, 1 }, { 100, 4, 1, 1 }, { 5, 0, 60, 0 }, { 5, 12, 60, 1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const int *c = CASES[i];
        const struct text_loop loop = loop_of(c[0], c[1], c[2], GENERATION_TOKENS);
        assert_int_equal(loop.tokens, c[3] ? c[0] : 0);
        assert_int_equal(loop.times, c[3] ? c[1] : 0);
    }
    assert_int_equal(loop_of(8, 9, 0, GENERATION_LENGTH).times, 9);
    assert_int_equal(loop_of(8, 9, 0, GENERATION_STOP).tokens, 0); /* it has an end */
}

static void a_prompt_must_leave_room(void **state) {
    struct tiny_run r;
    struct generator *g;
    int32_t ids[T] = { 0 };
    const struct generator_sizes sizes = { 2, T, V, V };
    const struct generation_rules rules = { .tokens = 1 };
    struct generation x = { .ids = ids, .prompt = T };
    tiny_run_init(&r, RECIPE_F32, 1);
    MUST(tiny_run_open(&r, E));
    MUST(generator_create(&g, r.trainer, &sizes, E));
    MUST_FAIL(ERR_ARG, "a prompt of 32 tokens; the model needs 1 to 31",
              generator_run(g, &rules, &x, 1, E));
    x.prompt = 0;
    MUST_FAIL(ERR_ARG, "a prompt of 0 tokens", generator_run(g, &rules, &x, 1, E));
    generator_destroy(g);
    tiny_run_close(&r);
}

/* ---- text ---- */

static void text_is_shown_when_it_is_settled(void **state) {
    static const struct { const char *text; size_t settled; } CASES[] = {
        { "", 0 }, { "ab", 2 }, { "a\xc3", 1 }, { "a\xc3\xa9", 3 }, { "a\xe4\xb8", 1 },
        { "a\xf0\x9f\x98", 1 }, { "a\xef\xbf\xbd", 1 }, { "a\xef\xbf\xbd\xef\xbf\xbd", 1 },
        { "\xef\xbf\xbd" "a", 4 }, { "\xff", 1 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_int_equal(text_settled(CASES[i].text, strlen(CASES[i].text)), CASES[i].settled);
}

static void stop_texts_are_found(void **state) {
    static const char *const STOPS[] = { "END", "\n\n" };
    static const struct { const char *text; size_t n; bool found; } CASES[] = {
        { "", 0, false }, { "an END", 3, true }, { "an EN", 3, false }, { "an EN ", 6, false },
        { "a\n", 1, false }, { "a\n\nEND", 1, true }, { "aEND\n\n", 1, true }, { "E", 0, false },
        { "EEN", 1, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        bool found;
        size_t n = text_until_stop(CASES[i].text, strlen(CASES[i].text), STOPS, 2, &found);
        if (n != CASES[i].n || found != CASES[i].found)
            fail_msg("%s: %zu, %d", CASES[i].text, n, found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_of_draws),
        cmocka_unit_test(bad_logits_are_named),
        cmocka_unit_test(sequences_end),
        cmocka_unit_test(a_loop_at_the_end_is_found),
        cmocka_unit_test(a_prompt_must_leave_room),
        cmocka_unit_test(text_is_shown_when_it_is_settled),
        cmocka_unit_test(stop_texts_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
