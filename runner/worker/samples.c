#include "runner/worker/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/record/ingest_record.h"
#include "runner/record/streams.h"
#include "runner/worker/worker_events.h"

/* ---- prompts ----------------------------------------------------------------------------------*/

/* Without a file, the tokenizer that the run was given reads bytes (run/sample_tokenizer.h). */
static bool reads_bytes(const struct sample_options *o) {
    for (int64_t i = 0; i < o->prompt_count; i++)
        if (o->prompts[i].text) return true;
    return o->tokenizer;
}

static enum status open_text(struct samples *s, const char *run_path, const json_t *data,
                             struct err *e) {
    char own[PATH_CAP];
    const char *kind = json_text(data, "kind", "");
    bool chats = !strcmp(kind, "chats");
    s->speaks = chats || !strcmp(kind, "text");
    TRY(path_join(own, run_path, INGEST_FOLDER, e));
    if (!s->speaks) return text_model_kept(own, reads_bytes(s->options), &s->text, &s->speaks, e);
    TRY(text_model_of_run(data, own, &s->text, e));
    /* A function's rendering has no template: its prompts are plain text. */
    return chats && !json_object_get(data, "render") ? text_model_chat(&s->text, data, own, e) : OK;
}

static enum status take_ids(const json_t *list, int64_t vocab, int32_t **ids, int64_t *count,
                            struct err *e) {
    int64_t n = (int64_t)json_array_size(list);
    *count = n;
    *ids = malloc((size_t)n * sizeof **ids);
    if (!*ids) return FAIL(e, ERR_MEMORY, "a prompt of %" PRId64 " tokens", n);
    for (int64_t i = 0; i < n; i++) {
        json_int_t id = json_integer_value(json_array_get(list, (size_t)i));
        if (id < 0 || id >= vocab)
            return FAIL(e, ERR_CONFIG, "it has the token %lld, but the model has tokens 0 to %"
                        PRId64, (long long)id, vocab - 1);
        (*ids)[i] = (int32_t)id;
    }
    return OK;
}

/* Rank 0: the tokens of each prompt. */
static enum status encode(struct samples *s, const struct model_config *model, struct err *e) {
    for (int64_t i = 0; i < s->options->prompt_count; i++) {
        const struct sample_prompt *from = &s->options->prompts[i];
        struct generation *x = &s->x[i];
        int32_t *ids = NULL;
        enum status st = from->ids ? take_ids(from->ids, model->vocab, &ids, &x->prompt, e)
                                   : text_model_encode(&s->text, from->text, model->vocab, &ids,
                                                       &x->prompt, e);
        if (st == OK && x->prompt >= model->seq_len)
            st = FAIL(e, ERR_CONFIG, "it has %" PRId64 " tokens, and model.seq_len %" PRId64
                      " must leave room for one more", x->prompt, model->seq_len);
        if (st == OK) memcpy(x->ids, ids, (size_t)x->prompt * sizeof *ids);
        free(ids);
        if (st == OK) continue;
        err_prefix(e, "sample.prompts[%" PRId64 "]", i + 1);
        return st;
    }
    return OK;
}

/* What the other ranks must know of the prompts. */
struct shared { int64_t failed, ids; int32_t stop; };

enum { PIECE_TOKENS = 1 << 16 }; /* at once: below PIECE_BYTES of model/pieces.h */

static enum status share(struct samples *s, struct shared *all, struct err *e) {
    TRY(trainer_broadcast(s->trainer, all, sizeof *all, e));
    if (all->failed) return FAIL(e, ERR_PEER, "rank 0 cannot prepare the samples");
    for (int64_t i = 0; i < s->options->prompt_count; i++) {
        struct generation *x = &s->x[i];
        TRY(trainer_broadcast(s->trainer, &x->prompt, sizeof x->prompt, e));
        for (int64_t at = 0; at < x->prompt; at += PIECE_TOKENS) {
            int64_t n = x->prompt - at < PIECE_TOKENS ? x->prompt - at : PIECE_TOKENS;
            TRY(trainer_broadcast(s->trainer, x->ids + at, n * (int64_t)sizeof *x->ids, e));
        }
    }
    return OK;
}

/* ---- opening ----------------------------------------------------------------------------------*/

static enum status make_room(struct samples *s, int64_t length, struct err *e) {
    int64_t n = s->options->prompt_count;
    s->x = calloc((size_t)n, sizeof *s->x);
    for (int64_t i = 0; s->x && i < n; i++) {
        s->x[i].number = i;
        s->x[i].ids = malloc((size_t)length * sizeof *s->x[i].ids);
        if (!s->x[i].ids) return FAIL(e, ERR_MEMORY, "%" PRId64 " samples", n);
    }
    return s->x ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " samples", n);
}

