/* Facts from the driver: a GB10 without a memory query, mixed machines, no GPU. And the fact files
 * of the other tests. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runner/base/nearest.h"
#include "runner/hardware/fact_names.h"
#include "runner/hardware/facts.h"
#include "runner/hardware/nvml.h"
#include "runner/hardware/query.h"
#include "runner/hardware/telemetry.h"

static struct nvml_gpu h200(void) {
    struct nvml_gpu gpu = { .cc_major = 9, .memory_bytes = 150754820096, .nvlink = 1, .ecc = 1,
                            .power_limit_mw = 700000, .clock_sm_max_mhz = 1980 };
    snprintf(gpu.name, sizeof gpu.name, "NVIDIA H200");
    return gpu;
}

static json_t *facts_of(const struct nvml_report *report) {
    json_t *facts = json_pack("{s:I}", "memory.total", (json_int_t)130662936576);
    assert_int_equal(facts_put_gpus(facts, report, NULL), OK);
    return facts;
}

static bool matches(const json_t *facts, const char *text) {
    struct query *query = NULL;
    json_t *mismatch = NULL;
    struct err e = { 0 };
    if (query_parse(text, &query, &e) != OK) fail_msg("%s", e.text);
    assert_int_equal(query_match(query, facts, &mismatch, &e), OK);
    bool result = mismatch == NULL;
    json_decref(mismatch);
    query_free(query);
    return result;
}

static void gb10_shares_the_systems_memory(void **state) {
    struct nvml_report report = { .count = 1, .cuda_major = 13, .driver = "580.95.05" };
    report.gpus[0] = (struct nvml_gpu){ .name = "NVIDIA GB10", .cc_major = 12, .cc_minor = 1,
                                        .memory_bytes = NVML_UNKNOWN, .ecc = NVML_UNKNOWN,
                                        .power_limit_mw = NVML_UNKNOWN };
    json_t *facts = facts_of(&report);
    assert_true(matches(facts, "memory.unified and gpu.family=blackwell and gpu.cc=12.1"));
    assert_true(matches(facts, "gpu.memory=130662936576 and cuda.driver>=13"));
    assert_true(json_is_null(json_object_get(facts, "gpu.power_limit_w")));
    assert_false(matches(facts, "gpu.ecc") || matches(facts, "not gpu.ecc"));
    json_decref(facts);
}

static void mixed_gpus_equal_no_single_product(void **state) {
    struct nvml_report report = { .count = 3, .cuda_major = 13 };
    report.gpus[0] = report.gpus[1] = report.gpus[2] = h200();
    snprintf(report.gpus[2].name, sizeof report.gpus[2].name, "NVIDIA H200 NVL");
    report.gpus[2].memory_bytes = 1000;
    json_t *facts = facts_of(&report);
    assert_true(matches(facts, "gpu.mixed and gpu.count=3 and gpu.memory=1000B"));
    assert_true(matches(facts, "gpu.product_name='NVIDIA H200 + NVIDIA H200 NVL'"));
    assert_false(matches(facts, "gpu.product_name='NVIDIA H200'"));
    json_decref(facts);
}

static void a_machine_without_a_gpu_says_zero(void **state) {
    struct nvml_report report = { 0 };
    json_t *facts = facts_of(&report);
    assert_true(matches(facts, "gpu.count=0 and not memory.unified"));
    assert_false(matches(facts, "gpu.memory>0") || matches(facts, "gpu.mixed"));
    json_decref(facts);
}

static void visible_devices_are_counted_as_cuda_does(void **state) {
    static const struct { const char *visible; int64_t count, first; } CASES[] = {
        { NULL, 4, 0 },     { "", 0, -1 },           { "2", 1, 2 },         { "3,1", 2, 3 },
        { "1,9,2", 1, 1 },  { "-1", 0, -1 },         { "GPU-b", 1, 1 },     { "GPU-c,GPU-d", 2, 2 },
        { "GPU-x,0", 0, -1 }, { "0,none", 1, 0 },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct nvml_report report = { .count = 4 };
        for (int64_t g = 0; g < 4; g++) {
            report.gpus[g] = h200();
            snprintf(report.gpus[g].uuid, sizeof report.gpus[g].uuid, "GPU-%c123", (int)('a' + g));
        }
        nvml_keep_visible(&report, CASES[i].visible);
        assert_int_equal(report.count, CASES[i].count);
        if (report.count) assert_int_equal(report.gpus[0].uuid[4], 'a' + CASES[i].first);
    }
}

static void families_by_capability(void **state) {
    static const struct { int64_t major, minor; const char *family; } CASES[] = {
        { 7, 0, "volta" },   { 7, 5, "turing" },     { 8, 0, "ampere" },     { 8, 6, "ampere" },
        { 8, 9, "ada" },     { 9, 0, "hopper" },     { 10, 0, "blackwell" }, { 12, 0, "blackwell" },
        { 12, 1, "blackwell" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_string_equal(facts_gpu_family(CASES[i].major, CASES[i].minor), CASES[i].family);
    assert_null(facts_gpu_family(6, 1));
    assert_null(facts_gpu_family(99, 0));
}

static void this_machine_has_every_fact_by_name(void **state) {
    json_t *facts = NULL;
    char problem[256] = "unset";
    assert_int_equal(facts_gather(&facts, problem, sizeof problem, NULL), OK);
    for (int64_t i = 0; i < FACT_NAME_COUNT; i++)
        assert_non_null(json_object_get(facts, FACT_NAMES[i].name));
    assert_int_equal(json_object_size(facts), FACT_NAME_COUNT);
    assert_true(matches(facts, "cpu.cores>=1 and memory.total>100MiB and os.kernel>2.6"));
    json_decref(facts);
}

static void fact_files_load(void **state) {
    static const char *const FILES[] = { "h200", "h200x8", "h200nvl", "gh200", "gb10", "laptop" };
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        char path[64];
        json_t *facts = NULL;
        struct err e = { 0 };
        snprintf(path, sizeof path, "tests/facts/%s.json", FILES[i]);
        if (facts_load(path, &facts, &e) != OK) fail_msg("%s", e.text);
        json_decref(facts);
    }
}

/* facts_complete of the JSON in `text`, with ' for "; *facts is the caller's. */
static enum status complete(const char *text, json_t **facts, struct err *e) {
    char json[512];
    snprintf(json, sizeof json, "%s", text);
    for (char *at = json; *at; at++) *at = *at == '\'' ? '"' : *at;
    *facts = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(*facts);
    return facts_complete(*facts, "F", e);
}

