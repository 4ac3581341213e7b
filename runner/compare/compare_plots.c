/* The plots of a comparison's page. Runs that differ only in their seed share a colour, so that the
 * spread of seeds can be compared with the difference between recipes. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "runner/base/text_stream.h"
#include "runner/compare/curve.h"
#include "runner/compare/plots.h"

enum {
    WINDOW_MAX = 100,
    BUCKETS_MAX = 1000, /* of a line for the script; */
    BUCKETS_MIN = 100,
    BUCKETS_ALL = 7500 /* and of the lines of a plot, so that a page of many runs stays small */
};

struct plot {
    const char *id, *title, *column;
    enum stream_id stream;
    bool gap; /* the difference from the baseline */
    bool smooth, from_zero;
    double scale;
};
static const struct plot PLOTS[] = {
    { "eval_loss", "Evaluation loss, nats per token", "loss", STREAM_EVAL, .scale = 1 },
    { "eval_gap", "Evaluation loss minus the baseline's", "loss", STREAM_EVAL, .gap = true,
      .scale = 1 },
    { "train_loss", "Training loss, nats per token", "loss", STREAM_TRAIN, .scale = 1 },
    { "train_gap", "Training loss minus the baseline's", "loss", STREAM_TRAIN, .gap = true,
      .smooth = true, .scale = 1 },
    { "grad_norm", "Gradient norm", "grad_norm", STREAM_TRAIN, .from_zero = true, .scale = 1 },
    { "tokens_per_s", "Tokens/s", "tokens_per_s", STREAM_TRAIN, .smooth = true,
      .from_zero = true, .scale = 1 },
    { "step_time", "Step time, ms", "step_time_us", STREAM_TRAIN, .from_zero = true,
      .scale = 1e-3 },
    { "waiting", "Waiting for the slowest rank, % of a step", "wait_share", STREAM_RANKS,
      .smooth = true, .from_zero = true, .scale = 100 },
    { "exposed", "Communication and waiting not hidden, % of a step", "exposed_share",
      STREAM_RANKS, .smooth = true, .from_zero = true, .scale = 100 },
    { "gpu_clock", "GPU clock of rank 0, MHz", "gpu_clock_sm_mhz", STREAM_TELEMETRY, .scale = 1 },
    { "gpu_power", "GPU power of rank 0, W", "gpu_power_mw", STREAM_TELEMETRY, .from_zero = true,
      .scale = 1e-3 },
    { "gpu_memory", "GPU memory of rank 0 in use, all processes, GiB", "gpu_memory_used_bytes",
      STREAM_TELEMETRY, .from_zero = true, .scale = 0x1p-30 },
    { "host_memory", "Host memory of rank 0, MiB", "rss_bytes", STREAM_TELEMETRY,
      .from_zero = true, .scale = 0x1p-20 },
};

struct series {
    double *x, *y; /* owned */
    double *high;  /* of a band; owned; NULL: a line */
    int64_t rows;
};

static void series_free(struct series *series, int64_t count) {
    for (int64_t i = 0; series && i < count; i++) {
        free(series[i].x);
        free(series[i].y);
        free(series[i].high);
    }
    free(series);
}

/* The rows of rank 0, for records that have a rank. A value that a row lacks is NaN. */
static enum status load(const struct run_view *v, const struct plot *plot, struct series *out,
                        struct err *e) {
    const struct columns *t = v->columns.of[plot->stream];
    const struct column *x = columns_scalar(t, "step"), *y = columns_scalar(t, plot->column);
    const struct column *rank = columns_scalar(t, "rank");
    *out = (struct series){ 0 };
    if (!x || !y || t->rows == 0) return OK;
    out->x = malloc((size_t)t->rows * sizeof *out->x);
    out->y = malloc((size_t)t->rows * sizeof *out->y);
    if (!out->x || !out->y)
        return FAIL(e, ERR_MEMORY, "a plot of %lld steps", (long long)t->rows);
    for (int64_t i = 0; i < t->rows; i++) {
        if (rank && column_value(rank, i, 0) != 0) continue;
        out->x[out->rows] = column_value(x, i, 0);
        out->y[out->rows++] = plot->scale * column_value(y, i, 0);
    }
    return OK;
}

/* One series a run, and an empty one for a band. */
static enum status load_all(const struct comparison *c, const struct plot *plot,
                            struct series **out, struct err *e) {
    struct series *series = calloc((size_t)c->count + 1, sizeof *series);
    if (!series) return FAIL(e, ERR_MEMORY, "%lld lines of a plot", (long long)c->count);
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < c->count; i++)
        st = load(&c->run[i], plot, &series[i], e);
    if (st == OK) *out = series;
    else series_free(series, c->count + 1);
    return st;
}

