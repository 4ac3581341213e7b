#include "runner/tensorboard/tensorboard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/f32_bits.h"
#include "model/ground/json_safe.h"
#include "runner/record/bucket_text.h"
#include "runner/record/npy.h"
#include "runner/record/records.h"
#include "runner/tensorboard/event_file.h"

enum { RANKS_MAX = 1024, TAG_CAP = 320 };

struct tensorboard {
    struct event_file file;
    struct text event; /* the one being made; kept for its memory */
    int64_t steps;     /* of the run */
    int64_t last[STREAM_COUNT]; /* step of the last record written; -1: none */
    int64_t last_of_rank[RANKS_MAX]; /* the same of telemetry */
    json_t *labels[STREAM_COUNT];    /* of a wide stream; owned; NULL: not known yet */
};

/* At most about this many records of a stream are written; 0: all. The README has the sizes. */
static const int64_t RECORDS_MAX[STREAM_COUNT] = {
    [STREAM_TRAIN] = 100000, [STREAM_EVAL] = 100000, [STREAM_RANKS] = 100000,
    [STREAM_TELEMETRY] = 1000, [STREAM_FP8] = 500, [STREAM_EVAL_SETS] = 100000,
};

static double wall_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Whether a record is written: the first, the last step's, and one in each interval of steps. */
static bool is_due(const struct tensorboard *t, int64_t stream, int64_t step, int64_t *last) {
    int64_t most = RECORDS_MAX[stream];
    int64_t interval = most && t->steps > most ? ceil_div(t->steps, most) : 1;
    bool due = interval == 1 || *last < 0 || step / interval != *last / interval ||
               step == t->steps;
    if (due) *last = step;
    return due;
}

static bool is_drawn(const struct metric *m) { return !m->key && m->type != COLUMN_U64; }

/* ---- records of lines -------------------------------------------------------------------------*/

/* The value of a metric in a record. JSON has no NaN and no infinity; the bits of an f32 do. False:
 * it has none. */
static bool read_value(const json_t *record, const struct metric *m, double *out) {
    char name[COLUMN_NAME_CAP];
    const json_t *value = json_object_get(record, m->name);
    if (!strcmp(m->name, "loss") && record_lacks_loss(record)) return false;
    snprintf(name, sizeof name, "%s_bits", m->name);
    const char *bits = m->type == COLUMN_U32 ? json_text(record, name, NULL) : NULL;
    if (bits) *out = (double)f32_from_bits((uint32_t)strtoul(bits, NULL, 16));
    else if (json_is_boolean(value)) *out = json_is_true(value);
    else *out = json_number_value(value);
    return bits || json_is_number(value) || json_is_boolean(value);
}

/* Returns the number of values. */
static int64_t add_line(struct tensorboard *t, const struct stream *s, const json_t *record) {
    const json_t *rank = json_object_get(record, "rank");
    char tag[TAG_CAP], of[64] = "";
    int64_t count = 0;
    if (rank) snprintf(of, sizeof of, "rank%" PRId64 "/", (int64_t)json_integer_value(rank));
    for (int64_t i = 0; i < s->metric_count; i++) {
        double value;
        if (!is_drawn(&s->metric[i]) || !read_value(record, &s->metric[i], &value)) continue;
        snprintf(tag, sizeof tag, "%s/%s%s", s->name, of, s->metric[i].name);
        event_scalar(&t->event, tag, value);
        count++;
    }
    return count;
}

/* ---- wide records -----------------------------------------------------------------------------*/

static double cell(const char *at, enum column_type type) {
    union stream_value v = { 0 };
    memcpy(&v, at, (size_t)column_type_bytes(type));
    if (type == COLUMN_U32) return (double)f32_from_bits((uint32_t)v.u);
    return type == COLUMN_F64 ? v.f : (double)v.i;
}

