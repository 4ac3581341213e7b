#include "runner/run/milestones.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/clock.h"
#include "runner/record/run_checkpoint.h"
#include "runner/record/run_log.h"

enum { STEP_EVERY_MS = 30000 };

static double number(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

void milestones_begin(struct milestones *m, const struct run_dir *dir) {
    *m = (struct milestones){ .dir = dir };
}

static void start(struct milestones *m, const json_t *event) {
    m->steps = json_int(event, "steps");
    run_log(m->dir, "start after step %" PRId64 " of %" PRId64, json_int(event, "step"), m->steps);
}

static void log_step(struct milestones *m) {
    run_log(m->dir, "step %" PRId64 " of %" PRId64 ": loss %.5f, %.0f tokens/s", m->step, m->steps,
            m->loss, m->tokens_per_s);
    m->said_ms = clock_ms();
    m->pending = false;
}

static void step(struct milestones *m, const json_t *event) {
    m->step = json_int(event, "step");
    m->loss = number(event, "loss");
    m->tokens_per_s = number(event, "tokens_per_s");
    m->pending = true;
    if (!m->said_ms || clock_ms() - m->said_ms >= STEP_EVERY_MS) log_step(m);
}

static void evaluation(const struct milestones *m, const json_t *event) {
    run_log(m->dir, "evaluation after step %" PRId64 ": loss %.5f, %" PRId64 " tokens",
            json_int(event, "step"), number(event, "loss"), json_int(event, "tokens"));
}

static void sample(const struct milestones *m, const json_t *event) {
    if (json_int(event, "number") == 0) /* the others follow it at once */
        run_log(m->dir, "samples after step %" PRId64 ": data/metrics/samples.jsonl",
                json_int(event, "step"));
}

/* On a GPU this event comes again after the first step, which selects each GEMM's algorithm. */
static void decisions(const struct milestones *m, const json_t *event) {
    char text[256] = "";
    size_t used = 0;
    const char *way;
    json_t *count;
    json_object_foreach(json_object_get(event, "gemm_ways"), way, count) {
        int n = snprintf(text + used, sizeof text - used, "%s%" PRId64 " %s", used ? ", " : "",
                         (int64_t)json_integer_value(count), way);
        if (n > 0 && used + (size_t)n < sizeof text) used += (size_t)n;
    }
    run_log(m->dir, "backend %s on %s%s%s", json_text(event, "backend", "?"),
            json_text(event, "device", "?"), used ? ", GEMMs: " : "", text);
}

void milestones_event(struct milestones *m, int64_t rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "start")) start(m, event);
    if (!strcmp(kind, "step")) step(m, event);
    if (!strcmp(kind, "eval")) evaluation(m, event);
    if (!strcmp(kind, "sample")) sample(m, event);
    if (!strcmp(kind, "decisions")) decisions(m, event);
    if (!strcmp(kind, "checkpoint"))
        run_checkpoint_note(m->dir, json_int(event, "step"), json_text(event, "sha256", "?"));
    if (!strcmp(kind, "log"))
        run_log(m->dir, "worker %" PRId64 ": %s", rank, json_text(event, "text", ""));
    if (!strcmp(kind, "error")) /* run.json keeps the error of one worker; the log has all */
        run_log(m->dir, "worker %" PRId64 " failed: %s", rank, json_text(event, "text", ""));
}

void milestones_end(struct milestones *m) {
    if (m->pending) log_step(m);
}