/* ---- what lies between a run and the baseline ------------------------------------------------ */

/* The row of `step` at or after *at, which advances; -1: none. Steps ascend. */
static int64_t row_of(const struct series *s, double step, int64_t *at) {
    while (*at < s->rows && s->x[*at] < step) ++*at;
    return *at < s->rows && s->x[*at] == step ? *at : -1;
}

/* The mean over the baseline's runs at each step of its first run; NaN if a run lacks the
 * step. */
static enum status make_reference(const struct comparison *c, const struct series *series,
                                  double **out, struct err *e) {
    const struct series *first = &series[compare_reference(c->report)];
    int64_t group = compare_group_of(c->report, compare_reference(c->report));
    double *mean = malloc((size_t)(first->rows + 1) * sizeof *mean);
    if (!mean) return FAIL(e, ERR_MEMORY, "the reference of a plot");
    for (int64_t k = 0; k < first->rows; k++) mean[k] = 0;
    int64_t runs = 0;
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = 0;
        if (compare_group_of(c->report, i) != group) continue;
        for (int64_t k = 0; k < first->rows; k++) {
            int64_t row = row_of(&series[i], first->x[k], &at);
            mean[k] += row < 0 ? NAN : series[i].y[row];
        }
        runs++;
    }
    for (int64_t k = 0; k < first->rows; k++) mean[k] /= (double)runs;
    *out = mean;
    return OK;
}

static enum status subtract_reference(const struct comparison *c, struct series *series,
                                      struct err *e) {
    double *mean = NULL;
    int64_t reference = compare_reference(c->report);
    TRY(make_reference(c, series, &mean, e));
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = 0;
        for (int64_t k = 0; k < series[i].rows; k++) {
            int64_t row = row_of(&series[reference], series[i].x[k], &at);
            series[i].y[k] = row < 0 ? NAN : series[i].y[k] - mean[row];
        }
    }
    free(mean);
    return OK;
}

/* The band between the least and the largest value of the baseline's runs at each step of its first
 * run; empty if the baseline has one run. */
static enum status make_band(const struct comparison *c, const struct series *series,
                             struct series *out, struct err *e) {
    const struct series *first = &series[compare_reference(c->report)];
    int64_t group = compare_group_of(c->report, compare_reference(c->report)), runs = 0;
    for (int64_t i = 0; i < c->count; i++) runs += compare_group_of(c->report, i) == group;
    if (runs < 2 || first->rows == 0) return OK;
    double **column[] = { &out->x, &out->y, &out->high };
    for (size_t k = 0; k < sizeof column / sizeof *column; k++) {
        *column[k] = malloc((size_t)first->rows * sizeof **column[k]);
        if (!*column[k]) return FAIL(e, ERR_MEMORY, "the band of a plot");
    }
    out->rows = first->rows;
    for (int64_t k = 0; k < first->rows; k++) {
        out->x[k] = first->x[k];
        out->y[k] = out->high[k] = first->y[k];
    }
    for (int64_t i = 0; i < c->count; i++) {
        int64_t at = 0;
        if (compare_group_of(c->report, i) != group) continue;
        for (int64_t k = 0; k < first->rows; k++) {
            int64_t row = row_of(&series[i], first->x[k], &at);
            if (row < 0) continue;
            out->y[k] = fmin(out->y[k], series[i].y[row]);
            out->high[k] = fmax(out->high[k], series[i].y[row]);
        }
    }
    return OK;
}

/* ---- all together -------------------------------------------------------------------------- */

/* The window for averages of noisy values: a tenth of the longest run, at most WINDOW_MAX, so that
 * events in a long run stay visible. */
static int64_t window_of(const struct comparison *c) {
    int64_t rows = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const struct columns *t = c->run[i].columns.of[STREAM_TRAIN];
        if (t && t->rows > rows) rows = t->rows;
    }
    return rows < 20 ? 1 : rows < 10 * WINDOW_MAX ? rows / 10 : WINDOW_MAX;
}

/* Replaces y by its mean over the `window` rows that end at each row. Rows without a value do not
 * count, and keep none. */
static void smooth(struct series *s, int64_t window) {
    for (int64_t i = s->rows; i-- > 0;) {
        double sum = 0;
        int64_t count = 0;
        bool none = i < window - 1 || isnan(s->y[i]);
        for (int64_t k = i - window + 1; !none && k <= i; k++) {
            if (isnan(s->y[k])) continue;
            sum += s->y[k];
            count++;
        }
        s->y[i] = none ? (double)NAN : sum / (double)count;
    }
}

