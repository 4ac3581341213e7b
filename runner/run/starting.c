#include "runner/run/starting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/clock.h"
#include "runner/record/run_dir.h"
#include "runner/record/run_log.h"

static const char *const OF_RUNNER[START_REST] = { "script", "probe", "data", "record",
                                                 "certificates" };
/* Of a worker, in the order of its work; "ready" has them with "_us". */
static const char *const OF_RANK[] = { "device", "text",  "memory", "weights",
                                       "trial",  "graph", "reading" };
enum { RANK_PARTS = sizeof OF_RANK / sizeof *OF_RANK };

/* ---- the runner's part ------------------------------------------------------------------------*/

void start_clock_begin(struct start_clock *c, const char *from) {
    *c = (struct start_clock){ .from = from };
    c->begin_us = c->lap_us = clock_us();
}

void start_clock_lap(struct start_clock *c, enum start_part part) {
    if (c) c->part_us[part] += clock_lap_us(&c->lap_us);
}

void start_clock_row(struct start_clock *c) {
    if (c && c->used) start_clock_begin(c, "the end of the run before");
    else start_clock_lap(c, START_REST);
}

/* ---- an attempt -------------------------------------------------------------------------------*/

void starting_begin(struct starting *s, const struct run_dir *dir, struct start_clock *c) {
    starting_end(s);
    *s = (struct starting){ .dir = dir };
    if (c && !c->used) s->clock = *c;
    else start_clock_begin(&s->clock, "the attempt's begin");
    if (c) c->used = true;
}

void starting_end(struct starting *s) {
    json_decref(s->spent);
    s->spent = NULL;
}

static int64_t part_us(const json_t *ready, int i) {
    char key[24];
    snprintf(key, sizeof key, "%s_us", OF_RANK[i]);
    return json_int(ready, key);
}

/* Keeps the times of the rank that needed longest. */
static void take_ready(struct starting *s, int64_t rank, const json_t *event) {
    int64_t us = 0;
    for (int i = 0; i < RANK_PARTS; i++) us += part_us(event, i);
    s->ready_us = clock_us();
    s->ranks++;
    if (s->spent && us <= s->slowest_us) return;
    json_decref(s->spent);
    s->spent = json_incref((json_t *)event);
    s->slowest = rank;
    s->slowest_us = us;
}

/* Adds a part in milliseconds to the text and to the record. */
static void put(const char *name, int64_t us, char *text, size_t size, json_t *record,
                bool *failed) {
    char key[24];
    size_t n = strlen(text);
    snprintf(key, sizeof key, "%s_ms", name);
    json_put(record, key, json_integer((us + 500) / 1000), failed);
    snprintf(text + n, size - n, "%s%s %" PRId64, n ? ", " : "", name, (us + 500) / 1000);
}

static enum status say(struct starting *s, struct err *e) {
    int64_t total = s->ready_us - s->clock.begin_us, rest = total - s->slowest_us;
    char text[400] = "", of[64] = "";
    bool failed = false;
    json_t *record = json_object();
    json_put(record, "total_ms", json_integer((total + 500) / 1000), &failed);
    for (int i = 0; i < START_REST; i++) {
        put(OF_RUNNER[i], s->clock.part_us[i], text, sizeof text, record, &failed);
        rest -= s->clock.part_us[i];
    }
    for (int i = 0; i < RANK_PARTS; i++)
        put(OF_RANK[i], part_us(s->spent, i), text, sizeof text, record, &failed);
    put("rest", rest, text, sizeof text, record, &failed);
    json_put(record, "rank", json_integer(s->slowest), &failed);
    if (s->ranks > 1)
        snprintf(of, sizeof of, "; rank %" PRId64 ", the slowest of %" PRId64, s->slowest,
                 s->ranks);
    run_log(s->dir, "from %s to the first step %" PRId64 " ms: %s%s", s->clock.from,
            (total + 500) / 1000, text, of);
    json_put(json_object_get(s->dir->run, "attempt"), "start", json_whole(record, failed), &failed);
    s->said = true;
    starting_end(s);
    return failed ? FAIL(e, ERR_MEMORY, "the times before the first step") : OK;
}

enum status starting_event(struct starting *s, int64_t rank, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "ready") && !s->said) take_ready(s, rank, event);
    return s->spent && !strcmp(kind, "step") ? say(s, e) : OK;
}
