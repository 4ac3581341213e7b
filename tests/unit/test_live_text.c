/* The state of a run as text: times and counts, the time that is left, the curve, the layout for
 * any size of a terminal, and the bytes that redraw it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/live/live_text.h"
#include "runner/live/screen.h"

static void take(struct live *l, enum stream_id stream, const char *text) {
    json_t *record = json_loads(text, 0, NULL);
    assert_non_null(record);
    live_take_json(l, stream, record);
    json_decref(record);
}

/* A run of 1,000 steps that has made 120 of them, at 41.25 ms per step. */
static void make(struct live *l) {
    live_begin(l);
    json_t *run = json_loads("{\"name\":\"tiny\",\"id\":\"x\",\"status\":\"running\",\"started\":"
                             "\"2026-11-21T02:48:23Z\",\"attempt\":{\"started\":"
                             "\"2026-11-21T02:48:23Z\",\"from_step\":0},\"attempts\":[]}", 0, NULL);
    json_t *resolved = json_loads("{\"train\":{\"steps\":1000},\"recipe\":{\"kind\":"
                                  "\"fp8.delayed\"}}", 0, NULL);
    live_take_run(l, run);
    live_take_resolved(l, resolved);
    json_decref(run);
    json_decref(resolved);
    l->life = RUN_LIFE_LOCKED;
    for (int i = 1; i <= 120; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"step\":%d,\"loss\":%f,\"grad_norm\":1.234,\"lr\":3e-4,"
                 "\"step_time_us\":41250,\"tokens_per_s\":99290}", i, 3.412 + 2.0 / i);
        take(l, STREAM_TRAIN, text);
    }
    take(l, STREAM_EVAL, "{\"step\":100,\"loss\":3.3990,\"tokens\":64}");
    take(l, STREAM_TELEMETRY,
         "{\"step\":1,\"time\":1795229310,\"rank\":0,\"rss_bytes\":1073741824,\"device_bytes\":"
         "536870912,\"gpu_clock_sm_mhz\":1980,\"gpu_power_mw\":690400,\"gpu_temperature_c\":61,"
         "\"gpu_memory_used_bytes\":13207024435}");
}

static double share_of(const void *source, const char *metric, int64_t label) {
    return !strcmp(metric, "underflow") ? 0.01 * (double)label : 0;
}

static const char *label_of(const void *source, int64_t label) {
    return label == 2 ? "layers.0.ffn_in.x" : "layers.0.qkv.w";
}

/* A suite of 40 rows; its 36th runs, after 12 that ended. */
static void take_suite(struct live *l) {
    json_t *ended = json_array();
    for (int i = 1; i <= 12; i++)
        json_array_append_new(ended, json_pack("{s:i,s:s,s:s,s:f,s:o}", "row", i, "name",
                                               i == 12 ? "fp8.tensorwise-first_bf16=1" : "bf16",
                                               "status", i == 12 ? "failed" : "done", "loss",
                                               1.5 + i, "eval_loss", i == 12 ? json_null()
                                                                             : json_real(0.25)));
    json_t *suite = json_pack("{s:i,s:i,s:o}", "row", 36, "rows", 40, "ended", ended);
    live_take_suite(l, suite);
    json_decref(suite);
}

static const char *no_variable(const char *name) { return NULL; }

/* ---- numbers --------------------------------------------------------------------------------- */

