/* compare: what runs read is compared by content, not by name. Initial weights and data are equal
 * if their recorded hashes are; a path without a hash on each side stays a factor. */
#include "runner/compare/compare.h"
#include "tests/bundle/compare_scene.h"

#define INIT(from) "{\"from\":\"" from "\"}"
#define MOMENTS(from) "{\"from\":\"" from "\",\"optimizer\":true}"
#define RECORD(step, weights) \
    "{\"optimizer\":{\"sha256\":\"0abc\",\"recipe_sha256\":\"0def\",\"step\":" step "," \
    "\"updates\":" step ",\"weights_sha256\":\"" weights "\"}}"

static struct run_fixture runs[6];

/* Whether these are the factors, in their order: "recipe, weights". */
static void factors_are(const struct scene *s, const char *wanted) {
    char found[256] = "";
    size_t i;
    const json_t *factor;
    json_array_foreach(json_object_get(s->c.report, "factors"), i, factor)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", i ? ", " : "",
                 json_string_value(factor));
    assert_string_equal(found, wanted);
}

static bool differs(const struct scene *s, const char *wanted) {
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(s->c.report, "differences"), i, row)
        if (!strcmp(json_text(row, "key", ""), wanted)) return true;
    return false;
}

static void begin(const char *init_a, const char *weights_a, const char *init_b,
                  const char *weights_b) {
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].init = i < 3 ? init_a : init_b;
        runs[i].weights = i < 3 ? weights_a : weights_b;
    }
}

/* No verdict, for this reason; `factors`: of all runs. */
static void no_verdict(const char *factors, const char *why) {
    struct scene s;
    compare(&s, runs, 6);
    factors_are(&s, factors);
    if (!strstr(missing_why(&s), why)) fail_msg("\"%s\" is not in \"%s\"", why, missing_why(&s));
    finish(&s);
}

static void holds(const char *factors, const char *shown) {
    struct scene s;
    compare(&s, runs, 6);
    factors_are(&s, factors);
    verdict_is(&s, "holds", "");
    if (shown) assert_true(differs(&s, shown));
    finish(&s);
}

/* ---- initial weights ------------------------------------------------------------------------- */

/* A file was replaced between the two halves of a comparison. */
static void other_weights_at_one_path_are_a_factor(void **state) {
    struct scene s;
    begin(INIT("wm"), "e1", INIT("wm"), "e2");
    no_verdict("recipe, weights", "which is BF16, in more than its recipe: weights");
    for (int i = 0; i < 6; i++) runs[i].recipe = "bf16";
    for (int i = 3; i < 6; i++) runs[i].seed = 4 + i;
    compare(&s, runs, 6);
    factors_are(&s, "weights");
    assert_string_equal(json_text(s.c.report, "verdict", ""), "one factor: weights");
    const json_t *groups = json_object_get(json_object_get(s.c.report, "statistics"), "groups");
    assert_int_equal(json_array_size(groups), 2); /* these are no repeats */
    finish(&s);
}

static void a_missing_hash_of_weights_is_no_proof(void **state) {
    begin(INIT("wm"), "e1", INIT("wm"), NULL);
    no_verdict("recipe, weights", "recipe: weights");
    begin(INIT("wm"), "e1", INIT("wm2"), NULL);
    no_verdict("init.from, recipe", "recipe: init.from");
    begin(INIT("wm"), NULL, INIT("wm2"), NULL);
    no_verdict("init.from, recipe", "recipe: init.from");
}

/* Paths that tell the weights apart are the one factor, by which --factor can ask. */
static void weights_that_follow_from_the_path_are_one_factor(void **state) {
    struct scene s;
    begin(INIT("wm"), "e1", INIT("wm2"), "e2");
    no_verdict("init.from, recipe", "recipe: init.from");
    begin(INIT("wm"), "e1", NULL, NULL); /* random ones */
    no_verdict("init.from, recipe", "recipe: init.from");
    begin(INIT("wm"), "e1", INIT("wm2"), "e2");
    for (int i = 0; i < 6; i++) runs[i].recipe = "bf16";
    compare_by(&s, runs, 6, &(struct compare_options){ .factor = "init.from=wm" });
    assert_string_equal(json_text(loss_row(&s), "factor", ""), "init.from");
    finish(&s);
}

static void equal_weights_at_two_paths_are_no_factor(void **state) {
    struct scene s;
    begin(INIT("wm"), "e1", INIT("wm2"), "e1");
    holds("recipe", "init.from");
    runs[5].weights = "e2"; /* not all of them */
    compare(&s, runs, 6);
    factors_are(&s, "recipe, weights");
    verdict_is(&s, NULL, "need 3 seeds each; here are 3 and 2");
    assert_string_equal(first_missing(&s), "it differs from A, which is BF16, in more than its "
                                           "recipe: init.from");
    finish(&s);
}

/* The hash of weights and moments leaves out the step, at which schedule and data go on. */
static void moments_count_with_their_step(void **state) {
    begin(MOMENTS("a"), "e1", MOMENTS("b"), "e1");
    for (int i = 0; i < 6; i++) runs[i].init_record = RECORD("8", "d1");
    holds("recipe", "init.from");
    for (int i = 3; i < 6; i++) runs[i].init_record = RECORD("9", "d1");
    no_verdict("init.from, recipe", "recipe: init.from");
    for (int i = 3; i < 6; i++) runs[i].init = MOMENTS("a");
    no_verdict("recipe, weights", "recipe: weights");
    for (int i = 3; i < 6; i++) runs[i].init_record = NULL; /* the step is not known */
    no_verdict("recipe, weights", "recipe: weights");
}

