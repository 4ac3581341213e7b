/* Verdicts of reproductions for made-up runs with known differences, and the seed band. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runner/base/cli.h"
#include "runner/bundle/bundle.h"
#include "runner/repro/repro_verdict.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

enum { RUNS_MAX = 4 };

struct scene {
    char parent[PATH_CAP];
    struct comparison c;
};

static void scene_open(struct scene *s, const struct run_fixture *runs, int64_t count) {
    static const struct bundle_options DROP = { .threads = 1 };
    char path[RUNS_MAX][PATH_CAP];
    const char *paths[RUNS_MAX];
    scratch_directory(s->parent);
    for (int64_t i = 0; i < count; i++) {
        struct bundle_result result;
        char parent[PATH_CAP], dir[PATH_CAP], name[16];
        snprintf(name, sizeof name, "run-%d", (int)i);
        MUST(path_join(parent, s->parent, name, E));
        run_fixture_write(parent, &runs[i], dir);
        MUST(bundle_finish(dir, &DROP, &result, E));
        memcpy(path[i], result.path, PATH_CAP);
        paths[i] = path[i];
    }
    MUST(compare_runs(paths, count, NULL, &s->c, E));
}

static void scene_close(struct scene *s) {
    compare_free(&s->c);
    MUST(tree_remove(s->parent, E));
}

/* The losses of a fixture are 5.5 / sqrt(step) and a little noise: 1e-3 of them is 0.0055 at step
 * 1, 0.0021 at step 7, 0.0019 at step 8 and 0.0012 at step 20. */
