#include "runner/live/live.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"
#include "runner/plan/options.h"
#include "runner/record/run_dir.h"

static const double NONE = (double)NAN;

const enum stream_id LIVE_STREAMS[LIVE_STREAM_COUNT] = { STREAM_TRAIN, STREAM_EVAL,
                                                         STREAM_TELEMETRY };

void live_begin(struct live *l) {
    *l = (struct live){ .step = -1, .first_step = -1, .fp8_step = -1, .set_step = -1,
                        .spike_of_loss = { .rule = &SPIKE_OF_LOSS } };
    double *const unknown[] = { &l->loss, &l->grad_norm, &l->lr, &l->step_ms, &l->tokens_per_s,
                                &l->mfu, &l->tflops, &l->eval_step, &l->eval_loss, &l->eval_best,
                                &l->eval_accuracy, &l->pace_time, &l->pace_step,
                                &l->saturated.share, &l->underflow.share };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) *unknown[i] = NONE;
}

/* ---- records --------------------------------------------------------------------------------- */

static double number(const struct live_record *r, const char *metric) {
    return r->number(r->source, metric);
}

/* Follows a noisy figure. */
static double smooth(double old, double new) {
    if (!isfinite(new)) return old;
    return isfinite(old) ? 0.9 * old + 0.1 * new : new;
}

/* The same for a rate: the time that it stands for is followed, so that it fits the step time. */
static double smooth_rate(double old, double new) {
    return new > 0 ? 1 / smooth(1 / old, 1 / new) : old;
}

static void take_train(struct live *l, const struct live_record *r) {
    double step = number(r, "step");
    struct spike event;
    if (!(step >= 0 && step <= 0x1p53)) return;
    /* The first step takes longer, and says nothing about the next. */
    if (l->step >= 0 && l->step == l->first_step)
        l->step_ms = l->tokens_per_s = l->mfu = l->tflops = NONE;
    l->step = (int64_t)step;
    if (l->first_step < 0) l->first_step = l->step;
    l->loss = number(r, "loss");
    l->lacks_loss = number(r, "loss_tokens") == 0;
    l->grad_norm = number(r, "grad_norm");
    l->lr = number(r, "lr");
    l->step_ms = smooth(l->step_ms, number(r, "step_time_us") / 1000);
    l->tokens_per_s = smooth_rate(l->tokens_per_s, number(r, "tokens_per_s"));
    l->mfu = smooth_rate(l->mfu, number(r, "mfu_peak"));
    l->tflops = smooth_rate(l->tflops, number(r, "model_tflops"));
    trend_add(&l->losses, l->loss);
    if (spike_take(&l->spike_of_loss, l->step, l->loss, l->lr, &event) &&
        event.kind == SPIKE_RETURNED) {
        l->spikes++;
        l->spike_step = event.step;
    }
}

static void take_eval(struct live *l, const struct live_record *r) {
    l->eval_step = number(r, "step");
    l->eval_loss = number(r, "loss");
    l->eval_accuracy = number(r, "accuracy");
    l->eval_best = fmin(l->eval_best, l->eval_loss); /* fmin ignores a NaN */
}

static void take_telemetry(struct live *l, const struct live_record *r) {
    double rank = number(r, "rank");
    int64_t i = rank >= 0 && rank < LIVE_RANKS_MAX ? (int64_t)rank : 0; /* old records have none */
    while (l->ranks <= i)
        l->rank[l->ranks++] = (struct live_rank){ NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE };
    l->rank[i] = (struct live_rank){
        .step = number(r, "step"), .time = number(r, "time"),
        .rss_bytes = number(r, "rss_bytes"), .device_bytes = number(r, "device_bytes"),
        .gpu_used_bytes = number(r, "gpu_memory_used_bytes"),
        .clock_mhz = number(r, "gpu_clock_sm_mhz"), .power_w = number(r, "gpu_power_mw") / 1000,
        .temperature_c = number(r, "gpu_temperature_c"),
    };
    bool first = i == 0 && isnan(l->pace_time);
    if (!first || !(l->rank[0].time >= (double)l->attempt_started)) return;
    l->pace_time = l->rank[0].time;
    l->pace_step = l->rank[0].step;
}

void live_take(struct live *l, enum stream_id stream, const struct live_record *r) {
    if (stream == STREAM_TRAIN) take_train(l, r);
    if (stream == STREAM_EVAL) take_eval(l, r);
    if (stream == STREAM_TELEMETRY) take_telemetry(l, r);
}

static double number_of_json(const void *source, const char *metric) {
    return json_double(json_object_get(source, metric));
}

void live_take_json(struct live *l, enum stream_id stream, const json_t *record) {
    struct live_record r = { .number = number_of_json, .source = record };
    live_take(l, stream, &r);
}

