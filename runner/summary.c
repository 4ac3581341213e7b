#include "runner/summary.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_columns_free(struct run_columns *c) {
    columns_destroy(c->train);
    columns_destroy(c->eval);
    columns_destroy(c->telemetry);
    columns_destroy(c->fp8);
    columns_destroy(c->trace);
    *c = (struct run_columns){ 0 };
}

struct window steady_window(int64_t rows) {
    int64_t skip = rows / 5;
    if (skip < 1) skip = 1;
    if (skip > 50) skip = 50;
    return (struct window){ .first = skip < rows ? skip : rows, .last = rows };
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum status window_median(const struct column *c, struct window w, double *out, struct err *e) {
    *out = (double)NAN;
    if (!c || w.first >= w.last) return OK;
    double *values = malloc((size_t)(w.last - w.first) * sizeof *values);
    if (!values) return FAIL(e, ERR_MEMORY, "%lld values", (long long)(w.last - w.first));
    int64_t n = 0;
    for (int64_t i = w.first; i < w.last; i++) {
        double v = column_value(c, i * c->width);
        if (!isnan(v)) values[n++] = v;
    }
    if (n > 0) {
        qsort(values, (size_t)n, sizeof *values, by_value);
        *out = n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
    }
    free(values);
    return OK;
}

/* ---- summary.json -------------------------------------------------------------------------- */

static json_t *number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

static json_t *whole(const struct column *c, int64_t at) {
    return c && at >= 0 ? json_integer((json_int_t)column_value(c, at)) : json_null();
}

/* The last value of a column, null when there is none or it is not finite. */
static json_t *last_value(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    return c && t->rows > 0 ? number(column_value(c, t->rows - 1)) : json_null();
}

static json_t *last_bits(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    char text[16];
    if (!c || c->type != COLUMN_U32 || c->width != 1 || t->rows == 0) return json_null();
    snprintf(text, sizeof text, "%08x", ((const uint32_t *)c->data)[t->rows - 1]);
    return json_string(text);
}

/* The largest (sign +1) or smallest (sign -1) value of a column, NaN when it has none. */
static double extreme(const struct columns *t, const char *name, double sign) {
    const struct column *c = columns_find(t, name);
    double best = (double)NAN;
    for (int64_t i = 0; c && i < t->rows * c->width; i++) {
        if (i % COLUMNS_CHUNK == 0) columns_forget(t);
        double v = column_value(c, i);
        if (!isnan(v) && (isnan(best) || sign * v > sign * best)) best = v;
    }
    return best;
}

static json_t *peak_bytes(const struct columns *t, const char *name) {
    double v = extreme(t, name, 1);
    return isnan(v) ? json_null() : json_integer((json_int_t)v);
}

static double column_sum(const struct columns *t, const char *name) {
    const struct column *c = columns_find(t, name);
    double sum = c && t->rows > 0 ? 0 : (double)NAN;
    for (int64_t i = 0; c && c->width == 1 && i < t->rows; i++) sum += column_value(c, i);
    return sum;
}

enum status summary_make(const struct run_columns *c, json_t **out, struct err *e) {
    int64_t rows = c->train ? c->train->rows : 0;
    struct window w = steady_window(rows);
    double step_time = (double)NAN, tokens_per_s = (double)NAN;
    const struct column *step = columns_find(c->train, "step");
    TRY(window_median(columns_find(c->train, "step_time_us"), w, &step_time, e));
    TRY(window_median(columns_find(c->train, "tokens_per_s"), w, &tokens_per_s, e));
    json_t *s = json_object();
    int failed = 0;
    failed |= json_object_set_new(s, "schema", json_string("fp8lab.summary/1"));
    failed |= json_object_set_new(s, "steps", json_integer(rows));
    failed |= json_object_set_new(s, "step_first", whole(step, rows ? 0 : -1));
    failed |= json_object_set_new(s, "step_last", whole(step, rows - 1));
    failed |= json_object_set_new(s, "loss_final", last_value(c->train, "loss"));
    failed |= json_object_set_new(s, "loss_final_bits", last_bits(c->train, "loss_bits"));
    failed |= json_object_set_new(s, "eval_loss_final", last_value(c->eval, "loss"));
    failed |= json_object_set_new(s, "eval_loss_final_bits", last_bits(c->eval, "loss_bits"));
    failed |= json_object_set_new(s, "eval_loss_best", number(extreme(c->eval, "loss", -1)));
    failed |= json_object_set_new(s, "step_time_us_median", number(step_time));
    failed |= json_object_set_new(s, "tokens_per_s_median", number(tokens_per_s));
    failed |= json_object_set_new(s, "steady_from", whole(step, w.first < w.last ? w.first : -1));
    failed |= json_object_set_new(s, "steady_to", whole(step, w.first < w.last ? rows - 1 : -1));
    double tokens = column_sum(c->train, "tokens");
    failed |= json_object_set_new(s, "tokens",
                                  isnan(tokens) ? json_null() : json_integer((json_int_t)tokens));
    failed |= json_object_set_new(s, "rss_bytes_peak", peak_bytes(c->telemetry, "rss_bytes"));
    failed |= json_object_set_new(s, "device_bytes_peak", peak_bytes(c->telemetry, "device_bytes"));
    failed |= json_object_set_new(s, "saturated_max", number(extreme(c->fp8, "saturated", 1)));
    failed |= json_object_set_new(s, "underflow_max", number(extreme(c->fp8, "underflow", 1)));
    if (failed) {
        json_decref(s);
        return FAIL(e, ERR_MEMORY, "no memory for the summary");
    }
    *out = s;
    return OK;
}

/* ---- results_sha256 ------------------------------------------------------------------------ */

static void hash_column(struct sha256 *sha, const char *stream, const struct columns *t,
                        const char *name) {
    const struct column *step = columns_find(t, "step"), *c = columns_find(t, name);
    char head[256];
    if (!c || !step || step->type != COLUMN_I64 || step->width != 1) return;
    int length = snprintf(head, sizeof head, "%s %s %lld %lld\n", stream, name, (long long)t->rows,
                          (long long)c->width);
    sha256_add(sha, head, (size_t)length);
    sha256_add(sha, step->data, (size_t)t->rows * 8);
    const char *data = c->data;
    int64_t left = t->rows * c->width * column_type_bytes(c->type);
    while (left > 0) {
        int64_t n = left < COLUMNS_CHUNK ? left : COLUMNS_CHUNK;
        sha256_add(sha, data, (size_t)n);
        columns_forget(t);
        data += n;
        left -= n;
    }
}

enum status results_hash(const struct run_columns *c, const char *final_weights_sha256,
                         char hex[SHA256_HEX], struct err *e) {
    struct sha256 *sha = NULL;
    TRY(sha256_create(&sha, e));
    sha256_add(sha, "fp8lab.results/1\n", 17);
    hash_column(sha, "train", c->train, "loss_bits");
    hash_column(sha, "train", c->train, "grad_norm_bits");
    hash_column(sha, "eval", c->eval, "loss_bits");
    hash_column(sha, "fp8", c->fp8, "amax");
    hash_column(sha, "fp8", c->fp8, "scale");
    hash_column(sha, "trace", c->trace, "fingerprints");
    const char *weights = final_weights_sha256 ? final_weights_sha256 : "-";
    sha256_add(sha, "weights ", 8);
    sha256_add(sha, weights, strlen(weights));
    sha256_add(sha, "\n", 1);
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}
