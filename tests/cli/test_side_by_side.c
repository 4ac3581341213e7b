/* What each slot of `run --side-by-side` gets: rows, GPUs, threads. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/run_files.h"
#include "runner/hardware/nvml.h"
#include "runner/job/events.h"
#include "runner/run/side_by_side.h"
#include "runner/run/slot_order.h"
#include "runner/run/slot_rows.h"
#include "runner/run/slot_shares.h"

/* ---- rows ---- */

/* Every slot takes a row in each round. "A1B1 B2A2": slot 0 runs repeat 1 of rows A and B, slot 1
 * repeat 2 of B and A. */
static void order_is(int64_t rows, int64_t repeat, int64_t slots, const char *wanted) {
    bool waits[64];
    char found[256] = "", of[8][64] = { "" };
    int64_t count = rows * repeat, left = count;
    for (int64_t i = 0; i < count; i++) waits[i] = true;
    while (left > 0)
        for (int64_t slot = 0; slot < slots; slot++) {
            int64_t i = slot_order_next(waits, count, repeat, slot, slots);
            if (i < 0) continue;
            assert_true(waits[i]);
            waits[i] = false;
            left--;
            size_t n = strlen(of[slot]);
            snprintf(of[slot] + n, sizeof of[slot] - n, "%c%c", (char)('A' + i % rows),
                     (char)('1' + i / rows));
        }
    for (int64_t slot = 0; slot < slots; slot++) {
        size_t n = strlen(found);
        snprintf(found + n, sizeof found - n, "%s%s", slot ? " " : "", of[slot]);
    }
    assert_string_equal(found, wanted);
}

static void each_slot_runs_all_rows_of_its_repeats(void **state) {
    order_is(2, 2, 2, "A1B1 B2A2");
    order_is(3, 4, 2, "A1B1C1A3B3C3 B2C2A2B4C4A4");
    order_is(3, 3, 3, "A1B1C1 B2C2A2 C3A3B3"); /* each row is once the first on a cold GPU */
}

static void a_slot_without_rows_helps(void **state) {
    order_is(2, 3, 2, "A1B1A3 B2A2B3"); /* slot 0 has repeat 3, and slot 1 nothing else */
    order_is(3, 1, 2, "A1C1 B1");
    order_is(2, 1, 4, "A1 B1  ");
}

static void nothing_waits(void **state) {
    const bool waits[4] = { false };
    assert_int_equal(slot_order_next(waits, 4, 2, 1, 2), -1);
}

/* The script is read by both processes. Another one would be run under this row's name. */
static void a_script_that_was_changed_is_refused(void **state) {
    struct resolved_run run = { .name = "pair-bf16", .config_sha256 = "fedcba9876543210" };
    struct resolution script = { .runs = &run, .run_count = 1, .suite = true };
    struct suite_row row = { .ended = false };
    struct run_settings settings = { .runs = "." };
    struct suite suite = { .settings = &settings, .resolution = &script, .rows = &row };
    struct slot slot = { .is = true, .row = -1 };
    struct err e = { 0 };
    int ends[2][2], code = 0;
    for (int i = 0; i < 2; i++) assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
    assert_int_equal(event_reader_create(ends[0][0], &slot.in, &e), OK);
    assert_int_equal(event_writer_create(ends[1][0], &slot.out, &e), OK);
    static const char ROW[] = "{\"event\":\"row\",\"row\":0,\"config\":\"0123456789abcdef\"}\n";
    assert_int_equal(write(ends[0][1], ROW, sizeof ROW - 1), sizeof ROW - 1);
    assert_int_equal(slot_serve(&slot, &suite, &code, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "changed after the command began: the configuration of "
                                   "pair-bf16 is fedcba987654... now, and was 0123456789ab..."));
    slot_close(&slot);
    for (int i = 0; i < 2; i++) close(ends[i][1]);
}

/* ---- GPUs ---- */

static struct nvml_report *host(int64_t gpus, const char *visible) {
    struct nvml_report *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->count = gpus;
    for (int64_t i = 0; i < gpus; i++) {
        r->gpus[i].index = i;
        snprintf(r->gpus[i].uuid, sizeof r->gpus[i].uuid, "GPU-%08d-stand-in", (int)i);
    }
    nvml_keep_visible(r, visible);
    return r;
}

static void gpus_are_divided(void **state) {
    static const struct {
        int64_t gpus, slots, each;
        const char *seen, *visible[2], *name[2];
    } CASES[] = {
        { 2, 2, 1, NULL, { "GPU-00000000-stand-in", "GPU-00000001-stand-in" },
          { "gpu 0", "gpu 1" } },
        { 8, 2, 2, NULL, { "GPU-00000000-stand-in,GPU-00000001-stand-in",
                           "GPU-00000002-stand-in,GPU-00000003-stand-in" },
          { "gpus 0,1", "gpus 2,3" } },
        /* The user's words stay as they are: CUDA counts in its own order. */
        { 4, 2, 1, "3,1", { "3", "1" }, { "gpu 3", "gpu 1" } },
        { 8, 2, 2, "7,GPU-00000002,1,0,6", { "7,GPU-00000002", "1,0" },
          { "gpus 7,2", "gpus 1,0" } },
        { 4, 2, 1, "2,0,9,1", { "2", "0" }, { "gpu 2", "gpu 0" } }, /* 9 ends the list */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct slot_shares shares;
        struct err e = { 0 };
        struct nvml_report *r = host(CASES[i].gpus, CASES[i].seen);
        assert_int_equal(slot_shares_gpus(r, CASES[i].seen, CASES[i].slots, CASES[i].each, &shares,
                                          &e), OK);
        assert_int_equal(shares.count, CASES[i].slots);
        for (int64_t k = 0; k < 2; k++) {
            assert_string_equal(shares.share[k].visible, CASES[i].visible[k]);
            assert_string_equal(shares.share[k].name, CASES[i].name[k]);
            assert_int_equal(shares.share[k].gpus, CASES[i].each);
        }
        slot_shares_free(&shares);
        free(r);
    }
}