static void unusable_facts_are_refused_by_name(void **state) {
    static const struct { const char *facts, *says; } CASES[] = {
        { "[1]", "not a JSON object" },
        { "{}", "F holds no fact; `fp8lab hw --json > FILE` on the machine writes a fact file" },
        { "{'schema':'fp8lab.facts/1'}", "F holds no fact" },
        { "{'gpu.cc':null}", "F holds no fact" },
        { "{'schema':'fp8lab.facts/2','gpu.count':0}",
          "its schema is \"fp8lab.facts/2\", and this version reads fp8lab.facts/1; `fp8lab hw" },
        { "{'schema':1,'gpu.count':0}", "its schema is 1," },
        { "{'gpu.count':-1}",
          "gpu.count must be a whole number of 0 or more, or null; found -1; `fp8lab hw --json" },
        { "{'gpu.count':'8'}", "must be a whole number of 0 or more, or null; found \"8\"" },
        { "{'gpu.count':1.5}", "found 1.5" },
        { "{'memory.total':-5}", "memory.total must be a whole number of bytes, 0 or more, or" },
        { "{'memory.total':1e19}", "memory.total is 1e19, but no machine has more than" },
        { "{'memory.total':true}", "found true" },
        { "{'gpu.cc':'nine','gpu.count':1}",
          "gpu.cc must be a compute capability in quotes, such as \"9.0\", or null; found" },
        { "{'gpu.cc':'nine','gpu.count':1}", "found \"nine\"" },
        { "{'gpu.cc':'-9.0','gpu.count':1}", "found \"-9.0\"" },
        { "{'gpu.cc':'9','gpu.count':1}", "gpu.cc must be" },
        { "{'gpu.cc':'999999999999.9','gpu.count':1}", "gpu.cc must be" },
        { "{'gpu.cc':9.0,'gpu.count':1}", "gpu.cc must be" },
        { "{'cuda.driver':'13..0'}", "cuda.driver must be a version in quotes, such as \"13.0\"" },
        { "{'os.libc':'2.39-x'}", "os.libc must be a version" },
        { "{'gpu.ecc':1}", "gpu.ecc must be true or false, or null; found 1" },
        { "{'gpu.cc':'9.0'}", "gpu.count is not known, but gpu.cc is; add \"gpu.count\": 1, or" },
        { "{'gpu.product_name':'NVIDIA H200','gpu.count':null}", "but gpu.product_name is" },
        { "{'gpu.cuont':8}", "there is no fact gpu.cuont; did you mean gpu.count?" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct err e = { 0 };
        json_t *facts;
        assert_int_equal(complete(CASES[i].facts, &facts, &e), ERR_CONFIG);
        if (!strstr(e.text, CASES[i].says)) fail_msg("%s: %s", CASES[i].facts, e.text);
        json_decref(facts);
    }
}

static void whole_numbers_with_a_fraction_of_zero_are_whole(void **state) {
    struct err e = { 0 };
    json_t *facts;
    if (complete("{'gpu.count':8.0,'gpu.memory':1.5e11,'gpu.cc':'12.1','gpu.power_limit_w':0.5,"
                 "'os.version':'12'}", &facts, &e) != OK)
        fail_msg("%s", e.text);
    assert_int_equal(json_integer_value(json_object_get(facts, "gpu.count")), 8);
    assert_int_equal(json_integer_value(json_object_get(facts, "gpu.memory")), 150000000000);
    assert_int_equal(json_object_size(facts), FACT_NAME_COUNT);
    assert_int_equal(facts_capability(facts), 121);
    assert_true(facts_have_gpu(facts));
    json_decref(facts);
}

static void deep_and_long_queries_are_rejected(void **state) {
    char deep[600], text[700];
    struct query *query = NULL;
    struct err e = { 0 };
    memset(deep, '(', sizeof deep);
    snprintf(text, sizeof text, "%.200s gpu.mig", deep);
    assert_int_equal(query_parse(text, &query, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "nested too deeply"));
    snprintf(text, sizeof text, "%.600s", deep);
    assert_int_equal(query_parse(text, &query, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "longer than"));
    assert_int_equal(query_parse("gpu.mig\tor\ngpu.ecc", &query, &e), ERR_CONFIG);
}

static void nearest_names(void **state) {
    static const char *const NAMES[] = { "compare", "close", "check", "verify" };
    assert_string_equal(nearest_name("comprae", NAMES, 4), "compare");
    assert_string_equal(nearest_name("CHECK", NAMES, 4), "check");
    assert_string_equal(nearest_name("clos", NAMES, 4), "close");
    assert_null(nearest_name("train", NAMES, 4));
    assert_null(nearest_name("", NAMES, 4));
    assert_int_equal(name_distance_x2("abc", "abc"), 0);
    assert_int_equal(name_distance_x2("abc", "acb"), 2); /* one swap */
    assert_int_equal(name_distance_x2("abc", "ABC"), 1); /* letter case alone: half an edit */
    assert_int_equal(name_distance_x2("", "ab"), 4);
}

/* With a driver its readings are added and plausible; without one no reading is added. Neither
 * fails. */
static void telemetry_adds_the_figures_of_the_driver(void **state) {
    struct err e = { 0 };
    struct nvml_report report;
    json_t *record = json_pack("{s:i}", "step", 1), *before = json_deep_copy(record);
    assert_int_equal(telemetry_add(NULL, 0, record, &e), OK);
    assert_true(json_equal(record, before));
    nvml_read(&report);
    nvml_keep_visible(&report, getenv("CUDA_VISIBLE_DEVICES"));
    struct telemetry *t = telemetry_open();
    if (!report.count) assert_null(t);
    assert_int_equal(telemetry_add(t, 0, record, &e), OK);
    assert_int_equal(json_object_size(record) > json_object_size(before), t != NULL);
    const json_t *celsius = json_object_get(record, "gpu_temperature_c");
    assert_true(!celsius || (json_integer_value(celsius) > 0 && json_integer_value(celsius) < 150));
    const json_t *all = json_object_get(record, "gpu_processes");
    const json_t *others = json_object_get(record, "gpu_processes_other");
    if (all && json_integer_value(all) > 0) /* this process is not counted as another */
        assert_true(json_integer_value(others) < json_integer_value(all));
    telemetry_close(t);
    json_decref(record);
    json_decref(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(telemetry_adds_the_figures_of_the_driver),
        cmocka_unit_test(gb10_shares_the_systems_memory),
        cmocka_unit_test(mixed_gpus_equal_no_single_product),
        cmocka_unit_test(a_machine_without_a_gpu_says_zero),
        cmocka_unit_test(visible_devices_are_counted_as_cuda_does),
        cmocka_unit_test(families_by_capability),
        cmocka_unit_test(this_machine_has_every_fact_by_name),
        cmocka_unit_test(fact_files_load),
        cmocka_unit_test(unusable_facts_are_refused_by_name),
        cmocka_unit_test(whole_numbers_with_a_fraction_of_zero_are_whole),
        cmocka_unit_test(deep_and_long_queries_are_rejected),
        cmocka_unit_test(nearest_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
