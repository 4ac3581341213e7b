/* The rule of spikes, by the cases in which it would mislead. A case is a series of losses, or of
 * gradient norms, and the events that it has. */
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
#include "runner/health/spikes.h"
#include "tests/support/run_fixture.h"

/* Roughly normal, of variance 1; the same for each step. */
static double noise(int64_t step) {
    uint64_t x = (uint64_t)step * 0x9e3779b97f4a7c15u + 12345;
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu + 0x9e3779b97f4a7c15u;
        sum += (double)(x >> 11) * 0x1p-53;
    }
    return sum - 6;
}

static double falls(int64_t step) { return 1.5 + 9 / sqrt((double)step); }

/* ---- cases: the value of a step; *rate is 1e-3 ---- */

static double calm(int64_t s, double *rate) { return falls(s) + 0.02 * noise(s); }
static double noiseless(int64_t s, double *rate) { return falls(s); }
static double constant(int64_t s, double *rate) { return 2; }
static double tiny_noise(int64_t s, double *rate) {
    /* 10000 scatters, but below 3 %; and above */
    return 2 + 1e-6 * noise(s) + (s == 400 ? 0.055 : s == 600 ? 0.065 : 0);
}
static double loud(int64_t s, double *rate) { return 2.5 + 0.4 * noise(s); }
/* Right-skewed, as losses of batches of a few conversations are. */
static double skewed(int64_t s, double *rate) { return 1.5 * exp(0.3 * noise(s)); }
static double learned(int64_t s, double *rate) { /* by heart: a share of nothing is nothing */
    return 1e-3 * exp(noise(s)) + (s % 90 == 0 ? 0.03 : 0);
}
static double one(int64_t s, double *rate) { return calm(s, rate) + (s == 412 ? 1.8 : 0); }
static double long_one(int64_t s, double *rate) { /* decays over 40 steps, with gaps */
    double tail = s >= 412 && s < 452 ? 1.8 * (1 - (double)(s - 412) / 40) : 0;
    return calm(s, rate) + (s % 4 == 2 ? 0 : tail);
}
static double three(int64_t s, double *rate) {
    return calm(s, rate) + (s == 412 || s == 413 ? 1.8 : s == 680 || s == 913 ? 0.9 : 0);
}
static double steep(int64_t s, double *rate) { /* at the start: within the fall, nothing */
    return 1 + 9 * exp(-(double)s / 60) + 0.02 * noise(s) + (s == 20 ? 3 : 0);
}
static double after_start(int64_t s, double *rate) { /* still falling, and above its window */
    return calm(s, rate) + (s == 150 ? 4 : 0);
}
static double shift(int64_t s, double *rate) { return calm(s, rate) + (s >= 500 ? 0.7 : 0); }
static double shift_then_one(int64_t s, double *rate) {
    return shift(s, rate) + (s == 800 ? 1 : 0);
}
static double at_the_end(int64_t s, double *rate) { return calm(s, rate) + (s >= 990 ? 1 : 0); }
static double blip_at_the_end(int64_t s, double *rate) {
    return calm(s, rate) + (s == 998 ? 1 : 0);
}
static double diverges(int64_t s, double *rate) {
    return s > 700 ? (double)NAN : calm(s, rate);
}
static double nan_within(int64_t s, double *rate) { /* a step without loss */
    return s % 3 == 0 ? (double)NAN : one(s, rate);
}
static double waves(int64_t s, double *rate) { return 2 + 0.4 * sin((double)s / 50); }
static double slow_waves(int64_t s, double *rate) { return 2 + 0.8 * sin((double)s / 150); }
static double every_tenth(int64_t s, double *rate) { /* each tenth batch is of other text */
    return calm(s, rate) + (s % 10 == 3 ? 1.5 : 0);
}
static double every_fourth(int64_t s, double *rate) {
    return calm(s, rate) + (s % 4 == 3 ? 1.5 : 0);
}
static double every_seventh(int64_t s, double *rate) {
    return calm(s, rate) + (s % 7 == 3 ? 1.5 : 0);
}
static double every_seventieth(int64_t s, double *rate) {
    return calm(s, rate) + (s % 70 == 3 ? 1.5 : 0);
}
static double cycle_and_one(int64_t s, double *rate) {
    return every_seventieth(s, rate) + (s == 593 ? 1.5 : 0);
}
static double saw(int64_t s, double *rate) { /* sorted text, an epoch each 300 steps */
    return 3 - (double)(s % 300) / 300 + 0.02 * noise(s);
}
static double warms_up(int64_t s, double *rate) { /* unsteady while the rate rises */
    *rate = 1e-3 * fmin(1, (double)s / 200);
    return calm(s, rate) + (s == 150 || s == 180 ? 2 : 0);
}
static double restarts(int64_t s, double *rate) { /* cosine, again from step 501 */
    double at = (double)((s - 1) % 500);
    *rate = 1e-3 * (at < 20 ? at / 20 : 0.5 * (1 + cos(M_PI * (at - 20) / 480)));
    return 2 + 0.3 * *rate / 1e-3 + 0.004 * noise(s);
}
static double one_after_restart(int64_t s, double *rate) {
    return restarts(s, rate) + (s == 600 ? 1 : 0);
}
static double rate_ends_it(int64_t s, double *rate) {
    *rate = s > 505 ? 2e-3 : 1e-3;
    return calm(s, rate) + (s >= 500 ? 1 : 0);
}
static double no_rate(int64_t s, double *rate) {
    *rate = (double)NAN;
    return one(s, rate);
}
static double norms(int64_t s, double *rate) { return 0.5 * exp(0.25 * noise(s)); }
static double norm_of_14(int64_t s, double *rate) { return s == 700 ? 7 : norms(s, rate); }
static double every_seventieth_norm(int64_t s, double *rate) {
    return norms(s, rate) * (s % 70 == 3 ? 14 : 1);
}
static double norm_shift(int64_t s, double *rate) {
    return norms(s, rate) * (s >= 500 ? 20 : 1);
}
static double norm_triples(int64_t s, double *rate) {
    return 0.5 + 0.01 * noise(s) + (s == 700 ? 0.9 : s == 800 ? 1.1 : 0);
}

