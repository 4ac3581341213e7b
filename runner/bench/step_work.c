#include "runner/bench/step_work.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"

/* Of bytes and microseconds: above it a double is no whole number. */
static const double NUMBER_MAX = 0x1p53;

double step_work_flop(const struct step_work *w) {
    return w->kind == WORK_GEMM        ? gemm_flop(&w->gemm)
           : w->kind == WORK_ATTENTION ? attention_flop(&w->attention)
                                       : 0;
}

/* ---- lists ------------------------------------------------------------------------------------*/

static bool is_same(const struct step_work *a, const struct step_work *b) {
    return a->part == b->part && a->kind == b->kind && !strcmp(a->op, b->op) &&
           !memcmp(&a->gemm, &b->gemm, sizeof a->gemm) &&
           !memcmp(&a->attention, &b->attention, sizeof a->attention);
}

static enum status append(struct step_works *list, const struct step_work *w, struct err *e) {
    if (list->count == list->cap) {
        int64_t cap = list->cap ? 2 * list->cap : 64;
        struct step_work *bigger = realloc(list->work, (size_t)cap * sizeof *bigger);
        if (!bigger) return FAIL(e, ERR_MEMORY, "%lld operators of a step", (long long)cap);
        list->work = bigger;
        list->cap = cap;
    }
    list->work[list->count++] = *w;
    return OK;
}

static void work_of(const struct timed_record *r, const struct timed_call *c,
                    struct step_work *out) {
    memset(out, 0, sizeof *out); /* also the padding, since shapes are compared as bytes */
    snprintf(out->op, sizeof out->op, "%s", c->op);
    out->part = c->part;
    out->kind = c->gemm >= 0 ? WORK_GEMM : c->attention >= 0 ? WORK_ATTENTION : WORK_OTHER;
    if (c->gemm >= 0) memcpy(&out->gemm, &r->gemm[c->gemm], sizeof out->gemm);
    if (c->attention >= 0)
        memcpy(&out->attention, &r->attention[c->attention], sizeof out->attention);
}

enum status step_works_add(struct step_works *list, const struct timed_record *r, int64_t weight,
                           struct err *e) {
    for (int64_t i = 0; i < r->call_count; i++) {
        struct step_work w;
        int64_t at = 0;
        work_of(r, &r->call[i], &w);
        while (at < list->count && !is_same(&list->work[at], &w)) at++;
        if (at == list->count) TRY(append(list, &w, e));
        list->work[at].calls += weight;
        list->work[at].bytes += (double)weight * r->call[i].bytes;
        list->work[at].time_us += (double)weight * r->call[i].time_us;
    }
    return OK;
}

void step_works_free(struct step_works *list) {
    free(list->work);
    *list = (struct step_works){ 0 };
}

/* ---- JSON -------------------------------------------------------------------------------------*/

static const char *const DIRECTIONS[] = { "fprop", "dgrad", "wgrad", NULL };
static const char *scale_word(enum scale_kind kind) {
    return kind == SCALE_NONE ? "none" : scale_kind_name(kind);
}

static json_t *gemm_json(const struct gemm_shape *g) {
    return json_pack("{s:s,s:I,s:I,s:I,s:s,s:s,s:s,s:s,s:s,s:b,s:b,s:b,s:b}", "direction",
                     DIRECTIONS[g->direction], "m", (json_int_t)g->m, "n", (json_int_t)g->n, "k",
                     (json_int_t)g->k, "a", dtype_name(g->a), "b", dtype_name(g->b), "out",
                     dtype_name(g->out), "a_scale", scale_word(g->a_scale), "b_scale",
                     scale_word(g->b_scale), "fast", g->fast_accumulate, "beta", g->beta, "bias",
                     g->bias, "residual", g->residual);
}

