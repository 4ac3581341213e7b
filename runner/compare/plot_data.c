#include <float.h>
#include <math.h>

#include "runner/compare/base64.h"
#include "runner/compare/curve.h"
#include "runner/compare/plots.h"

static void put_f32(struct base64 *b, double value) {
    float f = fabs(value) <= (double)FLT_MAX ? (float)value : NAN;
    base64_add(b, &f, sizeof f);
}

/* Whether every `each`-th value is as far from the one before. */
static bool is_regular(const double *x, int64_t rows, int64_t each) {
    double distance = rows > each ? x[each] - x[0] : 1;
    for (int64_t i = 0; i < rows; i += each)
        if (x[i] - x[0] != (double)(i / each) * distance) return false;
    return true;
}

/* Every `each`-th value. */
static void put_positions(FILE *out, const double *x, int64_t rows, int64_t each) {
    struct base64 b = { .out = out };
    if (is_regular(x, rows, each)) {
        fprintf(out, "[%.17g,%.17g]", x[0], rows > each ? x[each] - x[0] : 1);
        return;
    }
    fputc('"', out);
    for (int64_t i = 0; i < rows; i += each) put_f32(&b, x[i]);
    base64_end(&b);
    fputc('"', out);
}

void plot_data_open(FILE *out, const struct comparison *c) {
    fprintf(out, "{\"frame\":[%d,%d,%d,%d],\"runs\":[", SVG_LEFT, SVG_TOP, SVG_WIDTH, SVG_HEIGHT);
    for (int64_t i = 0; i < c->count; i++) {
        const struct step_times *p = &c->times[i];
        struct base64 b = { .out = out };
        fprintf(out, "%s{\"group\":%lld,\"tokens\":%.17g", i ? "," : "",
                (long long)compare_group_of(c->report, i), p->tokens);
        if (p->points > 0) {
            fputs(",\"step\":", out);
            put_positions(out, p->step, p->points, 1);
            fputs(",\"seconds\":\"", out);
            for (int64_t k = 0; k < p->points; k++) put_f32(&b, p->seconds[k]);
            base64_end(&b);
            fputc('"', out);
        }
        fputc('}', out);
    }
    fputs("],\"plots\":[null", out); /* so that each plot follows a comma */
}

/* The least or the largest value of each bucket. */
static void put_values(FILE *out, const struct svg_line *line, int64_t each, bool largest) {
    struct base64 b = { .out = out };
    for (int64_t i = 0; i < line->rows; i += each) {
        double low, high;
        bool any = svg_extent(line, i, each, &low, &high);
        put_f32(&b, !any ? (double)NAN : largest ? high : low);
    }
    base64_end(&b);
}

void plot_data_add(FILE *out, const struct svg_figure *figure, const struct svg_line *lines,
                   int64_t count, int64_t buckets) {
    bool first = true;
    fprintf(out, ",\n{\"id\":\"%s\",\"zero\":%s,\"lines\":[", figure->id,
            figure->from_zero ? "true" : "false");
    for (int64_t i = 0; i < count; i++) {
        const struct svg_line *line = &lines[i];
        int64_t each = ceil_div(line->rows, buckets);
        if (line->rows == 0) continue;
        fprintf(out, "%s\n{\"run\":%lld,%s\"x\":", first ? "" : ",", (long long)line->run,
                line->high ? "\"band\":1," : "");
        put_positions(out, line->x, line->rows, each);
        fputs(",\"low\":\"", out);
        put_values(out, line, each, false);
        if (each > 1 || line->high) {
            fputs("\",\"high\":\"", out);
            put_values(out, line, each, true);
        }
        fputs("\"}", out);
        first = false;
    }
    fputs("]}", out);
}
