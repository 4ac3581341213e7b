/* What runs at hand say about the loss of a recipe, on made-up runs (runner/advise/README.md). */
#include "tests/bundle/compare_scene.h"

#include "runner/advise/evidence.h"

static const char MODEL[] = "{\"layers\":2,\"width\":64}";

/* Writes the runs into one folder and asks about the configuration of run `of`, in which sections
 * are replaced by those of `other`, and whose weights have the hash `weights`. */
static void ask_of(const struct run_fixture *runs, int64_t count, int64_t of, const char *other,
                   const char *weights, bool damaged, struct loss_evidence *out,
                   struct evidence *all) {
    struct err e = { 0 };
    struct run_view view;
    char parent[PATH_CAP], dir[PATH_CAP];
    scratch_directory(parent);
    for (int64_t i = 0; i < count; i++) {
        struct run_fixture run = runs[i];
        char id[64];
        snprintf(id, sizeof id, "20261121T0248%02dZ-tiny-0badcafe", (int)i);
        run.id = id;
        run.model = MODEL;
        run_fixture_write(parent, &run, dir);
        if (i == of) CHECK(run_view_load(dir, RUN_VIEW_INPUTS, &view, &e));
    }
    if (damaged) put_file(parent, "20261121T030000Z-broken-0badcafe.tar.zst", "no archive");
    if (other) {
        json_t *changes = json_loads(other, 0, NULL);
        assert_int_equal(json_object_update(view.resolved, changes), 0);
        json_decref(changes);
    }
    CHECK(evidence_gather(parent, view.resolved, all, &e));
    strcpy(all->weights, weights);
    evidence_of(all, view.resolved, out);
    run_view_free(&view);
    CHECK(tree_remove(parent, &e));
}

static void ask(const struct run_fixture *runs, int64_t count, int64_t of, const char *other,
                bool damaged, struct loss_evidence *out, struct evidence *all) {
    ask_of(runs, count, of, other, "", damaged, out, all);
}

static void finding_is(const struct run_fixture *runs, int64_t count, int64_t of,
                       enum loss_finding wanted) {
    struct loss_evidence loss;
    struct evidence all;
    ask(runs, count, of, NULL, false, &loss, &all);
    if (loss.finding != wanted)
        fail_msg("%s, not %s: %s %s", evidence_name(loss.finding), evidence_name(wanted), loss.why,
                 all.problem);
    evidence_free(&all);
}

static void the_verdict_of_compare_is_the_evidence(void **state) {
    struct run_fixture runs[6];
    two_sides(runs);
    finding_is(runs, 6, 3, EVIDENCE_HOLDS);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = 0.5;
    finding_is(runs, 6, 3, EVIDENCE_FAILS);
    finding_is(runs, 5, 3, EVIDENCE_NONE); /* two seeds give no verdict */
}

/* Runs from weights that were replaced in between are of two beginnings. */
static void runs_from_other_weights_say_nothing(void **state) {
    struct run_fixture runs[6];
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].init = "{\"from\":\"wm\"}";
    for (int i = 0; i < 6; i++) runs[i].weights = "e1";
    finding_is(runs, 6, 3, EVIDENCE_HOLDS);
    for (int i = 3; i < 6; i++) runs[i].weights = "e2";
    finding_is(runs, 6, 3, EVIDENCE_NONE);
}

/* Whether the script begins with the runs' weights is a matter of content, not of the path. */
static void the_weights_of_a_script_count_by_content(void **state) {
    static const struct { const char *of_runs, *init, *weights; bool other; } CASES[] = {
        { "e1", NULL, "e1", false },                 /* at the path of the runs */
        { "e1", NULL, "e2", true },                  /* there, but replaced since */
        { "e1", "{\"from\":\"moved\"}", "e1", false }, /* at another path */
        { "e1", "{\"from\":\"moved\"}", "e2", true },
        { "e1", "{\"from\":\"moved\",\"optimizer\":true}", "e1", true }, /* used otherwise */
        { "e1", NULL, "", false },                   /* not known: by the path */
        { "e1", "{\"from\":\"moved\"}", "", true },
        { NULL, NULL, "e1", false },
        { NULL, "{\"from\":\"moved\"}", "e1", true },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct run_fixture runs[6];
        struct loss_evidence loss;
        struct evidence all;
        char other[128] = "{}";
        two_sides(runs);
        for (int i = 0; i < 6; i++) runs[i].init = "{\"from\":\"wm\"}";
        for (int i = 0; i < 6; i++) runs[i].weights = CASES[k].of_runs;
        if (CASES[k].init) snprintf(other, sizeof other, "{\"init\":%s}", CASES[k].init);
        ask_of(runs, 6, 3, other, CASES[k].weights, false, &loss, &all);
        assert_int_equal(loss.finding, EVIDENCE_HOLDS);
        assert_int_equal(evidence_has_weights(&all), CASES[k].of_runs != NULL);
        if (loss.other_training != CASES[k].other) fail_msg("case %d", (int)k);
        evidence_free(&all);
    }
}

