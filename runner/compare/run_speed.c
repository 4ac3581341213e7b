#include "runner/compare/run_speed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/json_number.h"
#include "runner/hardware/telemetry.h"

/* NVML's reasons for low clocks (hardware/telemetry.h): a defect of cooling or supply; the power
 * cap, which holds every GPU at work; and clocks that a user set. */
enum { HARMFUL = 0x8 | 0x20 | 0x40 | 0x80, POWER_CAP = 0x4, USERS_CLOCKS = 0x2 };

/* Step times from which the spread is computed: more are read at equal distances. */
enum { TIMES_MAX = 4096 };

/* ---- the steady window --------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The distance of the quartiles over the median. */
static enum status read_spread(const struct columns *train, struct window w, double *out,
                               struct err *e) {
    const struct column *time = columns_scalar(train, "step_time_us");
    int64_t rows = w.last - w.first, each = rows / TIMES_MAX + 1, n = 0;
    *out = (double)NAN;
    if (!time || rows < 2) return OK;
    double *us = malloc((size_t)(rows / each + 1) * sizeof *us);
    if (!us) return FAIL(e, ERR_MEMORY, "%lld step times", (long long)rows);
    for (int64_t i = w.first; i < w.last; i += each) {
        columns_pass(train, time, i);
        us[n++] = column_value(time, i, 0);
    }
    qsort(us, (size_t)n, sizeof *us, by_value);
    *out = (us[3 * n / 4] - us[n / 4]) / us[n / 2];
    free(us);
    return OK;
}

/* The steps of the steady window, as the records number them. */
struct steps { double from, to; };

static bool inside(const struct steps *s, double step) { return step >= s->from && step <= s->to; }

/* What the driver reported in the window. */
struct seen { int64_t reasons, others; };

static struct seen look(const struct columns *t, const struct steps *s) {
    const struct column *step = columns_scalar(t, "step");
    const struct column *reasons = columns_scalar(t, "gpu_throttle");
    const struct column *others = columns_scalar(t, "gpu_processes_other");
    struct seen seen = { 0 };
    for (int64_t i = 0; step && i < t->rows; i++) {
        if (!inside(s, column_value(step, i, 0))) continue;
        double bits = reasons ? column_value(reasons, i, 0) : 0;
        double other = others ? column_value(others, i, 0) : 0;
        if (bits >= 0 && bits < 0x1p31) seen.reasons |= (int64_t)bits;
        if (other > (double)seen.others && other < 0x1p31) seen.others = (int64_t)other;
    }
    return seen;
}

/* A key of a table of the configuration, as a number; NaN: it has none. */
static double number_of(const struct run_view *v, const char *table, const char *key) {
    return json_double(json_object_get(json_object_get(v->resolved, table), key));
}

/* How many steps of the window are multiples of `every`, a whole number. */
static double multiples(const struct steps *s, double every) {
    return every >= 1 ? floor(s->to / every) - floor((s->from - 1) / every) : 0;
}

/* The least common multiple; 0: one of them is no number of steps. */
static double common_multiple(double a, double b) {
    if (!(a >= 1 && b >= 1)) return 0;
    double x = a, y = b;
    while (y > 0) {
        double rest = fmod(x, y);
        x = y;
        y = rest;
    }
    return a / x * b;
}

static bool is_multiple(double step, double every) { return every >= 1 && fmod(step, every) == 0; }

/* How many steps of the window are beside an evaluation, a sample or a checkpoint: the worker waits
 * for them, and queues no step ahead. */
static double disturbed_steps(const struct run_view *v, const struct steps *s) {
    const struct columns *eval = v->columns.of[STREAM_EVAL];
    const struct column *step = columns_scalar(eval, "step");
    double n = 0, last = (double)NAN;
    double saves = floor(number_of(v, "checkpoint", "every"));
    double samples = floor(number_of(v, "sample", "every"));
    for (int64_t i = 0; step && i < eval->rows; i++) {
        double at = column_value(step, i, 0);
        bool counted = is_multiple(at, saves) || is_multiple(at, samples);
        if (inside(s, at) && at != last && !counted) n++;
        last = at;
    }
    return n + multiples(s, saves) + multiples(s, samples) -
           multiples(s, common_multiple(saves, samples));
}

/* ---- why it does not count ----------------------------------------------------------------- */

