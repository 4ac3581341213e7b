#include "runner/health/health.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/plan/options.h"

/* A foreign file may have any number there. */
int64_t health_step(double step) {
    return step >= 0 && step <= 0x1p53 ? (int64_t)step : -1;
}

/* The records of one stream, and the part of them that is the window. */
struct series {
    const struct columns *all;
    const struct column *step, *amax, *scale, *saturated, *underflow, *snr_db, *rms;
    int64_t rows, from; /* the window: [from, rows) */
};

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }

/* A wide column with a value for each label, or NULL. */
static const struct column *wide(const struct columns *c, const char *name, int64_t width) {
    const struct column *found = columns_find(c, name);
    return found && found->width == width ? found : NULL;
}

static struct series series_of(const struct columns *c, int64_t width, int64_t window) {
    struct series s = { .all = c, .step = columns_scalar(c, "step"),
                        .amax = wide(c, "amax", width), .scale = wide(c, "scale", width),
                        .saturated = wide(c, "saturated", width),
                        .underflow = wide(c, "underflow", width),
                        .snr_db = wide(c, "snr_db", width), .rms = wide(c, "rms", width) };
    s.rows = c && s.step ? c->rows : 0;
    s.from = largest(s.rows - window, 0);
    return s;
}

static double f32_at(const struct column *c, int64_t row, int64_t label) {
    return c ? (double)f32_from_bits((uint32_t)column_bits(c, row, label)) : (double)NAN;
}
static double f64_at(const struct column *c, int64_t row, int64_t label) {
    return c ? column_value(c, row, label) : (double)NAN;
}

static struct health_row row_at(const struct series *s, int64_t row, int64_t label) {
    return (struct health_row){ f32_at(s->amax, row, label), f32_at(s->scale, row, label),
                                f64_at(s->saturated, row, label), f64_at(s->underflow, row, label),
                                f64_at(s->snr_db, row, label), f64_at(s->rms, row, label) };
}

static int64_t step_at(const struct series *s, int64_t row) {
    return health_step(column_value(s->step, row, 0));
}

/* The record of a step that measured; -1: none. Steps ascend; in a foreign file that lies, the
 * search still ends. */
static int64_t row_of(const struct series *s, int64_t step) {
    int64_t low = 0, high = s->rows;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (step_at(s, middle) < step) low = middle + 1;
        else high = middle;
    }
    return low < s->rows && step_at(s, low) == step ? low : -1;
}

static double amax_at(const struct series *s, int64_t row, int64_t label) {
    return row >= 0 ? f32_at(s->amax, row, label) : (double)NAN;
}

/* ---- means ---- */

struct mean { double sum; int64_t n; };

static void mean_add(struct mean *m, double x) {
    if (!isfinite(x)) return;
    m->sum += x;
    m->n++;
}
static double mean_of(const struct mean *m) { return m->n ? m->sum / (double)m->n : (double)NAN; }

/* A part of the labels: rows are read one after another, so neighbours share their cache lines. */
enum { PART = 64 };
struct part { int64_t first, count; };

static void means_of_records(struct health_tensor *tensor, const struct series *s,
                             struct part part) {
    struct mean range[PART] = { { 0, 0 } }, saturated[PART] = { { 0, 0 } };
    struct mean underflow[PART] = { { 0, 0 } };
    for (int64_t i = s->from; i < s->rows; i++)
        for (int64_t k = 0; k < part.count; k++) {
            const struct health_tensor *t = &tensor[part.first + k];
            struct health_row r = row_at(s, i, part.first + k);
            mean_add(&saturated[k], r.saturated);
            mean_add(&underflow[k], r.underflow);
            if (t->known && t->fp8 && r.amax > 0)
                mean_add(&range[k], r.amax * r.scale / (double)dtype_max(t->code));
        }
    for (int64_t k = 0; k < part.count; k++) {
        struct health_tensor *t = &tensor[part.first + k];
        t->range_used = mean_of(&range[k]);
        t->saturated = mean_of(&saturated[k]);
        t->underflow = mean_of(&underflow[k]);
    }
}

