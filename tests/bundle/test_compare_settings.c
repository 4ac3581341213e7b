/* How much faster? Which settings and builds the runs must have that count, and what to run if there
 * are too few. */
#include <math.h>

#include "tests/bundle/speed_scene.h"

static const char SHARED[] = "{\"step\":40,\"rank\":0,\"gpu_processes_other\":1}\n";

/* ---- the settings with which most runs count ------------------------------------------------ */

/* The first run of the baseline has other settings than all others, which would give a verdict. */
static void one_odd_run_does_not_decide(void **state) {
    static const struct { struct run_fixture f; const char *why; } CASES[] = {
        { { .code = "dd" }, "it is of another build than B" },
        { { .facts = ",\"gpu.power_limit_w\":450" },
          "its gpu.power_limit_w is 450, and that of B is not known" },
        { { .telemetry = "{\"step\":40,\"rank\":0,\"gpu_throttle\":2}\n" },
          "its clocks were set by a user, and those of B were not" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        runs[0].code = CASES[k].f.code;
        runs[0].facts = CASES[k].f.facts;
        runs[0].telemetry = CASES[k].f.telemetry;
        runs[0].speed = 9;
        compare(&s, runs, 6);
        left_out_is(&s, 1, 0, CASES[k].why);
        assert_int_equal(json_int(speed_family(&s), "runs"), 2);
        assert_int_equal(json_int(speed_row(&s), "runs"), 3);
        speed_is(&s, "faster", "");
        finish(&s);
    }
}

/* Three runs of the baseline at one power limit say nothing beside three of the row at another one:
 * two of each at a third one do. */
static void settings_of_both_sides_count(void **state) {
    static const char LOW[] = ",\"gpu.power_limit_w\":450", HIGH[] = ",\"gpu.power_limit_w\":700";
    struct scene s;
    struct run_fixture six[6], runs[10];
    on_gpu(six, 1.5);
    for (int i = 0; i < 10; i++) {
        static const char *const IDS[10] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j" };
        runs[i] = six[i < 5 ? i % 3 : 3 + (i - 5) % 3];
        runs[i].id = IDS[i];
        runs[i].facts = i < 3 ? LOW : i < 5 || i > 7 ? NULL : HIGH;
    }
    compare(&s, runs, 10);
    left_out_is(&s, 6, 0, "its gpu.power_limit_w is 450, and that of D is not known");
    assert_int_equal(json_int(speed_family(&s), "runs"), 2);
    assert_int_equal(json_int(speed_row(&s), "runs"), 2);
    speed_is(&s, "faster", "");
    finish(&s);
}

/* ---- what to run --------------------------------------------------------------------------- */

/* Earlier runs count among the N of --repeat, also those that do not count here: the same command
 * again would make no run. */
static void the_command_makes_new_runs(void **state) {
    static const struct { int shared, seeds; const char *why; } CASES[] = {
        { 2, 1, "here are 1 and 3; fp8lab run --repeat 5 tiny.lua" },
        { 3, 1, "here are 0 and 3; fp8lab run --repeat 6 tiny.lua" },
        { 3, 3, "here are 0 and 3; fp8lab run --repeat 3 tiny.lua" }, /* two more of each seed */
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++) {
            runs[i].argv = ",\"--repeat\",\"3\"";
            runs[i].seed = 1 + i % CASES[k].seeds;
            if (i >= 6 - CASES[k].shared) runs[i].telemetry = SHARED;
        }
        compare(&s, runs, 6);
        assert_string_equal(strstr(json_text(speed_row(&s), "why", ""), "here are"), CASES[k].why);
        finish(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_odd_run_does_not_decide),
        cmocka_unit_test(settings_of_both_sides_count),
        cmocka_unit_test(the_command_makes_new_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
