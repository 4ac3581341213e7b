#include "runner/repro/repro_speed.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/cli.h"
#include "runner/base/json_number.h"
#include "runner/compare/run_speed.h"

enum status repro_speed_band(const char *text, double *band, struct err *e) {
    char *end = NULL;
    *band = (double)NAN;
    if (!text) return OK;
    double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 || !(percent >= 0 && percent < 100))
        return FAIL(e, ERR_ARG, "--speed: found '%.40s'; write how much slower it may be, in "
                    "percent with the sign, such as 5%%", text);
    *band = percent / 100;
    return OK;
}

/* ---- may the two be compared? ---- */

static const char *backend_of(const struct run_view *v) {
    return json_text(v->decisions, "backend", "?");
}

static const char *fact(const struct run_view *v, const char *name) {
    return json_text(v->facts, name, NULL);
}

static bool is_mig(const struct run_view *v) {
    return json_is_true(json_object_get(v->facts, "gpu.mig"));
}

static void refuse(struct repro_speed *s, const char *format, ...) PRINTF_LIKE(2, 3);
static void refuse(struct repro_speed *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->why, sizeof s->why, format, args);
    va_end(args);
}

static void find_obstacle(const struct run_view *then, const struct run_view *now, bool comparable,
                          struct repro_speed *s) {
    static const char PRODUCT[] = "gpu.product_name";
    int64_t ranks_then = json_int(then->decisions, "world");
    int64_t ranks_now = json_int(now->decisions, "world");
    if (strcmp(backend_of(then), backend_of(now)) != 0)
        refuse(s, "another backend: %.40s, not %.40s", backend_of(now), backend_of(then));
    else if (strcmp(backend_of(now), "cuda") != 0)
        refuse(s, "both ran on a CPU, which emulates FP8");
    else if (!fact(then, PRODUCT) || !fact(now, PRODUCT))
        refuse(s, "%s does not say which GPU", fact(then, PRODUCT) ? "this run" : "the bundle");
    else if (strcmp(fact(then, PRODUCT), fact(now, PRODUCT)) != 0)
        refuse(s, "another GPU: %.80s, not %.80s", fact(now, PRODUCT), fact(then, PRODUCT));
    else if (is_mig(then) != is_mig(now))
        refuse(s, "%s ran on a part of a GPU (MIG)", is_mig(now) ? "this one" : "the bundle's run");
    else if (ranks_then != ranks_now)
        refuse(s, "another number of GPUs: %" PRId64 ", not %" PRId64, ranks_now, ranks_then);
    else if (!comparable)
        refuse(s, "another configuration, or fewer steps than were asked for");
}

/* ---- what may have changed it ---- */

static void note(struct repro_speed *s, bool *failed, const char *format, ...) PRINTF_LIKE(3, 4);
static void note(struct repro_speed *s, bool *failed, const char *format, ...) {
    char text[240];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_append(s->notes, json_from_text(text), failed);
}

static void note_version(struct repro_speed *s, const struct run_view *then,
                         const struct run_view *now, const char *name, const char *title,
                         bool *failed) {
    const char *a = fact(then, name), *b = fact(now, name);
    if (a && b && strcmp(a, b) != 0)
        note(s, failed, "%s %.40s, not %.40s", title, b, a);
}

/* If the number is more than a hundredth below the bundle's. */
static void note_less(struct repro_speed *s, const json_t *then, const json_t *now, const char *key,
                      const char *title, const char *unit, bool *failed) {
    double a = json_double(json_object_get(then, key)), b = json_double(json_object_get(now, key));
    if (b < 0.99 * a) note(s, failed, "%s %.0f %s, not %.0f", title, b, unit, a);
}

/* Of clocks that differ by more, a power cap must be the cause. */
#define CLOCK_SHARE 0.02

/* Says what slowed the bundle's own run. If it spoils the measure, nothing is compared with
 * --speed: a slow machine would pass. */
