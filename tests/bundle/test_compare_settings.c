/* How much faster? Which settings, builds and GPUs the runs have that count, and what to run if
 * there are too few. */
#include <math.h>

#include "runner/compare/compare_faster.h"
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

/* What a run does within or beside its timed steps. Histograms are counted within a step. */
static void what_a_step_records_counts(void **state) {
    static const struct { const char *config, *why; } CASES[] = {
        { ",\"tensorboard\":{\"histograms\":2}", "it records other things in a step than A "
                                               "(tensorboard.histograms)" },
        { ",\"fp8_error\":10", "it records other things in a step than A (fp8_error)" },
        { ",\"fp8_error\":0", "it records other things in a step than A (fp8_error)" },
        { ",\"sample\":{\"every\":2}", "24 of its 48 steady steps are beside an evaluation, a "
                                       "sample or a checkpoint" },
        { ",\"checkpoint\":{\"every\":6},\"sample\":{\"every\":4}",
          "16 of its 48 steady steps are" },
        { ",\"fp8_error\":100", NULL }, /* the default */
        { ",\"tensorboard\":null", NULL },
        { ",\"tensorboard\":{}", NULL },
        { ",\"sample\":null", NULL },
        { ",\"sample\":{\"every\":30}", NULL }, /* where it was evaluated, too */
        { ",\"checkpoint\":{\"every\":12},\"sample\":{\"every\":12}", NULL },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        runs[4].config = CASES[k].config;
        compare(&s, runs, 6);
        if (CASES[k].why) left_out_is(&s, 1, 4, CASES[k].why);
        else assert_int_equal(json_array_size(json_object_get(speed_family(&s), "left_out")), 0);
        speed_is(&s, "faster", "");
        finish(&s);
    }
}

/* ---- builds -------------------------------------------------------------------------------- */

static const json_t *builds_of(const struct scene *s, size_t entry) {
    const json_t *statistics = json_object_get(s->c.report, "statistics");
    return json_array_get(json_object_get(statistics, "speed_builds"), entry);
}

/* An optimisation that changes no bit: both builds are one row, and there was no verdict at all. */
static void builds_with_equal_bits_are_compared(void **state) {
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1.5);
    for (int i = 0; i < 6; i++) {
        runs[i].recipe = "fp8.delayed";
        runs[i].code = i < 3 ? "b1" : "b2";
    }
    runs[5].telemetry = SHARED;
    compare(&s, runs, 6);
    assert_null(speed_family(&s));
    const json_t *entry = builds_of(&s, 0);
    const json_t *row = json_array_get(json_object_get(entry, "rows"), 0);
    assert_null(builds_of(&s, 1));
    assert_string_equal(json_text(entry, "build", ""), "b1");
    assert_string_equal(json_text(row, "build", ""), "b2");
    assert_string_equal(json_text(row, "verdict", "none"), "faster");
    assert_int_equal(json_int(entry, "runs"), 3);
    assert_int_equal(json_int(row, "runs"), 2);
    assert_true(fabs(number(row, "ratio") / 1.5 - 1) < 0.01);
    text_says(&s, "How much faster?");
    text_says(&s, "D    build b2 ");
    text_says(&s, "  faster\n");
    text_says(&s, "F does not count: 1 other process used a GPU");
    char *table = NULL;
    struct err e = { 0 };
    CHECK(compare_table(&s.c, COMPARE_MARKDOWN, &table, &e));
    says(table, "\n| same bits | baseline | speed | runs | tokens/s | to the baseline |");
    says(table, "\n| D, build b2 | A, build b1 | faster | 2 | ");
    says(table, "\n\nF does not count: 1 other process used a GPU");
    free(table);
    CHECK(compare_table(&s.c, COMPARE_CSV, &table, &e));
    says(table, ",build,build_baseline,build_speed_runs,build_speed_tokens_per_s,build_speed_ratio,"
                "build_speed_low,build_speed_high,build_speed_verdict,build_speed_why\n");
    says(table, ",b1,,,,,,,,\nB,"); /* the baseline's own */
    says(table, ",b2,A,2,");
    says(table, ",faster,\nE,");
    free(table);
    char *html = page_of(&s);
    says(html, "<h2>How much faster?</h2>");
    says(html, "build b2");
    says(html, "<td class=\"good\">faster</td>");
    free(html);
    finish(&s);
}

