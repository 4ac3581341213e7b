/* Histograms on the page: for weights, gradients and activations a map of layers by powers of two,
 * of the last counted step, and a table that screen readers can read. */
#include <stdlib.h>

#include "runner/compare/map_cells.h"
#include "runner/compare/page.h"
#include "runner/compare/spread.h"
#include "runner/compare/svg_plot.h"

static const char *const TITLES[SPREAD_KINDS] = {
    [SPREAD_WEIGHTS] = "Weights", [SPREAD_GRADIENTS] = "Gradients",
    [SPREAD_ACTIVATIONS] = "Outputs of blocks",
};

/* Shares of a row's elements from which on a cell has level 2 and level 3. */
static const double SOME = 1e-3, MANY = 0.1;

static uint8_t level_of(double share) {
    return (uint8_t)(share > 0 ? 1 + (share >= SOME) + (share >= MANY) : 0);
}

/* The powers that some row has; false: all rows are zero. */
static bool range_of(const struct spread *s, int kind, int *low, int *high) {
    *low = HISTOGRAM_POWERS;
    *high = -1;
    for (int64_t i = 0; i < s->of[kind].count; i++)
        for (int k = 0; k < HISTOGRAM_POWERS; k++) {
            if (s->of[kind].row[i].count[k] == 0) continue;
            if (k < *low) *low = k;
            if (k > *high) *high = k;
        }
    return *high >= 0;
}

/* Half the width of a power's name on a phone. */
enum { HALF_NAME = 32 };
static void put_axes(FILE *out, const struct spread *s, int kind, int low, int high) {
    int64_t rows = s->of[kind].count, below = map_height(rows) - MAP_BELOW + 18;
    int columns = high - low + 1, every = columns > 24 ? 8 : columns > 8 ? 4 : 1;
    for (int64_t i = 0; i < rows; i++) {
        if (!map_row_is_named(rows, i)) continue;
        map_row_name(out, rows, i);
        html_escape(out, s->of[kind].row[i].name);
        fputs("</text>", out);
    }
    for (int k = low; k <= high; k++) {
        int x = MAP_WIDTH * (k - low) / columns;
        if ((k + HISTOGRAM_LOWEST) % every != 0 || x > MAP_WIDTH - HALF_NAME) continue;
        fprintf(out, "<text x=\"%d\" y=\"%lld\" text-anchor=\"middle\">2^%d</text>",
                MAP_LEFT + x, (long long)below, k + HISTOGRAM_LOWEST);
    }
}

static void put_map(FILE *out, const struct spread *s, int kind) {
    int low, high;
    int64_t rows = s->of[kind].count;
    uint8_t level[SPREAD_ROWS_MAX * HISTOGRAM_POWERS];
    if (!range_of(s, kind, &low, &high)) return;
    struct map_cells cells = { "spread", level, rows, high - low + 1, HISTOGRAM_POWERS };
    for (int64_t i = 0; i < rows; i++)
        for (int k = low; k <= high; k++) {
            const struct spread_row *r = &s->of[kind].row[i];
            level[i * HISTOGRAM_POWERS + k - low] = level_of(r->count[k] / r->all);
        }
    fprintf(out, "<figure class=\"map\"><figcaption>%s in step %lld, by powers of two</figcaption>"
            "<svg viewBox=\"0 0 %d %lld\" role=\"img\"><title>%s in step %lld; rows are layers, "
            "columns powers of two</title>\n", TITLES[kind], (long long)s->step,
            MAP_LEFT + MAP_WIDTH, (long long)map_height(rows), TITLES[kind], (long long)s->step);
    map_cells_put(out, &cells);
    put_axes(out, s, kind, low, high);
    fprintf(out, "</svg><p class=\"soft\">From faint to full: any, %g, %g %% of the row's "
            "elements</p></figure>\n", 100 * SOME, 100 * MANY);
}

/* The power below which half of the elements that are not zero lie. */
static int median_power(const struct spread_row *r) {
    double sum = 0, half = 0;
    int k = 0;
    for (int i = 0; i < HISTOGRAM_POWERS; i++) half += r->count[i] / 2;
    while (k < HISTOGRAM_POWERS - 1 && (sum += r->count[k]) < half) k++;
    return k + 1 + HISTOGRAM_LOWEST;
}
static int largest_power(const struct spread_row *r) {
    int k = HISTOGRAM_POWERS - 1;
    while (k > 0 && r->count[k] == 0) k--;
    return k + 1 + HISTOGRAM_LOWEST;
}

static void put_table(FILE *out, const struct spread *s) {
    static const char *const HEAD[] = { "values of", "layer", "zero, %", "half are below",
                                        "all are below", "NaN" };
    fputs("<details><summary>The histograms in numbers</summary>\n", out);
    page_table(out, "Histograms by layer", HEAD, sizeof HEAD / sizeof *HEAD);
    for (int kind = 0; kind < SPREAD_KINDS; kind++)
        for (int64_t i = 0; i < s->of[kind].count; i++) {
            const struct spread_row *r = &s->of[kind].row[i];
            fprintf(out, "<tr><th scope=\"row\">%s</th><td>", TITLES[kind]);
            html_escape(out, r->name);
            fprintf(out, "</td><td class=\"n\">%.3g</td><td class=\"n\">2^%d</td>"
                    "<td class=\"n\">2^%d</td><td class=\"n\">%.0f</td></tr>\n",
                    r->all > 0 ? 100 * r->zeros / r->all : 0, median_power(r), largest_power(r),
                    r->nans);
        }
    page_table_end(out);
    fputs("</details>\n", out);
}

static bool has_histograms(const struct comparison *c, int64_t run) {
    return c->spread[run].counted;
}

static void put_run(FILE *out, const struct comparison *c, int64_t run) {
    fputs("<div class=\"plots\">\n", out);
    for (int kind = 0; kind < SPREAD_KINDS; kind++) put_map(out, &c->spread[run], kind);
    fputs("</div>\n", out);
    put_table(out, &c->spread[run]);
}

void compare_spread(FILE *out, const struct comparison *c) {
    page_firsts(out, c,
                "<h2>Histograms</h2>\n"
                "<p class=\"soft\">Of the first run of each colour that counted them. A value x "
                "is in the column of the power of two at or below |x|.</p>\n",
                has_histograms, put_run);
}