static enum status visit(const struct comparison *c, const struct plot_visitor *visitor,
                         const struct svg_figure *figure, const struct series *series,
                         char *const *labels, struct err *e) {
    struct svg_line *lines = calloc((size_t)c->count + 1, sizeof *lines);
    bool any = false;
    if (!lines) return FAIL(e, ERR_MEMORY, "%lld lines of a plot", (long long)c->count);
    for (int64_t i = 0; i <= c->count; i++) {
        int64_t run = i < c->count ? i : compare_reference(c->report);
        int64_t group = compare_group_of(c->report, run);
        double low, high;
        lines[i] = (struct svg_line){ labels[group],  group,           run,           series[i].x,
                                      series[i].y, series[i].high, series[i].rows };
        any = any || svg_extent(&lines[i], 0, lines[i].rows, &low, &high);
    }
    enum status st = any ? visitor->plot(visitor->context, figure, lines, c->count + 1, e) : OK;
    free(lines);
    return st;
}

static enum status make_plot(const struct comparison *c, const struct plot *plot,
                             const struct plot_visitor *visitor, char *const *labels,
                             struct err *e) {
    struct series *series = NULL;
    int64_t window = plot->smooth ? window_of(c) : 1;
    char title[120], mean[40] = "";
    struct svg_figure figure = { plot->id, title, plot->from_zero };
    if (window > 1) snprintf(mean, sizeof mean, ", mean of %lld steps", (long long)window);
    snprintf(title, sizeof title, "%s%s", plot->title, mean);
    TRY(load_all(c, plot, &series, e));
    enum status st = OK;
    if (plot->gap) st = subtract_reference(c, series, e);
    for (int64_t i = 0; window > 1 && i < c->count; i++) smooth(&series[i], window);
    if (plot->gap && st == OK) st = make_band(c, series, &series[c->count], e);
    if (st == OK) st = visit(c, visitor, &figure, series, labels, e);
    series_free(series, c->count + 1);
    return st;
}

enum status compare_each_plot(const struct comparison *c, const struct plot_visitor *visitor,
                              struct err *e) {
    const json_t *groups = json_object_get(json_object_get(c->report, "statistics"), "groups");
    size_t count = json_array_size(groups);
    char **labels = calloc(count + 1, sizeof *labels);
    enum status st = labels ? OK : FAIL(e, ERR_MEMORY, "the names of %zu lines", count);
    for (size_t g = 0; st == OK && g < count; g++) {
        labels[g] = compare_group_label(c->report, (int64_t)g);
        if (!labels[g]) st = FAIL(e, ERR_MEMORY, "the names of %zu lines", count);
    }
    for (size_t p = 0; st == OK && p < sizeof PLOTS / sizeof *PLOTS; p++)
        if (!PLOTS[p].gap || c->count > 1) st = make_plot(c, &PLOTS[p], visitor, labels, e);
    for (size_t g = 0; labels && g < count; g++) free(labels[g]);
    free(labels);
    return st;
}

/* ---- on the page ---------------------------------------------------------------------------- */

struct page_plots {
    FILE *out, *data;
    int64_t buckets;
};

static enum status put_on_page(void *context, const struct svg_figure *figure,
                               const struct svg_line *lines, int64_t count, struct err *e) {
    const struct page_plots *p = context;
    svg_plot(p->out, figure, lines, count);
    plot_data_add(p->data, figure, lines, count, p->buckets);
    return OK;
}

enum status compare_plots(FILE *out, const struct comparison *c, struct err *e) {
    struct text text = { 0 };
    struct page_plots plots = { out, text_stream_open(&text), BUCKETS_ALL / c->count };
    if (!plots.data) return FAIL(e, ERR_MEMORY, "the numbers of the plots");
    if (plots.buckets > BUCKETS_MAX) plots.buckets = BUCKETS_MAX;
    if (plots.buckets < BUCKETS_MIN) plots.buckets = BUCKETS_MIN;
    plot_data_open(plots.data, c);
    fputs("<div class=\"plots\">\n", out);
    enum status st = compare_each_plot(c, &(struct plot_visitor){ put_on_page, &plots }, e);
    fputs("]}", plots.data);
    bool whole = text_stream_close(plots.data, &text);
    if (st == OK && !whole) st = FAIL(e, ERR_MEMORY, "the numbers of the plots");
    fputs("</div>\n<script type=\"application/json\" id=\"data\">", out);
    if (whole) fwrite(text.bytes, 1, text.size, out);
    fputs("</script>\n", out);
    text_free(&text);
    return st;
}