static void take_worst(const struct live_shares *s, const char *metric, struct live_worst *out) {
    int64_t worst = -1;
    out->share = NONE;
    *out->label = '\0';
    for (int64_t i = 0; i < s->width; i++) {
        double share = s->share(s->source, metric, i);
        if (worst >= 0 && !(share > out->share)) continue;
        if (isnan(share)) continue;
        worst = i;
        out->share = share;
    }
    if (out->share > 0) plain_copy(out->label, sizeof out->label, s->label(s->source, worst));
}

void live_take_fp8(struct live *l, int64_t step, const struct live_shares *s) {
    l->fp8_step = step;
    take_worst(s, "saturated", &l->saturated);
    take_worst(s, "underflow", &l->underflow);
}

void live_take_sets(struct live *l, int64_t step, const struct live_shares *s) {
    l->set_step = step;
    l->set_count = 0;
    for (int64_t i = 0; i < s->width && l->set_count < EVAL_SETS_MAX; i++) {
        struct live_set *set = &l->set[l->set_count];
        const char *name = s->label(s->source, i);
        double loss = s->share(s->source, "loss", i);
        if (!name || !eval_set_is_name(name)) continue;
        snprintf(set->name, sizeof set->name, "%s", name);
        set->loss = isfinite(loss) ? loss : NONE;
        l->set_count++;
    }
}

/* ---- documents ------------------------------------------------------------------------------- */

static void copy(char *out, size_t size, const json_t *object, const char *key) {
    plain_copy(out, size, json_text(object, key, ""));
}

void live_take_run(struct live *l, const json_t *run) {
    const json_t *list = json_object_get(run, "attempts");
    const json_t *now = json_object_get(run, "attempt");
    size_t ended = json_array_size(list);
    const json_t *last = json_is_object(now) ? now : json_array_get(list, ended ? ended - 1 : 0);
    copy(l->name, sizeof l->name, run, "name");
    copy(l->id, sizeof l->id, run, "id");
    copy(l->status, sizeof l->status, run, "status");
    copy(l->error, sizeof l->error, json_object_get(run, "error"), "text");
    l->started = run_time_parse(json_text(run, "started", ""));
    l->ended = run_time_parse(json_text(run, "ended", ""));
    l->attempts = (int64_t)ended + (json_is_object(now) ? 1 : 0);
    l->attempt_started = run_time_parse(json_text(last, "started", ""));
    l->from_step = json_int(last, "from_step");
    snprintf(l->attempt, sizeof l->attempt, "%lld %.32s", (long long)l->attempts,
             json_text(last, "started", ""));
    l->smoke = json_is_true(json_object_get(run, "smoke"));
}

void live_take_resolved(struct live *l, const json_t *resolved) {
    l->steps = json_int(json_object_get(resolved, "train"), "steps");
    const json_t *recipe = json_object_get(resolved, "recipe");
    copy(l->recipe, sizeof l->recipe, recipe, "kind");
    l->no_fp8 = recipe && !options_recipe_is_fp8(recipe);
    l->no_saturation = recipe && !options_recipe_can_saturate(recipe);
}

void live_take_decisions(struct live *l, const json_t *decisions) {
    copy(l->backend, sizeof l->backend, decisions, "backend");
    copy(l->device, sizeof l->device, decisions, "device");
}

void live_take_suite(struct live *l, const json_t *suite) {
    const json_t *ended = json_object_get(suite, "ended");
    size_t count = json_array_size(ended);
    size_t from = count > LIVE_ROWS_MAX ? count - LIVE_ROWS_MAX : 0;
    l->row = json_int(suite, "row");
    l->rows = json_int(suite, "rows");
    l->row_count = (int64_t)(count - from);
    for (int64_t i = 0; i < l->row_count; i++) {
        const json_t *row = json_array_get(ended, from + (size_t)i);
        struct live_row *r = &l->ended_row[i];
        r->row = json_int(row, "row");
        copy(r->name, sizeof r->name, row, "name");
        copy(r->status, sizeof r->status, row, "status");
        r->loss = json_double(json_object_get(row, "loss"));
        r->eval_loss = json_double(json_object_get(row, "eval_loss"));
    }
}

void live_take_event(struct live *l, const char *line) {
    const char *time = strchr(line, 'T'), *text = strstr(line, "Z ");
    bool whole = time && text == time + strlen("T02:48:23");
    plain_copy(l->event, sizeof l->event, whole ? time + 1 : line);
}

/* ---- what follows from it -------------------------------------------------------------------- */

bool live_is_running(const struct live *l) { return !strcmp(l->status, "running"); }

bool live_is_dead(const struct live *l) {
    return live_is_running(l) && l->life == RUN_LIFE_NONE;
}

bool live_is_over(const struct live *l) { return l->life == RUN_LIFE_NONE; }