/* Without runs of both builds that count there is no verdict; a CPU has no block of builds. */
static void builds_need_runs_that_count(void **state) {
    for (int cpu = 0; cpu < 2; cpu++) {
        struct scene s;
        struct run_fixture six[6], runs[3];
        on_gpu(six, 1.5);
        runs[0] = six[0];
        runs[1] = six[1];
        runs[1].code = "b2";
        runs[2] = six[2];
        runs[2].telemetry = SHARED;
        if (cpu) runs[0].backend = runs[1].backend = runs[2].backend = "cpu";
        compare(&s, runs, 3);
        const json_t *row = json_array_get(json_object_get(builds_of(&s, 0), "rows"), 0);
        if (cpu) assert_null(row);
        else {
            assert_true(json_is_null(json_object_get(row, "verdict")));
            says(json_text(row, "why", ""), "need 2 runs each that count; here are 1 and 1; run "
                                            "both builds in turns (--again)");
            text_says(&s, "How much faster?\n     same bits                 runs       tokens/s");
            text_says(&s, "    C does not count: 1 other process used a GPU in its steady");
            char *html = page_of(&s);
            says(html, "<h2>How much faster?</h2>");
            free(html);
        }
        finish(&s);
    }
}

/* A row of two builds beside a baseline of a third one: their speeds were pooled. */
static void a_row_has_one_build(void **state) {
    static const char *const CODES[6] = { "b1", "b1", "b2", "b3", "b3", "b3" };
    static const double SPEEDS[6] = { 1, 1.01, 9, 1.5, 1.51, 1.52 };
    const struct compare_options options = { .baseline = "a" };
    struct scene s;
    struct run_fixture runs[6];
    on_gpu(runs, 1);
    for (int i = 0; i < 6; i++) {
        runs[i].recipe = "bf16";
        runs[i].code = CODES[i];
        runs[i].speed = SPEEDS[i];
        runs[i].loss_shift = i < 2 ? 0 : 0.25; /* the bits of the last two builds are equal */
    }
    compare_by(&s, runs, 6, &options);
    left_out_is(&s, 1, 2, "it is of another build than D");
    assert_int_equal(json_int(speed_row(&s), "runs"), 3);
    speed_is(&s, "faster", "");
    assert_true(number(speed_row(&s), "ratio") < 1.6);
    finish(&s);
}

/* ---- what to run --------------------------------------------------------------------------- */

/* Earlier runs count among the N of --repeat, also those that do not count here: the same command
 * again would make no run. */
static void the_command_makes_new_runs(void **state) {
    static const struct { const char *shared, *seeds, *why; } CASES[] = {
        { "000011", "111111", "here are 1 and 3; fp8lab run --repeat 5 tiny.lua" },
        { "110000", "111111", "here are 3 and 1; fp8lab run --repeat 5 tiny.lua" },
        { "000111", "111111", "here are 0 and 3; fp8lab run --repeat 6 tiny.lua" },
        { "000111", "123123", "here are 0 and 3; fp8lab run --repeat 3 tiny.lua" }, /* two more of
                                                                                       each seed */
        { "000111", "112112", "here are 0 and 3; fp8lab run --repeat 4 tiny.lua" }, /* three more of
                                                                                       seed 2 */
        { "000022", "111111", "here are 1 and 3; fp8lab run --repeat 3 tiny.lua" }, /* of another
                                                                                       build */
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        on_gpu(runs, 1.5);
        for (int i = 0; i < 6; i++) {
            runs[i].argv = ",\"--repeat\",\"3\"";
            runs[i].seed = CASES[k].seeds[i] - '0';
            if (CASES[k].shared[i] == '1') runs[i].telemetry = SHARED;
            if (CASES[k].shared[i] == '2') runs[i].code = "dd";
        }
        compare(&s, runs, 6);
        assert_string_equal(strstr(json_text(speed_row(&s), "why", ""), "here are"), CASES[k].why);
        finish(&s);
    }
}

/* ---- GPUs of rows side by side -------------------------------------------------------------- */