/* A scalar for each label and metric: "fp8/layers.0.qkv.weight/amax". */
static enum status add_row(struct tensorboard *t, int64_t stream, const json_t *event,
                           int64_t *count, struct err *e) {
    const struct stream *s = &STREAMS[stream];
    const json_t *label;
    struct npy layout;
    char *row, tag[TAG_CAP];
    size_t n, k;
    TRY(record_row(event, &row, &n, e));
    int64_t width = npy_width_of(s, (int64_t)n);
    npy_layout(s, width ? width : 1, &layout);
    json_array_foreach(t->labels[stream], k, label) {
        if ((int64_t)k >= width) break; /* records_put() has reported it */
        for (int64_t i = 0; i < s->metric_count; i++) {
            const struct npy_column *c = &layout.column[i];
            if (!c->wide || !is_drawn(&s->metric[i])) continue;
            snprintf(tag, sizeof tag, "%s/%.200s/%s", s->name, json_string_value(label), c->name);
            int64_t at = c->offset + (int64_t)k * column_type_bytes(c->type);
            event_scalar(&t->event, tag, cell(row + at, c->type));
            ++*count;
        }
    }
    free(row);
    return OK;
}

/* ---- texts ------------------------------------------------------------------------------------*/

/* A block of Markdown that is shown as it is. */
static void add_block(struct text *out, const char *text) {
    text_puts(out, "\n\n    ");
    for (; *text; text++) {
        text_add(out, text, 1);
        if (*text == '\n') text_puts(out, "    ");
    }
    text_puts(out, "\n\n");
}

/* A text, or token ids. */
static void add_words(struct text *out, const json_t *words) {
    char *dumped = json_is_string(words) ? NULL : json_dump_text(words, JSON_COMPACT);
    const char *text = dumped ? dumped : json_string_value(words);
    out->failed |= !text;
    if (text) add_block(out, text);
    free(dumped);
}

static int64_t add_sample(struct tensorboard *t, const struct stream *s, const json_t *record) {
    const json_t *text = json_object_get(record, "text");
    struct text markdown = { 0 };
    char tag[TAG_CAP], head[120];
    snprintf(tag, sizeof tag, "%s/%" PRId64, s->name, json_int(record, "number"));
    snprintf(head, sizeof head, "%" PRId64 " new tokens, end: %.20s", json_int(record, "tokens"),
             json_text(record, "end", "?"));
    text_puts(&markdown, "prompt");
    add_words(&markdown, json_object_get(record, "prompt"));
    text_puts(&markdown, head);
    add_words(&markdown, json_is_string(text) ? text : json_object_get(record, "ids"));
    event_text(&t->event, tag, &markdown);
    text_free(&markdown);
    return 1;
}

/* ---- histograms -------------------------------------------------------------------------------*/

/* "grad:head.weight" is drawn as "gradients/head.weight". */
static void histogram_tag(char tag[TAG_CAP], const char *tensor) {
    static const char *const GROUPS[][2] = { { "grad:", "gradients" }, { "out:", "activations" },
                                             { "", "weights" } };
    size_t g = 0;
    while (strncmp(tensor, GROUPS[g][0], strlen(GROUPS[g][0])) != 0) g++;
    snprintf(tag, TAG_CAP, "%s/%.200s", GROUPS[g][1], tensor + strlen(GROUPS[g][0]));
}

/* The buckets of a text, ascending, with one empty bucket for each gap; returns their number. NaN
 * has no place on the axis. */
static int64_t read_buckets(const char *text, double out[2 * HISTOGRAM_COUNTS][3]) {
    int64_t count = 0, n;
    int expected = -1, bucket = -1;
    while (bucket_text_next(&text, &bucket, &n) && bucket < HISTOGRAM_NAN) {
        double left = histogram_edge(bucket), right = histogram_edge(bucket + 1);
        if (expected >= 0 && bucket > expected) {
            double *gap = out[count++];
            gap[0] = histogram_edge(expected), gap[1] = left, gap[2] = 0;
        }
        double *row = out[count++];
        row[0] = left, row[1] = right, row[2] = (double)n;
        expected = bucket + 1;
    }
    return count;
}

