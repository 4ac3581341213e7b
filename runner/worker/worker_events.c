#include "runner/worker/worker_events.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/arithmetic.h"
#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/json_number.h"
#include "runner/generate/text_model.h"
#include "runner/record/bucket_text.h"
#include "runner/record/documents.h"
#include "runner/record/npy.h"

/* Emits and frees `event`; NULL: its allocation failed. */
static enum status emit(struct event_writer *w, json_t *event, bool may_drop, struct err *e) {
    if (!event) return FAIL(e, ERR_MEMORY, "event");
    enum status st = event_emit(w, event, may_drop, e);
    json_decref(event);
    return st;
}

/* JSON has no NaN and no infinity: null, with the exact value in *_bits. */
enum status say_plan(struct event_writer *w, const struct plan *plan, struct err *e) {
    json_t *rows = json_array();
    bool failed = false;
    for (int64_t i = 0; i < plan->row_count; i++) {
        const struct plan_row *row = &plan->row[i];
        json_append(rows, json_pack("{s:s,s:s,s:I,s:I}", "arena", row->arena, "item", row->item,
                                    "bytes", (json_int_t)row->bytes, "count",
                                    (json_int_t)row->count), &failed);
    }
    return emit(w, json_pack("{s:s,s:I,s:o}", "event", "plan", "bytes", (json_int_t)plan->bytes,
                             "rows", json_whole(rows, failed)), false, e);
}

enum status say_names(struct event_writer *w, const char *event, const char *const *names,
                      int64_t count, struct err *e) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < count; i++) json_append(list, json_string(names[i]), &failed);
    return emit(w, json_pack("{s:s,s:o}", "event", event, "names", json_whole(list, failed)), false,
                e);
}

enum status say_ready(struct event_writer *w, const struct start_times *spent, struct err *e) {
    const struct trainer_times *t = &spent->trainer;
    return emit(w, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "event", "ready", "device_us",
                             (json_int_t)spent->device_us, "text_us", (json_int_t)spent->text_us,
                             "memory_us", (json_int_t)t->memory_us, "weights_us",
                             (json_int_t)t->weights_us, "trial_us", (json_int_t)t->trial_us,
                             "graph_us", (json_int_t)t->graph_us, "reading_us",
                             (json_int_t)spent->reading_us),
                false, e);
}

enum status say_start(struct event_writer *w, int64_t step, int64_t steps, int64_t sequences,
                      const char *checkpoint_sha256, struct err *e) {
    return emit(w, json_pack("{s:s,s:I,s:I,s:I,s:s?}", "event", "start", "step", (json_int_t)step,
                             "steps", (json_int_t)steps, "epoch_sequences", (json_int_t)sequences,
                             "checkpoint_sha256", checkpoint_sha256),
                false, e);
}

/* ---- records -------------------------------------------------------------------------------- */

static void put_value(json_t *record, const struct metric *m, union stream_value v, bool *failed) {
    char bits_name[COLUMN_NAME_CAP];
    uint32_t bits = (uint32_t)v.u;
    switch (m->type) {
    case COLUMN_I64: json_put(record, m->name, json_integer(v.i), failed); break;
    case COLUMN_F64: json_put(record, m->name, json_finite(v.f), failed); break;
    case COLUMN_U64:
        json_put(record, m->name, json_sprintf("%016" PRIx64, v.u), failed);
        break;
    case COLUMN_U32:
        snprintf(bits_name, sizeof bits_name, "%s_bits", m->name);
        json_put(record, m->name, json_finite((double)f32_from_bits(bits)), failed);
        json_put(record, bits_name, json_sprintf("%08" PRIx32, bits), failed);
        break;
    }
}

static void put_values(json_t *record, const struct stream *s, const struct stream_source *source,
                       bool *failed) {
    for (int64_t i = 0; i < s->metric_count; i++)
        if (s->metric[i].value && (!s->metric[i].recorded || s->metric[i].recorded(source)))
            put_value(record, &s->metric[i], s->metric[i].value(source, 0), failed);
}