static void judge_end(const struct run_view *v, char why[SPEED_WHY_CAP]) {
    const char *status = json_text(v->run, "status", "?");
    const json_t *attempts = json_object_get(v->run, "attempts");
    size_t n = json_array_size(attempts);
    if (strcmp(status, "done") != 0 && strcmp(status, "time_limit") != 0)
        snprintf(why, SPEED_WHY_CAP, "it did not end as planned: %.32s", status);
    else if (json_is_true(json_object_get(v->run, "smoke")))
        snprintf(why, SPEED_WHY_CAP, "it is a smoke run");
    else if (n > 1)
        snprintf(why, SPEED_WHY_CAP, "it was resumed after step %lld: its steps are of %zu "
                 "attempts", (long long)json_int(json_array_get(attempts, n - 1), "from_step"), n);
}

bool run_speed_timed_out(const struct run_view *v) {
    return !strcmp(json_text(v->run, "status", ""), "time_limit");
}

static void judge_window(const struct run_view *v, const struct steps *s, const struct seen *seen,
                         double tokens_per_s, char why[SPEED_WHY_CAP]) {
    double steady = s->to - s->from + 1, disturbed = disturbed_steps(v, s);
    char reasons[160];
    throttle_text(seen->reasons & HARMFUL, reasons, sizeof reasons);
    if (!(tokens_per_s > 0) || !(steady >= 1))
        snprintf(why, SPEED_WHY_CAP, "it has no steady steps");
    else if (steady < SPEED_STEPS_MIN)
        snprintf(why, SPEED_WHY_CAP, "it has %.0f steady step%s; %d are needed: raise %s", steady,
                 steady == 1 ? "" : "s", SPEED_STEPS_MIN,
                 run_speed_timed_out(v) ? "time_limit" : "train.steps");
    else if (seen->reasons & HARMFUL)
        snprintf(why, SPEED_WHY_CAP, "a GPU was slowed down in its steady window: %s", reasons);
    else if (seen->others)
        snprintf(why, SPEED_WHY_CAP, "%lld other process%s used a GPU in its steady window",
                 (long long)seen->others, seen->others == 1 ? "" : "es");
    else if (4 * disturbed > steady)
        snprintf(why, SPEED_WHY_CAP, "%.0f of its %.0f steady steps are beside an evaluation, a "
                 "sample or a checkpoint: raise eval.every, sample.every or checkpoint.every",
                 fmin(disturbed, steady), steady);
}

enum status run_speed_make(const struct run_view *v, struct run_speed *out, struct err *e) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    const json_t *summary = v->summary;
    struct steps s = { json_double(json_object_get(summary, "steady_from")),
                       json_double(json_object_get(summary, "steady_to")) };
    struct seen seen = look(v->columns.of[STREAM_TELEMETRY], &s);
    *out = (struct run_speed){
        .tokens_per_s = json_double(json_object_get(summary, "tokens_per_s_median")),
        .grain = 1 / json_double(json_object_get(summary, "step_time_us_median")),
        .clock_mhz = json_double(json_object_get(summary, "gpu_clock_sm_mhz_median")),
        .capped = seen.reasons & POWER_CAP,
        .set_clocks = seen.reasons & USERS_CLOCKS,
    };
    judge_end(v, out->why);
    out->few_steps = !*out->why && !(s.to - s.from + 1 >= SPEED_STEPS_MIN);
    if (!*out->why) judge_window(v, &s, &seen, out->tokens_per_s, out->why);
    return read_spread(train, steady_window(train ? train->rows : 0), &out->spread, e);
}

/* ---- two runs ------------------------------------------------------------------------------ */

/* Facts of a GPU that are no factor of a loss. */
static const char *const LIMITS[] = {
    "gpu.power_limit_w", "gpu.clock_sm_max_mhz", "gpu.clock_mem_max_mhz", "gpu.ecc", "gpu.mig",
    "gpu.links",
};

/* Keys of the configuration that record more within a step, and what an absent one means (0: none
 * is recorded; of fp8_error FP8_ERROR_EVERY of plan/options.c). */
static const struct { const char *table, *key; json_int_t absent; } RECORDED[] = {
    { NULL, "trace", 0 },
    { NULL, "fp8_error", 100 },
    { "train", "audit", 0 },
    { "tensorboard", "histograms", 0 },
};

/* New reference; NULL: nothing is recorded, or no memory. */
static json_t *recorded(const struct run_view *v, size_t i) {
    const char *table = RECORDED[i].table;
    const json_t *from = table ? json_object_get(v->resolved, table) : v->resolved;
    json_t *value = json_object_get(from, RECORDED[i].key);
    if (value) return json_incref(value);
    return RECORDED[i].absent ? json_integer(RECORDED[i].absent) : NULL;
}

