#include "runner/run/milestones.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/json_number.h"
#include "runner/record/documents.h"
#include "runner/record/npy.h"
#include "runner/record/records.h"
#include "runner/record/run_checkpoint.h"
#include "runner/record/run_log.h"

enum { STEP_EVERY_MS = 30000 };

static double number(const json_t *event, const char *key) {
    return json_double(json_object_get(event, key));
}

void milestones_begin(struct milestones *m, const struct run_dir *dir) {
    *m = (struct milestones){ .dir = dir };
}

static void start(struct milestones *m, const json_t *event) {
    m->steps = json_int(event, "steps");
    run_log(m->dir, "start after step %" PRId64 " of %" PRId64, json_int(event, "step"), m->steps);
}

static void log_step(struct milestones *m) {
    char loss[48] = "no token with loss";
    if (!m->lacks_loss) snprintf(loss, sizeof loss, "loss %.5f", m->loss);
    run_log(m->dir, "step %" PRId64 " of %" PRId64 ": %s, %.0f tokens/s", m->step, m->steps, loss,
            m->tokens_per_s);
    m->said_ms = clock_ms();
    m->pending = false;
}

static void step(struct milestones *m, const json_t *event) {
    m->step = json_int(event, "step");
    m->loss = number(event, "loss");
    m->lacks_loss = record_lacks_loss(event);
    m->tokens_per_s = number(event, "tokens_per_s");
    m->pending = true;
    if (!m->said_ms || clock_ms() - m->said_ms >= STEP_EVERY_MS) log_step(m);
}

static void evaluation(const struct milestones *m, const json_t *event) {
    run_log(m->dir, "evaluation after step %" PRId64 ": loss %.5f, %" PRId64 " tokens",
            json_int(event, "step"), number(event, "loss"), json_int(event, "tokens"));
}

/* "code 2.12345, law 2.40000" of the row of an evaluation. Without memory nothing is logged: the
 * record itself is reported elsewhere. */
static void further_sets(const struct milestones *m, const json_t *event) {
    const struct stream *s = &STREAMS[STREAM_EVAL_SETS];
    struct text words = { 0 };
    struct npy layout;
    struct err ignored;
    char *row, loss[48];
    size_t bytes, i;
    const json_t *name;
    if (record_row(event, &row, &bytes, &ignored) != OK) return;
    int64_t width = npy_width_of(s, (int64_t)bytes);
    npy_layout(s, width ? width : 1, &layout);
    json_array_foreach(m->sets, i, name) {
        uint32_t bits;
        if ((int64_t)i >= width || !json_is_string(name)) break;
        memcpy(&bits, row + layout.column[1].offset + 4 * (int64_t)i, sizeof bits); /* the loss */
        snprintf(loss, sizeof loss, " %.5f", (double)f32_from_bits(bits));
        text_puts(&words, i ? ", " : "");
        text_puts(&words, json_string_value(name));
        text_puts(&words, loss);
    }
    if (words.bytes && !words.failed)
        run_log(m->dir, "further sets after step %" PRId64 ": %s", json_int(event, "step"),
                words.bytes);
    text_free(&words);
    free(row);
}

static void sample(const struct milestones *m, const json_t *event) {
    if (json_int(event, "number") == 0) /* the others follow it at once */
        run_log(m->dir, "samples after step %" PRId64 ": data/metrics/samples.jsonl",
                json_int(event, "step"));
}

/* How many bytes and how long: the hash's line is parsed again and stays as it is. */
static void checkpoint(const struct milestones *m, const json_t *event) {
    run_checkpoint_note(m->dir, json_int(event, "step"), json_text(event, "sha256", "?"));
    run_log(m->dir, "saved %s/%s: %.3f GB, written in %.1f ms; the steps waited %.1f ms",
            RUN_PATH_checkpoints, json_text(event, "path", "?"),
            1e-9 * (double)json_int(event, "bytes"), 1e-3 * (double)json_int(event, "write_us"),
            1e-3 * (double)json_int(event, "stall_us"));
}