static void times_and_counts_are_short(void **state) {
    static const struct { double value; const char *time, *count; } CASES[] = {
        { 0, "0:00", "0" },          { 42.4, "0:42", "42" },
        { 950, "15:50", "950" },     { 3723, "1:02:03", "3.7k" },
        { 99290, "1 d 03:34", "99k" }, { 1199999, "13 d 21:19", "1.20M" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        live_format_time(CASES[i].value, text, sizeof text);
        assert_string_equal(text, CASES[i].time);
        live_format_count(CASES[i].value, text, sizeof text);
        assert_string_equal(text, CASES[i].count);
    }
    live_format_time(-1, text, sizeof text);
    assert_string_equal(text, "-");
}

static void time_left_follows_the_pace_of_this_attempt(void **state) {
    struct live l;
    make(&l);
    /* by the steps' own time, while the clock has one record */
    assert_int_equal((int)(live_eta_s(&l, 1795229310) + 0.5), (int)(880 * 0.04125 + 0.5));
    /* 119 steps in 238 s: evaluations count */
    take(&l, STREAM_TELEMETRY, "{\"step\":120,\"time\":1795229548,\"rank\":0}");
    assert_int_equal((int)live_eta_s(&l, 1795229548), 1760);
    assert_int_equal((int)live_eta_s(&l, 1795229549), 1759);
    assert_int_equal((int)live_eta_s(&l, 1795239549), 1758); /* at most one step is under way */
    assert_int_equal((int)live_eta_s(&l, 1795229000), 1760); /* another host's clock */
    l.life = RUN_LIFE_NONE;
    assert_true(live_eta_s(&l, 1795229548) < 0);
    assert_true(live_is_dead(&l) && live_is_over(&l));
}

static void records_of_an_earlier_attempt_set_no_pace(void **state) {
    struct live l;
    live_begin(&l);
    l.attempt_started = 1000;
    take(&l, STREAM_TELEMETRY, "{\"step\":5,\"time\":900,\"rank\":0}");
    assert_true(isnan(l.pace_time));
    take(&l, STREAM_TELEMETRY, "{\"step\":6,\"time\":1001,\"rank\":1}");
    assert_true(isnan(l.pace_time));
    take(&l, STREAM_TELEMETRY, "{\"step\":6,\"time\":1001,\"rank\":0}");
    assert_true(l.pace_time == 1001 && l.pace_step == 6);
}

static bool shows(const struct live_lines *lines, const char *text) {
    for (int64_t i = 0; i < lines->count; i++)
        if (strstr(lines->line[i].text, text)) return true;
    return false;
}

static void one_line_has_all_figures(void **state) {
    struct live l;
    char line[256];
    make(&l);
    live_line(&l, 1795229310, line, sizeof line);
    assert_string_equal(line, "step 120/1000  loss 3.429  lr 3.0e-04  grad 1.23  41.2 ms  "
                              "99k tokens/s  eval 3.399 at step 100  ETA 0:36");
    take(&l, STREAM_EVAL, "{\"step\":120,\"loss\":3.3}");
    live_line(&l, 1795229310, line, sizeof line);
    assert_non_null(strstr(line, "tokens/s  eval 3.300  ETA 0:36"));
    take(&l, STREAM_TRAIN, "{\"step\":121,\"loss\":null,\"grad_norm\":null,\"lr\":3e-4}");
    live_line(&l, 1795229310, line, sizeof line);
    assert_non_null(strstr(line, "step 121/1000  loss nan"));
}

/* A batch of chats may have no answer: that is no number, and no trouble. */
static void a_step_without_loss_says_so(void **state) {
    const struct live_look look = { .columns = 80, .rows = 24 };
    struct live_lines lines;
    struct live l;
    char line[256];
    make(&l);
    take(&l, STREAM_TRAIN, "{\"step\":121,\"loss\":null,\"loss_tokens\":0,\"grad_norm\":0,"
                           "\"lr\":3e-4}");
    live_line(&l, 1795229310, line, sizeof line);
    assert_non_null(strstr(line, "step 121/1000  no token with loss  lr"));
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "no token with loss"));
    assert_false(shows(&lines, "not finite"));
}

/* Spikes of the loss that have ended; one that goes on may be another level. */
static void spikes_are_counted(void **state) {
    const struct live_look look = { .columns = 100, .rows = 24 };
    struct live_lines lines;
    struct live l;
    char text[80];
    make(&l);
    for (int step = 121; step <= 260; step++) {
        bool high = step == 230 || step == 240 || step == 258;
        snprintf(text, sizeof text, "{\"step\":%d,\"loss\":%d,\"lr\":3e-4}", step, high ? 9 : 3);
        take(&l, STREAM_TRAIN, text);
        live_view(&l, &look, &lines);
        assert_int_equal(shows(&lines, "spike"), step >= 235);
    }
    assert_true(shows(&lines, "2 spikes, the last at step 240"));
}

