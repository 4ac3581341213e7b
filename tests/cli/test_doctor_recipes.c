/* A full doctor on a GPU that emulates NVFP4: whether the version of cuBLASLt explains it. The
 * probing child is this program; its GPU does what the recipe table says, except for NVFP4. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include <jansson.h>

#include "runner/base/run_files.h"
#include "runner/doctor/doctor.h"
#include "runner/doctor/recipe_check.h"
#include "runner/plan/recipe_table.h"
#include "tests/support/must.h"

enum { CC = 121 };

static json_t *check_of(enum recipe_kind kind, bool cuda) {
    struct recipe_check c = { .kind = kind };
    bool native = kind != RECIPE_NVFP4 && recipe_on(kind, CC, NULL).way == WAY_NATIVE;
    if (cuda) *(native ? &c.native : &c.emulated) = RECIPE_CHECK_GEMMS;
    for (int i = 0; i < RECIPE_CHECK_STEPS; i++) c.loss[i] = 4;
    return recipe_check_json(&c);
}

static int answer(bool cuda) {
    const char *version = getenv("CUBLASLT");
    json_t *checks = json_array();
    for (int k = RECIPE_CHECK_FIRST; k <= RECIPE_CHECK_LAST; k++)
        json_array_append_new(checks, check_of((enum recipe_kind)k, cuda));
    json_t *all = json_pack("{s:s,s:[{s:s,s:s}],s:o}", "schema", "fp8lab.probe/1", "libraries",
                            "name", "cublaslt", "version", version ? version : "", "checks",
                            checks);
    bool failed = !all || json_dumpf(all, stdout, 0) != 0;
    json_decref(all);
    return failed;
}

/* The finding of NVFP4 where the GPU's library has this version. The caller frees it. */
static json_t *finding_with(const char *version) {
    struct doctor d = { .facts = json_pack("{s:i,s:s}", "gpu.count", 1, "gpu.cc", "12.1"),
                        .here = true, .gpu = true, .findings = json_array(),
                        .libraries = json_array(), .recipes = json_array() };
    json_t *found = NULL, *row;
    size_t i;
    setenv("CUBLASLT", version, 1);
    MUST(doctor_recipes(&d, true, E));
    json_array_foreach(d.findings, i, row) {
        const char *topic = json_text(row, "topic", ""), *level = json_text(row, "level", "");
        if (!strcmp(topic, "fp4.nvfp4")) found = json_incref(row);
        else if (strncmp(topic, "reference", 9) != 0 && strcmp(level, "fine") != 0)
            fail_msg("%s: %s: %s", topic, level, json_text(row, "found", ""));
    }
    json_decref(d.facts);
    json_decref(d.findings);
    json_decref(d.libraries);
    json_decref(d.recipes);
    assert_non_null(found);
    return found;
}

static void the_version_explains_it(void **state) {
    json_t *f = finding_with("13.4.0");
    assert_string_equal(json_text(f, "level", ""), "note");
    assert_string_equal(json_text(f, "fix", ""), CUBLASLT_FIX);
    assert_string_equal(json_text(f, "found", ""), "emulated: cuBLASLt 13.4.0 drops NVFP4's "
                        "factor; product and ten steps agree with the reference (losses within "
                        "0.0e+00)");
    json_decref(f);
}

static void another_version_does_not(void **state) {
    json_t *f = finding_with("13.4.1");
    assert_string_equal(json_text(f, "level", ""), "wrong");
    assert_string_equal(json_text(f, "found", ""),
                        "the table says native, the device used emulated");
    json_decref(f);
}

int main(int argc, char **argv) {
    if (argc > 4 && !strcmp(argv[1], "probe")) return answer(!strcmp(argv[4], "cuda"));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_explains_it),
        cmocka_unit_test(another_version_does_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
