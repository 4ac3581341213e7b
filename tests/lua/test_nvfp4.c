/* The policies of experiments/lib/nvfp4.lua, by the numbers of their sources, and the suite that
 * uses them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "runner/base/run_files.h"
#include "runner/script/resolve.h"
#include "tests/support/run_fixture.h"

static void resolve(const char *path, struct resolution *out) {
    struct err e = { 0 };
    struct resolve_options options = { .path = path };
    if (resolve_experiment(&options, out, &e) != OK)
        fail_msg("%s: %s\n%s", path, e.text, out->log ? out->log : "");
}

static const json_t *recipe_of(const struct resolution *r, int64_t i, const char *key) {
    return json_object_get(json_object_get(r->runs[i].config_json, "recipe"), key);
}

static void policies_are_those_published(void **state) {
    static const struct { const char *call; int first, last, after; bool hadamard; } CASES[] = {
        { "last(16)", 0, 3, 0, true },
        { "last(40)", 0, 6, 0, true },
        { "ends(40)", 2, 6, 0, true },
        { "forward(16, 900)", 0, 3, 900, true },
        { "torchtitan(32)", 0, 5, 0, true },
        { "megatron_bridge(32)", 0, 4, 0, true },
        { "mlperf(32)", 0, 0, 0, false },
        { "last(16, { hadamard = false })", 0, 3, 0, false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char folder[PATH_CAP], path[PATH_CAP];
        struct resolution r;
        scratch_directory(folder);
        put_file(folder, "x.lua",
                 "return experiment { name = 'x', data = synthetic, train = { steps = 1000, "
                 "global_batch = 8 }, model = require('models.tiny').llama { layers = 64 }, "
                 "recipe = require('nvfp4').%s }", CASES[i].call);
        assert_int_equal(path_join(path, folder, "x.lua", NULL), OK);
        resolve(path, &r);
        assert_string_equal(json_string_value(recipe_of(&r, 0, "kind")), "fp4.nvfp4");
        assert_int_equal(json_integer_value(recipe_of(&r, 0, "first_bf16")), CASES[i].first);
        assert_int_equal(json_integer_value(recipe_of(&r, 0, "last_bf16")), CASES[i].last);
        assert_int_equal(json_integer_value(recipe_of(&r, 0, "forward_bf16_after")),
                         CASES[i].after);
        assert_int_equal(json_is_true(recipe_of(&r, 0, "hadamard")), CASES[i].hadamard);
        resolution_destroy(&r);
        assert_int_equal(tree_remove(folder, NULL), OK);
    }
}

/* Four seeds of seven rows; forward changes where the learning rate begins to fall. */
static void the_suite_has_its_rows(void **state) {
    struct resolution r;
    int64_t changes = 0;
    resolve("experiments/fp4_loss.lua", &r);
    assert_int_equal(r.run_count, 28);
    for (int64_t i = 0; i < r.run_count; i++) {
        const json_t *train = json_object_get(r.runs[i].config_json, "train");
        const json_t *schedule = json_object_get(train, "schedule");
        int64_t steps = json_integer_value(json_object_get(train, "steps"));
        int64_t decay = json_integer_value(json_object_get(schedule, "decay"));
        int64_t after = json_integer_value(recipe_of(&r, i, "forward_bf16_after"));
        assert_true(steps * 64 * 256 >= 50000000);
        if (after == 0) continue;
        assert_int_equal(after, steps - decay);
        changes++;
    }
    assert_int_equal(changes, 4);
    resolution_destroy(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_those_published),
        cmocka_unit_test(the_suite_has_its_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
