/* The lines of a run's log that worker events become: how GEMMs and attention are computed, and how
 * a checkpoint was written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/record/run_log.h"
#include "runner/run/milestones.h"
#include "tests/support/run_fixture.h"

/* The run's log after the events; owned by the caller. */
static char *log_of(const char *const *events, size_t count) {
    char parent[PATH_CAP], path[PATH_CAP];
    struct run_dir dir;
    struct milestones m;
    struct err e = { 0 };
    char *text;
    size_t n;
    scratch_directory(parent);
    CHECK(run_dir_create(parent, "x", "0badcafe", &dir, &e));
    milestones_begin(&m, &dir);
    for (size_t i = 0; i < count; i++) {
        json_t *event = json_loads(events[i], 0, NULL);
        assert_non_null(event);
        milestones_event(&m, 0, event);
        json_decref(event);
    }
    milestones_end(&m);
    CHECK(path_join(path, dir.path, RUN_LOG_FILE, &e));
    CHECK(file_read(path, 1 << 20, &text, &n, &e));
    run_dir_close(&dir);
    CHECK(tree_remove(parent, &e));
    return text;
}

static void must_say(const char *text, const char *line) {
    if (!strstr(text, line)) fail_msg("the log lacks \"%s\":\n%s", line, text);
}

static void each_kind_of_gemm_has_a_line(void **state) {
    static const char *const EVENTS[] = {
        "{\"event\":\"decisions\",\"backend\":\"cuda\",\"device\":\"NVIDIA H200\",\"gemm_ways\":"
        "{\"native\":3,\"bf16\":2},\"gemm\":{"
        "\"layers.0.qkv.weight\":{\"fprop\":\"native: e4m3 x e4m3\",\"dgrad\":\"native: e5m2 x "
        "e4m3\"},"
        "\"layers.1.qkv.weight\":{\"fprop\":\"native: e4m3 x e4m3\",\"dgrad\":\"bf16: bf16 x "
        "bf16\"},"
        "\"head.weight\":{\"fprop\":\"bf16: bf16 x bf16\"}},"
        "\"attention\":{\"8x1024, heads 16/4 of 128\":{\"forward\":\"cudnn\"}}}",
    };
    char *text = log_of(EVENTS, 1);
    must_say(text, "Z backend cuda on NVIDIA H200, GEMMs: 3 native, 2 bf16\n");
    must_say(text, "Z GEMM qkv: 2 fprop native: e4m3 x e4m3, 1 dgrad native: e5m2 x e4m3, 1 dgrad "
                   "bf16: bf16 x bf16\n");
    must_say(text, "Z GEMM head: 1 fprop bf16: bf16 x bf16\n");
    must_say(text, "Z attention 8x1024, heads 16/4 of 128: forward cudnn\n");
    free(text);
}

/* The line with the hash is read again when the run resumes, so it has nothing behind the hash. */
static void a_checkpoint_has_its_hash_size_and_waits(void **state) {
    static const char *const EVENTS[] = {
        "{\"event\":\"checkpoint\",\"step\":40,\"path\":\"step-000040\",\"sha256\":\"abc\","
        "\"bytes\":12345678901,\"stall_us\":4100,\"write_us\":31000}",
        "{\"event\":\"checkpoint\",\"step\":41,\"path\":7}",
    };
    char *text = log_of(EVENTS, 2);
    must_say(text, "Z checkpoint of step 40, sha256 abc\n");
    must_say(text, "Z saved data/checkpoints/step-000040: 12.346 GB, written in 31.0 ms; the steps "
                   "waited 4.1 ms\n");
    must_say(text, "Z saved data/checkpoints/?: 0.000 GB");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_gemm_has_a_line),
        cmocka_unit_test(a_checkpoint_has_its_hash_size_and_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