struct spike_case {
    const char *name;
    double (*value)(int64_t step, double *rate);
    int64_t steps;
    bool norm;
    const char *events; /* "spike 412-413; shift 500"; without those that are periodic */
};

static const struct spike_case CASES[] = {
    { "a loss that falls", calm, 1000, false, "" },
    { "the same without noise", noiseless, 1000, false, "" },
    { "a constant", constant, 1000, false, "" },
    { "small noise", tiny_noise, 1000, false, "spike 600" },
    { "loud batches", loud, 5000, false, "" },
    { "skewed batches", skewed, 5000, false, "" },
    { "text learned by heart", learned, 1000, false, "" },
    { "one step", one, 1000, false, "spike 412" },
    { "one that takes 40 steps", long_one, 1000, false, "spike 412-444" },
    { "three", three, 1000, false, "spike 412-413; spike 680; spike 913" },
    { "the first steps", steep, 1000, false, "" },
    { "soon after the start", after_start, 1000, false, "spike 150" },
    { "a short run", one, 32, false, "not judged" },
    { "another level", shift, 1000, false, "shift 500" },
    { "a spike on another level", shift_then_one, 1000, false, "shift 500; spike 800" },
    { "high at the end", at_the_end, 1000, false, "open 990-1000" },
    { "too near to the end", blip_at_the_end, 1000, false, "open 998" },
    { "values that are not finite", diverges, 1000, false, "" },
    { "steps without loss", nan_within, 1000, false, "spike 412" },
    { "waves", waves, 3000, false, "" },
    { "slow waves", slow_waves, 3000, false, "" },
    { "each tenth batch", every_tenth, 1000, false, "many periodic" },
    { "each fourth batch", every_fourth, 1000, false, "" },
    { "each seventh batch", every_seventh, 1000, false, "" },
    { "each seventieth batch", every_seventieth, 1000, false, "many periodic" },
    { "each seventieth batch and a spike", cycle_and_one, 1000, false, "spike 593" },
    { "sorted text", saw, 1000, false, "" },
    { "a warm-up", warms_up, 1000, false, "" },
    { "restarts of the rate", restarts, 1500, false, "" },
    { "a spike after a restart", one_after_restart, 1500, false, "spike 600" },
    { "a restart within an event", rate_ends_it, 1000, false, "open 500-505" },
    { "no learning rate", no_rate, 1000, false, "spike 412" },
    { "gradient norms", norms, 5000, true, "" },
    { "a norm of 14 medians", norm_of_14, 1000, true, "spike 700" },
    { "a norm of 2.8 medians and one of 3.2", norm_triples, 1000, true, "spike 800" },
    { "a norm at equal distances", every_seventieth_norm, 1000, true, "many periodic" },
};