static void note_bundle(struct repro_speed *s, bool spoils, bool *failed, const char *format, ...)
    PRINTF_LIKE(4, 5);
static void note_bundle(struct repro_speed *s, bool spoils, bool *failed, const char *format,
                        ...) {
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    note(s, failed, "the bundle's run: %s", text);
    if (spoils && !isnan(s->band) && !*s->why)
        refuse(s, "the bundle's run was slowed down: %s", text);
}

/* Whether a text of hardware/telemetry.h has a defect of cooling or supply. The power cap, which
 * holds every GPU at work, is none. */
static bool is_defect(const char *throttled) {
    return strstr(throttled, "thermal") || strstr(throttled, "hardware slowdown") ||
           strstr(throttled, "power brake");
}

/* Rows at once share processors, memory and disk, and each may have another chip than this run. */
static void note_company(const struct run_view *then, struct repro_speed *s, bool *failed) {
    int64_t rows = run_speed_at_once(then);
    if (rows < 2) return;
    note(s, failed, "the bundle's run: one of %" PRId64 " rows side by side", rows);
    if (!isnan(s->band) && !*s->why)
        refuse(s, "the bundle's run was one of %" PRId64 " rows side by side, and this one is "
               "alone", rows);
}

static void take_bundle_notes(const struct run_view *then, const struct run_view *now,
                              struct repro_speed *s, bool *failed) {
    static const char LIMIT[] = "gpu.power_limit_w", CLOCK[] = "gpu_clock_sm_mhz_median";
    const char *throttled = json_text(then->summary, "gpu_throttle_reasons", "");
    double others = json_double(json_object_get(then->summary, "gpu_processes_other_max"));
    double limit = json_double(json_object_get(then->facts, LIMIT));
    double limit_now = json_double(json_object_get(now->facts, LIMIT));
    double clock = json_double(json_object_get(then->summary, CLOCK));
    double clock_now = json_double(json_object_get(now->summary, CLOCK));
    note_company(then, s, failed);
    if (is_defect(throttled)) note_bundle(s, true, failed, "throttled: %s", throttled);
    if (others > 0)
        note_bundle(s, true, failed, "%.0f other process%s used the GPU", others,
                    others == 1 ? "" : "es");
    if (limit < 0.99 * limit_now)
        note_bundle(s, true, failed, "power limit %.0f W, this one %.0f", limit, limit_now);
    if (clock < 0.99 * clock_now)
        note_bundle(s, clock < (1 - CLOCK_SHARE) * clock_now && !strstr(throttled, "power cap"),
                    failed, "SM clock %.0f MHz, this one %.0f", clock, clock_now);
}

static enum status take_notes(const struct run_view *then, const struct run_view *now,
                              struct repro_speed *s, struct err *e) {
    const char *code_then = json_text(json_object_get(then->run, "inputs"), "code", "");
    const char *code_now = json_text(json_object_get(now->run, "inputs"), "code", "");
    const char *throttled = json_text(now->summary, "gpu_throttle_reasons", "");
    const char *before = json_text(then->summary, "gpu_throttle_reasons", "");
    double others = json_double(json_object_get(now->summary, "gpu_processes_other_max"));
    bool failed = false;
    if (*throttled && strcmp(throttled, before) != 0) /* a large model always meets the power cap */
        note(s, &failed, "throttled: %.120s", throttled);
    if (others > 0)
        note(s, &failed, "%.0f other process%s used the GPU", others, others == 1 ? "" : "es");
    note_less(s, then->facts, now->facts, "gpu.power_limit_w", "power limit", "W", &failed);
    note_less(s, then->summary, now->summary, "gpu_clock_sm_mhz_median", "SM clock", "MHz",
              &failed);
    note_version(s, then, now, "gpu.driver", "driver", &failed);
    note_version(s, then, now, "cublaslt.version", "cuBLASLt", &failed);
    note_version(s, then, now, "cudnn.version", "cuDNN", &failed);
    if (strcmp(code_then, code_now) != 0) note(s, &failed, "another build of fp8lab");
    take_bundle_notes(then, now, s, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "the speed of a run") : OK;
}