/* Runs 0 to 5 on these GPUs, as many rows at once. */
static void side_by_side(struct run_fixture runs[6], const char *const gpus[6], char text[6][96]) {
    on_gpu(runs, 1.04);
    for (int i = 0; i < 6; i++) {
        snprintf(text[i], 96, "[{\"from_step\":0,\"side_by_side\":{\"gpus\":[%s],"
                 "\"rows_at_once\":4,\"slot\":0}}]", gpus[i]);
        runs[i].attempts = text[i];
    }
}

/* A chip that is 4 % faster made its recipe "faster". */
static void a_chip_is_no_recipe(void **state) {
    static const struct { const char *gpus[6], *verdict, *why; } CASES[] = {
        { { "0", "0", "0", "1", "1", "1" }, NULL,
          "its runs were on GPU 1, the baseline's on GPU 0: two chips of one product may differ by "
          "some percent; fp8lab run --repeat 4 --side-by-side 4 --again tiny.lua" },
        { { "0", "0", "0", "1", "2", "3" }, NULL,
          "its runs were on GPU 1, 2, 3, the baseline's on GPU 0:" },
        { { "0,1", "0,1", "0,1", "2,3", "2,3", "2,3" }, NULL,
          "on GPU 2+3, the baseline's on GPU 0+1" },
        { { "0", "1", "2", "3", "4", "5" }, "faster",
          "its runs were on GPU 3, 4, 5, the baseline's on GPU 0, 1, 2" },
        { { "0", "1", "2", "0", "1", "1" }, "faster",
          "its runs were on GPU 0, 1, 1, the baseline's on GPU 0, 1, 2" },
        { { "0", "1", "2", "2", "0", "1" }, "faster", "" }, /* each ran every row */
        { { "1", "1", "1", "1", "1", "1" }, "faster", "" },
    };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture runs[6];
        char text[6][96];
        side_by_side(runs, CASES[k].gpus, text);
        compare(&s, runs, 6);
        speed_is(&s, CASES[k].verdict, CASES[k].why);
        if (!*CASES[k].why) assert_string_equal(json_text(speed_row(&s), "why", "?"), "");
        finish(&s);
    }
}

/* Without --repeat the one run of each side is on a chip of its own. */
static void one_run_on_a_chip_of_its_own(void **state) {
    static const char *const GPUS[6] = { "0", "1", "2", "3", "4", "5" };
    struct scene s;
    struct run_fixture six[6], runs[2];
    char text[6][96];
    side_by_side(six, GPUS, text);
    runs[0] = six[0];
    runs[1] = six[3];
    runs[0].argv = runs[1].argv = ",\"--side-by-side\",\"8\",\"--set\",\"a=b\"";
    compare(&s, runs, 2);
    speed_is(&s, NULL, "here are 1 and 1; its runs were on GPU 3, the baseline's on GPU 0: two "
                       "chips of one product may differ by some percent; fp8lab run --repeat 4 "
                       "--side-by-side 4 tiny.lua --set a=b");
    finish(&s);
}

/* Rows at once share processors and disk: a run that was alone is no repeat of theirs. */
static void a_run_alone_is_no_repeat(void **state) {
    static const char *const GPUS[6] = { "0", "1", "2", "0", "1", "2" };
    struct scene s;
    struct run_fixture runs[6];
    char text[6][96];
    side_by_side(runs, GPUS, text);
    runs[4].attempts = "[{\"from_step\":0}]";
    runs[4].speed = 9;
    compare(&s, runs, 6);
    left_out_is(&s, 1, 4, "it ran alone, and A as one of 4 rows at once");
    assert_int_equal(json_int(speed_row(&s), "runs"), 2);
    finish(&s);
}

/* GPU 0 is 4 % slower than GPU 1. The sides share a GPU, so the bounds of all their runs called
 * equally fast recipes "faster". */
