#include "runner/health/heat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/health/health.h"

const struct heat_scale HEAT_SCALES[HEAT_METRICS] = {
    [HEAT_SATURATED] = { "Saturated", "% of the elements", { 0.01, 0.1, 1 } },
    [HEAT_UNDERFLOW] = { "Underflow", "% of the elements", { 10, 50, 90 } },
    [HEAT_SNR] = { "Signal to noise", "dB below the format's own", { 3, 6, 12 } },
};

/* Where the values of a metric are. */
static const struct { enum stream_id stream; const char *column; } SOURCES[HEAT_METRICS] = {
    { STREAM_FP8, "saturated" }, { STREAM_FP8, "underflow" }, { STREAM_FP8_ERROR, "snr_db" },
};

/* The row of a tensor; -1: it has none. A label may be foreign, so its number has a limit. */
static int64_t layer_of(const struct health_tensor *t, int64_t most) {
    long long layer = -1;
    int used = 0;
    if (!t->fp8) return -1;
    if (!strncmp(t->name, "head.", 5) || !strncmp(t->name, "embed.", 6)) return most;
    if (sscanf(t->name, "layers.%lld.%n", &layer, &used) != 1 || !used) return -1;
    return layer >= 0 && layer < most ? layer : -1;
}

/* Fills row [tensor_count]: the row of each tensor or -1; makes the head's row the last one. */
static void number_rows(const struct health *h, int64_t *row, struct heat *out) {
    int64_t most = h->tensor_count; /* more layers than tensors are none of ours */
    for (int64_t i = 0; i < h->tensor_count; i++) {
        row[i] = layer_of(&h->tensor[i], most);
        if (row[i] >= 0 && row[i] < most && row[i] >= out->layers) out->layers = row[i] + 1;
        out->has_head = out->has_head || row[i] == most;
    }
    for (int64_t i = 0; i < h->tensor_count; i++)
        if (row[i] == most) row[i] = out->layers;
    out->layers += out->has_head;
}

static enum status allocate(struct heat *h, struct err *e) {
    size_t rows = (size_t)h->layers;
    for (int m = 0; m < HEAT_METRICS; m++) {
        h->level[m] = calloc(rows * HEAT_BINS + 1, 1);
        h->worst[m] = calloc(rows + 1, sizeof *h->worst[m]);
        if (!h->level[m] || !h->worst[m])
            return FAIL(e, ERR_MEMORY, "a heat map of %zu layers", rows);
        for (size_t i = 0; i < rows; i++) h->worst[m][i].step = -1;
    }
    return OK;
}

/* The value as the scale counts it; NaN: none. Most shares are 0, which is never the worst. */
static double badness(enum heat_metric m, const struct health_tensor *t, double value) {
    if (m == HEAT_SNR) return isfinite(value) ? health_snr_format(t) - value : (double)NAN;
    bool counts = value > 0 && (m != HEAT_SATURATED || health_can_saturate(t));
    return counts && isfinite(value) ? 100 * value : (double)NAN;
}

static uint8_t level_of(enum heat_metric m, double value) {
    uint8_t level = 0;
    while (level < HEAT_LEVELS - 1 && value >= HEAT_SCALES[m].from[level]) level++;
    return level;
}

static void add(struct heat *out, enum heat_metric m, int64_t row, int64_t bin, double value,
                int64_t step, int64_t tensor) {
    struct heat_worst *worst = &out->worst[m][row];
    uint8_t *cell = &out->level[m][row * HEAT_BINS + bin], level = level_of(m, value);
    if (level > *cell) *cell = level;
    if (worst->step < 0 || value > worst->value)
        *worst = (struct heat_worst){ value, step, tensor };
}

/* Walks over the records in their order in memory. */
static void walk(struct heat *out, enum heat_metric m, const struct run_view *v,
                 const struct health *h, const int64_t *row) {
    const struct columns *c = v->columns.of[SOURCES[m].stream];
    const struct column *step = columns_scalar(c, "step");
    const struct column *values = columns_find(c, SOURCES[m].column);
    int64_t span = out->step_last - out->step_first + 1;
    if (!step || !values || values->width != h->tensor_count || span < 1) return;
    if (values->type != COLUMN_F64) return;
    out->bins[m] = c->rows < HEAT_BINS ? c->rows : HEAT_BINS;
    for (int64_t i = 0; i < c->rows; i++) {
        int64_t at = health_step(column_value(step, i, 0));
        if (at < out->step_first || at > out->step_last) continue;
        int64_t bin = (int64_t)((double)(at - out->step_first) / (double)span *
                                (double)out->bins[m]);
        if (bin >= out->bins[m]) bin = out->bins[m] - 1; /* rounded */
        const char *at_row = column_row(values, i);
        for (int64_t k = 0; k < values->width; k++) {
            double value;
            if (row[k] < 0) continue;
            memcpy(&value, at_row + 8 * k, sizeof value); /* perhaps not aligned */
            value = badness(m, &h->tensor[k], value);
            if (!isnan(value)) add(out, m, row[k], bin, value, at, k);
        }
    }
}

enum status heat_make(const struct run_view *v, struct heat *out, struct err *e) {
    struct health h;
    *out = (struct heat){ .step_first = -1, .step_last = -1 };
    enum status st = health_tensors(v, &h, e);
    int64_t *row = st == OK ? calloc((size_t)h.tensor_count + 1, sizeof *row) : NULL;
    if (st == OK && !row) st = FAIL(e, ERR_MEMORY, "a heat map");
    if (st == OK && h.fp8_count > 0) {
        number_rows(&h, row, out);
        out->step_first = h.step_first;
        out->step_last = h.step_last;
        out->labels = json_incref(v->columns.of[STREAM_FP8]->labels);
        st = allocate(out, e);
        for (int m = 0; st == OK && m < HEAT_METRICS; m++)
            walk(out, (enum heat_metric)m, v, &h, row);
    }
    free(row);
    health_free(&h);
    return st;
}

void heat_free(struct heat *h) {
    for (int m = 0; m < HEAT_METRICS; m++) {
        free(h->level[m]);
        free(h->worst[m]);
    }
    json_decref(h->labels);
    *h = (struct heat){ 0 };
}