/* The records of a case, as lines. at: steps, up to a 0, whose values are 1.5 more; or NULL. */
static struct columns *records_of(const struct spike_case *c, const int64_t *at) {
    char *text = malloc((size_t)c->steps * 160 + 1);
    struct columns *out = NULL;
    struct err e = { 0 };
    size_t n = 0;
    assert_non_null(text);
    for (int64_t s = 1; s <= c->steps; s++) {
        double rate = 1e-3, value = c->value(s, &rate);
        char number[48] = "null", lr[48] = "null";
        for (const int64_t *high = at; high && *high; high++) value += *high == s ? 1.5 : 0;
        if (isfinite(value)) snprintf(number, sizeof number, "%.17g", value);
        if (isfinite(rate)) snprintf(lr, sizeof lr, "%.17g", rate);
        n += (size_t)sprintf(text + n, "{\"step\":%lld,\"loss\":%s,\"grad_norm\":%s,\"lr\":%s}\n",
                             (long long)s, c->norm ? "2" : number, c->norm ? number : "1", lr);
    }
    CHECK(columns_of_lines(text, n, "train.jsonl", &out, &e));
    free(text);
    return out;
}

static void describe(const struct spike_list *l, char out[1024]) {
    size_t used = 0, periodic = 0;
    out[0] = '\0';
    if (!l->judged) snprintf(out, 1024, "not judged");
    for (int64_t i = 0; i < l->count; i++) {
        const struct spike *s = &l->spike[i];
        char last[32] = "";
        periodic += s->periodic;
        if (s->periodic) continue;
        if (s->last != s->step && s->kind != SPIKE_SHIFT)
            snprintf(last, sizeof last, "-%lld", (long long)s->last);
        if (used < 900)
            used += (size_t)snprintf(out + used, 1024 - used, "%s%s %lld%s", used ? "; " : "",
                                     SPIKE_KINDS[s->kind], (long long)s->step, last);
    }
    assert_int_equal(l->period > 0, periodic > 0);
    if (periodic && !used) snprintf(out, 1024, "many periodic");
}

static void check_events(const struct spike_case *c, const int64_t *at) {
    struct columns *train = records_of(c, at);
    struct spikes s;
    struct err e = { 0 };
    char found[1024];
    CHECK(spikes_make(train, &s, &e));
    describe(c->norm ? &s.norm : &s.loss, found);
    if (strcmp(found, c->events) != 0)
        fail_msg("%s: \"%s\", wanted \"%s\"", c->name, found, c->events);
    spikes_free(&s);
    columns_destroy(train);
}

static void cases_have_their_events(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) check_events(&CASES[i], NULL);
}

static const int64_t FOUR_OF_NINE[] = { 200, 240, 290, 320, 470, 630, 730, 830, 930, 0 };

/* Four at least, half of all at least, to two steps or a twentieth. */
static void equal_distances_are_of_the_data(void **state) {
    static const struct { int64_t at[12]; const char *events; } ROWS[] = {
        { { 300, 405, 500, 600, 700 }, "many periodic" },
        { { 300, 406, 500, 600, 700 }, "spike 300; spike 406; spike 500; spike 600; spike 700" },
        { { 300, 320, 342, 360, 380 }, "many periodic" },
        { { 600, 700, 800, 900, 1000 }, "open 1000" },
        { { 300, 400, 500, 657 }, "spike 300; spike 400; spike 500; spike 657" },
        { { 300, 430, 600, 700, 800, 900 }, "spike 300; spike 430" },
        { { 200, 240, 290, 440, 600, 700, 800, 900 },
          "spike 200; spike 240; spike 290; spike 440" },
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        const struct spike_case c = { "a row of spikes", calm, 1000, false, ROWS[i].events };
        check_events(&c, ROWS[i].at);
    }
    const struct spike_case nine = { "four of nine", calm, 1000, false, "spike 200; spike 240; "
                                     "spike 290; spike 320; spike 470; spike 630; spike 730; "
                                     "spike 830; spike 930" };
    check_events(&nine, FOUR_OF_NINE);
}

/* A window of few steps knows the scatter badly: still no step of 500 short runs is high. */
static void short_windows_find_nothing_in_noise(void **state) {
    int64_t events = 0;
    for (int64_t run = 0; run < 500; run++) {
        struct spike_detector d = { .rule = &SPIKE_OF_LOSS };
        struct spike event;
        for (int64_t s = 1; s <= 160; s++)
            events += spike_take(&d, s, 2.5 + 0.3 * noise(1000 * run + s), 1, &event);
        events += spike_finish(&d, &event);
    }
    assert_int_equal(events, 0);
}

