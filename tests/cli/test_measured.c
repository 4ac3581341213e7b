/* Files of `bench step --json`, which advise forecasts from: whose they are, what of them counts
 * (runner/advise/measured.h). */
#include <jansson.h>
#include <stdio.h>

#include "runner/advise/measured.h"
#include "runner/base/run_files.h"
#include "tests/support/must.h"
#include "tests/support/run_fixture.h"

static char folder[PATH_CAP];

static const char HEAD[] = "\"schema\":\"fp8lab.bench/1\",\"kind\":\"step\"";
static const char GPU[] = "\"device\":\"NVIDIA H200\",\"backend\":\"cuda\"";
static const char OPERATORS[] = "[{\"op\":\"rope\",\"part\":\"attention\",\"calls\":1,\"bytes\":8,"
                                "\"time_us\":2}]";

struct row {
    const char *name, *recipe;
    double step_us, best_us, parts_us, bytes_per_s; /* best_us 0: an older file, without */
};

static const struct row ROW = { "a", "bf16", 1000, 900, 800, 4e12 };

/* Writes a file of rows and adds it. */
static enum status add(struct measured *m, const char *head, const struct row *rows, int64_t count,
                       const json_t *facts, struct err *e) {
    char path[PATH_CAP], text[4096];
    size_t used = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct row *r = &rows[i];
        char best[48] = "";
        if (r->best_us > 0) snprintf(best, sizeof best, "\"step_us_best\":%g,", r->best_us);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s{\"name\":\"%s\",\"recipe\":"
                                 "\"%s\",%s\"step_us_median\":%g,\"parts_us\":%g,"
                                 "\"copy_bytes_per_s\":%g,\"operators\":%s}", i ? "," : "",
                                 r->name, r->recipe, best, r->step_us, r->parts_us, r->bytes_per_s,
                                 OPERATORS);
    }
    put_file(folder, "bench.json", "{%s,\"rows\":[%.*s]}", head, (int)used, text);
    TRY(path_join(path, folder, "bench.json", e));
    return measured_add(m, path, facts, e);
}

static json_t *facts_of(const char *text) {
    json_t *facts = json_loads(text, 0, NULL);
    assert_non_null(facts);
    return facts;
}

static json_t *h200(void) {
    return facts_of("{\"gpu.count\":1,\"gpu.product_name\":\"NVIDIA H200\"}");
}

/* Times of another machine lead to a forecast for the wrong one. */
static void files_of_another_machine_are_not_used(void **state) {
    static const struct { const char *facts, *file; bool used; } CASES[] = {
        { "{\"gpu.count\":1,\"gpu.product_name\":\"A\"}", "\"device\":\"A\"", true },
        { "{\"gpu.count\":2,\"gpu.product_name\":\"A\"}", "\"device\":\"A\"", true },
        { "{\"gpu.count\":1,\"gpu.product_name\":\"B\"}", "\"device\":\"A\"", false },
        { "{\"gpu.count\":0,\"cpu.arch\":\"x86_64\",\"cpu.simd\":\"avx2\"}",
          "\"device\":\"EPYC\",\"backend\":\"cpu\",\"architecture\":\"x86_64-avx2\"", true },
        { "{\"gpu.count\":0,\"cpu.arch\":\"x86_64\",\"cpu.simd\":\"avx512\"}",
          "\"device\":\"EPYC\",\"backend\":\"cpu\",\"architecture\":\"x86_64-avx2\"", false },
        { "{\"gpu.count\":0,\"cpu.arch\":\"x86_64\",\"cpu.simd\":\"avx2\"}",
          "\"device\":\"A\",\"backend\":\"cuda\",\"architecture\":\"x86_64-avx2\"", false },
        { "{\"gpu.count\":1,\"gpu.product_name\":\"A\",\"cpu.arch\":\"x86_64\",\"cpu.simd\":"
          "\"avx2\"}", "\"device\":\"EPYC\",\"backend\":\"cpu\",\"architecture\":\"x86_64-avx2\"",
          false },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct measured m = { 0 };
        char head[256];
        json_t *facts = facts_of(CASES[i].facts);
        snprintf(head, sizeof head, "%s,%s", HEAD, CASES[i].file);
        MUST(add(&m, head, &ROW, 1, facts, E));
        if (m.count != CASES[i].used || m.unused != !CASES[i].used) fail_msg("case %zu", i);
        assert_int_equal(*m.other != '\0', !CASES[i].used);
        measured_free(&m);
        json_decref(facts);
    }
}

/* A step that two files have counts once: as two it would weigh more. Steps that differ in anything
 * are two. */
