/* The ways of computing that a run is certified in (runner/certify/ways.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "runner/certify/ways.h"
#include "runner/script/resolve.h"
#include "tests/support/must.h"

/* The ways of the tiny experiment with these overrides. The caller frees them. */
static struct ways ways_with(const char *const *overrides, int64_t count) {
    const struct resolve_options options = { .path = "tests/cli/tiny.lua", .overrides = overrides,
                                             .override_count = count };
    struct resolution r;
    struct ways ways;
    MUST(resolve_experiment(&options, &r, E));
    MUST(ways_of_config(r.runs[0].config_json, 1, TWINS_TRANSPOSED, &ways, E));
    resolution_destroy(&r);
    return ways;
}

static bool has(const struct ways *w, const struct certify_way *way) {
    char one[WAY_TEXT_CAP], other[WAY_TEXT_CAP];
    certify_way_text(way, one);
    for (int64_t i = 0; i < w->count; i++) {
        certify_way_text(&w->way[i], other);
        if (!strcmp(one, other)) return true;
    }
    return false;
}

/* Whether `all` has each way of `some` in a section. */
static bool has_all(const struct ways *all, const struct ways *some, enum way_section section) {
    for (int64_t i = 0; i < some->count; i++)
        if (some->way[i].section == section && !has(all, &some->way[i])) return false;
    return true;
}

/* On a device that emulates FP8, or where a way of it fails, the run's products are BF16's. */
static void a_fallback_has_the_ways_of_bf16_too(void **state) {
    struct ways bf16 = ways_with((const char *[]){ "recipe=bf16" }, 1);
    struct ways fp8 = ways_with((const char *[]){ "recipe=fp8.blockwise" }, 1);
    struct ways both = ways_with((const char *[]){ "recipe=fp8.blockwise",
                                                   "recipe.fallback=bf16" }, 2);
    assert_false(has_all(&fp8, &bf16, WAY_GEMM));
    assert_true(has_all(&both, &bf16, WAY_GEMM));
    assert_true(has_all(&both, &fp8, WAY_GEMM));
    assert_true(has_all(&both, &fp8, WAY_CAST));
    ways_free(&bf16);
    ways_free(&fp8);
    ways_free(&both);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_fallback_has_the_ways_of_bf16_too) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