/* A norm that overflowed has no size. */
static void an_infinite_value_is_left_out(void **state) {
    struct spike_detector d = { .rule = &SPIKE_OF_NORM };
    struct spike event;
    for (int64_t s = 1; s <= 100; s++)
        assert_false(spike_take(&d, s, s == 50 ? (double)INFINITY : 2, 1, &event));
    assert_int_equal(d.judged, 99 - SPIKE_LEAST);
    assert_false(spike_finish(&d, &event));
}

/* An event ends with the fifth ordinary step, which are of the window then, or SPIKE_LASTS steps
 * after its first. */
static void an_event_ends_in_time(void **state) {
    struct spike_detector d = { .rule = &SPIKE_OF_LOSS };
    struct spike event;
    int64_t s = 0;
    while (s < 50) assert_false(spike_take(&d, ++s, 2, 1, &event));
    assert_false(spike_take(&d, ++s, 3, 1, &event));
    for (int i = 1; i < SPIKE_BACK; i++) assert_false(spike_take(&d, ++s, 2, 1, &event));
    assert_true(spike_take(&d, ++s, 2, 1, &event));
    assert_int_equal(d.count, 50 + SPIKE_BACK);
    for (int i = 0; i < SPIKE_LASTS; i++) assert_false(spike_take(&d, ++s, 3, 1, &event));
    assert_true(spike_take(&d, ++s, 3, 1, &event));
    assert_int_equal(event.kind, SPIKE_SHIFT);
}

/* A schedule that is computed may give the same rate with another last bit. */
static void a_last_bit_of_the_rate_is_no_warm_up(void **state) {
    struct spike_detector d = { .rule = &SPIKE_OF_LOSS };
    struct spike event;
    for (int64_t s = 1; s <= 100; s++)
        assert_false(spike_take(&d, s, 2, s % 2 ? 1e-3 : nextafter(1e-3, 1), &event));
    assert_int_equal(d.judged, 100 - SPIKE_LEAST);
}

/* A step that is not behind the last one is of other records: nothing before it counts. */
static void records_that_begin_again_have_a_new_window(void **state) {
    struct spike_detector d = { .rule = &SPIKE_OF_LOSS };
    struct spike event;
    for (int64_t s = 1; s <= 100; s++) assert_false(spike_take(&d, s, 2, 1, &event));
    assert_int_equal(d.judged, 100 - SPIKE_LEAST);
    for (int64_t s = 50; s <= 81; s++) assert_false(spike_take(&d, s, 4, 1, &event));
    assert_int_equal(d.judged, 100 - SPIKE_LEAST);
    assert_false(spike_take(&d, 81, 2, 1, &event)); /* the same step again */
    assert_int_equal(d.count, 1);
    assert_false(spike_finish(&d, &event));
    for (int rises = 0; rises < 2; rises++) { /* within an event, which no longer counts either */
        for (int64_t s = 101; s <= 150; s++) assert_false(spike_take(&d, s, 2, 1, &event));
        assert_false(spike_take(&d, 151, 3, 1, &event));
        assert_false(spike_take(&d, 101, 2, 1 + rises, &event));
        assert_false(spike_finish(&d, &event));
    }
}

static void a_run_without_records_has_none(void **state) {
    struct spikes s;
    struct err e = { 0 };
    char text[SPIKES_TEXT_CAP];
    struct columns *other = NULL;
    CHECK(spikes_make(NULL, &s, &e));
    assert_int_equal(s.loss.judged + s.norm.judged, 0);
    assert_false(spikes_text(&s, text));
    assert_string_equal(text, "");
    spikes_free(&s);
    CHECK(columns_of_lines("{\"step\":1,\"tokens\":7}\n", 22, "train.jsonl", &other, &e));
    CHECK(spikes_make(other, &s, &e));
    assert_int_equal(s.loss.judged + s.norm.judged, 0);
    spikes_free(&s);
    columns_destroy(other);
}

static void norms_alone_are_judged(void **state) {
    struct spikes s;
    struct err e = { 0 };
    char lines[2048], text[SPIKES_TEXT_CAP];
    struct columns *train = NULL;
    size_t n = 0;
    for (int i = 1; i <= SPIKE_LEAST + 8; i++)
        n += (size_t)snprintf(lines + n, sizeof lines - n, "{\"step\":%d,\"grad_norm\":1}\n", i);
    CHECK(columns_of_lines(lines, n, "train.jsonl", &train, &e));
    CHECK(spikes_make(train, &s, &e));
    assert_false(spikes_text(&s, text));
    assert_string_equal(text, "none in 8 steps");
    spikes_free(&s);
    columns_destroy(train);
}