static void means_of_errors(struct health_tensor *tensor, const struct series *s,
                            const struct series *records, struct part part) {
    struct mean first[PART] = { { 0, 0 } }, last[PART] = { { 0, 0 } }, crest[PART] = { { 0, 0 } };
    for (int64_t i = 0; i < s->rows / 3; i++)
        for (int64_t k = 0; k < part.count; k++)
            mean_add(&first[k], f64_at(s->snr_db, i, part.first + k));
    for (int64_t i = s->from; i < s->rows; i++) {
        int64_t record = row_of(records, step_at(s, i));
        for (int64_t k = 0; k < part.count; k++) {
            struct health_row r = row_at(s, i, part.first + k);
            mean_add(&last[k], r.snr_db);
            if (r.rms > 0) mean_add(&crest[k], amax_at(records, record, part.first + k) / r.rms);
        }
    }
    for (int64_t k = 0; k < part.count; k++) {
        struct health_tensor *t = &tensor[part.first + k];
        t->snr_first = s->rows >= TREND_LEAST ? mean_of(&first[k]) : (double)NAN;
        t->snr_db = mean_of(&last[k]);
        t->crest = mean_of(&crest[k]);
    }
}

/* ---- rules ---- */

static void count_one(struct health_count *c, const struct health_rule *rule, bool holds,
                      bool in_window, int64_t step) {
    c->score += holds ? 1 : -1;
    if (!holds) return;
    if (in_window || rule->any) c->held++;
    if (c->score >= 0 || rule->any) c->since = step;
}

static void count_row(struct health_tensor *t, const struct health_row *row, bool measured,
                      bool in_window, int64_t step) {
    for (int k = 0; k < HEALTH_RULE_COUNT; k++) {
        const struct health_rule *rule = &HEALTH_RULES[k];
        if (rule->measured == measured)
            count_one(&t->count[k], rule, rule->holds(t, row), in_window, step);
    }
}

/* From the last record back: `since` needs to know what follows. */
static void count_rules(struct health_tensor *tensor, const struct series *s,
                        const struct series *records, struct part part, bool measured) {
    for (int64_t i = s->rows - 1; i >= 0; i--) {
        int64_t step = step_at(s, i), record = measured ? row_of(records, step) : -1;
        for (int64_t k = part.first; k < part.first + part.count; k++) {
            if (!tensor[k].fp8) continue;
            struct health_row row = row_at(s, i, k);
            if (measured) row.amax = amax_at(records, record, k);
            count_row(&tensor[k], &row, measured, i >= s->from, step);
        }
    }
}

/* Whether what was counted is a symptom. window: records in it; 0: too few for a judgement. */
static bool is_symptom(const struct health_rule *rule, const struct health_count *c,
                       int64_t window) {
    if (rule->any) return c->held > 0;
    if (window == 0) return false;
    bool often = 2 * c->held >= window;
    return rule->seldom ? c->held >= rule->seldom && !often : often;
}

static enum status judge(struct health *h, struct err *e) {
    h->finding = calloc((size_t)(h->tensor_count * HEALTH_RULE_COUNT) + 1, sizeof *h->finding);
    if (!h->finding) return FAIL(e, ERR_MEMORY, "the health of %lld tensors",
                                 (long long)h->tensor_count);
    for (enum health_level level = HEALTH_TROUBLE; level > HEALTH_FINE; level--)
        for (int k = 0; k < HEALTH_RULE_COUNT; k++)
            for (int64_t i = 0; i < h->tensor_count; i++) {
                const struct health_rule *rule = &HEALTH_RULES[k];
                struct health_tensor *t = &h->tensor[i];
                int64_t window = rule->measured ? h->measured_window : h->window;
                if (!t->fp8 || !is_symptom(rule, &t->count[k], window)) continue;
                if ((rule->confirm ? rule->confirm(t) : rule->level) != level) continue;
                h->finding[h->finding_count++] =
                    (struct health_finding){ k, i, t->count[k].since, level };
                if (level > t->level) t->level = level;
                if (level > h->level) h->level = level;
            }
    return OK;
}

/* ---- the whole ---- */

/* Without a recipe that this version reads: an FP8 slot has a scale, or loses something. */
static bool looks_fp8(const struct series *s, int64_t label) {
    for (int64_t i = 0; i < s->rows; i++) {
        struct health_row r = row_at(s, i, label);
        if (r.scale != 1 || r.saturated > 0 || r.underflow > 0) return true;
    }
    return false;
}