/* The recorded hash is of both; the weights alone are compared with those of the other side. */
static void moments_on_one_side_do_not_hide_other_weights(void **state) {
    begin(INIT("a"), "d1", MOMENTS("a"), "e1");
    for (int i = 3; i < 6; i++) runs[i].init_record = RECORD("8", "d1");
    no_verdict("init.optimizer, recipe", "recipe: init.optimizer");
    for (int i = 3; i < 6; i++) runs[i].init_record = RECORD("8", "d2");
    no_verdict("init.optimizer, recipe, weights", "recipe: init.optimizer, weights");
}

/* ---- data ----------------------------------------------------------------------------------- */

static void read_data(const char *a, const char *hash_a, const char *b, const char *hash_b) {
    two_sides(runs);
    for (int i = 0; i < 6; i++) {
        runs[i].data = i < 3 ? a : b;
        runs[i].data_hash = i < 3 ? hash_a : hash_b;
    }
}

#define TEXT(paths, more) "{\"kind\":\"text\",\"paths\":[" paths "]" more "}"
#define TOKENS(path, eval_path, parts) \
    "{\"kind\":\"tokens\",\"path\":" path ",\"paths\":null,\"eval_path\":" eval_path \
    ",\"parts\":" parts "}"

static void equal_data_at_two_paths_are_no_factor(void **state) {
    read_data(TEXT("\"a\"", ""), "d1", TEXT("\"b\"", ""), "d1");
    holds("recipe", "data.paths");
    read_data(TEXT("\"a\"", ",\"tokenizer\":\"wm\""), "d1",
              TEXT("\"a\"", ",\"tokenizer\":\"wm2\""), "d1");
    holds("recipe", "data.tokenizer");
    read_data(TOKENS("null", "null", "[{\"path\":\"a\",\"weight\":2},{\"paths\":[\"b\"]}]"), "d1",
              TOKENS("null", "null", "[{\"path\":\"c\",\"weight\":2},{\"paths\":[\"d\"]}]"), "d1");
    holds("recipe", "data.parts");
}

static void a_missing_or_another_hash_of_data_is_a_factor(void **state) {
    const char *a = TEXT("\"a\"", ""), *b = TEXT("\"b\"", "");
    read_data(a, "d1", b, "d2");
    no_verdict("data, recipe", "recipe: data");
    read_data(a, "d1", b, "");
    no_verdict("data, recipe", "recipe: data");
    read_data(a, "", b, "");
    no_verdict("data, recipe", "recipe: data");
    read_data(a, "d1", a, "d2");
    no_verdict("recipe, data", "recipe: data");
}

/* The hash is of the bytes of all files in order. It says nothing of how they are used. */
static void equal_bytes_used_in_another_way_are_a_factor(void **state) {
    static const struct { const char *a, *b; } CASES[] = {
        { TEXT("\"a\"", ",\"holdout\":0.1"), TEXT("\"b\"", ",\"holdout\":0.2") },
        { TEXT("\"a\"", ",\"field\":\"x\""), TEXT("\"b\"", ",\"field\":\"y\"") },
        { TEXT("\"a\"", ",\"eod\":\"<a>\""), TEXT("\"b\"", ",\"eod\":\"<b>\"") },
        { TEXT("\"a\"", ",\"mask\":\"document\""), TEXT("\"b\"", "") },
        { TEXT("\"a\"", ",\"tokenizer\":\"wm\""), TEXT("\"a\"", "") },
        { TEXT("\"a\",\"a\"", ""), TEXT("\"a\"", "") },
        /* the same two files: both to train, or one of them to evaluate */
        { TOKENS("\"a\"", "\"b\"", "null"), TOKENS("null", "null", "[{\"paths\":[\"a\",\"b\"]}]") },
        { TOKENS("\"a\"", "\"b\"", "null"), TOKENS("\"a\"", "null", "null") },
        { TOKENS("null", "null", "[{\"path\":\"a\",\"weight\":2},{\"path\":\"b\"}]"),
          TOKENS("null", "null", "[{\"path\":\"a\"},{\"path\":\"b\",\"weight\":2}]") },
        { TOKENS("null", "null", "[{\"paths\":[\"a\",\"b\"]},{\"path\":\"c\"}]"),
          TOKENS("null", "null", "[{\"paths\":[\"a\"]},{\"paths\":[\"b\",\"c\"]}]") },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        read_data(CASES[i].a, "d1", CASES[i].b, "d1");
        no_verdict("data, recipe", "recipe: data");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_weights_at_one_path_are_a_factor),
        cmocka_unit_test(a_missing_hash_of_weights_is_no_proof),
        cmocka_unit_test(weights_that_follow_from_the_path_are_one_factor),
        cmocka_unit_test(equal_weights_at_two_paths_are_no_factor),
        cmocka_unit_test(moments_count_with_their_step),
        cmocka_unit_test(moments_on_one_side_do_not_hide_other_weights),
        cmocka_unit_test(equal_data_at_two_paths_are_no_factor),
        cmocka_unit_test(a_missing_or_another_hash_of_data_is_a_factor),
        cmocka_unit_test(equal_bytes_used_in_another_way_are_a_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