enum status samples_open(struct samples *out, const char *run_path, const json_t *data,
                         const struct run_options *run, struct trainer *t, bool leader,
                         struct err *e) {
    const struct sample_options *o = &run->sample;
    struct shared all = { 0 };
    *out = (struct samples){ .options = o, .trainer = t, .leader = leader,
                             .batch = run->train.micro_batch };
    if (!o->every) return OK;
    enum status st = make_room(out, run->model.seq_len, e);
    if (st == OK && leader) st = open_text(out, run_path, data, e);
    if (st == OK && leader) st = encode(out, &run->model, e);
    if (st != OK && !leader) return st; /* its runner ends the others */
    all.failed = st != OK;
    all.ids = out->speaks ? text_model_ids(&out->text) : run->model.vocab;
    all.stop = out->speaks ? text_model_end(&out->text) : -1;
    if (st == OK) st = share(out, &all, e);
    else (void)!trainer_broadcast(t, &all, sizeof all, &(struct err){ 0 });
    if (st != OK) return st;
    out->stop = all.stop;
    out->rules = (struct generation_rules){
        .sampling = { o->temperature, o->top_k, o->top_p, o->seed }, .tokens = o->tokens,
        .stop = &out->stop, .stop_count = out->stop >= 0,
    };
    const struct generator_sizes sizes = { run->train.micro_batch, run->model.seq_len,
                                           run->model.vocab, all.ids };
    return generator_create(&out->generator, t, &sizes, e);
}

void samples_close(struct samples *s) {
    for (int64_t i = 0; s->x && i < s->options->prompt_count; i++) free(s->x[i].ids);
    free(s->x);
    generator_destroy(s->generator);
    text_model_close(&s->text);
    s->x = NULL;
    s->generator = NULL;
}

/* ---- generating -------------------------------------------------------------------------------*/

static enum status say(struct samples *s, struct event_writer *events, int64_t step,
                       const struct generation *x, struct err *e) {
    const struct sample_result result = { x->number, x->prompt, x->count - x->prompt };
    const struct stream_source source = { .sample = &result, .step_number = step };
    char *text = NULL;
    size_t n = 0;
    if (s->speaks)
        TRY(text_model_decode(&s->text, x->ids, x->prompt, x->count, &text, &n, e));
    const struct sample_text_said said = {
        .prompt = &s->options->prompts[x->number], .text = text, .n = n,
        .ids = x->ids + x->prompt, .end = GENERATION_END_NAMES[x->end],
    };
    enum status st = say_sample(events, &source, &said, e);
    free(text);
    return st;
}

static enum status count_records(const char *path, int64_t step, int64_t *count, struct err *e) {
    struct jsonl lines;
    json_t *record = NULL;
    enum status st;
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    jsonl_open(&lines, f, path);
    while ((st = jsonl_next(&lines, &record, e)) == OK && record) {
        *count += json_int(record, "step") == step;
        json_decref(record);
    }
    jsonl_close(&lines);
    fclose(f);
    return st;
}

enum status samples_recorded(struct samples *s, const char *run_path, int64_t step, int64_t *count,
                             struct err *e) {
    char path[PATH_CAP];
    enum status st = OK;
    *count = 0;
    if (s->leader) st = path_join(path, run_path, STREAMS[STREAM_SAMPLES].file, e);
    if (s->leader && st == OK) st = count_records(path, step, count, e);
    int64_t shared = st == OK ? *count : -1;
    if (st == OK) st = trainer_broadcast(s->trainer, &shared, sizeof shared, e);
    else (void)!trainer_broadcast(s->trainer, &shared, sizeof shared, &(struct err){ 0 });
    *count = shared;
    return st == OK && shared < 0 ? FAIL(e, ERR_PEER, "rank 0 cannot read its samples") : st;
}

enum status samples_take(struct samples *s, struct event_writer *events, int64_t step,
                         int64_t first, const struct samples_stop *stop, bool *done,
                         struct err *e) {
    int64_t count = s->options->prompt_count, begin = first / s->batch * s->batch;
    s->rules.stopped = stop->asked;
    s->rules.user = stop->user;
    *done = true;
    /* The records of a batch at once: a long silence would count as a hang. */
    for (int64_t i = begin, n; i < count && *done; i += n) {
        n = count - i < s->batch ? count - i : s->batch;
        TRY(generator_run(s->generator, &s->rules, s->x + i, n, e));
        for (int64_t k = i; k < i + n; k++) *done = *done && s->x[k].end != GENERATION_GOES_ON;
        for (int64_t k = i; s->leader && *done && k < i + n; k++)
            if (k >= first) TRY(say(s, events, step, &s->x[k], e));
    }
    return OK;
}