static void identify(struct health *h, const struct run_view *v, const struct series *s) {
    struct run_options options = { 0 };
    struct err ignored; /* a configuration of another version */
    bool readable = v->resolved && options_read(v->resolved, &options, &ignored) == OK;
    const json_t *recipe = json_object_get(v->resolved, "recipe");
    snprintf(h->recipe, sizeof h->recipe, "%s", json_text(recipe, "kind", "?"));
    for (int64_t i = 0; i < h->tensor_count; i++) {
        struct health_tensor *t = &h->tensor[i];
        const char *name = columns_label(s->all, i);
        t->name = name ? name : "?";
        if (readable && name)
            health_identify(t, &options.recipe, json_object_get(v->decisions, "fallback"));
        else t->fp8 = looks_fp8(s, i);
        for (int k = 0; k < HEALTH_RULE_COUNT; k++) t->count[k].since = -1;
        h->fp8_count += t->fp8;
    }
    options_free(&options);
}

/* A step that failed has no record. Its error names the first tensor that is not finite. */
static void take_error(struct health *h, const json_t *error) {
    char name[128] = "";
    long long step = -1;
    if (strcmp(json_text(error, "code", ""), "ERR_NUMERIC") != 0 ||
        sscanf(json_text(error, "text", ""), "step %lld: %127s is not finite", &step, name) != 2)
        return;
    for (int64_t i = 0; i < h->tensor_count; i++)
        for (int k = 0; k < HEALTH_RULE_COUNT && !strcmp(h->tensor[i].name, name); k++)
            if (HEALTH_RULES[k].any && h->tensor[i].count[k].held++ == 0)
                h->tensor[i].count[k].since = step;
}

static void examine(struct health *h, const struct series *records, const struct series *errors) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t first = 0; first < h->tensor_count; first += PART) {
        struct part part = { first, h->tensor_count - first };
        if (part.count > PART) part.count = PART;
        means_of_records(h->tensor, records, part);
        means_of_errors(h->tensor, errors, records, part);
        count_rules(h->tensor, records, records, part, false);
        count_rules(h->tensor, errors, records, part, true);
    }
}

static int64_t width_of(const struct run_view *v) {
    const struct column *amax = columns_find(v->columns.of[STREAM_FP8], "amax");
    return amax ? amax->width : 0;
}

enum status health_tensors(const struct run_view *v, struct health *out, struct err *e) {
    int64_t width = width_of(v);
    struct series s = series_of(v->columns.of[STREAM_FP8], width, WINDOW_LEAST);
    *out = (struct health){ .step_first = -1, .step_last = -1, .tensor_count = width,
                            .records = s.rows };
    out->tensor = calloc((size_t)width + 1, sizeof *out->tensor);
    if (!out->tensor) return FAIL(e, ERR_MEMORY, "the health of %lld tensors", (long long)width);
    if (s.rows > 0) {
        out->step_first = step_at(&s, 0);
        out->step_last = step_at(&s, s.rows - 1);
    }
    identify(out, v, &s);
    return OK;
}

enum status health_make(const struct run_view *v, struct health *out, struct err *e) {
    const struct columns *errors = v->columns.of[STREAM_FP8_ERROR];
    TRY(health_tensors(v, out, e));
    int64_t width = out->tensor_count, third = errors ? errors->rows / 3 : 0;
    struct series s = series_of(v->columns.of[STREAM_FP8], width,
                                largest(out->records / 10, WINDOW_LEAST));
    struct series m = series_of(errors, width, largest(third, MEASURED_LEAST));
    out->measured = m.snr_db ? m.rows : 0;
    out->judged = s.rows >= JUDGED_LEAST;
    out->window = out->judged ? s.rows - s.from : 0;
    if (out->measured >= MEASURED_LEAST) out->measured_window = m.rows - m.from;
    examine(out, &s, &m);
    take_error(out, json_object_get(v->run, "error"));
    return judge(out, e);
}

void health_free(struct health *h) {
    free(h->tensor);
    free(h->finding);
    *h = (struct health){ 0 };
}