static void a_step_counts_once(void **state) {
    static const struct row OTHERS[] = {
        { "b", "bf16", 1000, 900, 800, 4e12 },
        { "a", "fp8.tensorwise", 1000, 900, 800, 4e12 },
        { "a", "bf16", 1000.5, 900, 800, 4e12 },
        { "a", "bf16", 1000, 900, 800.5, 4e12 },
    };
    struct measured m = { 0 };
    json_t *facts = h200();
    char head[256];
    snprintf(head, sizeof head, "%s,%s", HEAD, GPU);
    for (int i = 0; i < 2; i++) MUST(add(&m, head, &ROW, 1, facts, E));
    assert_int_equal(m.count, 1);
    for (int i = 0; i < 2; i++) MUST(add(&m, head, OTHERS, 4, facts, E));
    assert_int_equal(m.count, 5);
    assert_string_equal(m.step[1].name, "b");
    assert_int_equal(m.step[2].recipe, RECIPE_TENSORWISE);
    assert_true(m.step[3].step_us == 1000.5 && m.step[4].parts_us == 800.5);
    assert_int_equal(m.step[4].works.count, 1);
    assert_true(measured_has(&m, RECIPE_TENSORWISE));
    assert_false(measured_has(&m, RECIPE_BLOCKWISE));
    measured_free(&m);
    json_decref(facts);
}

static void the_best_copy_of_all_rows_counts(void **state) {
    struct row rows[3] = { ROW, ROW, ROW };
    struct measured m = { 0 };
    json_t *facts = h200();
    char head[256];
    snprintf(head, sizeof head, "%s,%s", HEAD, GPU);
    rows[1].bytes_per_s = 4.5e12;
    MUST(add(&m, head, rows, 3, facts, E));
    assert_float_equal(m.copy_bytes_per_us, 4.5e6, 1);
    measured_free(&m);
    json_decref(facts);
}

/* A median of more than twice the best says that others used the machine. */
static void a_busy_machine_is_told(void **state) {
    static const struct { double best_us; bool busy; } CASES[] = {
        { 501, false }, { 499, true }, { 0, false },
    };
    json_t *facts = h200();
    char head[256];
    snprintf(head, sizeof head, "%s,%s", HEAD, GPU);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct measured m = { 0 };
        struct row row = ROW;
        row.best_us = CASES[i].best_us;
        MUST(add(&m, head, &row, 1, facts, E));
        assert_string_equal(m.busy, CASES[i].busy ? "a" : "");
        measured_free(&m);
    }
    json_decref(facts);
}

static void what_is_no_measurement_is_named(void **state) {
    static const char NO_OUTPUT[] = "bench.json: not the output of `bench step --json`; ";
    struct row none = ROW, quick = ROW, endless = ROW, parts = ROW, copy = ROW;
    none.recipe = "fp8.no";
    quick.step_us = MEASURED_US_MIN / 2;
    endless.step_us = 0x1p53;
    parts.parts_us = 0;
    copy.bytes_per_s = 0;
    const struct { const char *head; const struct row *row; const char *words; } CASES[] = {
        { "\"schema\":\"fp8lab.bench/1\",\"kind\":\"gemm\",\"device\":\"A\"", &ROW, NO_OUTPUT },
        { "\"schema\":\"fp8lab.plan/1\",\"kind\":\"step\",\"device\":\"A\"", &ROW, NO_OUTPUT },
        { "\"schema\":\"fp8lab.bench/1\",\"kind\":\"step\"", &ROW, "\"device\" is missing" },
        { NULL, NULL, "bench.json: it has no rows; `fp8lab bench step" },
        { NULL, &none, "\"recipe\" is \"fp8.no\"" },
        { NULL, &quick, "\"step_us_median\" is 0.0005, not" },
        { NULL, &endless, "\"step_us_median\" is 9.0" },
        { NULL, &parts, "\"parts_us\" is 0, not" },
        { NULL, &copy, "\"copy_bytes_per_s\" is 0, not" },
    };
    json_t *facts = h200();
    char head[256];
    snprintf(head, sizeof head, "%s,%s", HEAD, GPU);
    struct measured cut = { 0 };
    MUST_FAIL(ERR_CONFIG, "; `fp8lab bench step", add(&cut, "\"schema\"", &ROW, 1, facts, E));
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct measured m = { 0 };
        MUST_FAIL(ERR_CONFIG, CASES[i].words, add(&m, CASES[i].head ? CASES[i].head : head,
                                                  CASES[i].row, CASES[i].row != NULL, facts, E));
        assert_int_equal(m.count, 0);
        measured_free(&m);
    }
    json_decref(facts);
}

static int set_up(void **state) {
    scratch_directory(folder);
    return 0;
}

static int tear_down(void **state) {
    struct err e;
    return tree_remove(folder, &e) == OK ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_another_machine_are_not_used),
        cmocka_unit_test(a_step_counts_once),
        cmocka_unit_test(the_best_copy_of_all_rows_counts),
        cmocka_unit_test(a_busy_machine_is_told),
        cmocka_unit_test(what_is_no_measurement_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
