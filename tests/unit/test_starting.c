/* The line and the record of the time before the first step: of the slowest rank, once for each
 * attempt, and without the runner's part for an attempt that it did not begin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/record/run_log.h"
#include "runner/run/starting.h"
#include "tests/support/run_fixture.h"

struct scene {
    char parent[PATH_CAP];
    struct run_dir dir;
    struct start_clock clock;
    struct starting starting;
};

static struct err e;

static int open_scene(void **state) {
    struct scene *s = calloc(1, sizeof *s);
    scratch_directory(s->parent);
    CHECK(run_dir_create(s->parent, "x", "0badcafe", &s->dir, &e));
    assert_int_equal(json_object_set_new(s->dir.run, "attempt", json_object()), 0);
    start_clock_begin(&s->clock, "the command");
    s->clock.begin_us -= 20000000; /* twenty seconds ago */
    s->clock.part_us[START_SCRIPT] = 12000;
    s->clock.part_us[START_CERTIFICATES] = 1999600;
    *state = s;
    return 0;
}

static int close_scene(void **state) {
    struct scene *s = *state;
    starting_end(&s->starting);
    run_dir_close(&s->dir);
    CHECK(tree_remove(s->parent, &e));
    free(s);
    return 0;
}

static void tell(struct scene *s, int64_t rank, const char *text) {
    json_t *event = json_loads(text, 0, NULL);
    assert_non_null(event);
    CHECK(starting_event(&s->starting, rank, event, &e));
    json_decref(event);
}

static char *log_text(const struct scene *s) {
    char path[PATH_CAP], *text;
    size_t n;
    CHECK(path_join(path, s->dir.path, RUN_LOG_FILE, &e));
    if (!path_exists(path)) return strdup("");
    CHECK(file_read(path, 1 << 20, &text, &n, &e));
    return text;
}

static int64_t recorded(const struct scene *s, const char *key) {
    const json_t *value =
        json_object_get(json_object_get(json_object_get(s->dir.run, "attempt"), "start"), key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static const char SLOW[] = "{\"event\":\"ready\",\"device_us\":3000000,\"text_us\":1000,"
                           "\"memory_us\":2000,\"weights_us\":4000,\"trial_us\":5000000,"
                           "\"graph_us\":6400,\"reading_us\":7000}";
static const char FAST[] = "{\"event\":\"ready\",\"device_us\":3000000,\"text_us\":900000,"
                           "\"memory_us\":0,\"weights_us\":0,\"trial_us\":4000000,"
                           "\"graph_us\":0,\"reading_us\":0}";

static void the_slowest_rank_is_told(void **state) {
    struct scene *s = *state;
    starting_begin(&s->starting, &s->dir, &s->clock);
    tell(s, 0, FAST);
    tell(s, 1, SLOW);
    tell(s, 2, FAST);
    char *text = log_text(s);
    assert_string_equal(text, ""); /* another rank may follow until the first step */
    free(text);
    tell(s, 0, "{\"event\":\"step\",\"step\":1}");
    tell(s, 3, SLOW); /* late */
    tell(s, 0, "{\"event\":\"step\",\"step\":2}");
    text = log_text(s);
    const char *line = strstr(text, "Z from the command to the first step 2");
    assert_non_null(line);
    assert_null(strstr(line + 1, "Z from")); /* once */
    assert_non_null(strstr(line, " ms: script 12, probe 0, data 0, record 0, certificates 2000, "
                                 "device 3000, text 1, memory 2, weights 4, trial 5000, graph 6, "
                                 "reading 7, rest 9"));
    assert_non_null(strstr(line, "; rank 1, the slowest of 3\n"));
    free(text);
    assert_int_equal(recorded(s, "rank"), 1);
    assert_int_equal(recorded(s, "trial_ms"), 5000);
    assert_int_equal(recorded(s, "certificates_ms"), 2000);
    assert_true(recorded(s, "total_ms") >= 20000);
    int64_t parts = 12 + 2000 + 3000 + 1 + 2 + 4 + 5000 + 6 + 7 + recorded(s, "rest_ms");
    assert_true(llabs(parts - recorded(s, "total_ms")) < 14); /* each part is rounded */
}

/* The command's own part belongs to its first attempt, and a suite's later row begins when the row
 * before ended. */
static void later_attempts_begin_anew(void **state) {
    struct scene *s = *state;
    starting_begin(&s->starting, &s->dir, &s->clock);
    starting_begin(&s->starting, &s->dir, &s->clock);
    tell(s, 0, "{\"event\":\"ready\",\"device_us\":0}");
    tell(s, 0, "{\"event\":\"step\",\"step\":1}");
    char *text = log_text(s);
    assert_non_null(strstr(text, "Z from the attempt's begin to the first step "));
    free(text);
    assert_int_equal(recorded(s, "script_ms"), 0);
    assert_true(recorded(s, "total_ms") < 20000);
    start_clock_row(&s->clock);
    assert_false(s->clock.used);
    assert_string_equal(s->clock.from, "the end of the run before");
    assert_int_equal(s->clock.part_us[START_SCRIPT], 0);
}

static void an_attempt_that_made_no_step_says_nothing(void **state) {
    struct scene *s = *state;
    starting_begin(&s->starting, &s->dir, NULL);
    tell(s, 0, SLOW);
    starting_end(&s->starting);
    char *text = log_text(s);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(recorded(s, "total_ms"), -1);
}

int main(void) {
#define IN_SCENE(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)
    const struct CMUnitTest tests[] = {
        IN_SCENE(the_slowest_rank_is_told),
        IN_SCENE(later_attempts_begin_anew),
        IN_SCENE(an_attempt_that_made_no_step_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