static void other_options_models_and_open_runs_say_nothing(void **state) {
    struct run_fixture runs[7];
    struct loss_evidence loss;
    struct evidence all;
    two_sides(runs);
    runs[6] = runs[3];
    runs[6].margin = 1;
    runs[6].seed = 9;
    finding_is(runs, 7, 6, EVIDENCE_NONE);
    ask(runs, 6, 3, "{\"model\":{\"layers\":3,\"width\":64}}", true, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_NONE);
    assert_int_equal(all.runs, 0);
    assert_int_equal(json_array_size(all.unreadable), 1);
    evidence_free(&all);
    ask(runs, 6, 3, "{\"attention\":{\"precision\":\"bf16\"}}", false, &loss, &all); /* as absent */
    assert_int_equal(loss.finding, EVIDENCE_HOLDS);
    evidence_free(&all);
    ask(runs, 6, 3, "{\"attention\":{\"precision\":\"fp8\"}}", false, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_NONE); /* of this recipe without FP8 attention */
    assert_string_equal(loss.baseline, "");
    evidence_free(&all);
    runs[5].status = "running";
    finding_is(runs, 6, 3, EVIDENCE_NONE);
    two_sides(runs);
    runs[6] = runs[3]; /* a run without evaluations beside three with them */
    runs[6].seed = 9;
    runs[6].steps = 5;
    finding_is(runs, 7, 3, EVIDENCE_HOLDS);
}

/* Ctrl-C, a lost host or a full disk ends a run that can be resumed: a comparison at its few tokens
 * would hide that the others do not hold. A value that is not finite is an end. */
static void a_run_that_can_be_resumed_says_nothing(void **state) {
    static const char *const STOPPED[] = { "interrupted", "killed", "running", "paused" };
    struct run_fixture runs[7];
    two_sides(runs);
    for (int i = 0; i < 7; i++) {
        if (i < 6) runs[i].steps = runs[i].planned = 40;
        if (i >= 3 && i < 6) runs[i].loss_late = 0.5;
    }
    finding_is(runs, 6, 3, EVIDENCE_FAILS);
    runs[6] = runs[3];
    runs[6].seed = 9;
    runs[6].steps = 10;
    for (size_t i = 0; i < sizeof STOPPED / sizeof *STOPPED; i++) {
        runs[6].status = STOPPED[i];
        finding_is(runs, 7, 3, EVIDENCE_FAILS);
    }
    runs[6].status = "failed";
    runs[6].error = "ERR_PEER";
    finding_is(runs, 7, 3, EVIDENCE_FAILS);
    two_sides(runs);
    runs[6].planned = 20;
    runs[6].error = NULL; /* ERR_NUMERIC */
    finding_is(runs, 7, 3, EVIDENCE_FAILS);
    runs[6].error = "ERR_IO";
    finding_is(runs, 7, 3, EVIDENCE_HOLDS);
}

/* A time limit ends a run for good. It has no say in where the others are compared either. */
static void a_short_run_hides_no_loss_that_failed(void **state) {
    struct run_fixture runs[7];
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].steps = runs[i].planned = 40;
        if (i >= 3) runs[i].loss_late = 0.5;
    }
    runs[6] = runs[3];
    runs[6].seed = 9;
    runs[6].steps = 11;
    runs[6].status = "time_limit";
    finding_is(runs, 7, 3, EVIDENCE_FAILS);
}

/* Fine-tuning starts near its end: that its loss holds says little of a run from random weights. */
static void fine_tuning_says_nothing_of_random_weights(void **state) {
    struct run_fixture runs[6];
    struct loss_evidence loss;
    struct evidence all;
    two_sides(runs);
    for (int i = 0; i < 6; i++) runs[i].init = "{\"from\":\"a\"}";
    finding_is(runs, 6, 3, EVIDENCE_HOLDS);
    ask(runs, 6, 3, "{\"init\":null}", false, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_NONE);
    assert_int_equal(all.runs, 0);
    evidence_free(&all);
    for (int i = 0; i < 6; i++) runs[i].init = NULL;
    ask(runs, 6, 3, "{\"init\":{\"from\":\"a\"}}", false, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_HOLDS);
    assert_true(loss.other_training);
    evidence_free(&all);
}