static json_t *attention_json(const struct attention_shape *a) {
    return json_pack("{s:I,s:I,s:I,s:I,s:I,s:I,s:s,s:s,s:s,s:s,s:b}", "batch", (json_int_t)a->batch,
                     "seq_len", (json_int_t)a->seq_len, "heads", (json_int_t)a->heads, "kv_heads",
                     (json_int_t)a->kv_heads, "head_dim", (json_int_t)a->head_dim, "window",
                     (json_int_t)a->window, "act", dtype_name(a->act), "out",
                     dtype_name(a->out), "d_o", dtype_name(a->d_o), "codes",
                     scale_word(a->codes), "backward", a->backward);
}

static json_t *work_json(const struct step_work *w) {
    json_t *shape = w->kind == WORK_GEMM        ? gemm_json(&w->gemm)
                    : w->kind == WORK_ATTENTION ? attention_json(&w->attention)
                                                : json_null();
    return json_pack("{s:s,s:s,s:I,s:f,s:f,s:o}", "op", w->op, "part", timed_part_name(w->part),
                     "calls", (json_int_t)w->calls, "bytes", w->bytes, "time_us", w->time_us,
                     w->kind == WORK_ATTENTION ? "attention" : "gemm", shape);
}

json_t *step_works_json(const struct step_works *list) {
    json_t *array = json_array();
    bool failed = false;
    for (int64_t i = 0; i < list->count; i++)
        json_append(array, work_json(&list->work[i]), &failed);
    return json_whole(array, failed);
}

/* ---- reading ----------------------------------------------------------------------------------*/

/* The object in which keys are looked up, and the number of its entry, for messages. */
struct place { const json_t *object; int64_t index; };

static enum status bad(const struct place *p, const char *key, const char *wanted, struct err *e) {
    return FAIL(e, ERR_FORMAT, "operator %lld: \"%s\" is %s", (long long)p->index, key, wanted);
}

static enum status read_number(const struct place *p, const char *key, double *out,
                               struct err *e) {
    const json_t *value = json_object_get(p->object, key);
    *out = json_number_value(value);
    bool good = json_is_number(value) && *out >= 0 && *out <= NUMBER_MAX;
    return good ? OK : bad(p, key, "not a number from 0 to 2^53", e);
}

static enum status read_count(const struct place *p, const char *key, int64_t least, int64_t *out,
                              struct err *e) {
    const json_t *value = json_object_get(p->object, key);
    *out = json_integer_value(value);
    bool good = json_is_integer(value) && *out >= least && *out <= INT64_C(1) << 40;
    return good ? OK : bad(p, key, "no such count", e);
}

static enum status read_flag(const struct place *p, const char *key, bool *out, struct err *e) {
    const json_t *value = json_object_get(p->object, key);
    *out = json_is_true(value);
    return json_is_boolean(value) ? OK : bad(p, key, "neither true nor false", e);
}

/* The index of the word in `words`, which ends with NULL. */
static enum status read_word(const struct place *p, const char *key, const char *const *words,
                             int *out, struct err *e) {
    const char *word = json_string_value(json_object_get(p->object, key));
    for (*out = 0; word && words[*out]; (*out)++)
        if (!strcmp(words[*out], word)) return OK;
    return bad(p, key, "not a word that this version knows", e);
}

static enum status read_dtype(const struct place *p, const char *key, enum dtype *out,
                              struct err *e) {
    const char *names[DTYPE_COUNT + 1] = { NULL };
    int at;
    for (int t = 0; t < DTYPE_COUNT; t++) names[t] = dtype_name((enum dtype)t);
    TRY(read_word(p, key, names, &at, e));
    *out = (enum dtype)at;
    return OK;
}

static enum status read_scale(const struct place *p, const char *key, enum scale_kind *out,
                              struct err *e) {
    const char *names[SCALE_KIND_COUNT + 1] = { NULL };
    int at;
    for (int k = 0; k < SCALE_KIND_COUNT; k++) names[k] = scale_word((enum scale_kind)k);
    TRY(read_word(p, key, names, &at, e));
    *out = (enum scale_kind)at;
    return OK;
}

