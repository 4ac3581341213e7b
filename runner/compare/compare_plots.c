/* The plots of a comparison's page. Runs that differ only in their seed share a colour, so that the
 * spread of seeds can be compared with the difference between recipes. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "runner/compare/compare.h"
#include "runner/compare/svg_plot.h"

enum { WINDOW_MAX = 100 };

struct series {
    double *x, *y; /* owned */
    int64_t rows;
};

static void series_free(struct series *series, int64_t count) {
    for (int64_t i = 0; series && i < count; i++) {
        free(series[i].x);
        free(series[i].y);
    }
    free(series);
}

static enum status load(const struct run_view *v, enum stream_id stream, const char *column,
                        struct series *out, struct err *e) {
    const struct columns *t = v->columns.of[stream];
    const struct column *x = columns_scalar(t, "step"), *y = columns_scalar(t, column);
    *out = (struct series){ 0 };
    if (!x || !y || t->rows == 0) return OK;
    out->x = malloc((size_t)t->rows * sizeof *out->x);
    out->y = malloc((size_t)t->rows * sizeof *out->y);
    if (!out->x || !out->y)
        return FAIL(e, ERR_MEMORY, "a plot of %lld steps", (long long)t->rows);
    out->rows = t->rows;
    for (int64_t i = 0; i < t->rows; i++) {
        out->x[i] = column_value(x, i, 0);
        out->y[i] = column_value(y, i, 0);
    }
    return OK;
}

static enum status load_all(const struct comparison *c, enum stream_id stream, const char *column,
                            struct series **out, struct err *e) {
    struct series *series = calloc((size_t)c->count, sizeof *series);
    if (!series) return FAIL(e, ERR_MEMORY, "%lld lines of a plot", (long long)c->count);
    enum status st = OK;
    for (int64_t i = 0; st == OK && i < c->count; i++)
        st = load(&c->run[i], stream, column, &series[i], e);
    if (st == OK) *out = series;
    else series_free(series, c->count);
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

/* Replaces y by its mean over the `window` rows that end at each row. */
static void smooth(struct series *s, int64_t window) {
    for (int64_t i = s->rows; i-- > 0;) {
        double sum = 0;
        for (int64_t k = i - window + 1; k <= i; k++) sum += k >= 0 ? s->y[k] : NAN;
        s->y[i] = sum / (double)window;
    }
}

static enum status put_plot(FILE *out, const struct comparison *c, const struct svg_figure *figure,
                            const struct series *series, char *const *labels, struct err *e) {
    struct svg_line *lines = calloc((size_t)c->count, sizeof *lines);
    if (!lines) return FAIL(e, ERR_MEMORY, "%lld lines of a plot", (long long)c->count);
    for (int64_t i = 0; i < c->count; i++) {
        int64_t group = compare_group_of(c->report, i);
        lines[i] = (struct svg_line){ labels[group], group, series[i].x, series[i].y,
                                      series[i].rows };
    }
    svg_plot(out, figure, lines, c->count);
    free(lines);
    return OK;
}

static enum status put_plots(FILE *out, const struct comparison *c, char *const *labels,
                             struct err *e) {
    static const struct {
        const char *title, *column;
        enum stream_id stream;
        bool gap, smooth, from_zero;
    } PLOTS[] = {
        { "Evaluation loss, nats a token", "loss", STREAM_EVAL, false, false, false },
        { "Evaluation loss minus the baseline's", "loss", STREAM_EVAL, true, false, false },
        { "Training loss, nats a token", "loss", STREAM_TRAIN, false, false, false },
        { "Training loss minus the baseline's", "loss", STREAM_TRAIN, true, true, false },
        { "Gradient norm", "grad_norm", STREAM_TRAIN, false, false, true },
        { "Tokens/s", "tokens_per_s", STREAM_TRAIN, false, true, true },
    };
    for (size_t p = 0; p < sizeof PLOTS / sizeof *PLOTS; p++) {
        struct series *series = NULL;
        int64_t window = PLOTS[p].smooth ? window_of(c) : 1;
        char title[120], mean[40] = "";
        struct svg_figure figure = { title, PLOTS[p].from_zero };
        if (window > 1) snprintf(mean, sizeof mean, ", mean of %lld steps", (long long)window);
        snprintf(title, sizeof title, "%s%s", PLOTS[p].title, mean);
        TRY(load_all(c, PLOTS[p].stream, PLOTS[p].column, &series, e));
        enum status st = OK;
        if (PLOTS[p].gap) st = subtract_reference(c, series, e);
        for (int64_t i = 0; window > 1 && i < c->count; i++) smooth(&series[i], window);
        if (st == OK) st = put_plot(out, c, &figure, series, labels, e);
        series_free(series, c->count);
        if (st != OK) return st;
    }
    return OK;
}

enum status compare_plots(FILE *out, const struct comparison *c, struct err *e) {
    const json_t *groups = json_object_get(json_object_get(c->report, "statistics"), "groups");
    size_t count = json_array_size(groups);
    char **labels = calloc(count + 1, sizeof *labels);
    enum status st = labels ? OK : FAIL(e, ERR_MEMORY, "the names of %zu lines", count);
    for (size_t g = 0; st == OK && g < count; g++) {
        labels[g] = compare_group_label(c->report, (int64_t)g);
        if (!labels[g]) st = FAIL(e, ERR_MEMORY, "the names of %zu lines", count);
    }
    if (st == OK) st = put_plots(out, c, labels, e);
    for (size_t g = 0; labels && g < count; g++) free(labels[g]);
    free(labels);
    return st;
}
