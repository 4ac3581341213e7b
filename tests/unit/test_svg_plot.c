/* Plots of hostile numbers: drawing ends, and the plot has a title and a legend. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "runner/base/text_stream.h"
#include "runner/compare/svg_plot.h"

static const struct svg_figure FIGURE = { .id = "loss", .title = "Loss <nats>" };

/* The figure for the lines; owned by the caller, NULL if nothing is drawn. */
static char *draw(const struct svg_figure *figure, const struct svg_line *lines, int64_t count) {
    struct text text = { 0 };
    FILE *out = text_stream_open(&text);
    assert_non_null(out);
    svg_plot(out, figure, lines, count);
    assert_true(text_stream_close(out, &text));
    return text.bytes;
}

static int occurrences(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what)) n++;
    return n;
}

/* The step between ticks must not be lost in the rounding of a large number. */
static void any_range_has_a_handful_of_ticks(void **state) {
    static const double CASES[][2] = {
        { 1, 1 + 0x1p-52 }, { 0, 5e-324 }, { -1e308, 1e308 }, { 0, 0 },     { 1e15, 1e15 + 1 },
        { -3, 1e12 },       { 1e-9, 2e-9 }, { 7, 7 },         { 1e299, 2e299 },
    };
    static const double X[2] = { 1, 2 };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct svg_line line = { .name = "a", .x = X, .y = CASES[i], .rows = 2 };
        char *svg = draw(&FIGURE, &line, 1);
        if (fabs(CASES[i][1]) >= 1e300) { /* too large for the axes: no figure */
            assert_null(svg);
            continue;
        }
        int labels = occurrences(svg, "<text");
        assert_in_range(labels, 4, 16);
        assert_int_equal(occurrences(svg, "nan") + occurrences(svg, "inf"), 0);
        free(svg);
    }
}

/* A bucket of many steps is drawn at its first one, which may have no value and lie far away. */
static void a_step_far_from_all_values_stays_a_number(void **state) {
    enum { ROWS = 3 * SVG_WIDTH };
    static double x[ROWS], y[ROWS];
    for (int i = 0; i < ROWS; i++) {
        x[i] = i ? 9007199254730000.0 + i : 0;
        y[i] = i ? 1 : (double)NAN;
    }
    struct svg_line line = { .name = "a", .x = x, .y = y, .rows = ROWS };
    char *svg = draw(&FIGURE, &line, 1);
    assert_non_null(strstr(svg, "d=\"M-1000000000 "));
    free(svg);
}

static void the_tick_loop_ends_for_large_steps(void **state) {
    static const double X[2] = { 9007199254740990.0, 9007199254740991.0 }, Y[2] = { 1, 2 };
    struct svg_line line = { .name = "a", .x = X, .y = Y, .rows = 2 };
    char *svg = draw(&FIGURE, &line, 1);
    assert_in_range(occurrences(svg, "<text"), 4, 16);
    free(svg);
}

static void nan_interrupts_a_line_and_points_stay_visible(void **state) {
    static const double X[5] = { 1, 2, 3, 4, 5 }, Y[5] = { 1, 2, NAN, 3, 4 };
    struct svg_line line = { .name = "a", .x = X, .y = Y, .rows = 5 };
    char *svg = draw(&FIGURE, &line, 1);
    assert_int_equal(occurrences(svg, "M"), 2);
    assert_int_equal(occurrences(svg, "<circle"), 4);
    assert_non_null(strstr(svg, "Loss &lt;nats&gt;"));
    free(svg);
    static const double FAR_X[2] = { 1, 500 }; /* next to a longer line the dots would overlap */
    struct svg_line two[2] = { line, { .name = "b", .color = 1, .x = FAR_X, .y = Y, .rows = 2 } };
    svg = draw(&FIGURE, two, 2);
    assert_int_equal(occurrences(svg, "<circle"), 2);
    free(svg);
    line.rows = 1; /* a line of one point is drawn as a dot */
    svg = draw(&FIGURE, &line, 1);
    assert_int_equal(occurrences(svg, "<circle"), 1);
    free(svg);
    line.rows = 0;
    assert_null(draw(&FIGURE, &line, 1));
}

static void one_colour_is_one_entry_of_the_legend(void **state) {
    static const double X[2] = { 1, 2 }, Y[2] = { 1, 2 };
    struct svg_line lines[4] = {
        { .name = "first", .x = X, .y = Y, .rows = 2 },
        { .name = "second", .x = X, .y = Y, .rows = 2 },
        { .name = "third", .color = 9, .x = X, .y = Y, .rows = 2 },
        { .name = "empty", .color = 1, .x = X, .y = Y },
    };
    char *svg = draw(&FIGURE, lines, 4);
    assert_int_equal(occurrences(svg, "<span "), 2);
    assert_null(strstr(svg, "second</span>"));
    assert_null(strstr(svg, "empty</span>"));
    assert_non_null(strstr(svg, "data k1 d1")); /* the tenth colour is the second, dashed */
    free(svg);
}

static void a_flat_line_has_short_labels(void **state) {
    static const double X[2] = { 1, 200 }, Y[2] = { 0, 0 };
    struct svg_line line = { .name = "a", .x = X, .y = Y, .rows = 2 };
    char *svg = draw(&FIGURE, &line, 1);
    assert_null(strstr(svg, "e-"));
    assert_non_null(strstr(svg, ">-0.5</text>"));
    free(svg);
}

static void labels_have_the_decimals_of_their_axis(void **state) {
    static const struct svg_figure SPEED = {
        .id = "speed", .title = "Tokens/s", .from_zero = true
    };
    static const double X[2] = { 1, 200 }, Y[2] = { 26000, 39000 }, FINE[2] = { 1.95, 2.1 };
    struct svg_line line = { .name = "a", .x = X, .y = Y, .rows = 2 };
    char *svg = draw(&SPEED, &line, 1);
    assert_non_null(strstr(svg, ">0</text>"));
    assert_non_null(strstr(svg, ">20k</text>"));
    assert_null(strstr(svg, ">0k<"));
    free(svg);
    line.y = FINE;
    svg = draw(&FIGURE, &line, 1);
    assert_non_null(strstr(svg, ">2.00</text>"));
    assert_non_null(strstr(svg, ">2.05</text>"));
    free(svg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_has_a_handful_of_ticks),
        cmocka_unit_test(a_step_far_from_all_values_stays_a_number),
        cmocka_unit_test(the_tick_loop_ends_for_large_steps),
        cmocka_unit_test(nan_interrupts_a_line_and_points_stay_visible),
        cmocka_unit_test(one_colour_is_one_entry_of_the_legend),
        cmocka_unit_test(a_flat_line_has_short_labels),
        cmocka_unit_test(labels_have_the_decimals_of_their_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