/* Seconds a step: by rank 0's clock over this attempt, evaluations and checkpoints included. In the
 * first seconds by the step's own time, because the clock has whole seconds. */
static double pace_s(const struct live *l) {
    static const double ENOUGH_S = 5;
    double seconds = l->ranks ? l->rank[0].time - l->pace_time : NONE;
    double steps = l->ranks ? l->rank[0].step - l->pace_step : NONE;
    if (seconds >= ENOUGH_S && steps > 0) return seconds / steps;
    return l->step_ms / 1000;
}

double live_eta_s(const struct live *l, int64_t now) {
    double pace = pace_s(l);
    bool ends = !live_is_running(l) || live_is_dead(l);
    if (ends || l->steps <= 0 || l->step < 0 || !(pace >= 0)) return -1;
    double left = (double)(l->steps - l->step) * pace;
    double since = l->ranks ? (double)now - l->rank[0].time : 0; /* the step under way */
    left -= fmax(0, fmin(since, pace));
    return left > 0 ? left : 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Counts, bytes and clocks are whole numbers. */
static json_t *number_json(double x) {
    if (!isfinite(x)) return json_null();
    return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *worst_json(const struct live_worst *w, bool cannot) {
    if (cannot || !isfinite(w->share)) return json_null();
    return json_pack("{s:f,s:o}", "share", w->share, "tensor",
                     *w->label ? json_from_text(w->label) : json_null());
}

static json_t *suite_json(const struct live *l) {
    json_t *ended = json_array();
    bool failed = false;
    if (l->rows < 1) {
        json_decref(ended);
        return json_null();
    }
    for (int64_t i = 0; i < l->row_count; i++) {
        const struct live_row *r = &l->ended_row[i];
        json_append(ended, json_pack("{s:I,s:o,s:o,s:o,s:o}", "row", (json_int_t)r->row, "name",
                                     json_from_text(r->name), "status", json_from_text(r->status),
                                     "loss", number_json(r->loss), "eval_loss",
                                     number_json(r->eval_loss)), &failed);
    }
    return json_pack("{s:I,s:I,s:o}", "row", (json_int_t)l->row, "rows", (json_int_t)l->rows,
                     "ended", json_whole(ended, failed));
}

/* {name: loss}; null: none was recorded. */
static json_t *sets_json(const struct live *l) {
    json_t *sets = json_object();
    bool failed = false;
    for (int64_t i = 0; i < l->set_count; i++)
        json_put(sets, l->set[i].name, number_json(l->set[i].loss), &failed);
    if (l->set_count) return json_whole(sets, failed);
    json_decref(sets);
    return json_null();
}

json_t *live_json(const struct live *l, const char *path, int64_t now) {
    const struct live_rank none = { NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE };
    const struct live_rank *rank = l->ranks ? &l->rank[0] : &none;
    double eta = live_eta_s(l, now);
    bool failed = false, known = l->step >= 0;
    json_t *saturated = worst_json(&l->saturated, l->no_saturation);
    const struct { const char *key; double value; } NUMBERS[] = {
        { "loss", l->loss }, { "grad_norm", l->grad_norm }, { "lr", l->lr },
        { "step_ms", l->step_ms }, { "tokens_per_s", l->tokens_per_s }, { "mfu_peak", l->mfu },
        { "eval_step", l->eval_step }, { "eval_loss", l->eval_loss },
        { "eval_loss_best", l->eval_best }, { "eval_accuracy", l->eval_accuracy },
        { "rss_bytes", rank->rss_bytes }, { "device_bytes", rank->device_bytes },
        { "gpu_memory_used_bytes", rank->gpu_used_bytes }, { "gpu_clock_sm_mhz", rank->clock_mhz },
        { "gpu_power_w", rank->power_w }, { "gpu_temperature_c", rank->temperature_c },
        { "eta_s", eta >= 0 ? eta : NONE },
    };
    json_t *o = json_pack("{s:s,s:o,s:o,s:o,s:b,s:o,s:I,s:o,s:o,s:o}", "schema", "fp8lab.watch/1",
                          "path", json_from_text(path), "name", json_from_text(l->name), "status",
                          json_from_text(l->status), "alive", l->life != RUN_LIFE_NONE, "step",
                          known ? json_integer(l->step) : json_null(), "steps",
                          (json_int_t)l->steps, "saturated", saturated, "underflow",
                          worst_json(&l->underflow, l->no_fp8), "suite", suite_json(l));
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        json_put(o, NUMBERS[i].key, number_json(NUMBERS[i].value), &failed);
    json_put(o, "eval_sets", sets_json(l), &failed);
    json_put(o, "spikes", json_integer(l->spikes), &failed);
    json_put(o, "spike_step", l->spikes ? json_integer(l->spike_step) : json_null(), &failed);
    return json_whole(o, failed);
}