static enum status read_gemm(const struct place *p, struct gemm_shape *g, struct err *e) {
    int direction;
    TRY(read_word(p, "direction", DIRECTIONS, &direction, e));
    g->direction = (enum gemm_direction)direction;
    TRY(read_count(p, "m", 1, &g->m, e));
    TRY(read_count(p, "n", 1, &g->n, e));
    TRY(read_count(p, "k", 1, &g->k, e));
    TRY(read_dtype(p, "a", &g->a, e));
    TRY(read_dtype(p, "b", &g->b, e));
    TRY(read_dtype(p, "out", &g->out, e));
    TRY(read_scale(p, "a_scale", &g->a_scale, e));
    TRY(read_scale(p, "b_scale", &g->b_scale, e));
    TRY(read_flag(p, "fast", &g->fast_accumulate, e));
    TRY(read_flag(p, "beta", &g->beta, e));
    TRY(read_flag(p, "bias", &g->bias, e));
    return read_flag(p, "residual", &g->residual, e);
}

static enum status read_attention(const struct place *p, struct attention_shape *a,
                                  struct err *e) {
    TRY(read_count(p, "batch", 1, &a->batch, e));
    TRY(read_count(p, "seq_len", 1, &a->seq_len, e));
    TRY(read_count(p, "heads", 1, &a->heads, e));
    TRY(read_count(p, "kv_heads", 1, &a->kv_heads, e));
    TRY(read_count(p, "head_dim", 1, &a->head_dim, e));
    TRY(read_count(p, "window", 0, &a->window, e));
    TRY(read_dtype(p, "act", &a->act, e));
    a->out = a->d_o = a->act; /* in files of programs that did not measure FP8 attention */
    if (json_object_get(p->object, "out")) TRY(read_dtype(p, "out", &a->out, e));
    if (json_object_get(p->object, "d_o")) TRY(read_dtype(p, "d_o", &a->d_o, e));
    TRY(read_scale(p, "codes", &a->codes, e));
    return read_flag(p, "backward", &a->backward, e);
}

static enum status read_work(const struct place *p, struct step_work *w, struct err *e) {
    const char *names[PART_COUNT + 1] = { NULL };
    const char *op = json_string_value(json_object_get(p->object, "op"));
    struct place gemm = { json_object_get(p->object, "gemm"), p->index };
    struct place attention = { json_object_get(p->object, "attention"), p->index };
    int part;
    memset(w, 0, sizeof *w);
    for (int i = 0; i < PART_COUNT; i++) names[i] = timed_part_name((enum timed_part)i);
    if (!op || !*op || strlen(op) >= sizeof w->op) return bad(p, "op", "not an operator's name", e);
    snprintf(w->op, sizeof w->op, "%s", op);
    TRY(read_word(p, "part", names, &part, e));
    w->part = (enum timed_part)part;
    TRY(read_count(p, "calls", 1, &w->calls, e));
    TRY(read_number(p, "bytes", &w->bytes, e));
    TRY(read_number(p, "time_us", &w->time_us, e));
    w->kind = json_is_object(gemm.object)        ? WORK_GEMM
              : json_is_object(attention.object) ? WORK_ATTENTION
                                                 : WORK_OTHER;
    if (w->kind == WORK_GEMM) return read_gemm(&gemm, &w->gemm, e);
    return w->kind == WORK_ATTENTION ? read_attention(&attention, &w->attention, e) : OK;
}

enum status step_works_read(const json_t *array, struct step_works *list, struct err *e) {
    size_t i;
    const json_t *entry;
    if (!json_is_array(array) || json_array_size(array) == 0)
        return FAIL(e, ERR_FORMAT, "there is no list of operators");
    json_array_foreach(array, i, entry) {
        struct step_work w;
        TRY(read_work(&(struct place){ entry, (int64_t)i }, &w, e));
        TRY(append(list, &w, e));
    }
    return OK;
}