static void text_is(double (*value)(int64_t, double *), const int64_t *at, bool norm,
                    const char *wanted, bool any) {
    const struct spike_case c = { "", value, 1000, norm, "" };
    struct columns *train = records_of(&c, at);
    struct spikes s;
    struct err e = { 0 };
    char text[SPIKES_TEXT_CAP];
    CHECK(spikes_make(train, &s, &e));
    assert_int_equal(spikes_text(&s, text), any);
    assert_string_equal(text, wanted);
    spikes_free(&s);
    columns_destroy(train);
}

static void the_text_says_what_was_found(void **state) {
    static const int64_t TWO[] = { 500, 700, 0 };
    text_is(calm, NULL, false, "none in 968 steps", false);
    text_is(one, NULL, false, "1 of the loss (step 412), the largest +1.76 nats", true);
    text_is(three, NULL, false, "3 of the loss (steps 412, 680, 913), the largest +1.82 nats",
            true);
    text_is(calm, TWO, false, "2 of the loss (steps 500, 700), the largest +1.51 nats", true);
    text_is(calm, FOUR_OF_NINE, false, "9 of the loss (steps 200, 240, 290, 320, 470, 630, ...), "
            "the largest +1.5 nats", true);
    text_is(shift, NULL, false, "the loss rose by 0.705 nats at step 500 and did not return", true);
    text_is(at_the_end, NULL, false, "the loss rose by 0.99 nats at step 990, to step 1000 at "
            "least", true);
    text_is(norm_of_14, NULL, true, "1 of the gradient norm (step 700), the largest 14 times its "
            "median", true);
    text_is(every_seventieth, NULL, false, "none in 968 steps; each 70 steps the loss is high for "
            "a moment, as if by the order of the data: not counted", false);
    text_is(every_seventieth_norm, NULL, true, "none in 968 steps; each 70 steps the gradient norm "
            "is high for a moment, as if by the order of the data: not counted", false);
    text_is(norm_shift, NULL, true, "the gradient norm rose to 34 times its median at step 500 and "
            "did not return", true);
}

static void json_has_each_event(void **state) {
    const struct spike_case c = { "", three, 1000, false, "" };
    struct columns *train = records_of(&c, NULL);
    struct spikes s;
    struct err e = { 0 };
    CHECK(spikes_make(train, &s, &e));
    json_t *object = spikes_json(&s);
    const json_t *loss = json_object_get(object, "loss");
    assert_int_equal(json_int(loss, "judged"), 968);
    assert_int_equal(json_int(loss, "count"), 3);
    assert_true(json_is_null(json_object_get(loss, "period")));
    const json_t *first = json_array_get(json_object_get(loss, "events"), 0);
    assert_int_equal(json_int(first, "step"), 412);
    assert_int_equal(json_int(first, "last"), 413);
    assert_string_equal(json_text(first, "kind", ""), "spike");
    assert_int_equal(spike_count(&s.loss, 679), 1);
    assert_int_equal(spike_count(&s.loss, 680), 2);
    assert_int_equal(spike_count_all(&s.loss, 680), 2);
    json_decref(object);
    spikes_free(&s);
    columns_destroy(train);
}

static void json_counts_no_periodic_ones(void **state) {
    const struct spike_case c = { "", every_seventieth, 1000, false, "" };
    struct columns *train = records_of(&c, NULL);
    struct spikes s;
    struct err e = { 0 };
    CHECK(spikes_make(train, &s, &e));
    json_t *object = spikes_json(&s);
    const json_t *loss = json_object_get(object, "loss"), *events = json_object_get(loss, "events");
    assert_int_equal(json_int(loss, "count"), 0);
    assert_int_equal(json_int(loss, "period"), 70);
    assert_true(json_is_true(json_object_get(json_array_get(events, 0), "periodic")));
    json_decref(object);
    spikes_free(&s);
    columns_destroy(train);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_have_their_events),
        cmocka_unit_test(equal_distances_are_of_the_data),
        cmocka_unit_test(short_windows_find_nothing_in_noise),
        cmocka_unit_test(an_infinite_value_is_left_out),
        cmocka_unit_test(an_event_ends_in_time),
        cmocka_unit_test(a_last_bit_of_the_rate_is_no_warm_up),
        cmocka_unit_test(records_that_begin_again_have_a_new_window),
        cmocka_unit_test(a_run_without_records_has_none),
        cmocka_unit_test(norms_alone_are_judged),
        cmocka_unit_test(the_text_says_what_was_found),
        cmocka_unit_test(json_has_each_event),
        cmocka_unit_test(json_counts_no_periodic_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