/* 128 tokens a step; the first step, the slowest, is left out. */
static void speed_and_step_time_fit(void **state) {
    static const double MS[] = { 900, 10, 30, 20, 40 };
    struct live l;
    live_begin(&l);
    for (int i = 0; i < 5; i++) {
        char text[200];
        snprintf(text, sizeof text, "{\"step\":%d,\"loss\":1,\"step_time_us\":%.0f,"
                 "\"tokens_per_s\":%.9g}", i + 1, 1000 * MS[i], 128e3 / MS[i]);
        take(&l, STREAM_TRAIN, text);
    }
    assert_true(l.step_ms > 10 && l.step_ms < 40);
    assert_true(fabs(l.step_ms * l.tokens_per_s / 128e3 - 1) < 1e-6);
}

/* ---- the curve ------------------------------------------------------------------------------- */

static void a_curve_falls_from_the_top_to_the_bottom(void **state) {
    char rows[TREND_ROWS_MAX][TREND_TEXT_CAP];
    struct trend t = { 0 };
    double low, high;
    assert_int_equal(trend_draw(&t, 40, 2, false, rows, &low, &high), 0);
    for (int i = 0; i < 16; i++) trend_add(&t, 16 - i);
    trend_add(&t, (double)NAN);
    trend_add(&t, (double)INFINITY);
    assert_int_equal(trend_draw(&t, 40, 2, false, rows, &low, &high), 16);
    assert_true(low == 1 && high == 16);
    assert_string_equal(rows[0], "█▇▆▅▄▃▂▁        ");
    assert_string_equal(rows[1], "█████████▇▆▅▄▃▂▁");
    assert_int_equal(trend_draw(&t, 4, 1, true, rows, &low, &high), 4);
    assert_string_equal(rows[0], "#|:.");
}

static void a_long_curve_keeps_every_value_in_a_mean(void **state) {
    char rows[TREND_ROWS_MAX][TREND_TEXT_CAP];
    struct trend *t = calloc(1, sizeof *t);
    double low, high, sum = 0;
    int64_t count = 0;
    assert_non_null(t);
    for (int i = 0; i < 100000; i++) trend_add(t, i % 2);
    for (int64_t b = 0; b < t->bins; b++) {
        sum += t->bin[b].sum;
        count += t->bin[b].count;
    }
    assert_true(count == 100000 && sum == 50000 && t->bins <= TREND_BINS);
    assert_int_equal(trend_draw(t, 1000, 3, false, rows, &low, &high), TREND_COLUMNS_MAX);
    free(t);
}

/* ---- the layout ------------------------------------------------------------------------------ */

static void a_view_of_80_columns_has_everything(void **state) {
    static const char *const PARTS[] = {
        "tiny  running  fp8.delayed", "step 120/1000  12 %  ETA 0:36", "█", "loss 3.4287",
        "eval 3.3990 at step 100", "lr 3.0e-04  grad 1.23  41.2 ms  99k tokens/s",
        "FP8  saturated 0 %  underflow 2 % (layers.0.ffn_in.x)",
        "memory  GPU 12.3 GiB  arenas 512 MiB  host 1.0 GiB", "GPU  1980 MHz  690 W  61 C",
    };
    struct live l;
    struct live_lines lines;
    struct live_look look = { .columns = 80, .rows = 24, .now = 1795229310 };
    struct live_shares shares = { share_of, label_of, NULL, 3 };
    make(&l);
    live_take_fp8(&l, 120, &shares);
    live_view(&l, &look, &lines);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++)
        if (!shows(&lines, PARTS[i])) fail_msg("the view lacks: %s", PARTS[i]);
    assert_false(shows(&lines, "\033"));
    look.color = true;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "\033[1mtiny\033[0m"));
}

