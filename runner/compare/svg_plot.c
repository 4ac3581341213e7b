#include "runner/compare/svg_plot.h"

#include <math.h>

enum { COLORS = 8, DOT_DISTANCE = 10, TICKS = 5, DESCRIBED = 16 };

struct range {
    double low, high;
};

/* Okabe and Ito's colours, which colour-blind readers can separate, plus an olive and a grey; dark
 * pages have the same hues, lighter. */
#define LIGHT                                                                                     \
    ".k0{color:#0072b2}.k1{color:#d55e00}.k2{color:#009e73}.k3{color:#c0609a}"                    \
    ".k4{color:#c98a00}.k5{color:#3a9bd9}.k6{color:#8a8000}.k7{color:#6b6b6b}\n"
#define LINES                                                                                     \
    ".data{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}"                 \
    "circle{fill:currentColor}.band{fill:currentColor;opacity:.18}"                               \
    ".d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}\n"

static const char CSS[] =
    LIGHT LINES
    "@media(prefers-color-scheme:dark){.k0{color:#4aa8e8}.k1{color:#ff8a3d}.k2{color:#2cc79b}"
    ".k3{color:#e59ac8}.k4{color:#f0b429}.k5{color:#9bd7ff}.k6{color:#d6cb3a}.k7{color:#a8a8a8}}\n"
    "figure{margin:0;min-width:0}figcaption{font-weight:600}figure>svg{width:100%;display:block}\n"
    "svg text{font:13px system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line)}"
    ".zero{stroke:var(--soft)}\n"
    ".key{width:22px;height:8px;vertical-align:middle}.key line{stroke-width:3}"
    ".legend{margin:.2em 0 1.5em;color:var(--soft);font-size:90%;overflow-wrap:anywhere}"
    ".legend span{display:inline-block;margin-right:1.2em}\n"
    "@media(max-width:42em){svg text{font-size:22px}.data{stroke-width:2.4}}\n";

/* Of a file by itself: on white paper, in fonts that most programs have. */
static const char FILE_CSS[] =
    LIGHT LINES
    "text{font:13px Helvetica,Arial,sans-serif;fill:#1c1c1c}.title{font-weight:bold}"
    ".grid{stroke:#dcdcdc}.zero{stroke:#5c5c5c}.key{stroke-width:3}\n";

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
        default: fputc((unsigned char)*text < ' ' && *text != '\n' && *text != '\t' ? '?' : *text,
                       out);
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

bool svg_extent(const struct svg_line *line, int64_t from, int64_t count, double *low,
                double *high) {
    struct range r = { INFINITY, -INFINITY };
    for (int64_t i = from; i < line->rows && i < from + count; i++) {
        widen(&r, line->y[i]);
        if (line->high) widen(&r, line->high[i]);
    }
    *low = r.low;
    *high = r.high;
    return r.low <= r.high;
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
    return SVG_LEFT + SVG_WIDTH * (v - r.low) / (r.high - r.low);
}
static double y_at(struct range r, double v) {
    return SVG_TOP + SVG_HEIGHT * (r.high - v) / (r.high - r.low);
}

static void put_axes(FILE *out, struct range x, struct range y) {
    double step = tick_step(y);
    for (double v = ceil(y.low / step) * step; v <= y.high; v += step) {
        fprintf(out,
                "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                fabs(v) < step / 2 ? "zero" : "grid", SVG_LEFT, SVG_LEFT + SVG_WIDTH, y_at(y, v),
                y_at(y, v), SVG_LEFT - 8, y_at(y, v) + 5);
        put_tick(out, v, step, y);
        fputs("</text>\n", out);
    }
    step = tick_step(x);
    for (double v = ceil(x.low / step) * step; v <= x.high; v += step) {
        fprintf(out,
                "<line class=\"zero\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                x_at(x, v), x_at(x, v), SVG_TOP + SVG_HEIGHT, SVG_TOP + SVG_HEIGHT + 5, x_at(x, v),
                SVG_TOP + SVG_HEIGHT + 25);
        put_tick(out, v, step, x);
        fputs("</text>\n", out);
    }
    fprintf(out,
            "<line class=\"zero\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
            SVG_LEFT, SVG_LEFT + SVG_WIDTH, SVG_TOP + SVG_HEIGHT, SVG_TOP + SVG_HEIGHT,
            SVG_LEFT + SVG_WIDTH / 2, SVG_TOP + SVG_HEIGHT + 50);
}

