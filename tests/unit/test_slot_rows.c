/* A slot of `run --side-by-side` reads script and data after its parent did: it runs no row whose
 * inputs are not those that the parent read, and says which of them were changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include <jansson.h>

#include "runner/job/events.h"
#include "runner/run/slot_rows.h"
#include "tests/support/must.h"

static struct err e;

/* What the slot says of a row whose parent read `data`, the set `code` and `weights`; the slot read
 * "d", "s" and "w". */
static const char *says(const char *config, const char *data, const char *code,
                        const char *weights) {
    int down[2], up[2], exit_code = 0;
    struct slot slot = { .is = true, .row = -1 };
    struct run_settings settings = { .runs = "runs" };
    struct resolved_run run = { .name = "row-a", .config_sha256 = "c" };
    struct resolution resolution = { .runs = &run, .run_count = 1 };
    struct suite_row row = { .inputs = { .data = "d", .weights = "w", .also_count = 1,
                                         .also = { { "code", "s" } } } };
    struct suite suite = { .settings = &settings, .resolution = &resolution, .rows = &row };
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    MUST(event_reader_create(down[0], &slot.in, E));
    MUST(event_writer_create(up[1], &slot.out, E));
    dprintf(down[1], "{\"event\":\"row\",\"row\":0,\"config\":\"%s\",\"inputs\":"
            "{\"data\":\"%s\",\"weights\":\"%s\",\"also\":{\"code\":\"%s\"}}}\n", config, data,
            weights, code);
    close(down[1]);
    assert_int_equal(slot_serve(&slot, &suite, &exit_code, &e), ERR_CONFIG);
    slot_close(&slot);
    close(up[0]);
    return e.text;
}

static void has(const char *text, const char *words) {
    if (!strstr(text, words)) fail_msg("%s: missing: %s", text, words);
}

static void changed_inputs_are_named(void **state) {
    (void)state;
    has(says("x", "d", "s", "w"), "the script or a file that it requires was changed after");
    has(says("c", "x", "s", "w"), "the data of row-a were changed after the command began; give");
    has(says("c", "d", "x", "w"), "the files of eval.also of row-a were changed after");
    has(says("c", "d", "s", "x"), "the initial weights of row-a were changed after");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_inputs_are_named),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