/* Changes the run's records, which lie behind the inputs. Its manifest then no longer fits. */
static void damage(const char *dir) {
    struct err e = { 0 };
    struct run_view view;
    put_file(dir, "data/metrics/eval.jsonl", "{\"step\":10,\"loss\":1}\n");
    CHECK(run_view_load(dir, RUN_VIEW_INPUTS, &view, &e));
    run_view_free(&view);
    assert_int_not_equal(run_view_load(dir, RUN_VIEW_FULL, &view, &e), OK);
}

/* Writes the runs with their manifests, as an unpacked bundle has them, and damages those with a
 * bit in `bad`. */
static void write_checked(char parent[PATH_CAP], const struct run_fixture *runs, int64_t count,
                          unsigned bad) {
    static const struct bundle_options KEEP = { .keep_directory = true, .threads = 1 };
    struct err e = { 0 };
    scratch_directory(parent);
    for (int64_t i = 0; i < count; i++) {
        struct run_fixture run = runs[i];
        struct bundle_result result;
        char id[64], dir[PATH_CAP];
        snprintf(id, sizeof id, "20261121T0248%02dZ-tiny-0badcafe", (int)i);
        run.id = id;
        run.model = MODEL;
        run_fixture_write(parent, &run, dir);
        CHECK(bundle_finish(dir, &KEEP, &result, &e));
        CHECK(tree_remove(result.path, &e));
        if (bad & 1u << i) damage(dir);
    }
}

/* One damaged bundle must not bring back a recipe whose loss does not hold. */
static void a_damaged_bundle_hides_no_other_run(void **state) {
    static const struct {
        unsigned bad;
        int64_t unreadable, runs;
        enum loss_finding finding;
    } CASES[] = { { 0x40, 1, 6, EVIDENCE_FAILS }, { 0x41, 2, 5, EVIDENCE_NONE },
                  { 0x7e, 6, 1, EVIDENCE_NONE } };
    struct err e = { 0 };
    struct run_fixture runs[7];
    two_sides(runs);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = 0.5;
    runs[6] = runs[5];
    runs[6].seed = 9;
    json_t *model = json_loads(MODEL, 0, NULL);
    json_t *config = json_pack("{s:o,s:{s:s,s:i}}", "model", model, "recipe", "kind",
                               "fp8.delayed", "margin", 0);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct loss_evidence loss;
        struct evidence all;
        char parent[PATH_CAP];
        write_checked(parent, runs, 7, CASES[i].bad);
        CHECK(evidence_gather(parent, config, &all, &e));
        evidence_of(&all, config, &loss);
        assert_int_equal(json_array_size(all.unreadable), CASES[i].unreadable);
        assert_non_null(strstr(json_string_value(json_array_get(all.unreadable, 0)), parent));
        assert_int_equal(all.runs, CASES[i].runs);
        assert_int_equal(loss.finding, CASES[i].finding);
        assert_string_equal(all.problem, "");
        evidence_free(&all);
        CHECK(tree_remove(parent, &e));
    }
    json_decref(config);
}

/* BF16 defines no FP8 attention: its baseline is the same recipe with attention in BF16. */
static void fp8_attention_is_judged_within_its_recipe(void **state) {
    struct run_fixture runs[9];
    struct loss_evidence loss;
    struct evidence all;
    for (int i = 0; i < 9; i++) {
        runs[i] = run_fixture_default();
        runs[i].recipe = i < 3 ? "bf16" : "fp8.delayed";
        runs[i].seed = 1 + i % 3;
        runs[i].attention = i < 6 ? "{\"precision\":\"bf16\"}" : "{\"precision\":\"fp8\"}";
        runs[i].loss_shift = i < 6 ? 0 : 0.001;
    }
    ask(runs, 9, 6, NULL, false, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_HOLDS);
    assert_string_equal(loss.baseline, "fp8.delayed with attention in BF16");
    evidence_free(&all);
    ask(runs, 9, 3, NULL, false, &loss, &all); /* of attention in BF16 */
    assert_int_equal(loss.finding, EVIDENCE_HOLDS);
    assert_string_equal(loss.baseline, "bf16");
    assert_int_equal(all.runs, 6);
    evidence_free(&all);
    for (int i = 6; i < 9; i++) runs[i].loss_shift = 0.5;
    finding_is(runs, 9, 6, EVIDENCE_FAILS);
    finding_is(runs, 9, 3, EVIDENCE_HOLDS);
    for (int i = 3; i < 6; i++) runs[i].loss_shift = 0.5; /* fails already in BF16 */
    ask(runs, 9, 6, NULL, false, &loss, &all);
    assert_int_equal(loss.finding, EVIDENCE_FAILS);
    assert_string_equal(loss.baseline, "bf16");
    evidence_free(&all);
    for (int i = 3; i < 6; i++) runs[i].attention = NULL; /* as "bf16" */
    for (int i = 3; i < 9; i++) runs[i].loss_shift = i < 6 ? 0 : 0.001;
    finding_is(runs, 9, 6, EVIDENCE_HOLDS);
}