/* The kind of a GEMM: "qkv" of "layers.3.qkv.weight". */
static void gemm_kind(const char *weight, char out[96]) {
    static const char TAIL[] = ".weight";
    size_t n = strlen(weight), tail = sizeof TAIL - 1;
    if (n > tail && !strcmp(weight + n - tail, TAIL)) n -= tail;
    snprintf(out, 96, "%.*s", (int)n, weight);
    const char *dot = strrchr(out, '.');
    if (dot) memmove(out, dot + 1, strlen(dot));
}

/* Counts the GEMMs by kind, direction and way: {"qkv|fprop native: e4m3 x e4m3": 32}. NULL: no
 * memory. */
static json_t *count_gemms(const json_t *gemms) {
    json_t *counts = json_object(), *directions, *way;
    const char *weight, *direction;
    bool failed = false;
    json_object_foreach((json_t *)gemms, weight, directions) {
        char kind[96], key[400];
        gemm_kind(weight, kind);
        json_object_foreach(directions, direction, way) {
            snprintf(key, sizeof key, "%s|%s %.200s", kind, direction,
                     json_is_string(way) ? json_string_value(way) : "?");
            json_put(counts, key, json_integer(json_int(counts, key) + 1), &failed);
        }
    }
    return json_whole(counts, failed);
}

/* One line a kind: "GEMM qkv: 32 dgrad native: e5m2 x e4m3, 32 fprop native: ...". */
static void log_gemms(const struct milestones *m, const json_t *event) {
    json_t *counts = count_gemms(json_object_get(event, "gemm")), *lines = json_object();
    json_t *count, *text;
    const char *key, *kind;
    bool failed = false;
    json_object_foreach(counts, key, count) {
        char name[96];
        int n = (int)strcspn(key, "|");
        snprintf(name, sizeof name, "%.*s", n, key);
        const char *before = json_text(lines, name, "");
        json_put(lines, name, json_sprintf("%s%s%d %s", before, *before ? ", " : "",
                                           (int)json_integer_value(count), key + n + 1), &failed);
    }
    json_object_foreach(lines, kind, text)
        run_log(m->dir, "GEMM %s: %s", kind, json_string_value(text));
    json_decref(lines);
    json_decref(counts);
}

static void log_attention(const struct milestones *m, const json_t *event) {
    const char *shape, *direction;
    json_t *directions, *way;
    json_object_foreach(json_object_get(event, "attention"), shape, directions)
        json_object_foreach(directions, direction, way)
            run_log(m->dir, "attention %s: %s %s", shape, direction,
                    json_is_string(way) ? json_string_value(way) : "?");
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
    log_gemms(m, event);
    log_attention(m, event);
}

void milestones_event(struct milestones *m, int64_t rank, const json_t *event) {
    const char *kind = json_text(event, "event", "");
    if (!strcmp(kind, "start")) start(m, event);
    if (!strcmp(kind, "step")) step(m, event);
    if (!strcmp(kind, "eval")) evaluation(m, event);
    if (!strcmp(kind, STREAMS[STREAM_EVAL_SETS].event)) further_sets(m, event);
    if (!strcmp(kind, STREAMS[STREAM_EVAL_SETS].labels_event)) {
        json_decref(m->sets);
        m->sets = json_incref(json_object_get(event, "names"));
    }
    if (!strcmp(kind, "sample")) sample(m, event);
    if (!strcmp(kind, "decisions")) decisions(m, event);
    if (!strcmp(kind, "checkpoint")) checkpoint(m, event);
    if (!strcmp(kind, "log"))
        run_log(m->dir, "worker %" PRId64 ": %s", rank, json_text(event, "text", ""));
    if (!strcmp(kind, "error")) /* run.json keeps the error of one worker; the log has all */
        run_log(m->dir, "worker %" PRId64 " failed: %s", rank, json_text(event, "text", ""));
}

void milestones_end(struct milestones *m) {
    if (m->pending) log_step(m);
    json_decref(m->sets);
    m->sets = NULL;
}
