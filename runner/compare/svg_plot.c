#include "runner/compare/svg_plot.h"

#include <math.h>

/* Sizes in SVG units: the data frame and its margins. LEFT and BOTTOM fit labels at their size on a
 * phone (22 units). */
enum { LEFT = 74, TOP = 14, WIDTH = 540, HEIGHT = 270, RIGHT = 26, BOTTOM = 62 };
enum { COLORS = 8, DOT_DISTANCE = 10, TICKS = 5 };

struct range {
    double low, high;
};

/* Okabe and Ito's colours, which colour-blind readers can separate, plus an olive and a grey; dark
 * pages have the same hues, lighter. */
static const char CSS[] =
    ".k0{color:#0072b2}.k1{color:#d55e00}.k2{color:#009e73}.k3{color:#c0609a}"
    ".k4{color:#c98a00}.k5{color:#3a9bd9}.k6{color:#8a8000}.k7{color:#6b6b6b}\n"
    "@media(prefers-color-scheme:dark){.k0{color:#4aa8e8}.k1{color:#ff8a3d}.k2{color:#2cc79b}"
    ".k3{color:#e59ac8}.k4{color:#f0b429}.k5{color:#9bd7ff}.k6{color:#d6cb3a}.k7{color:#a8a8a8}}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600}figure>svg{width:100%;display:block}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line)}"
    ".zero{stroke:var(--soft)}.data{fill:none;stroke:currentColor;stroke-width:1.6;"
    "stroke-linejoin:round}circle{fill:currentColor}.d1{stroke-dasharray:7 4}"
    ".d2{stroke-dasharray:2 3}\n"
    ".key{width:22px;height:8px;vertical-align:middle}.key line{stroke-width:3}"
    ".legend{margin:.2em 0 1.5em;color:var(--soft);font-size:90%;overflow-wrap:anywhere}"
    ".legend span{display:inline-block;margin-right:1.2em}\n"
    "@media(max-width:42em){svg text{font-size:22px}.data{stroke-width:2.4}}\n";

const char *svg_css(void) {
    return CSS;
}

static void put_class(FILE *out, int64_t i) {
    fprintf(out, "data k%d", (int)(i % COLORS));
    if (i >= COLORS) fprintf(out, " d%d", i < 2 * COLORS ? 1 : 2);
}

void svg_key(FILE *out, int64_t i) {
    fputs("<svg class=\"key\" viewBox=\"0 0 22 8\" aria-hidden=\"true\"><line class=\"", out);
    put_class(out, i);
    fputs("\" x1=\"0\" x2=\"22\" y1=\"4\" y2=\"4\"/></svg>", out);
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

/* Whether a value is drawn: above 1e300 foreign numbers would overflow the axes. */
static bool drawable(double v) {
    return fabs(v) < 1e300; /* false for NaN */
}

static void widen(struct range *r, double v) {
    if (!drawable(v)) return;
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
}

/* ---- axes ---------------------------------------------------------------------------------- */

/* The distance of ticks: 1, 2 or 5 times a power of ten; gives two to five ticks. */
static double tick_step(struct range r) {
    double rough = (r.high - r.low) / TICKS, power = pow(10, floor(log10(rough)));
    double lead = rough / power;
    return power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);
}

/* One tick's label. All ticks of an axis have the same decimals and the same k (1000) or M. */
static void put_tick(FILE *out, double v, double step, struct range r) {
    double most = fmax(fabs(r.low), fabs(r.high));
    double unit = most >= 1e7 ? 1e6 : most >= 1e4 ? 1e3 : 1;
    double decimals = fmax(0, -floor(log10(step / unit) + 1e-9));
    if (fabs(v) < step / 2) v = 0; /* not "-0.0" */
    if (decimals > 4) fprintf(out, "%.3g", v);
    else fprintf(out, "%.*f", (int)decimals, v / unit);
    if (decimals <= 4 && v != 0) fputs(unit == 1e6 ? "M" : unit > 1 ? "k" : "", out);
}

static double x_at(struct range r, double v) {
    return LEFT + WIDTH * (v - r.low) / (r.high - r.low);
}
static double y_at(struct range r, double v) {
    return TOP + HEIGHT * (r.high - v) / (r.high - r.low);
}