/* Columns of a text whose characters all have one. */
static int64_t columns_of(const char *text) {
    int64_t n = 0;
    for (; *text; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void no_size_makes_a_line_too_long_or_the_view_too_high(void **state) {
    struct live l;
    struct live_lines lines;
    struct live_shares shares = { share_of, label_of, NULL, 3 };
    make(&l);
    live_take_fp8(&l, 120, &shares);
    take_suite(&l);
    snprintf(l.error, sizeof l.error, "%0200d", 7);
    for (int ended = 0; ended < 2; ended++) {
        if (ended) snprintf(l.status, sizeof l.status, "failed");
        for (int64_t columns = 1; columns < 130; columns++)
            for (int64_t rows = 1; rows < 30; rows++) {
                struct live_look look = { .columns = columns, .rows = rows, .ascii = columns % 2,
                                          .now = 1795229310 };
                live_view(&l, &look, &lines);
                assert_true(lines.count >= 1 && (lines.count < rows || rows == 1));
                assert_true(shows(&lines, "step 120"));
                for (int64_t i = 0; i < lines.count; i++) {
                    assert_int_equal(lines.line[i].columns, columns_of(lines.line[i].text));
                    assert_true(lines.line[i].columns < columns || columns < 13);
                    assert_true(lines.line[i].columns <= LIVE_COLUMNS_MAX);
                }
            }
    }
}

static void names_of_others_cannot_control_the_terminal(void **state) {
    struct live l;
    struct live_lines lines;
    struct live_look look = { .columns = 40, .rows = 24 };
    make(&l);
    json_t *run = json_pack("{s:s,s:s,s:{s:s}}", "status", "failed", "name", "a\033[2J\nb", "error",
                            "text", "one\r\ntwo \033]0;x\007");
    live_take_run(&l, run);
    json_decref(run);
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "a?[2J?b"));
    assert_false(shows(&lines, "\033"));
    assert_false(shows(&lines, "\n"));
    snprintf(l.name, sizeof l.name, "%s", "漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字");
    live_view(&l, &look, &lines); /* such a character has two columns */
    assert_true(lines.line[0].columns < 40);
    assert_true(shows(&lines, "漢…"));
}

static void the_rows_of_a_suite_are_shown_while_one_runs(void **state) {
    struct live l;
    struct live_lines lines;
    struct live_look look = { .columns = 80, .rows = 30, .now = 1795229310 };
    char line[256];
    make(&l);
    take_suite(&l);
    live_line(&l, 1795229310, line, sizeof line);
    assert_int_equal(strncmp(line, "row 36/40  step 120/1000  loss ", 31), 0);
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "tiny  running  row 36 of 40  fp8.delayed"));
    assert_true(shows(&lines, "row 12  fp8.tensorwise-first_bf16=1  failed  loss 13.5000"));
    assert_true(shows(&lines, "row 5  bf16                         done  loss 6.5000  eval 0.25"));
    assert_false(shows(&lines, "row 4  ")); /* the last eight */
    look.columns = 40;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "row 12  fp8.tensorw…  failed"));
    assert_true(shows(&lines, "row 7  bf16          done  loss 8.5000"));
    look.columns = 80;
    look.rows = 9; /* the oldest go first, and no other line for them */
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "row 12  ") && !shows(&lines, "row 11  "));
    look.rows = 6;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "row 36 of 40") && !shows(&lines, "row 12  "));
    snprintf(l.status, sizeof l.status, "done"); /* the next row's view shows them again */
    look.rows = 30;
    live_view(&l, &look, &lines);
    assert_false(shows(&lines, "row 12  "));
}

static void what_the_recipe_cannot_lose_is_not_shown(void **state) {
    struct live l;
    struct live_lines lines;
    struct live_look look = { .columns = 80, .rows = 30, .now = 1795229310 };
    struct live_shares shares = { share_of, label_of, NULL, 3 };
    make(&l);
    live_take_fp8(&l, 120, &shares);
    static const struct { const char *resolved; bool saturated, underflow; } CASES[] = {
        { "{\"kind\":\"bf16\"}", false, false },
        { "{\"kind\":\"fp8.tensorwise\"}", false, true },
        { "{\"kind\":\"fp8.delayed\"}", true, true },
        { "{\"kind\":\"bf16\",\"layers\":[{\"recipe\":{\"kind\":\"fp8.delayed\"}}]}", true, true },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        json_t *resolved = json_pack("{s:o}", "recipe", json_loads(CASES[i].resolved, 0, NULL));
        live_take_resolved(&l, resolved);
        json_decref(resolved);
        live_view(&l, &look, &lines);
        json_t *o = live_json(&l, "x", 0);
        assert_int_equal(shows(&lines, "FP8"), CASES[i].underflow);
        assert_int_equal(shows(&lines, "saturated 0 %"), CASES[i].saturated);
        assert_int_equal(json_is_object(json_object_get(o, "saturated")), CASES[i].saturated);
        assert_int_equal(json_is_object(json_object_get(o, "underflow")), CASES[i].underflow);
        json_decref(o);
    }
}