/* ---- all ---- */

static int64_t rows_of(const struct run_view *v) {
    const struct columns *train = v->columns.of[STREAM_TRAIN];
    return train ? train->rows : 0;
}

enum status repro_speed_judge(const struct run_view *then, const struct run_view *now,
                              bool comparable, double band, struct repro_speed *out,
                              struct err *e) {
    int64_t a = rows_of(then), b = rows_of(now);
    struct window w = steady_window(a < b ? a : b);
    *out = (struct repro_speed){ .ratio = (double)NAN, .then_us = (double)NAN,
                                 .now_us = (double)NAN, .steps = w.last - w.first, .band = band,
                                 .notes = json_array() };
    if (!out->notes) return FAIL(e, ERR_MEMORY, "the speed of a run");
    find_obstacle(then, now, comparable, out);
    if (*out->why) return OK;
    if (out->steps < REPRO_SPEED_STEPS) {
        refuse(out, "only %" PRId64 " steady steps; %d are needed", out->steps,
               (int)REPRO_SPEED_STEPS);
        return OK;
    }
    TRY(window_median(then->columns.of[STREAM_TRAIN], "step_time_us", w, &out->then_us, e));
    TRY(window_median(now->columns.of[STREAM_TRAIN], "step_time_us", w, &out->now_us, e));
    if (!(out->then_us > 0 && out->now_us > 0)) {
        refuse(out, "the records have no step times");
        return OK;
    }
    TRY(take_notes(then, now, out, e));
    if (*out->why) {
        out->then_us = out->now_us = (double)NAN;
        return OK;
    }
    out->ratio = out->then_us / out->now_us;
    out->slower = out->ratio < 1 - band;
    return OK;
}

void repro_speed_free(struct repro_speed *s) {
    json_decref(s->notes);
    s->notes = NULL;
}

int repro_speed_exit_code(const struct repro_speed *s, int code) {
    if (code != EXIT_OK || isnan(s->band)) return code;
    if (isnan(s->ratio)) return EXIT_HARDWARE;
    return s->slower ? EXIT_DIFFERS : EXIT_OK;
}

void repro_speed_text(const struct repro_speed *s, char out[REPRO_SPEED_CAP]) {
    size_t i, used;
    const json_t *text;
    if (isnan(s->ratio)) {
        snprintf(out, REPRO_SPEED_CAP, "not compared: %s", s->why);
        return;
    }
    used = (size_t)snprintf(out, REPRO_SPEED_CAP, "%.3f of the bundle's", s->ratio);
    if (!isnan(s->band))
        used += (size_t)snprintf(out + used, REPRO_SPEED_CAP - used, ", %s the %.3g of --speed",
                                 s->slower ? "below" : "within", 1 - s->band);
    used += (size_t)snprintf(out + used, REPRO_SPEED_CAP - used, " (same GPU");
    json_array_foreach(s->notes, i, text)
        if (used + 260 < REPRO_SPEED_CAP)
            used += (size_t)snprintf(out + used, REPRO_SPEED_CAP - used, "; %s",
                                     json_string_value(text));
    snprintf(out + used, REPRO_SPEED_CAP - used, ")");
}

json_t *repro_speed_json(const struct repro_speed *s) {
    return json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:O}", "ratio", json_finite(s->ratio),
                     "bundle_step_time_us", json_finite(s->then_us), "step_time_us",
                     json_finite(s->now_us), "steps", (json_int_t)s->steps, "band",
                     json_finite(s->band), "slower",
                     isnan(s->ratio) || isnan(s->band) ? json_null() : json_boolean(s->slower),
                     "why", *s->why ? json_from_text(s->why) : json_null(), "notes", s->notes);
}