static enum status put_histograms(struct tensorboard *t, const json_t *event, struct err *e) {
    double buckets[2 * HISTOGRAM_COUNTS][3];
    const char *name;
    json_t *text;
    size_t opened = event_open(&t->event, wall_s(), json_int(event, "step"));
    json_object_foreach(json_object_get(event, "tensors"), name, text) {
        char tag[TAG_CAP];
        const char *counts = json_string_value(text);
        int64_t count = counts ? read_buckets(counts, buckets) : 0;
        if (!count) continue;
        histogram_tag(tag, name);
        event_histogram(&t->event, tag, buckets, count);
    }
    event_close(&t->event, opened);
    return event_file_add(&t->file, &t->event, e);
}

/* ---- the interface ----------------------------------------------------------------------------*/

static enum status put_record(struct tensorboard *t, int64_t stream, const json_t *event,
                              struct err *e) {
    const struct stream *s = &STREAMS[stream];
    int64_t step = json_int(event, "step"), rank = json_int(event, "rank"), count = 0;
    bool ranked = stream == STREAM_TELEMETRY && rank >= 0 && rank < RANKS_MAX;
    if (!is_due(t, stream, step, ranked ? &t->last_of_rank[rank] : &t->last[stream])) return OK;
    size_t opened = event_open(&t->event, wall_s(), step);
    if (s->labels) TRY(add_row(t, stream, event, &count, e));
    else if (stream == STREAM_SAMPLES) count = add_sample(t, s, event);
    else count = add_line(t, s, event);
    if (!count) return OK;
    event_close(&t->event, opened);
    return event_file_add(&t->file, &t->event, e);
}

enum status tensorboard_put(struct tensorboard *t, const json_t *event, struct err *e) {
    const char *kind = json_text(event, "event", "");
    for (int64_t i = 0; i < STREAM_COUNT; i++) {
        if (!STREAMS[i].labels || strcmp(kind, STREAMS[i].labels_event) != 0) continue;
        json_decref(t->labels[i]);
        t->labels[i] = json_incref(json_object_get(event, "names"));
    }
    int stream = stream_of_event(kind);
    if (stream == STREAM_HISTOGRAMS) return put_histograms(t, event, e);
    return stream >= 0 ? put_record(t, stream, event, e) : OK;
}

/* What each file begins with. */
static enum status write_head(struct tensorboard *t, const json_t *config, int64_t from_step,
                              struct err *e) {
    double now = wall_s();
    event_version(&t->event, now);
    TRY(event_file_add(&t->file, &t->event, e));
    event_begin(&t->event, now, from_step > 0 ? from_step + 1 : 0);
    TRY(event_file_add(&t->file, &t->event, e));
    event_hparams(&t->event, now, config);
    return event_file_add(&t->file, &t->event, e);
}

enum status tensorboard_open(const struct run_dir *dir, const json_t *config, int64_t steps,
                             int64_t from_step, struct tensorboard **out, struct err *e) {
    struct tensorboard *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return FAIL(e, ERR_MEMORY, "the TensorBoard files of %s", dir->path);
    t->steps = steps;
    for (int64_t i = 0; i < STREAM_COUNT; i++) t->last[i] = -1;
    for (int64_t i = 0; i < RANKS_MAX; i++) t->last_of_rank[i] = -1;
    t->file.fd = -1;
    enum status st = event_file_create(dir, &t->file, e);
    if (st == OK) st = write_head(t, config, from_step, e);
    if (st == OK) *out = t;
    else tensorboard_close(t);
    return st;
}

enum status tensorboard_end(struct tensorboard *t, enum event_end how, struct err *e) {
    event_hparams_end(&t->event, wall_s(), how);
    return event_file_add(&t->file, &t->event, e);
}

void tensorboard_close(struct tensorboard *t) {
    if (!t) return;
    for (int64_t i = 0; i < STREAM_COUNT; i++) json_decref(t->labels[i]);
    event_file_close(&t->file);
    text_free(&t->event);
    free(t);
}
