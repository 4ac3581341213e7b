/* Runs of 100,000 steps: closed, verified and compared. Two of them differ in one bit, at step
 * 77,777, which compare must find. */
#include <stdio.h>
#include <stdlib.h>

#include "runner/bundle/bundle.h"
#include "runner/bundle/unpack.h"
#include "runner/compare/compare.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

enum { STEPS = 100000, FLIPPED = 77777, RUNS = 3 };

static const struct bundle_options DROP = { .checkpoints = BUNDLE_CHECKPOINTS_NONE, .threads = 2 };

struct scene {
    char parent[PATH_CAP], path[RUNS][PATH_CAP], results[RUNS][SHA256_HEX];
};

/* Run 1 repeats run 0; run 2 differs in the lowest bit of one amax. */
static int open_scene(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    assert_non_null(s);
    scratch_directory(s->parent);
    for (int i = 0; i < RUNS; i++) {
        struct run_fixture f = run_fixture_default();
        struct bundle_result result;
        struct unpack_report report;
        char parent[PATH_CAP], dir[PATH_CAP];
        f.steps = STEPS;
        f.flip_amax_step = i == 2 ? FLIPPED : 0;
        snprintf(parent, sizeof parent, "%.4000s/%d", s->parent, i);
        run_fixture_write(parent, &f, dir);
        MUST(bundle_finish(dir, &DROP, &result, E));
        MUST(bundle_unpack(result.path, NULL, &BUNDLE_LIMITS, &report, E));
        assert_string_equal(report.identity, result.identity);
        assert_int_equal(report.bytes, result.payload_bytes);
        strcpy(s->path[i], result.path);
        strcpy(s->results[i], result.results_sha256);
    }
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    struct scene *s = *state;
    MUST(tree_remove(s->parent, E));
    free(s);
    return 0;
}

static json_t *compare(const struct scene *s, int a, int b, struct comparison *c) {
    const char *paths[] = { s->path[a], s->path[b] };
    MUST(compare_runs(paths, 2, NULL, c, E));
    json_t *row = json_array_get(json_object_get(c->report, "divergences"), 0);
    assert_int_equal(json_integer_value(json_object_get(row, "common_steps")), STEPS);
    return row;
}

static void the_same_run_again_is_equal(void **state) {
    const struct scene *s = *state;
    struct comparison c;
    json_t *row = compare(s, 0, 1, &c);
    assert_true(c.equal);
    assert_true(json_is_null(json_object_get(row, "step")));
    assert_string_equal(s->results[0], s->results[1]);
    const json_t *run = json_array_get(json_object_get(c.report, "runs"), 1);
    assert_int_equal(json_integer_value(json_object_get(run, "steps")), STEPS);
    assert_int_equal(json_integer_value(json_object_get(run, "steady_to")), STEPS);
    compare_free(&c);
}

static void one_bit_is_found(void **state) {
    const struct scene *s = *state;
    struct comparison c;
    json_t *row = compare(s, 0, 2, &c);
    assert_false(c.equal);
    assert_int_equal(json_integer_value(json_object_get(row, "step")), FLIPPED);
    assert_string_equal(json_text(row, "stream", ""), "fp8.amax");
    assert_string_equal(json_text(row, "tensor", ""), "layers.0.qkv.w");
    unsigned long a = strtoul(json_text(row, "a_bits", ""), NULL, 16);
    unsigned long b = strtoul(json_text(row, "b_bits", ""), NULL, 16);
    assert_int_equal(a ^ b, 1);
    assert_string_not_equal(s->results[0], s->results[2]);
    compare_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_run_again_is_equal),
        cmocka_unit_test(one_bit_is_found),
    };
    return cmocka_run_group_tests(tests, open_scene, close_scene);
}
