/* The driver's figures of the GPU of each rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "runner/hardware/facts.h"
#include "runner/hardware/telemetry.h"
#include "tests/support/nvml.h"

/* The environment of each test: two GPUs, all of them visible. */
static int two_gpus(void **state) {
    return setenv("FAKE_GPUS", "2", 1) || unsetenv("FAKE_LINKS") ||
           unsetenv("CUDA_VISIBLE_DEVICES");
}

/* The record of a rank at `device`; owned. */
static json_t *record_of(int64_t device) {
    struct telemetry *t = telemetry_open();
    json_t *record = json_object();
    struct err e = { 0 };
    assert_non_null(t);
    if (telemetry_add(t, device, record, &e) != OK) fail_msg("%s", e.text);
    telemetry_close(t);
    return record;
}

static void expect(const json_t *record, const char *key, json_int_t value) {
    const json_t *found = json_object_get(record, key);
    if (!found || json_integer_value(found) != value)
        fail_msg("%s is %lld, not %lld", key, (long long)json_integer_value(found),
                 (long long)value);
}

static void each_rank_has_the_figures_of_its_gpu(void **state) {
    for (int64_t i = 0; i < 2; i++) {
        json_t *record = record_of(i);
        expect(record, "gpu_clock_sm_mhz", 1980);
        expect(record, "gpu_clock_mem_mhz", 3201);
        expect(record, "gpu_power_mw", 512000 - 1000 * i);
        expect(record, "gpu_temperature_c", 41);
        expect(record, "gpu_utilization", 97);
        expect(record, "gpu_memory_used_bytes", 754820096);
        expect(record, "gpu_throttle", 4);
        expect(record, "gpu_processes", 2);
        expect(record, "gpu_processes_other", 1);
        expect(record, "gpu_nvlink_tx_kib", 1138 + 1000 * i);
        expect(record, "gpu_nvlink_rx_kib", 1139 + 1000 * i);
        json_decref(record);
    }
}

static void a_rank_counts_the_gpus_that_it_sees(void **state) {
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "1", 1), 0);
    json_t *record = record_of(0);
    expect(record, "gpu_nvlink_tx_kib", 2138);
    json_decref(record);
}

static void figures_that_the_driver_lacks_are_left_out(void **state) {
    assert_int_equal(setenv("FAKE_LINKS", "0", 1), 0);
    json_t *record = record_of(1), *nobody = record_of(2);
    expect(record, "gpu_power_mw", 511000);
    assert_null(json_object_get(record, "gpu_nvlink_tx_kib"));
    assert_null(json_object_get(record, "gpu_nvlink_rx_kib"));
    assert_int_equal(json_object_size(nobody), 0);
    json_decref(record);
    json_decref(nobody);
}

/* Two readings of GPU `device`: how much more the second one says, -1: no reading. */
static int64_t energy_between(int64_t device) {
    struct telemetry *t = telemetry_open();
    int64_t first = 0, second = 0;
    assert_non_null(t);
    bool both = telemetry_energy_mj(t, device, &first) && telemetry_energy_mj(t, device, &second);
    telemetry_close(t);
    return both ? second - first : -1;
}

static void energy_is_read_from_the_counter_of_the_gpu(void **state) {
    int64_t untouched = 7;
    assert_int_equal(energy_between(0), 500);
    assert_int_equal(energy_between(1), 500);
    assert_int_equal(energy_between(2), -1);
    assert_int_equal(setenv("FAKE_ENERGY", "-1", 1), 0);
    assert_int_equal(energy_between(0), -1);
    assert_false(telemetry_energy_mj(NULL, 0, &untouched));
    assert_int_equal(untouched, 7);
    assert_int_equal(unsetenv("FAKE_ENERGY"), 0);
}

/* The connections between GPUs, by CUDA's numbers. */
static void gpu_links_are_a_fact(void **state) {
    static const struct { const char *gpus, *links, *visible, *wanted; } CASES[] = {
        { "1", "1", NULL, NULL },
        { "2", "1", NULL, "nvlink x18" },
        { "8", "1", "5,7,0", "nvlink x18" },
        { "2", "0", NULL, "node" },
        { "4", "0", NULL, "node: 0-1 2-3; sys: 0-2 0-3 1-2 1-3" },
        { "4", "4", NULL, "nvlink x4: 0-1 2-3; sys: 0-2 0-3 1-2 1-3" },
        { "4", "4", "3,0,2", "sys: 0-1 1-2; nvlink x4: 0-2" },
        { "4", "4", "2", NULL },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *facts = NULL;
        struct err e = { 0 };
        assert_int_equal(setenv("FAKE_GPUS", CASES[i].gpus, 1), 0);
        assert_int_equal(setenv("FAKE_LINKS", CASES[i].links, 1), 0);
        if (CASES[i].visible)
            assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", CASES[i].visible, 1), 0);
        else assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
        if (facts_gather(&facts, NULL, 0, &e) != OK) fail_msg("%s", e.text);
        const char *found = json_string_value(json_object_get(facts, "gpu.links"));
        assert_int_equal(found == NULL, CASES[i].wanted == NULL);
        if (found) assert_string_equal(found, CASES[i].wanted);
        json_decref(facts);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_rank_has_the_figures_of_its_gpu, two_gpus),
        cmocka_unit_test_setup(a_rank_counts_the_gpus_that_it_sees, two_gpus),
        cmocka_unit_test_setup(figures_that_the_driver_lacks_are_left_out, two_gpus),
        cmocka_unit_test_setup(energy_is_read_from_the_counter_of_the_gpu, two_gpus),
        cmocka_unit_test_setup(gpu_links_are_a_fact, two_gpus),
    };
    return cmocka_run_group_tests(tests, nvml_load, nvml_drop);
}