static void a_shared_gpu_decides(void **state) {
    static const struct { const char *gpus; double ratio; const char *verdict, *why; } CASES[] = {
        { "00011111", 1, "not shown", "on the GPUs that both sides had the ratio is 1.000x; its "
                                      "runs were on GPU 1, the baseline's on GPU 0, 0, 0, 1" },
        { "11100000", 1, "not shown", "on the GPUs that both sides had the ratio is 1.000x" },
        { "00011111", 1.002, "not shown", "that both sides had the ratio is 1.002x" }, /* within
                                                                          the scatter of all */
        { "11100000", 0.998, "not shown", "that both sides had the ratio is 0.998x" },
        { "00011111", 1.1, "faster", "its runs were on GPU 1, the baseline's on GPU 0, 0, 0, 1" },
        { "11100000", 0.9, "slower", "its runs were on GPU 0" },
        { "11101000", 1.1, "faster", "its runs were on GPU 1, 0, 0, 0" },
    };
    static const char *const IDS[8] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture six[6], runs[8];
        char text[8][96];
        on_gpu(six, 1);
        for (int i = 0; i < 8; i++) {
            char gpu = CASES[k].gpus[i];
            snprintf(text[i], sizeof text[i], "[{\"from_step\":0,\"side_by_side\":{\"gpus\":[%c],"
                     "\"rows_at_once\":2,\"slot\":%c}}]", gpu, gpu);
            runs[i] = six[i < 4 ? 0 : 3];
            runs[i].id = IDS[i];
            runs[i].attempts = text[i];
            runs[i].speed = (gpu == '0' ? 0.96 : 1) * (i < 4 ? 1 : CASES[k].ratio);
        }
        compare(&s, runs, 8);
        speed_is(&s, CASES[k].verdict, CASES[k].why);
        finish(&s);
    }
}

/* Runs of two settings, by digits: of the baseline and of two rows. Most verdicts count, then most
 * runs with a partner on the other side, then most runs. */
static void the_settings_that_give_most_count(void **state) {
    static const struct { const char *side[3]; int chosen; } CASES[] = {
        { { "1122222", "1122222", "11" }, 1 }, /* two verdicts, though of fewer runs */
        { { "112", "1122", "22" }, 1 },        /* one run of the baseline gives none */
        { { "11222", "112", "2" }, 1 },        /* one run of each row neither */
        { { "111222222", "11122", "" }, 1 },   /* three partners, two */
        { { "22111", "222222111", "" }, 1 },   /* the same from the other side */
        { { "1122", "112222", "" }, 2 },       /* the more runs */
    };
    static const char *const RECIPES[] = { "bf16", "fp8.delayed", "fp8.tensorwise" };
    static const char *const LIMITS[] = { "", ",\"gpu.power_limit_w\":450",
                                          ",\"gpu.power_limit_w\":500" };
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        struct scene s;
        struct run_fixture six[6], runs[RUNS_MAX];
        char ids[RUNS_MAX][16];
        int64_t count = 0, wanted[3] = { 0 };
        on_gpu(six, 1.5);
        for (int side = 0; side < 3; side++)
            for (const char *at = CASES[k].side[side]; *at; at++, count++) {
                snprintf(ids[count], sizeof ids[count], "run%d", (int)count);
                runs[count] = six[0];
                runs[count].id = ids[count];
                runs[count].recipe = RECIPES[side];
                runs[count].facts = LIMITS[*at - '0'];
                wanted[side] += *at - '0' == CASES[k].chosen;
            }
        compare(&s, runs, count);
        const json_t *rows = json_object_get(speed_family(&s), "rows");
        int64_t found[3] = { json_int(speed_family(&s), "runs"),
                             json_int(json_array_get(rows, 0), "runs"),
                             json_int(json_array_get(rows, 1), "runs") };
        for (int side = 0; side < 3; side++)
            if (*CASES[k].side[side] && found[side] != wanted[side])
                fail_msg("case %d: %d runs of side %d", (int)k, (int)found[side], side);
        finish(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_odd_run_does_not_decide),
        cmocka_unit_test(settings_of_both_sides_count),
        cmocka_unit_test(what_a_step_records_counts),
        cmocka_unit_test(builds_with_equal_bits_are_compared),
        cmocka_unit_test(builds_need_runs_that_count),
        cmocka_unit_test(a_row_has_one_build),
        cmocka_unit_test(the_command_makes_new_runs),
        cmocka_unit_test(a_chip_is_no_recipe),
        cmocka_unit_test(one_run_on_a_chip_of_its_own),
        cmocka_unit_test(a_run_alone_is_no_repeat),
        cmocka_unit_test(a_shared_gpu_decides),
        cmocka_unit_test(the_settings_that_give_most_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
