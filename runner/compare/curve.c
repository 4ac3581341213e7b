#include "runner/compare/curve.h"

#include <math.h>
#include <stdlib.h>

double step_tokens(const struct run_view *v) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    const struct column *tokens = columns_scalar(train, "tokens");
    double n = tokens && train->rows > 0 ? column_value(tokens, 0, 0) : (double)NAN;
    return n > 0 ? n : 1;
}

struct step_clock step_clock_of(const struct run_view *v) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    const json_t *median = json_object_get(v->summary, "step_time_us_median");
    const json_t *steady = json_object_get(v->summary, "steady_from");
    bool known = json_is_number(median) && json_is_number(steady);
    struct step_clock clock = { columns_scalar(train, "step"),
                                columns_scalar(train, "step_time_us"),
                                known ? json_number_value(steady) : 0,
                                known ? json_number_value(median) : 0 };
    if (!clock.step || !clock.time) clock.step = clock.time = NULL;
    return clock;
}

double step_clock_us(const struct step_clock *clock, int64_t row) {
    return column_value(clock->step, row, 0) < clock->from ? clock->median
                                                           : column_value(clock->time, row, 0);
}

/* Fills `seconds`: the sum over all training steps up to each evaluation. */
static void sum_time(const struct run_view *v, struct curve *c) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    struct step_clock clock = step_clock_of(v);
    double us = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < c->points; i++) {
        for (; clock.step && at < train->rows && column_value(clock.step, at, 0) <= c->step[i];
             at++)
            us += step_clock_us(&clock, at);
        c->seconds[i] = clock.step ? 1e-6 * us : (double)NAN;
    }
}

enum status curve_room(struct curve *out, int64_t n, struct err *e) {
    *out = (struct curve){ .memory = malloc((size_t)(6 * n + 1) * sizeof *out->memory) };
    if (!out->memory) return FAIL(e, ERR_MEMORY, "%lld evaluations", (long long)n);
    out->step = out->memory;
    out->tokens = out->step + n;
    out->seconds = out->tokens + n;
    out->loss = out->seconds + n;
    out->evaluated = out->loss + n;
    out->counted = out->evaluated + n;
    return OK;
}

enum status curve_make(const struct run_view *v, struct curve *out, struct err *e) {
    const struct columns *eval = v->columns.of[STREAM_EVAL];
    const struct column *step = columns_scalar(eval, "step"), *loss = columns_scalar(eval, "loss");
    const struct column *tokens = columns_scalar(eval, "tokens");
    const struct column *counted = columns_scalar(eval, "loss_tokens");
    int64_t n = step && loss ? eval->rows : 0;
    double each = step_tokens(v);
    TRY(curve_room(out, n, e));
    out->points = n;
    for (int64_t i = 0; i < n; i++) {
        out->step[i] = column_value(step, i, 0);
        out->tokens[i] = out->step[i] * each;
        out->loss[i] = column_value(loss, i, 0);
        out->evaluated[i] = tokens ? column_value(tokens, i, 0) : (double)NAN;
        out->counted[i] = counted ? column_value(counted, i, 0) : out->evaluated[i];
    }
    sum_time(v, out);
    return OK;
}

void curve_free(struct curve *c) {
    free(c->memory);
    *c = (struct curve){ 0 };
}

enum status step_times_make(const struct run_view *v, struct step_times *out, struct err *e) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    struct step_clock clock = step_clock_of(v);
    int64_t rows = clock.step ? train->rows : 0, each = rows / STEP_TIMES_MAX + 1;
    double us = 0;
    *out = (struct step_times){ .tokens = step_tokens(v) };
    out->step = malloc((size_t)(2 * (rows / each + 2)) * sizeof *out->step);
    if (!out->step) return FAIL(e, ERR_MEMORY, "the times of %lld steps", (long long)rows);
    out->seconds = out->step + rows / each + 2;
    for (int64_t i = 0; i < rows; i++) {
        us += step_clock_us(&clock, i);
        if (i % each != 0 && i != rows - 1) continue;
        out->step[out->points] = column_value(clock.step, i, 0);
        out->seconds[out->points++] = 1e-6 * us;
    }
    return OK;
}

void step_times_free(struct step_times *p) {
    free(p->step);
    *p = (struct step_times){ 0 };
}

int64_t curve_find(const struct curve *c, double tokens) {
    int64_t low = 0, high = c->points;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (c->tokens[middle] < tokens) low = middle + 1;
        else high = middle;
    }
    return low < c->points && c->tokens[low] == tokens ? low : -1;
}

double curve_common(const struct curve *const *c, int64_t count) {
    for (int64_t i = count > 0 ? c[0]->points - 1 : -1; i >= 0; i--) {
        int64_t k = 1;
        while (k < count && curve_find(c[k], c[0]->tokens[i]) >= 0) k++;
        if (k == count) return c[0]->tokens[i];
    }
    return (double)NAN;
}

/* The value at `x` on the line through (x0, y0) and (x1, y1). */
static double on_line(double x0, double y0, double x1, double y1, double x) {
    return x1 == x0 ? y1 : y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

double curve_at_time(const struct curve *c, double seconds) {
    for (int64_t i = 0; i < c->points; i++) {
        if (c->seconds[i] == seconds) return c->loss[i];
        if (i > 0 && c->seconds[i - 1] < seconds && seconds < c->seconds[i])
            return on_line(c->seconds[i - 1], c->loss[i - 1], c->seconds[i], c->loss[i], seconds);
    }
    return (double)NAN;
}

double curve_lowest(const struct curve *c) {
    double lowest = (double)INFINITY;
    for (int64_t i = 0; i < c->points; i++) lowest = fmin(lowest, c->loss[i]);
    return lowest;
}

bool curve_reach(const struct curve *c, double loss, double *tokens, double *seconds) {
    if (c->points == 0 || c->loss[0] < loss) return false;
    for (int64_t i = 0; i < c->points; i++) {
        if (!(c->loss[i] <= loss)) continue;
        int64_t before = i > 0 ? i - 1 : 0;
        *tokens = on_line(c->loss[before], c->tokens[before], c->loss[i], c->tokens[i], loss);
        *seconds = on_line(c->loss[before], c->seconds[before], c->loss[i], c->seconds[i], loss);
        return *tokens > 0;
    }
    return false;
}
