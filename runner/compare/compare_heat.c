/* FP8 by layer and step on the page: heat maps of the first FP8 run of each group, and a table with
 * the worst value of each layer, which screen readers can read. */
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/compare/map_cells.h"
#include "runner/compare/page.h"
#include "runner/compare/svg_plot.h"
#include "runner/health/heat.h"

static void put_row_name(FILE *out, const struct heat *h, int64_t row) {
    if (h->has_head && row == h->layers - 1) fputs("head", out);
    else fprintf(out, "%lld", (long long)row);
}

/* Names of rows, and the ends of the steps. */
static void put_axes(FILE *out, const struct heat *h) {
    int64_t below = map_height(h->layers) - MAP_BELOW + 18;
    for (int64_t row = 0; row < h->layers; row++) {
        if (!map_row_is_named(h->layers, row)) continue;
        map_row_name(out, h->layers, row);
        put_row_name(out, h, row);
        fputs("</text>", out);
    }
    fprintf(out,
            "<text x=\"%d\" y=\"%lld\">step %lld</text>"
            "<text x=\"%d\" y=\"%lld\" text-anchor=\"end\">%lld</text>\n",
            MAP_LEFT, (long long)below, (long long)h->step_first, MAP_LEFT + MAP_WIDTH,
            (long long)below, (long long)h->step_last);
}

static const char *name_of(const struct heat *h, const struct heat_worst *worst) {
    const char *name = json_string_value(json_array_get(h->labels, (size_t)worst->tensor));
    return name ? name : "?";
}

/* The layer with the worst value; -1: none has one. */
static int64_t worst_layer(const struct heat *h, enum heat_metric m) {
    int64_t found = -1;
    for (int64_t i = 0; i < h->layers; i++)
        if (h->worst[m][i].step >= 0 &&
            (found < 0 || h->worst[m][i].value > h->worst[m][found].value))
            found = i;
    return found;
}

/* "Saturated, % of the elements; at worst 2 % of layers.1.qkv.dy in step 60" */
static void put_words(FILE *out, const struct heat *h, enum heat_metric m) {
    int64_t at = worst_layer(h, m);
    fprintf(out, "%s, %s", HEAT_SCALES[m].title, HEAT_SCALES[m].unit);
    if (at < 0) return;
    const struct heat_worst *worst = &h->worst[m][at];
    fprintf(out, "; at worst %.3g of ", worst->value);
    html_escape(out, name_of(h, worst));
    fprintf(out, " in step %lld", (long long)worst->step);
}

static void put_map(FILE *out, const struct heat *h, enum heat_metric m) {
    const double *from = HEAT_SCALES[m].from;
    struct map_cells cells = { "heat", h->level[m], h->layers, h->bins[m], HEAT_BINS };
    if (worst_layer(h, m) < 0) return; /* nothing recorded, or it cannot be */
    fputs("<figure class=\"map\"><figcaption>", out);
    put_words(out, h, m);
    fprintf(out, "</figcaption><svg viewBox=\"0 0 %d %lld\" role=\"img\"><title>",
            MAP_LEFT + MAP_WIDTH, (long long)map_height(h->layers));
    put_words(out, h, m);
    fputs("; rows are layers, columns steps, and a cell is the worst of both</title>\n", out);
    map_cells_put(out, &cells);
    put_axes(out, h);
    fprintf(out, "</svg><p class=\"soft\">From faint to full: %g, %g, %g %s</p></figure>\n",
            from[0], from[1], from[2], HEAT_SCALES[m].unit);
}

static void put_table(FILE *out, const struct heat *h) {
    char text[HEAT_METRICS][64];
    const char *titles[1 + HEAT_METRICS] = { "layer" };
    for (int m = 0; m < HEAT_METRICS; m++) {
        snprintf(text[m], sizeof text[m], "%s, %s", HEAT_SCALES[m].title, HEAT_SCALES[m].unit);
        titles[1 + m] = text[m];
    }
    fputs("<details><summary>The worst of each layer</summary>", out);
    page_table(out, "The worst value of each layer in all steps", titles, 1 + HEAT_METRICS);
    for (int64_t row = 0; row < h->layers; row++) {
        fputs("<tr><th scope=\"row\">", out);
        put_row_name(out, h, row);
        fputs("</th>", out);
        for (int m = 0; m < HEAT_METRICS; m++) {
            const struct heat_worst *worst = &h->worst[m][row];
            if (worst->step < 0) {
                fputs("<td>–</td>", out);
                continue;
            }
            fprintf(out, "<td>%.3g<small>", worst->value);
            html_escape(out, name_of(h, worst));
            fprintf(out, ", step %lld</small></td>", (long long)worst->step);
        }
        fputs("</tr>\n", out);
    }
    page_table_end(out);
    fputs("</details>\n", out);
}

static bool has_fp8(const struct comparison *c, int64_t run) { return c->heat[run].layers > 0; }

static void put_run(FILE *out, const struct comparison *c, int64_t run) {
    fputs("<div class=\"plots\">\n", out);
    for (int m = 0; m < HEAT_METRICS; m++) put_map(out, &c->heat[run], (enum heat_metric)m);
    fputs("</div>\n", out);
    put_table(out, &c->heat[run]);
}

void compare_heat(FILE *out, const struct comparison *c) {
    page_firsts(out, c,
                "<h2>FP8 by layer and step</h2>\n"
                "<p class=\"soft\">Of the first run of each colour. A cell has the worst of its "
                "layer's tensors and of its steps; <code>fp8lab health RUN</code> says what it "
                "means.</p>\n", has_fp8, put_run);
}