/* Widens a range that is too narrow for its numbers: otherwise a tick step is lost in rounding. */
static void open_up(struct range *r) {
    double size = fmax(fabs(r->low), fabs(r->high)), least = 1e-9 * size + 1e-9;
    if (r->high - r->low >= least) return;
    if (r->low == r->high) least = size > 0 ? fmax(least, 0.01 * size) : 1; /* a flat line */
    r->low -= least;
    r->high += least;
}

static bool find_ranges(const struct svg_figure *figure, const struct svg_line *lines,
                        int64_t count, struct range *x, struct range *y) {
    *x = *y = (struct range){ INFINITY, -INFINITY };
    for (int64_t l = 0; l < count; l++)
        for (int64_t i = 0; i < lines[l].rows; i++) {
            struct range r;
            if (!svg_extent(&lines[l], i, 1, &r.low, &r.high)) continue;
            widen(y, r.low);
            widen(y, r.high);
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

/* The end of a path so far, in tenths of a unit: relative coordinates are half as long. */
struct pen {
    FILE *out;
    int64_t x, y;
    bool down; /* the path has begun, and was not interrupted */
};

/* A number of tenths without zeros that SVG does not need; a sign or a space separates it. */
static void put_tenths(FILE *out, int64_t n, bool separate) {
    int64_t size = n < 0 ? -n : n;
    if (n < 0) fputc('-', out);
    else if (separate) fputc(' ', out);
    if (size >= 10 || size == 0) fprintf(out, "%lld", (long long)(size / 10));
    if (size % 10) fprintf(out, ".%lld", (long long)(size % 10));
}

/* A place far outside the plot stays outside it, and fits an integer. */
static int64_t tenths(double v) { return llround(10 * fmin(fmax(v, -1e9), 1e9)); }

static void pen_to(struct pen *pen, double x, double y) {
    int64_t tx = tenths(x), ty = tenths(y);
    bool first = !pen->down;
    fputc(first ? 'M' : 'l', pen->out);
    put_tenths(pen->out, first ? tx : tx - pen->x, false);
    put_tenths(pen->out, first ? ty : ty - pen->y, true);
    *pen = (struct pen){ pen->out, tx, ty, true };
}

/* Rows that share one point of a drawn line: with more than two a pixel, the least and the largest
 * of each bucket are drawn. */
static int64_t bucket_of(const struct svg_line *line) {
    return line->rows / SVG_WIDTH > 1 ? line->rows / SVG_WIDTH : 1;
}

/* Draws a line as one path; NaN lifts the pen. */
static void put_line(FILE *out, const struct svg_line *line, struct range x, struct range y) {
    struct pen pen = { .out = out };
    int64_t bucket = bucket_of(line);
    fputs("<path class=\"", out);
    put_class(out, line->color);
    fputs("\" d=\"", out);
    for (int64_t i = 0; i < line->rows; i += bucket) {
        struct range r;
        pen.down = svg_extent(line, i, bucket, &r.low, &r.high) && pen.down;
        if (r.low > r.high) continue;
        double at = x_at(x, line->x[i]);
        pen_to(&pen, at, y_at(y, r.low));
        if (r.high > r.low) pen_to(&pen, at, y_at(y, r.high));
    }
    fputs("\"/>\n", out);
    if (line->rows > 0) put_dots(out, line, x, y);
}

/* One area for each stretch of a band without NaN: along the upper edge, and back. */
static void put_band(FILE *out, const struct svg_line *line, struct range x, struct range y) {
    int64_t bucket = bucket_of(line);
    fprintf(out, "<path class=\"band k%d\" d=\"", (int)(line->color % COLORS));
    for (int64_t i = 0, end; i < line->rows; i = end + bucket) {
        struct pen pen = { .out = out };
        struct range r;
        for (end = i; end < line->rows && svg_extent(line, end, bucket, &r.low, &r.high);
             end += bucket)
            pen_to(&pen, x_at(x, line->x[end]), y_at(y, r.high));
        for (int64_t k = end - bucket; k >= i; k -= bucket)
            if (svg_extent(line, k, bucket, &r.low, &r.high))
                pen_to(&pen, x_at(x, line->x[k]), y_at(y, r.low));
        if (pen.down) fputc('Z', out);
    }
    fputs("\"/>\n", out);
}

/* Whether the line has an entry in the legend: the first one of its colour with points. */
static bool has_entry(const struct svg_line *lines, int64_t i) {
    if (lines[i].rows == 0 || lines[i].high) return false;
    for (int64_t k = 0; k < i; k++)
        if (lines[k].rows > 0 && !lines[k].high && lines[k].color == lines[i].color) return false;
    return true;
}

static void put_legend(FILE *out, const struct svg_line *lines, int64_t count) {
    fputs("<p class=\"legend\">", out);
    for (int64_t i = 0; i < count; i++) {
        if (!has_entry(lines, i)) continue;
        fprintf(out, "<span data-group=\"%lld\">", (long long)lines[i].color);
        svg_key(out, lines[i].color);
        fputc(' ', out);
        html_escape(out, lines[i].name);
        fputs("</span> ", out);
    }
    fputs("</p>", out);
}

/* Bands, then lines. The first line is the reference: it is drawn last, on top. */
static void put_lines(FILE *out, const struct svg_line *lines, int64_t count, struct range x,
                      struct range y) {
    for (int64_t i = count; i-- > 0;)
        if (lines[i].high) put_band(out, &lines[i], x, y);
    for (int64_t i = count; i-- > 0;)
        if (!lines[i].high && lines[i].rows > 0) put_line(out, &lines[i], x, y);
}

/* What the plot shows, for readers who do not see it. */
static void put_description(FILE *out, const struct svg_line *lines, int64_t count) {
    struct range x, y;
    if (!find_ranges(&(struct svg_figure){ 0 }, lines, count, &x, &y)) return;
    fprintf(out, "<desc>From step %.0f to %.0f.", x.low, x.high);
    for (int64_t i = 0; i < count && i < DESCRIBED; i++) {
        struct range all, last = { INFINITY, -INFINITY };
        if (lines[i].high || !svg_extent(&lines[i], 0, lines[i].rows, &all.low, &all.high))
            continue;
        for (int64_t k = lines[i].rows; k-- > 0 && last.low > last.high;)
            widen(&last, lines[i].y[k]);
        fputc(' ', out);
        html_escape(out, lines[i].name);
        fprintf(out, ": from %.5g to %.5g, at the end %.5g.", all.low, all.high, last.low);
    }
    fputs("</desc>\n", out);
}

void svg_plot(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count) {
    struct range x, y;
    if (!find_ranges(figure, lines, count, &x, &y)) return;
    fprintf(out, "<figure data-plot=\"%s\"><figcaption>", figure->id);
    html_escape(out, figure->title);
    fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
            SVG_LEFT + SVG_WIDTH + SVG_RIGHT, SVG_TOP + SVG_HEIGHT + SVG_BOTTOM);
    html_escape(out, figure->title);
    fputs("\">\n", out);
    put_description(out, lines, count);
    put_axes(out, x, y);
    put_lines(out, lines, count, x, y);
    fputs("</svg>\n", out);
    put_legend(out, lines, count);
    fputs("</figure>\n", out);
}

void svg_file(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
              int64_t count) {
    enum { HEAD = 26, ENTRY = 20 };
    int width = SVG_LEFT + SVG_WIDTH + SVG_RIGHT, height = SVG_TOP + SVG_HEIGHT + SVG_BOTTOM;
    int entries = 0, at = HEAD + height;
    struct range x, y;
    if (!find_ranges(figure, lines, count, &x, &y)) return;
    for (int64_t i = 0; i < count; i++) entries += has_entry(lines, i);
    height += HEAD + entries * ENTRY;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" "
            "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>",
            width, height, width, height);
    html_escape(out, figure->title);
    fputs("</title>\n", out);
    put_description(out, lines, count);
    fprintf(out, "<style>\n%s</style>\n<text class=\"title\" x=\"%d\" y=\"18\">", FILE_CSS,
            SVG_LEFT);
    html_escape(out, figure->title);
    fprintf(out, "</text>\n<g transform=\"translate(0 %d)\">\n", HEAD);
    put_axes(out, x, y);
    put_lines(out, lines, count, x, y);
    fputs("</g>\n", out);
    for (int64_t i = 0; i < count; i++) {
        if (!has_entry(lines, i)) continue;
        fputs("<line class=\"key ", out);
        put_class(out, lines[i].color);
        fprintf(out, "\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"%d\">",
                SVG_LEFT, SVG_LEFT + 22, at, at, SVG_LEFT + 30, at + 5);
        html_escape(out, lines[i].name);
        fputs("</text>\n", out);
        at += ENTRY;
    }
    fputs("</svg>\n", out);
}