static void the_verdict_follows_the_difference(void **state) {
    struct run_fixture same = run_fixture_default(), near = same, far = same, bit = same,
                       fewer = same, cut = same, recipe = same, newer = same, newer_far = same,
                       older = same, changed = same, lossless = same,
                       lossless_near = same;
    near.loss_shift = 0.001;
    lossless.lossless_step = lossless_near.lossless_step = 4;
    lossless_near.loss_shift = 0.001;
    far.loss_shift = 0.002;
    bit.flip_step = 5;
    bit.flip_tensor = 2;
    fewer.steps = 12;
    cut.steps = 12;
    cut.status = "killed";
    recipe.margin = 3;
    recipe.loss_shift = 0.001;
    newer.train = newer_far.train = ",\"shard\":\"optimizer\",\"more\":{\"a\":1}";
    newer.loss_shift = 0.001;
    newer_far.loss_shift = 0.002;
    older.train = ",\"shard\":null,\"more\":{\"a\":null}"; /* its version had the key, with no
                                                              value */
    changed = newer;
    changed.margin = 3;
    const struct {
        struct run_fixture bundle, run;
        double band; /* band at every step; 0: no band */
        enum repro_kind kind;
        int64_t first_bit, first_outside; /* steps */
        int code, code_exact;
        int64_t only_steps;
    } CASES[] = {
        { same, same, 0, REPRO_BITWISE, 0, 0, EXIT_OK, EXIT_OK, 0 },
        { same, near, 0, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 0 },
        { lossless, lossless, 0, REPRO_BITWISE, 0, 0, EXIT_OK, EXIT_OK, 0 },
        { lossless, lossless_near, 0, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 0 },
        { same, near, 1e-9, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 0 }, /* it only widens */
        { same, far, 0, REPRO_DIFFERENT, 1, 8, EXIT_DIFFERS, EXIT_DIFFERS, 0 },
        { same, far, 0.0007, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 0 },
        { same, bit, 0, REPRO_TOLERANCE, 5, 0, EXIT_OK, EXIT_DIFFERS, 0 },
        { same, fewer, 0, REPRO_INCOMPARABLE, 0, 0, EXIT_HARDWARE, EXIT_HARDWARE, 0 },
        { cut, same, 0, REPRO_BITWISE, 0, 0, EXIT_OK, EXIT_OK, 0 },
        { same, cut, 0, REPRO_BITWISE, 0, 0, EXIT_OK, EXIT_OK, cut.steps },
        { same, cut, 0, REPRO_INCOMPARABLE, 0, 0, EXIT_HARDWARE, EXIT_HARDWARE, cut.steps + 1 },
        { same, near, 0, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 3 },
        { same, recipe, 0, REPRO_INCOMPARABLE, 1, 0, EXIT_HARDWARE, EXIT_HARDWARE, 0 },
        /* A key that the bundle's version lacked gets its default. A key that had no value, or
         * that was removed, makes a different configuration. */
        { same, newer, 0, REPRO_TOLERANCE, 1, 0, EXIT_OK, EXIT_DIFFERS, 0 },
        { same, newer_far, 0, REPRO_DIFFERENT, 1, 8, EXIT_DIFFERS, EXIT_DIFFERS, 0 },
        { older, newer, 0, REPRO_INCOMPARABLE, 1, 0, EXIT_HARDWARE, EXIT_HARDWARE, 0 },
        { newer, same, 0, REPRO_INCOMPARABLE, 1, 0, EXIT_HARDWARE, EXIT_HARDWARE, 0 },
        { same, changed, 0, REPRO_INCOMPARABLE, 1, 0, EXIT_HARDWARE, EXIT_HARDWARE, 0 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct run_fixture two[2] = { CASES[i].bundle, CASES[i].run };
        double nats[20];
        struct seed_band band = { .nats = nats, .steps = CASES[i].band > 0 ? 20 : 0 };
        struct repro_verdict v;
        struct scene s;
        for (int k = 0; k < 20; k++) nats[k] = CASES[i].band;
        scene_open(&s, two, 2);
        MUST(repro_judge(&s.c, &band, CASES[i].only_steps, &v, E));
        if (v.kind != CASES[i].kind)
            fail_msg("case %zu: %s, not %s", i, repro_kind_name(v.kind),
                     repro_kind_name(CASES[i].kind));
        assert_int_equal(v.first.found ? v.first.step : 0, CASES[i].first_bit);
        assert_int_equal(v.first_outside.step, CASES[i].first_outside);
        assert_int_equal(repro_exit_code(v.kind, false), CASES[i].code);
        assert_int_equal(repro_exit_code(v.kind, true), CASES[i].code_exact);
        if (CASES[i].first_bit == 5) assert_string_equal(v.first.tensor, "layers.2.qkv.weight");
        json_t *json = repro_verdict_json(&v);
        assert_string_equal(json_text(json, "verdict", ""), repro_kind_name(v.kind));
        json_decref(json);
        repro_verdict_free(&v);
        scene_close(&s);
    }
}

/* A step that lost its loss is the worst, whatever the distance of the others. */
static void a_missing_loss_is_the_worst_distance(void **state) {
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    const struct seed_band none = { 0 };
    struct repro_verdict v;
    struct scene s;
    two[1].lossless_step = 5;
    two[1].loss_shift = 0.002;
    scene_open(&s, two, 2);
    MUST(repro_judge(&s.c, &none, 0, &v, E));
    assert_int_equal(v.kind, REPRO_DIFFERENT);
    assert_int_equal(v.first_outside.step, 5);
    assert_int_equal(v.worst.step, 5);
    repro_verdict_free(&v);
    scene_close(&s);
}

/* A band that came with the bundle widens the tolerance only where bits may differ. */
static void a_band_that_was_found_proves_no_equal_inputs(void **state) {
    for (int i = 0; i < 4; i++) {
        bool promised = i % 2 == 0, named = i >= 2, counts = named || !promised;
        struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
        double nats[20];
        struct seed_band band = { .nats = nats, .steps = 20, .found = !named, .path = "x" };
        struct repro_verdict v;
        struct scene s;
        for (int k = 0; k < 20; k++) nats[k] = 0.0007;
        two[1].loss_shift = 0.002;
        if (!promised) two[1].code = "b0";
        scene_open(&s, two, 2);
        MUST(repro_judge(&s.c, &band, 0, &v, E));
        assert_int_equal(json_array_size(v.reasons) == 0, promised);
        assert_int_equal(v.band_counts, counts);
        assert_int_equal(v.kind, counts ? REPRO_TOLERANCE : REPRO_DIFFERENT);
        json_t *json = repro_verdict_json(&v);
        assert_string_equal(json_text(json, "band", ""), "x");
        assert_int_equal(json_is_true(json_object_get(json, "band_counts")), counts);
        json_decref(json);
        repro_verdict_free(&v);
        scene_close(&s);
    }
}

/* Two runs on CPUs must have equal bits, even if GPU facts or the CPUs differ, but not if the
 * sources differ. */
static void reasons_are_the_broken_conditions(void **state) {
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    two[1].train = ",\"new\":1";
    struct seed_band none = { 0 };
    struct repro_verdict v;
    struct scene s;
    scene_open(&s, two, 2);
    json_t *rows = json_object_get(s.c.report, "differences");
    static const char *const ROWS[] = {
        "{\"section\":\"machine\",\"key\":\"cpu.model\",\"factor\":\"cpu\","
        "\"values\":[\"a\",\"b\"]}",
        "{\"section\":\"machine\",\"key\":\"gpu.product_name\",\"factor\":\"gpu\","
        "\"values\":[null,\"NVIDIA H200\"]}",
        "{\"section\":\"run\",\"key\":\"parent\",\"factor\":null,\"values\":[null,\"x\"]}",
        "{\"section\":\"inputs\",\"key\":\"code\",\"factor\":\"code\",\"values\":[\"bb\",\"cc\"]}",
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++)
        json_array_append_new(rows, json_loads(ROWS[i], 0, NULL));
    MUST(repro_judge(&s.c, &none, 0, &v, E));
    assert_int_equal(v.kind, REPRO_BITWISE);
    assert_int_equal(json_array_size(v.reasons), 2);
    assert_string_equal(json_string_value(json_array_get(v.reasons, 0)),
                        "config.train.new is newer than the bundle; its default is 1");
    assert_string_equal(json_string_value(json_array_get(v.reasons, 1)),
                        "code: inputs.code was bb and is cc");
    repro_verdict_free(&v);
    scene_close(&s);
}

/* ---- the band -------------------------------------------------------------------------------- */

static void the_band_is_the_spread_over_seeds(void **state) {
    struct run_fixture f[3] = { run_fixture_default(), run_fixture_default(),
                                run_fixture_default() };
    char path[PATH_CAP];
    struct seed_band band;
    json_t *json = NULL;
    struct scene s;
    for (int i = 0; i < 3; i++) f[i].seed = i + 1;
    f[2].loss_shift = 0.3; /* large compared with the noise */
    scene_open(&s, f, 3);
    MUST(seed_band_make(&s.c, &json, E));
    MUST(path_join(path, s.parent, "band.json", E));
    MUST(json_file_write(path, json, E));
    const struct columns *train = s.c.run[0].columns.of[STREAM_TRAIN];
    MUST(seed_band_read(path, s.c.run[0].identity, train, &band, E));
    assert_string_equal(band.path, path);
    assert_int_equal(band.steps, 20);
    for (int64_t step = 1; step <= 20; step++) /* of {0, 0, 0.3}: 0.3 / sqrt(3) */
        assert_true(seed_band_at(&band, step) > 0.165 && seed_band_at(&band, step) < 0.181);
    assert_true(seed_band_at(&band, 0) == 0 && seed_band_at(&band, 21) == 0);
    for (int k = 0; k < 20; k++) band.nats[k] = k + 1; /* each step has its own */
    for (int64_t step = 1; step <= 20; step++)
        assert_true(seed_band_at(&band, step) == (double)step);
    seed_band_free(&band);
    MUST_FAIL(ERR_CONFIG, "is the seed band of bundle",
              seed_band_read(path, s.c.run[1].identity, train, &band, E));
    static const struct { const char *band, *words; enum status st; } FILES[] = {
        { "[0.1,-1]", "the band of step 2 is no number", ERR_FORMAT },
        { "[\"0.1\"]", "the band of step 1 is no number", ERR_FORMAT },
        { "[]", "is not a seed band", ERR_FORMAT },
        { "[0.1,0]", "", OK }, /* all seeds have one loss there */
        { "[0.4,0.4,0.4,0.4,0.4,0.4,0.4,0.4,0.4,0.4]", "", OK }, /* 0.13 of the losses */
    };
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        put_file(s.parent, "band.json", "{\"schema\":\"fp8lab.seed_band/1\",\"reference\":\"%s\","
                 "\"band\":%s}", s.c.run[0].identity, FILES[i].band);
        MUST_FAIL(FILES[i].st, FILES[i].words,
                  seed_band_read(path, s.c.run[0].identity, train, &band, E));
        seed_band_free(&band);
    }
    /* The losses go from 5.5 at step 1 to 1.2 at step 20. */
    put_file(s.parent, "band.json", "{\"schema\":\"fp8lab.seed_band/1\",\"reference\":\"%s\","
             "\"band\":[3.0]}", s.c.run[0].identity);
    MUST_FAIL(ERR_CONFIG, "band.json: the band of step 1 is 3, above 0.5 of the loss, 5.5",
              seed_band_read(path, s.c.run[0].identity, train, &band, E));
    static const char HALF[] = "0.5,0.5,0.5,0.5,0.5", MORE[] = "0.8,0.8,0.8,0.8,0.8";
    put_file(s.parent, "band.json", "{\"schema\":\"fp8lab.seed_band/1\",\"reference\":\"%s\","
             "\"band\":[%s,%s,%s,%s]}", s.c.run[0].identity, MORE, HALF, HALF, HALF);
    MUST_FAIL(ERR_CONFIG, "band.json: the band is 0.2",
              seed_band_read(path, s.c.run[0].identity, train, &band, E));
    json_decref(json);
    scene_close(&s);
}

