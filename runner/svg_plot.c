#include "runner/svg_plot.h"

#include <math.h>

/* The picture, in SVG units: the frame of the data and what is around it. */
enum { LEFT = 70, TOP = 12, WIDTH = 750, HEIGHT = 300, RIGHT = 20, BOTTOM = 40 };

struct range {
    double low, high;
};

/* Okabe and Ito's colours, which colour-blind readers tell apart; black last. */
const char *svg_color(int64_t i) {
    static const char *const COLORS[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                          "#e69f00", "#56b4e9", "#b8a900", "#777777" };
    return COLORS[(uint64_t)i % (sizeof COLORS / sizeof *COLORS)];
}

void html_escape(FILE *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: fputc(*text, out);
        }
    }
}

static void widen(struct range *r, double v) {
    if (!isfinite(v)) return;
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

/* The distance of ticks: 1, 2 or 5 times a power of ten, four to ten of them in the range. */
static double tick_step(struct range r) {
    double rough = (r.high - r.low) / 8, power = pow(10, floor(log10(rough)));
    double lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

static double x_at(struct range r, double v) {
    return LEFT + WIDTH * (v - r.low) / (r.high - r.low);
}
static double y_at(struct range r, double v) {
    return TOP + HEIGHT * (r.high - v) / (r.high - r.low);
}

static void put_axes(FILE *out, struct range x, struct range y) {
    double step = tick_step(y);
    for (double v = ceil(y.low / step) * step; v <= y.high; v += step)
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                LEFT, LEFT + WIDTH, y_at(y, v), y_at(y, v), LEFT - 6, y_at(y, v) + 4,
                fabs(v) < step / 2 ? 0.0 : v);
    step = tick_step(x);
    for (double v = ceil(x.low / step) * step; v <= x.high; v += step)
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.8g</text>\n", x_at(x, v),
                TOP + HEIGHT + 18, v);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            LEFT + WIDTH / 2, TOP + HEIGHT + 34);
}

/* One polyline a stretch without NaN; beyond two points a pixel, extremes of buckets. */
static void put_line(FILE *out, const struct svg_line *line, int64_t index, struct range x,
                     struct range y) {
    int64_t bucket = line->rows / WIDTH > 1 ? line->rows / WIDTH : 1;
    bool open = false;
    for (int64_t i = 0; i < line->rows; i += bucket) {
        struct range r = { INFINITY, -INFINITY };
        for (int64_t k = i; k < line->rows && k < i + bucket; k++)
            widen(&r, column_value(line->y, k));
        if (r.low > r.high) {
            if (open) fputs("\"/>\n", out);
            open = false;
            continue;
        }
        if (!open)
            fprintf(out, "<polyline class=\"data\" stroke=\"%s\" points=\"", svg_color(index));
        open = true;
        double at = x_at(x, column_value(line->x, i));
        fprintf(out, "%.1f,%.1f ", at, y_at(y, r.low));
        if (r.high > r.low) fprintf(out, "%.1f,%.1f ", at, y_at(y, r.high));
    }
    if (open) fputs("\"/>\n", out);
}

static bool find_ranges(const struct svg_line *lines, int64_t count, struct range *x,
                        struct range *y) {
    *x = *y = (struct range){ INFINITY, -INFINITY };
    for (int64_t l = 0; l < count; l++)
        for (int64_t i = 0; i < lines[l].rows; i++) {
            double v = column_value(lines[l].y, i);
            if (!isfinite(v)) continue;
            widen(y, v);
            widen(x, column_value(lines[l].x, i));
        }
    if (x->low > x->high || y->low > y->high) return false;
    if (x->low == x->high) x->low -= 1, x->high += 1;
    double margin = y->high > y->low ? 0.03 * (y->high - y->low) : fabs(y->high) * 0.01 + 1e-9;
    y->low -= margin;
    y->high += margin;
    return true;
}

void svg_plot(FILE *out, const char *title, const struct svg_line *lines, int64_t count) {
    struct range x, y;
    if (!find_ranges(lines, count, &x, &y)) return;
    fprintf(out, "<figure><figcaption>");
    html_escape(out, title);
    fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", LEFT + WIDTH + RIGHT,
            TOP + HEIGHT + BOTTOM);
    put_axes(out, x, y);
    for (int64_t i = 0; i < count; i++) put_line(out, &lines[i], i, x, y);
    fprintf(out, "</svg>\n<p class=\"legend\">");
    for (int64_t i = 0; i < count; i++) {
        if (lines[i].rows == 0) continue;
        fprintf(out, "<span style=\"color:%s\">&#9644; ", svg_color(i));
        html_escape(out, lines[i].name);
        fputs("</span> ", out);
    }
    fputs("</p></figure>\n", out);
}