static void put_axes(FILE *out, struct range x, struct range y) {
    double step = tick_step(y);
    for (double v = ceil(y.low / step) * step; v <= y.high; v += step) {
        fprintf(out,
                "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                fabs(v) < step / 2 ? "zero" : "grid", LEFT, LEFT + WIDTH, y_at(y, v), y_at(y, v),
                LEFT - 8, y_at(y, v) + 5);
        put_tick(out, v, step, y);
        fputs("</text>\n", out);
    }
    step = tick_step(x);
    for (double v = ceil(x.low / step) * step; v <= x.high; v += step) {
        fprintf(out,
                "<line class=\"zero\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                x_at(x, v), x_at(x, v), TOP + HEIGHT, TOP + HEIGHT + 5, x_at(x, v),
                TOP + HEIGHT + 25);
        put_tick(out, v, step, x);
        fputs("</text>\n", out);
    }
    fprintf(out,
            "<line class=\"zero\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            LEFT, LEFT + WIDTH, TOP + HEIGHT, TOP + HEIGHT, LEFT + WIDTH / 2, TOP + HEIGHT + 50);
}

/* Widens a range that is too narrow for its numbers: otherwise a tick step is lost in rounding. */
static void open_up(struct range *r) {
    double least = 1e-9 * fmax(fabs(r->low), fabs(r->high)) + 1e-9;
    if (r->high - r->low >= least) return;
    r->low -= least;
    r->high += least;
}

static bool find_ranges(const struct svg_figure *figure, const struct svg_line *lines,
                        int64_t count, struct range *x, struct range *y) {
    *x = *y = (struct range){ INFINITY, -INFINITY };
    for (int64_t l = 0; l < count; l++)
        for (int64_t i = 0; i < lines[l].rows; i++) {
            if (!drawable(lines[l].y[i])) continue;
            widen(y, lines[l].y[i]);
            widen(x, lines[l].x[i]);
        }
    if (x->low > x->high || y->low > y->high) return false;
    if (x->low == x->high) x->low -= 1, x->high += 1;
    open_up(x);
    open_up(y);
    double margin = 0.03 * (y->high - y->low);
    y->low -= margin;
    y->high += margin;
    if (figure->from_zero && y->low > 0) y->low = 0;
    return true;
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Draws a dot at each point if the points are far enough apart. */
static void put_dots(FILE *out, const struct svg_line *line, struct range x, struct range y) {
    int64_t last = line->rows - 1;
    if (last > 0 && x_at(x, line->x[last]) - x_at(x, line->x[0]) < (double)last * DOT_DISTANCE)
        return;
    fprintf(out, "<g class=\"k%d\">", (int)(line->color % COLORS));
    for (int64_t i = 0; i < line->rows; i++)
        if (drawable(line->y[i]))
            fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>", x_at(x, line->x[i]),
                    y_at(y, line->y[i]));
    fputs("</g>\n", out);
}

/* Draws one polyline for each stretch without NaN; with more than two points a pixel, the minimum
 * and maximum of each bucket. */
static void put_line(FILE *out, const struct svg_line *line, struct range x, struct range y) {
    int64_t bucket = line->rows / WIDTH > 1 ? line->rows / WIDTH : 1;
    bool open = false;
    for (int64_t i = 0; i < line->rows; i += bucket) {
        struct range r = { INFINITY, -INFINITY };
        for (int64_t k = i; k < line->rows && k < i + bucket; k++) widen(&r, line->y[k]);
        if (r.low > r.high) {
            if (open) fputs("\"/>\n", out);
            open = false;
            continue;
        }
        if (!open) {
            fputs("<polyline class=\"", out);
            put_class(out, line->color);
            fputs("\" points=\"", out);
        }
        open = true;
        double at = x_at(x, line->x[i]);
        fprintf(out, "%.1f,%.1f ", at, y_at(y, r.low));
        if (r.high > r.low) fprintf(out, "%.1f,%.1f ", at, y_at(y, r.high));
    }
    if (open) fputs("\"/>\n", out);
    if (line->rows > 0) put_dots(out, line, x, y);
}

static void put_legend(FILE *out, const struct svg_line *lines, int64_t count) {
    fputs("<p class=\"legend\">", out);
    for (int64_t i = 0; i < count; i++) {
        bool named = lines[i].rows == 0;
        for (int64_t k = 0; k < i; k++)
            named = named || (lines[k].rows > 0 && lines[k].color == lines[i].color);
        if (named) continue;
        fputs("<span>", out);
        svg_key(out, lines[i].color);
        fputc(' ', out);
        html_escape(out, lines[i].name);
        fputs("</span> ", out);
    }
    fputs("</p>", out);
}

void svg_plot(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count) {
    struct range x, y;
    if (!find_ranges(figure, lines, count, &x, &y)) return;
    fputs("<figure><figcaption>", out);
    html_escape(out, figure->title);
    fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
            LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    html_escape(out, figure->title);
    fputs("\">\n", out);
    put_axes(out, x, y);
    /* The first line is the reference: it is drawn last, on top. */
    for (int64_t i = count; i-- > 0;) put_line(out, &lines[i], x, y);
    fputs("</svg>\n", out);
    put_legend(out, lines, count);
    fputs("</figure>\n", out);
}