/* A step of the reference without a loss says nothing of the band's width. */
static void a_step_without_loss_judges_no_band(void **state) {
    struct run_fixture two[2] = { run_fixture_default(), run_fixture_default() };
    char path[PATH_CAP];
    struct seed_band band;
    struct scene s;
    two[0].lossless_step = 4;
    scene_open(&s, two, 2);
    const struct run_view *v = &s.c.run[0];
    MUST(path_join(path, s.parent, "band.json", E));
    put_file(s.parent, "band.json", "{\"schema\":\"fp8lab.seed_band/1\",\"reference\":\"%s\","
             "\"band\":[0.1,0.1,0.1,0.1]}", v->identity);
    MUST(seed_band_read(path, v->identity, v->columns.of[STREAM_TRAIN], &band, E));
    assert_int_equal(band.steps, 4);
    seed_band_free(&band);
    scene_close(&s);
}

/* The variance of three losses at a step, from their distances. */
static double variance_of(const struct comparison *c, int64_t step) {
    double x[3];
    for (int i = 0; i < 3; i++) {
        const struct columns *train = c->run[i].columns.of[STREAM_TRAIN];
        x[i] = column_value(columns_scalar(train, "loss"), step - 1, 0);
    }
    return (pow(x[0] - x[1], 2) + pow(x[1] - x[2], 2) + pow(x[2] - x[0], 2)) / 6;
}