static void before_the_first_step_and_after_the_end_it_says_so(void **state) {
    struct live l;
    struct live_lines lines;
    struct live_look look = { .columns = 80, .rows = 24, .now = 1795229310 };
    make(&l);
    l.step = -1;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "tiny  starting"));
    assert_true(shows(&lines, "step 0/1000  0 %"));
    l.step = 120;
    l.life = RUN_LIFE_NONE;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "tiny  killed"));
    assert_true(shows(&lines, "its runner is gone"));
    snprintf(l.status, sizeof l.status, "failed");
    snprintf(l.error, sizeof l.error, "step 120: loss is not finite");
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "step 120: loss is not finite"));
    l.life = RUN_LIFE_LOCKED;
    live_view(&l, &look, &lines);
    assert_true(shows(&lines, "failed, packing"));
}

/* ---- the terminal ---------------------------------------------------------------------------- */

static const char *values[2];
static const char *one_variable(const char *name) {
    return values[0] && !strcmp(name, values[0]) ? values[1] : NULL;
}

static void blocks_are_drawn_where_the_locale_has_them(void **state) {
    static const struct { const char *name, *value; bool utf8; } CASES[] = {
        { "LC_ALL", "C.UTF-8", true },  { "LANG", "en_GB.utf8", true },   { "LANG", "C", false },
        { "LC_CTYPE", "de_DE", false }, { "LC_ALL", "", false },          { NULL, NULL, false },
        { "LC_CTYPE", "de_DE.UTF-8@euro", true },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        values[0] = CASES[i].name;
        values[1] = CASES[i].value;
        assert_int_equal(screen_locale_is_utf8(one_variable), CASES[i].utf8);
    }
}

static int64_t rows_up(struct screen *s, const struct live_lines *lines, int64_t columns) {
    struct text text = { 0 };
    int up = 0;
    screen_compose(s, lines, columns, 24, &text);
    assert_false(text.failed);
    if (!strncmp(text.bytes, "\r\033[", 3)) (void)sscanf(text.bytes + 3, "%dA", &up);
    text_free(&text);
    return up;
}

static void a_draw_goes_up_by_the_rows_of_the_last_one(void **state) {
    struct live_lines lines = { .count = 3, .line = { { "a", 60 }, { "b", 10 }, { "c", 41 } } };
    struct screen plain, known;
    assert_false(screen_open(&plain, 0, no_variable)); /* no TERM */
    values[0] = "TMUX";
    values[1] = "/tmp/x";
    (void)screen_open(&known, 0, one_variable);
    assert_int_equal(rows_up(&plain, &lines, 80), 0);
    assert_int_equal(rows_up(&plain, &lines, 80), 3);
    assert_int_equal(rows_up(&plain, &lines, 40), 3); /* what it does not know, it does not erase */
    (void)rows_up(&known, &lines, 80);
    assert_int_equal(rows_up(&known, &lines, 40), 5); /* 60 and 41 columns are two rows each now */
    assert_int_equal(rows_up(&known, &lines, 80), 3);
    assert_int_equal(rows_up(&known, NULL, 80), 3);   /* erased */
    assert_int_equal(rows_up(&known, &lines, 80), 0);
    screen_leave(&known);
    assert_int_equal(rows_up(&known, &lines, 80), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_and_counts_are_short),
        cmocka_unit_test(time_left_follows_the_pace_of_this_attempt),
        cmocka_unit_test(records_of_an_earlier_attempt_set_no_pace),
        cmocka_unit_test(one_line_has_all_figures),
        cmocka_unit_test(a_step_without_loss_says_so),
        cmocka_unit_test(spikes_are_counted),
        cmocka_unit_test(speed_and_step_time_fit),
        cmocka_unit_test(a_curve_falls_from_the_top_to_the_bottom),
        cmocka_unit_test(a_long_curve_keeps_every_value_in_a_mean),
        cmocka_unit_test(a_view_of_80_columns_has_everything),
        cmocka_unit_test(no_size_makes_a_line_too_long_or_the_view_too_high),
        cmocka_unit_test(names_of_others_cannot_control_the_terminal),
        cmocka_unit_test(the_rows_of_a_suite_are_shown_while_one_runs),
        cmocka_unit_test(what_the_recipe_cannot_lose_is_not_shown),
        cmocka_unit_test(before_the_first_step_and_after_the_end_it_says_so),
        cmocka_unit_test(blocks_are_drawn_where_the_locale_has_them),
        cmocka_unit_test(a_draw_goes_up_by_the_rows_of_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