/* What the verdict comes from. Of equal verdicts that of the script's own training counts. */
static void evidence_names_its_training(void **state) {
    struct run_fixture runs[12];
    struct loss_evidence loss;
    struct evidence all;
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[6 + i] = runs[i];
        runs[i].train = ",\"global_batch\":2";
    }
    ask(runs, 12, 9, NULL, false, &loss, &all); /* 0 to 5 come first */
    assert_int_equal(loss.finding, EVIDENCE_HOLDS);
    assert_false(loss.other_data || loss.other_training);
    assert_float_equal(loss.tokens, 20 * 2048, 0);
    evidence_free(&all);
    ask(runs, 12, 9, "{\"train\":{\"seed\":7,\"steps\":20},\"data\":{\"kind\":\"x\"}}", false,
        &loss, &all);
    assert_true(loss.other_data && !loss.other_training);
    evidence_free(&all);
    ask(runs, 12, 9, "{\"train\":{\"seed\":1,\"steps\":21}}", false, &loss, &all);
    assert_true(!loss.other_data && loss.other_training);
    evidence_free(&all);
}

static void the_worst_of_several_verdicts_counts(void **state) {
    static const char ROWS[] =
        "[{\"config\":{\"recipe\":1},\"verdict\":\"holds\",\"seeds\":3},"
        "{\"config\":{\"recipe\":1},\"verdict\":\"does not hold\",\"seeds\":4,\"relative\":0.02,"
        "\"high\":0.03},{\"config\":{\"recipe\":1},\"verdict\":\"undecided\",\"seeds\":5},"
        "{\"config\":{\"recipe\":2},\"verdict\":null}]";
    struct evidence all = { .rows = json_loads(ROWS, 0, NULL) };
    struct loss_evidence loss;
    json_t *config = json_pack("{s:i}", "recipe", 1);
    evidence_of(&all, config, &loss);
    assert_int_equal(loss.finding, EVIDENCE_FAILS);
    assert_int_equal(loss.seeds, 4);
    assert_true(loss.high > 0.029);
    json_object_set_new(config, "recipe", json_integer(2));
    evidence_of(&all, config, &loss);
    assert_int_equal(loss.finding, EVIDENCE_NONE);
    json_decref(config);
    evidence_free(&all);
}

/* Of equal verdicts the one on the script's own data counts, then that of its training. */
static void the_nearest_of_equal_verdicts_counts(void **state) {
#define ROW(data, steps, seeds)                                                               \
    "{\"config\":{\"recipe\":1,\"data\":" data ",\"train\":{\"seed\":1,\"time_limit_s\":" seeds  \
    ",\"steps\":" steps "}},\"verdict\":\"holds\",\"seeds\":" seeds "}"
    static const char *const ROWS[] = {
        "[" ROW("9", "1", "3") "," ROW("2", "8", "4") "," ROW("9", "8", "5") "]",
        "[" ROW("9", "8", "5") "," ROW("2", "8", "4") "," ROW("9", "1", "3") "]",
        "[" ROW("9", "8", "5") "," ROW("2", "1", "4") "," ROW("2", "8", "3") "]",
    };
#undef ROW
    json_t *config = json_loads("{\"recipe\":1,\"data\":2,\"train\":{\"seed\":7,\"steps\":1}}", 0,
                                NULL);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct evidence all = { .rows = json_loads(ROWS[i], 0, NULL) };
        struct loss_evidence loss;
        evidence_of(&all, config, &loss);
        assert_int_equal(loss.seeds, 4);
        assert_false(loss.other_data);
        assert_int_equal(loss.other_training, i < 2);
        evidence_free(&all);
    }
    json_decref(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_of_compare_is_the_evidence),
        cmocka_unit_test(runs_from_other_weights_say_nothing),
        cmocka_unit_test(the_weights_of_a_script_count_by_content),
        cmocka_unit_test(other_options_models_and_open_runs_say_nothing),
        cmocka_unit_test(a_run_that_can_be_resumed_says_nothing),
        cmocka_unit_test(a_short_run_hides_no_loss_that_failed),
        cmocka_unit_test(fine_tuning_says_nothing_of_random_weights),
        cmocka_unit_test(a_damaged_bundle_hides_no_other_run),
        cmocka_unit_test(fp8_attention_is_judged_within_its_recipe),
        cmocka_unit_test(evidence_names_its_training),
        cmocka_unit_test(the_worst_of_several_verdicts_counts),
        cmocka_unit_test(the_nearest_of_equal_verdicts_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