/* Each step has the mean variance of the eleven steps around it, fewer at the ends. */
static void the_band_is_pooled(void **state) {
    static const int64_t ENDS[] = { 1, 20, 0 };
    struct run_fixture f[3] = { run_fixture_default(), run_fixture_default(),
                                run_fixture_default() };
    json_t *json = NULL;
    struct scene s;
    for (int i = 0; i < 3; i++) f[i].seed = i + 1;
    f[1].loss_late = 0.4;
    f[1].choices = "dd"; /* another table is no other experiment */
    f[2].spikes = ENDS;
    scene_open(&s, f, 3);
    MUST(seed_band_make(&s.c, &json, E));
    const json_t *band = json_object_get(json, "band");
    assert_int_equal(json_array_size(band), 20);
    for (int64_t step = 1; step <= 20; step++) {
        int64_t from = step > 6 ? step - 5 : 1, to = step < 15 ? step + 5 : 20;
        double sum = 0, nats = json_number_value(json_array_get(band, (size_t)step - 1));
        for (int64_t k = from; k <= to; k++) sum += variance_of(&s.c, k);
        double wanted = sqrt(sum / (double)(to - from + 1));
        if (!(fabs(nats / wanted - 1) < 5.1e-4)) /* four digits */
            fail_msg("step %d: %g, not %g", (int)step, nats, wanted);
    }
    json_decref(json);
    scene_close(&s);
}

static void only_repeats_make_a_band(void **state) {
    struct run_fixture a = run_fixture_default(), other_seed = a, third = a, recipe = a,
                       shorter = a, cut = a, lossless = a;
    third.seed = cut.seed = lossless.seed = 3;
    cut.steps = 12;
    cut.planned = 20;
    lossless.lossless_step = 1;
    other_seed.seed = 2;
    recipe.seed = 3;
    recipe.margin = 1;
    shorter.seed = 3;
    shorter.steps = 10;
    const struct { struct run_fixture run[4]; int64_t count; const char *words; } CASES[] = {
        { { a, other_seed }, 2, "at least 3 runs" },
        { { a, other_seed, other_seed }, 3, "at least 3 runs" },
        { { a, other_seed, recipe }, 3, "recipe.margin" },
        { { a, other_seed, shorter }, 3, "train.steps" },
        { { a, other_seed, a, third }, 4, "4 runs with 3 seeds" },
        { { a, other_seed, cut }, 3, "has 12 steps, the first run 20" },
        { { a, other_seed, lossless }, 3, "has no loss at step 1" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct scene s;
        json_t *json = NULL;
        scene_open(&s, CASES[i].run, CASES[i].count);
        MUST_FAIL(ERR_CONFIG, CASES[i].words, seed_band_make(&s.c, &json, E));
        scene_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_follows_the_difference),
        cmocka_unit_test(reasons_are_the_broken_conditions),
        cmocka_unit_test(a_missing_loss_is_the_worst_distance),
        cmocka_unit_test(a_band_that_was_found_proves_no_equal_inputs),
        cmocka_unit_test(the_band_is_the_spread_over_seeds),
        cmocka_unit_test(a_step_without_loss_judges_no_band),
        cmocka_unit_test(the_band_is_pooled),
        cmocka_unit_test(only_repeats_make_a_band),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