/* An absent value is a null. */
static bool equal(const json_t *a, const json_t *b) {
    if (json_is_null(a)) a = NULL;
    if (json_is_null(b)) b = NULL;
    return !a == !b && (!a || json_equal(a, b));
}

static void value_text(const json_t *value, char *out, size_t size) {
    if (json_is_number(value)) snprintf(out, size, "%g", json_number_value(value));
    else if (json_is_string(value)) snprintf(out, size, "%.60s", json_string_value(value));
    else if (json_is_boolean(value)) snprintf(out, size, "%s", json_is_true(value) ? "on" : "off");
    else snprintf(out, size, "not known");
}

/* A resumed run does not count, so the first attempt is the one that was timed. */
static const json_t *slot_of(const struct run_view *v) {
    const json_t *attempt = json_array_get(json_object_get(v->run, "attempts"), 0);
    return json_object_get(attempt, "side_by_side");
}

void run_speed_gpus(const struct run_view *v, char out[SPEED_GPUS_CAP]) {
    const json_t *gpu;
    size_t i, used = 0;
    *out = '\0';
    json_array_foreach(json_object_get(slot_of(v), "gpus"), i, gpu)
        if (used < SPEED_GPUS_CAP)
            used += (size_t)snprintf(out + used, SPEED_GPUS_CAP - used, "%s%lld", i ? "+" : "",
                                     (long long)json_integer_value(gpu));
}

int64_t run_speed_at_once(const struct run_view *v) {
    int64_t rows = json_int(slot_of(v), "rows_at_once");
    return rows > 1 ? rows : 1;
}

/* "alone", or "as one of 4 rows at once". */
static void company_text(const struct run_view *v, char out[48]) {
    int64_t rows = run_speed_at_once(v);
    if (rows > 1) snprintf(out, 48, "as one of %lld rows at once", (long long)rows);
    else snprintf(out, 48, "alone");
}

/* Rows at once share processors, memory and disk. */
static bool other_company(const struct run_view *first, const struct run_view *second,
                          const char *name, char why[SPEED_WHY_CAP]) {
    char of_first[48], of_second[48];
    company_text(first, of_first);
    company_text(second, of_second);
    if (!strcmp(of_first, of_second)) return false;
    snprintf(why, SPEED_WHY_CAP, "it ran %s, and %s %s", of_second, name, of_first);
    return true;
}

bool run_speed_other(const struct run_view *first, const struct run_view *second,
                     const struct run_speed *a, const struct run_speed *b, const char *name,
                     char why[SPEED_WHY_CAP]) {
    for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++) {
        const json_t *x = json_object_get(first->facts, LIMITS[i]);
        const json_t *y = json_object_get(second->facts, LIMITS[i]);
        char of_first[64], of_second[64];
        if (equal(x, y)) continue;
        value_text(x, of_first, sizeof of_first);
        value_text(y, of_second, sizeof of_second);
        snprintf(why, SPEED_WHY_CAP, "its %s is %s, and that of %s is %s", LIMITS[i], of_second,
                 name, of_first);
        return true;
    }
    for (size_t i = 0; i < sizeof RECORDED / sizeof *RECORDED; i++) {
        json_t *x = recorded(first, i), *y = recorded(second, i);
        bool same = equal(x, y);
        json_decref(x);
        json_decref(y);
        if (same) continue;
        snprintf(why, SPEED_WHY_CAP, "it records other things in a step than %s (%s%s%s)", name,
                 RECORDED[i].table ? RECORDED[i].table : "", RECORDED[i].table ? "." : "",
                 RECORDED[i].key);
        return true;
    }
    if (other_company(first, second, name, why)) return true;
    if (a->set_clocks == b->set_clocks) return false;
    snprintf(why, SPEED_WHY_CAP, "its clocks were%s set by a user, and those of %s were%s",
             b->set_clocks ? "" : " not", name, a->set_clocks ? "" : " not");
    return true;
}

bool run_speed_same_run(const struct run_view *a, const struct run_view *b) {
    static const char SPEED[] = "tokens_per_s_median";
    const char *id = json_text(a->run, "id", "");
    if (*a->identity && !strcmp(a->identity, b->identity)) return true;
    return *id && !strcmp(id, json_text(b->run, "id", "")) &&
           json_equal(json_object_get(a->run, "inputs"), json_object_get(b->run, "inputs")) &&
           json_equal(json_object_get(a->summary, SPEED), json_object_get(b->summary, SPEED)) &&
           json_equal(json_object_get(a->run, "started"), json_object_get(b->run, "started"));
}