/* The row of a wide stream as hexadecimal digits. */
static void put_row(json_t *record, const struct stream *s, const struct stream_source *source,
                    bool *failed) {
    struct npy layout;
    npy_layout(s, source->width, &layout);
    size_t n = (size_t)layout.row_bytes;
    unsigned char *row = malloc(n);
    char *text = malloc(2 * n + 1);
    if (row && text) npy_row(s, source, &layout, (char *)row);
    for (size_t i = 0; row && text && i < n; i++) {
        text[2 * i] = "0123456789abcdef"[row[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[row[i] & 15];
    }
    json_put(record, "row", row && text ? json_stringn(text, 2 * n) : NULL, failed);
    json_put(record, "step", json_integer(source->step_number), failed);
    free(text);
    free(row);
}

enum status say_record(struct event_writer *w, enum stream_id stream,
                       const struct stream_source *source, struct err *e) {
    const struct stream *s = &STREAMS[stream];
    bool failed = false;
    json_t *record = json_object();
    json_put(record, "event", json_string(s->event), &failed);
    if (s->labels) put_row(record, s, source, &failed);
    else put_values(record, s, source, &failed);
    return emit(w, json_whole(record, failed), stream == STREAM_TELEMETRY, e);
}

enum status say_histograms(struct event_writer *w, int64_t step, const char *const *names,
                           const int64_t *counts, int64_t n, struct err *e) {
    bool failed = false;
    json_t *event = json_object(), *tensors = json_object();
    for (int64_t i = 0; i < n; i++) {
        json_t *text = bucket_text(counts + i * HISTOGRAM_COUNTS);
        if (text && json_string_length(text) == 0) json_decref(text);
        else json_put(tensors, names[i], text, &failed);
    }
    json_put(event, "event", json_string(STREAMS[STREAM_HISTOGRAMS].event), &failed);
    json_put(event, "step", json_integer(step), &failed);
    json_put(event, "tensors", tensors, &failed);
    return emit(w, json_whole(event, failed), false, e);
}

enum status say_sample(struct event_writer *w, const struct stream_source *source,
                       const struct sample_text_said *said, struct err *e) {
    bool failed = false;
    json_t *record = json_object(), *ids = json_array();
    for (int64_t i = 0; i < source->sample->tokens; i++)
        json_append(ids, json_integer(said->ids[i]), &failed);
    json_put(record, "event", json_string(STREAMS[STREAM_SAMPLES].event), &failed);
    put_values(record, &STREAMS[STREAM_SAMPLES], source, &failed);
    json_put(record, "prompt", said->prompt->ids ? json_deep_copy(said->prompt->ids)
                                                 : json_from_text(said->prompt->text), &failed);
    json_put(record, "text", said->text ? text_json(said->text, said->n) : json_null(), &failed);
    json_put(record, "ids", ids, &failed);
    json_put(record, "end", json_string(said->end), &failed);
    return emit(w, json_whole(record, failed), false, e);
}

/* ---- other events --------------------------------------------------------------------------- */

enum status say_checkpoint(struct event_writer *w, const struct checkpoint_info *info,
                           int64_t stall_us, int64_t write_us, struct err *e) {
    const char *slash = strrchr(info->path, '/'), *name = slash ? slash + 1 : info->path;
    return emit(w, json_pack("{s:s,s:I,s:s,s:s,s:I,s:b,s:I,s:I}", "event", "checkpoint", "step",
                             (json_int_t)info->step, "path", name, "sha256", info->sha256,
                             "bytes", (json_int_t)info->bytes, "resumable", 1, "stall_us",
                             (json_int_t)stall_us, "write_us", (json_int_t)write_us), false, e);
}

enum status say_unsaved(struct event_writer *w, int64_t step, const struct err *why,
                        struct err *e) {
    return emit(w, json_pack("{s:s,s:I,s:o}", "event", "unsaved", "step", (json_int_t)step, "text",
                             json_from_text(why->text)), false, e);
}

enum status say_choices(struct event_writer *w, const char *text, const char *timed,
                        struct err *e) {
    return emit(w, json_pack("{s:s,s:s,s:s}", "event", "choices", "text", text, "timed", timed),
                false, e);
}

enum status say_table(struct event_writer *w, const char *sha256, struct err *e) {
    return emit(w, json_pack("{s:s,s:s}", "event", "table", "sha256", sha256), false, e);
}

/* The object under `key`, made if it is missing; NULL: out of memory. */
static json_t *member_object(json_t *object, const char *key) {
    json_t *found = json_object_get(object, key);
    if (found || json_object_set_new(object, key, json_object()) != 0) return found;
    return json_object_get(object, key);
}

/* {section: {name: {direction: "way: detail"}}}; for "gemm" also the number of GEMMs by way. */
static bool put_decision(json_t *event, const struct decision *d) {
    json_t *section = member_object(event, d->section);
    json_t *row = section ? member_object(section, d->name) : NULL;
    if (!row) return false;
    const char *earlier = json_string_value(json_object_get(row, d->direction));
    json_t *text = json_sprintf("%s%s%s%s%s", earlier ? earlier : "", earlier ? "; " : "", d->way,
                                *d->detail ? ": " : "", d->detail);
    if (json_object_set_new(row, d->direction, text) != 0) return false;
    if (strcmp(d->section, "gemm") != 0) return true;
    json_t *ways = member_object(event, "gemm_ways");
    json_int_t count = json_integer_value(json_object_get(ways, d->way));
    return json_object_set_new(ways, d->way, json_integer(count + 1)) == 0;
}

/* ["layers.0.qkv", ...], or null if nothing fell back. */
static json_t *fallback_names(const struct trainer *t) {
    char name[64];
    if (!t || !trainer_fell_back(t, 0, name)) return json_null();
    json_t *names = json_array();
    bool failed = false;
    for (int64_t i = 0; trainer_fell_back(t, i, name); i++)
        json_append(names, json_string(name), &failed);
    return json_whole(names, failed);
}

enum status say_fallback(struct event_writer *w, const struct trainer *t, struct err *e) {
    char name[64], text[512];
    int64_t count = 0;
    while (trainer_fell_back(t, count, name)) count++;
    if (!count) return OK;
    int at = snprintf(text, sizeof text, "fallback: %lld linear layers use BF16, since this device "
                      "has no native FP8 for them:", (long long)count);
    for (int64_t i = 0; i < count && at < (int)sizeof text - 72; i++) {
        trainer_fell_back(t, i, name);
        at += snprintf(text + at, sizeof text - (size_t)at, " %s", name);
    }
    return say_log(w, text, e);
}

enum status say_emulated(struct event_writer *w, struct backend *b, struct err *e) {
    struct decision d;
    char text[320], first[sizeof d.name + sizeof d.direction + 2] = "";
    int64_t gemms = 0, emulated = 0;
    for (int64_t i = 0; b->ops->decision(b, i, &d); i++) {
        if (strcmp(d.section, "gemm") != 0) continue;
        gemms++;
        if (strcmp(d.way, "emulated") != 0) continue;
        if (!emulated++) snprintf(first, sizeof first, "%s, %s", d.name, d.direction);
    }
    if (!emulated) return OK;
    snprintf(text, sizeof text, "emulated: %" PRId64 " of %" PRId64 " GEMMs (the first: %s), since "
             "this device or its library lacks their FP8 modes: FP8 codes are widened to BF16",
             emulated, gemms, first);
    return say_log(w, text, e);
}

enum status say_no_loss(struct event_writer *w, const struct step_result *r, struct err *e) {
    char text[200];
    snprintf(text, sizeof text, "step %lld: none of its %lld tokens has loss, so it has no loss, "
             "and its gradient is 0; later steps like it are not listed", (long long)r->step,
             (long long)r->tokens);
    return say_log(w, text, e);
}

enum status say_imported(struct event_writer *w, const struct init_imported *imported,
                         struct err *e) {
    char text[120];
    double gb = 1e-9 * (double)imported->bytes, s = 1e-6 * (double)imported->us;
    if (!imported->bytes) return OK;
    snprintf(text, sizeof text, "weights: %.3f GB read in %.3f s, %.2f GB/s", gb, s,
             s > 0 ? gb / s : 0.0);
    return say_log(w, text, e);
}

/* Whether an arithmetic was compared with a device: new reference; NULL where none is named. */
static json_t *is_verified(const char *arithmetic) {
    const struct arithmetic *found;
    struct err unknown;
    if (!arithmetic || arithmetic_find(arithmetic, &found, &unknown) != OK) return NULL;
    return json_boolean(found->verified);
}

enum status say_decisions(struct event_writer *w, struct backend *b, const struct trainer *t,
                          int64_t world, int64_t vocab_padded, const char *caps,
                          const char *forbidden, const char *arithmetic,
                          const char *choices_sha256, struct err *e) {
    struct device_info info;
    struct decision d;
    TRY(b->ops->info(b, &info, e));
    json_t *event = json_pack(
        "{s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:o,s:s*,s:s*,s:s*,s:o*,s:s*,s:s*}", "event", "decisions",
        "backend", b->ops->name, "device", info.name, "architecture", info.architecture,
        "memory_bytes", (json_int_t)info.memory_bytes, "world", (json_int_t)world, "vocab_padded",
        (json_int_t)vocab_padded, "fallback", fallback_names(t), "caps", caps, "forbidden",
        forbidden, "arithmetic", arithmetic, "arithmetic_verified", is_verified(arithmetic),
        "choices", *choices_sha256 ? RUN_PATH_choices : NULL, "choices_sha256",
        *choices_sha256 ? choices_sha256 : NULL);
    for (int64_t i = 0; event && b->ops->decision(b, i, &d); i++)
        if (!put_decision(event, &d)) {
            json_decref(event);
            event = NULL;
        }
    return emit(w, event, false, e);
}

enum status say_pace(struct event_writer *w, const struct step_result *r, struct err *e) {
    return emit(w, json_pack("{s:s,s:I,s:I,s:I,s:I}", "event", "pace", "step", (json_int_t)r->step,
                             "step_time_us", (json_int_t)r->time_us, "comm_us",
                             (json_int_t)r->comm_us, "exposed_us", (json_int_t)r->exposed_us),
                false, e);
}

enum status say_done(struct event_writer *w, int64_t step, const char *weights_sha256, bool stopped,
                     int stop_signal, struct err *e) {
    return emit(w, json_pack("{s:s,s:I,s:s,s:b,s:i}", "event", "done", "step", (json_int_t)step,
                             "final_weights_sha256", weights_sha256, "stopped", stopped, "signal",
                             stop_signal), false, e);
}

enum status say_log(struct event_writer *w, const char *text, struct err *e) {
    return emit(w, json_pack("{s:s,s:o}", "event", "log", "text", json_from_text(text)), false, e);
}

enum status say_error(struct event_writer *w, const struct err *why, int64_t step,
                      const char *tensor, struct err *e) {
    json_t *event = json_pack("{s:s,s:s,s:o,s:s*,s:s*}", "event", "error", "code",
                              status_name(why->code), "text", json_from_text(why->text), "where",
                              why->file, "tensor", *tensor ? tensor : NULL);
    bool failed = false;
    if (step >= 0) json_put(event, "step", json_integer(step), &failed);
    return emit(w, json_whole(event, failed), false, e);
}