static void gpus_say(int64_t gpus, const char *seen, int64_t slots, int64_t each,
                     enum status wanted, const char *words) {
    struct slot_shares shares;
    struct err e = { 0 };
    struct nvml_report *r = host(gpus, seen);
    assert_int_equal(slot_shares_gpus(r, seen, slots, each, &shares, &e), wanted);
    if (!strstr(e.text, words)) fail_msg("\"%s\" is not in \"%s\"", words, e.text);
    slot_shares_free(&shares);
    free(r);
}

static void too_few_gpus_name_both_numbers(void **state) {
    gpus_say(8, NULL, 4, 4, ERR_HARDWARE, "4 rows at once, on 4 GPUs each (hardware.gpus), need 16 "
             "GPUs, and this process sees 8; --side-by-side 2 fits");
    gpus_say(8, "4,5", 3, 1, ERR_HARDWARE, "on 1 GPU each (hardware.gpus), need 3 GPUs, and this "
             "process sees 2: CUDA_VISIBLE_DEVICES=4,5; --side-by-side 2 fits");
    gpus_say(0, NULL, 2, 1, ERR_HARDWARE, "need 2 GPUs, and this process sees 0");
    gpus_say(1, NULL, 2, 2, ERR_HARDWARE, "need 4 GPUs, and this process sees 1");
}

/* Two rows on one GPU would halve each other's speed. */
static void one_gpu_is_not_given_twice(void **state) {
    gpus_say(4, "1,1", 2, 1, ERR_CONFIG, "CUDA_VISIBLE_DEVICES=1,1 names GPU 1 twice");
    gpus_say(4, "1,GPU-00000001", 2, 1, ERR_CONFIG, "names GPU 1 twice");
}

/* ---- threads ---- */

static void threads_are(int64_t processors, int64_t asked, int64_t slots, int64_t ranks,
                        int64_t wanted) {
    struct slot_shares shares;
    struct err e = { 0 };
    assert_int_equal(slot_shares_threads(processors, asked, slots, ranks, &shares, &e), OK);
    for (int64_t i = 0; i < slots; i++) {
        assert_int_equal(shares.share[i].threads, wanted);
        assert_null(shares.share[i].visible);
    }
    assert_string_equal(shares.share[slots - 1].name, slots == 2 ? "slot 1" : "slot 3");
    slot_shares_free(&shares);
}

static void threads_are_divided(void **state) {
    threads_are(16, 0, 4, 1, 4);
    threads_are(16, 0, 4, 2, 2); /* a row of two processes */
    threads_are(4, 0, 4, 8, 1);
    threads_are(7, 0, 2, 1, 3);
    threads_are(2, 3, 4, 1, 3); /* --threads is for each process */
    struct slot_shares shares;
    struct err e = { 0 };
    assert_int_equal(slot_shares_threads(2, 0, 4, 1, &shares, &e), ERR_HARDWARE);
    assert_non_null(strstr(e.text, "4 rows at once need as many processors, and there are 2"));
    slot_shares_free(&shares);
}

/* A part for a row that does not exist would be idle, or refused. */
static void no_more_parts_than_rows(void **state) {
    struct resolved_run runs[2] = { { .name = "a" }, { .name = "b" } };
    struct resolution script = { .suite = true, .runs = runs };
    struct run_settings settings = { .backend = "cpu", .threads = 1 };
    struct suite suite = { .settings = &settings, .resolution = &script };
    struct slot_shares shares;
    struct err e = { 0 };
    for (script.run_count = 1; script.run_count <= 2; script.run_count++) {
        assert_int_equal(side_by_side_plan(&suite, 9, &shares, &e), OK);
        assert_int_equal(shares.count, script.run_count == 1 ? 0 : 2);
        slot_shares_free(&shares);
    }
}

/* ---- memory ---- */

/* Each of four rows fits into the host's memory, and the four do not. */
static void rows_share_the_memory(void **state) {
    struct slot_shares shares;
    struct err e = { 0 };
    struct nvml_report *r = host(8, NULL);
    json_t *part = NULL, *facts = json_pack("{s:I,s:n,s:I}", "memory.total", (json_int_t)64,
                                            "memory.available", "gpu.count", (json_int_t)8);
    assert_int_equal(slot_shares_gpus(r, NULL, 4, 2, &shares, &e), OK);
    assert_int_equal(slot_shares_facts(&shares, facts, &part, &e), OK);
    assert_int_equal(json_int(part, "memory.total"), 16);
    assert_int_equal(json_int(part, "gpu.count"), 2);
    assert_int_equal(json_int(facts, "memory.total"), 64);
    json_decref(part);
    json_decref(facts);
    slot_shares_free(&shares);
    free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_slot_runs_all_rows_of_its_repeats),
        cmocka_unit_test(a_slot_without_rows_helps),
        cmocka_unit_test(nothing_waits),
        cmocka_unit_test(a_script_that_was_changed_is_refused),
        cmocka_unit_test(gpus_are_divided),
        cmocka_unit_test(too_few_gpus_name_both_numbers),
        cmocka_unit_test(one_gpu_is_not_given_twice),
        cmocka_unit_test(threads_are_divided),
        cmocka_unit_test(no_more_parts_than_rows),
        cmocka_unit_test(rows_share_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
