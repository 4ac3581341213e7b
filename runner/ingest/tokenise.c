#include "runner/ingest/tokenise.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/ingest/json_line.h"
#include "runner/ingest/part.h"
#include "runner/ingest/progress.h"
#include "runner/ingest/ring.h"
#include "runner/ingest/shards.h"
#include "runner/ingest/source.h"
#include "runner/ingest/tokenizer_content.h"

enum { PART_MAX = 256 << 20, SAVE_BYTES = 64 << 20 };

/* ---- the run ------------------------------------------------------------------------------- */
struct run {
    const struct tokenise_options *o;
    struct tokenise_result *out;
    struct shards *shards;
    struct ring ring;
    bool may_cut;            /* a text may be encoded in parts */
    struct unique seen;
    struct bytes fresh;      /* keys of the documents of one batch */
    int64_t bytes_all, bytes_before, shown_us; /* of all files; of those that are finished */
    struct source *source;
    struct sha256 *read;     /* of the hashes of the finished files; owned */
    int64_t batches, unsaved; /* read; bytes of text since a point to go on from */
    json_t *work;            /* what is done; NULL: it cannot go on after a kill; owned */
    struct progress_point go_on; /* where this run goes on */
    bool changed;            /* the text before that point is not what it was */
    struct text_doubts doubts; /* about the files read so far */
    struct progress done;    /* what is written, and the open document; its documents: owned */
};

/* Says something about the whole ingestion. */
__attribute__((format(printf, 2, 3)))
static void say(const struct run *r, const char *format, ...) {
    char text[600];
    int n = snprintf(text, sizeof text, "%.300s: ", r->o->prefix);
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    r->o->warn(r->o->context, text);
}

/* ---- writing --------------------------------------------------------------------------------- */
static enum status bad_lines(struct run *r, const struct batch *b, struct err *e) {
    const struct bad_line *bad = (const struct bad_line *)b->bad.bytes;
    const char *path = r->o->paths[b->source];
    for (size_t i = 0; i < b->bad.count / sizeof *bad; i++) {
        char text[600] = "left out: ", *line = text + strlen(text);
        snprintf(line, sizeof text - 11, "%.200s%s%.100s:%lld: %s", path, *b->name ? ": " : "",
                 b->name, (long long)bad[i].line, bad[i].text);
        if (r->o->in_script) json_line_name_key(line);
        if (r->out->skipped++ >= r->o->skip_bad)
            return FAIL(e, ERR_FORMAT, "%s. %s leaves out up to N such lines", line,
                        r->o->in_script ? "data.skip_bad = N" : "--skip-bad N");
        r->o->warn(r->o->context, text);
        struct part *list = shards_journal(r->shards, SHARDS_LEFT_OUT);
        size_t n = strlen(text);
        text[n] = '\n';
        TRY(part_add(list, text, n + 1, e));
    }
    return OK;
}

static enum status write_tokens(struct run *r, const struct batch *b, int64_t from, int64_t to,
                                struct err *e) {
    if (from == to) return OK;
    TRY(shards_add(r->shards, b->ids.bytes + from * r->ring.o.id_bytes, to - from, e));
    return r->o->lines ? shards_add_loss(r->shards, b->loss.bytes + from, to - from, e) : OK;
}

/* Ends a document, or takes it back: what earlier batches wrote of it, too. */
static enum status end_document(struct run *r, const struct batch *b,
                                const struct document_end *end, int64_t begin, bool *fresh,
                                struct err *e) {
    *fresh = true;
    struct progress *done = &r->done;
    if (r->o->unique) TRY(unique_add(&r->seen, end->key, fresh, e));
    if (r->o->unique && *fresh) TRY(bytes_add(&r->fresh, end->key, UNIQUE_KEY, e));
    if (*fresh) {
        TRY(shards_end_document(r->shards, done->open_tokens + end->tokens - begin, e));
    } else {
        if (done->open_tokens) TRY(shards_take_back(r->shards, e));
        r->out->text_bytes -= done->open_text + end->text_bytes;
        r->out->duplicates++;
        r->out->documents--;
        done->documents[b->source]--;
    }
    done->open_tokens = done->open_text = 0;
    return OK;
}

static enum status write_documents(struct run *r, const struct batch *b, struct err *e) {
    const struct document_end *end = (const struct document_end *)(void *)b->ends_at.bytes;
    int64_t count = (int64_t)b->ids.count / r->ring.o.id_bytes, from = 0, done = 0;
    for (size_t i = 0; i < b->ends_at.count / sizeof *end; i++) {
        bool fresh;
        TRY(end_document(r, b, &end[i], done, &fresh, e));
        if (!fresh) TRY(write_tokens(r, b, from, done, e));
        done = end[i].tokens;
        if (!fresh) from = done;
    }
    if (!b->lines && !b->ends) r->done.open_text += b->text_bytes;
    if (r->o->unique && count > done && r->done.open_tokens == 0) TRY(shards_mark(r->shards, e));
    r->done.open_tokens += count - done;
    return write_tokens(r, b, from, count, e);
}

static enum status write_batch(struct run *r, struct batch *b, struct err *e) {
    if (b->status != OK) {
        *e = b->e;
        err_prefix(e, "%s%s%s", r->o->paths[b->source], *b->name ? ": " : "", b->name);
        return b->status;
    }
    r->fresh.count = 0;
    TRY(bad_lines(r, b, e));
    TRY(write_documents(r, b, e));
    TRY(part_add(shards_journal(r->shards, SHARDS_SEEN), r->fresh.bytes, r->fresh.count, e));
    r->done.documents[b->source] += b->documents;
    r->out->documents += b->documents;
    r->out->empty += b->empty;
    r->out->text_bytes += b->text_bytes;
    r->out->replaced += b->replaced;
    r->out->dropped += b->dropped;
    r->out->cut += b->cut;
    r->out->lossless += b->lossless;
    return OK;
}

/* Behind a batch with a point: all that is written. */
static enum status save(struct run *r, const struct progress_point *at, struct err *e) {
    if (at->batches == 0) return OK;
    r->done.at = *at;
    return shards_save(r->shards, progress_json(&r->done, r->work), e);
}

/* Writes what is encoded; waits until at most `left` batches are unwritten. */
static enum status write_some(struct run *r, int64_t left, struct err *e) {
    struct ring_slot *slot;
    while ((slot = ring_encoded(&r->ring, left))) {
        TRY(write_batch(r, &slot->batch, e));
        TRY(save(r, &slot->point, e));
        ring_written(&r->ring);
    }
    return OK;
}

/* The next free batch, empty. */
static enum status next_batch(struct run *r, struct batch **out, struct err *e) {
    TRY(write_some(r, r->ring.slots - 1, e));
    struct ring_slot *slot = ring_next(&r->ring);
    slot->batch.text.count = 0;
    slot->point.batches = 0;
    *out = &slot->batch;
    return OK;
}

static void show(struct run *r) {
    int64_t now = clock_us();
    if (now - r->shown_us < 200000) return;
    r->shown_us = now;
    double done = (double)(r->bytes_before + source_read_bytes(r->source));
    double share = r->bytes_all ? done / (double)r->bytes_all : 1;
    r->o->progress(r->o->context, share < 1 ? share : 1, shards_tokens(r->shards));
}

/* ---- reading ------------------------------------------------------------------------------- */
static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcasecmp(name + n - m, end);
}

static bool is_json_lines(const struct tokenise_options *o, const char *name) {
    return o->field || o->lines || ends_with(name, ".jsonl") || ends_with(name, ".ndjson");
}

/* A file of JSON lines with another name would pass as plain text. */
static void warn_of_json(const struct run *r, const char *path, const char *name, bool inside) {
    char text[600];
    if (inside || r->o->field || r->o->lines || !ends_with(name, ".json")) return;
    snprintf(text, sizeof text, "%.400s is taken as plain text; if it is JSON lines, add "
             "%s or name it .jsonl", path, r->o->in_script ? "data.field = \"text\""
                                                           : "--field text");
    r->o->warn(r->o->context, text);
}

/* The bytes of b->text that may be encoded now: whole lines, or up to a cut. */
static size_t ready(const struct run *r, const struct batch *b) {
    const char *text = (const char *)b->text.bytes;
    size_t n = b->text.count;
    if (!b->lines) return r->may_cut ? tokenizer_cut(r->o->tokenizer, text, n) : 0;
    const char *last = memrchr(text, '\n', n);
    return last ? (size_t)(last - text) + 1 : 0;
}

/* The place behind the last batch that was read. */
static enum status reading_at(const struct run *r, int64_t source, struct progress_point *out,
                              struct err *e) {
    char hex[SHA256_HEX];
    struct sha256 *all;
    TRY(source_so_far(r->source, hex, e));
    TRY(sha256_copy(&all, r->read, e));
    sha256_add(all, hex, SHA256_HEX);
    sha256_finish(all, out->read_sha256);
    sha256_destroy(all);
    out->batches = r->batches;
    out->source = source;
    return OK;
}

/* At the end of what a killed run had written: the text must be what that run read. */
static enum status check_point(struct run *r, int64_t source, struct err *e) {
    struct progress_point now;
    if (r->batches < r->go_on.batches) return OK;
    TRY(reading_at(r, source, &now, e));
    r->changed = now.source != r->go_on.source || strcmp(now.read_sha256, r->go_on.read_sha256);
    return r->changed ? FAIL(e, ERR_STATE, "the text has changed") : OK;
}

/* A JSON line, or the stretch of a text without a place to cut it, has less than this. */
static int64_t part_max(const struct run *r) {
    return r->o->part_max ? r->o->part_max : PART_MAX;
}

/* A file in a source, as it is read. */
struct reading {
    int64_t source, line; /* its index; the next line, from 1 */
    const char *name;
    bool inside, lines, begins, more;
    bool looked;          /* its head has been judged */
    struct bytes rest;    /* of the last batch; owned */
    struct sha256 *sha;   /* of a plain text, if documents must differ; owned */
};

/* The line that b->text begins is too long: reads to its end. It remains as an empty line. */
static enum status drop_line(struct run *r, struct reading *f, struct batch *b, struct err *e) {
    const uint8_t *text = b->text.bytes, *end = NULL;
    size_t n = 0;
    while (f->more && !end) {
        TRY(source_read(r->source, b->text.bytes, BATCH_BYTES, &n, e));
        f->more = n == BATCH_BYTES;
        end = memchr(text, '\n', n);
    }
    f->rest.count = 0;
    if (end) TRY(bytes_add(&f->rest, end + 1, (size_t)(text + n - end - 1), e));
    f->more = f->more || f->rest.count > 0;
    b->text.bytes[0] = '\n';
    b->text.count = 1;
    b->line_max = part_max(r);
    return OK;
}

/* A tokenizer makes tokens of any bytes, so nothing later would reject what is no text. */
static enum status look_at(struct run *r, struct reading *f, struct err *e) {
    char name[2 * PATH_CAP];
    const struct tokenise_options *o = r->o;
    const struct text_head head = source_head(r->source, name);
    if (f->looked) return OK;
    f->looked = true;
    if (o->lines || tokenizer_facts(o->tokenizer).kind != TOKENIZER_BYTES)
        TRY(text_head_check(&head, name, o->lines != NULL, e));
    if (!o->lines && (head.unpacked || !o->looked)) text_doubts_add(&r->doubts, &head, name);
    return OK;
}

/* Whether the file's bytes are the ids, whatever they are. */
static bool trains_on_bytes(const struct run *r, const struct reading *f) {
    return !f->lines && tokenizer_facts(r->o->tokenizer).kind == TOKENIZER_BYTES;
}

/* Reads on until a part of the text may be encoded, and keeps the rest. */
static enum status read_part(struct run *r, struct reading *f, struct batch *b, struct err *e) {
    size_t part = 0;
    TRY(bytes_add(&b->text, f->rest.bytes, f->rest.count, e));
    b->lines = f->lines;
    b->line_max = 0;
    while (f->more && part == 0) {
        size_t room = b->text.count > BATCH_BYTES ? b->text.count : BATCH_BYTES, n = 0;
        TRY(bytes_reserve(&b->text, room, e));
        TRY(source_read(r->source, b->text.bytes + b->text.count, room, &n, e));
        TRY(look_at(r, f, e));
        f->more = n == room;
        if (f->begins && b->text.count == 0 && !trains_on_bytes(r, f))
            n = text_without_mark(b->text.bytes, n);
        b->text.count += n;
        part = f->more ? ready(r, b) : b->text.count;
        if (part > 0 || (int64_t)b->text.count < part_max(r)) continue;
        if (f->lines) return drop_line(r, f, b, e);
        return FAIL(e, ERR_FORMAT, "%s: from line %lld on there are %lld MiB without a place where "
                    "the tokenizer's words may be cut; divide the text into several files, or make "
                    "JSON lines of it", r->o->paths[f->source], (long long)f->line,
                    (long long)(part_max(r) >> 20));
    }
    f->rest.count = 0;
    TRY(bytes_add(&f->rest, b->text.bytes + part, b->text.count - part, e));
    b->text.count = part;
    return OK;
}

/* Whether a killed run may go on behind the batch. What is open there may be taken back later, if
 * documents must differ. */
static enum status set_point(struct run *r, const struct batch *b, struct err *e) {
    int64_t every = r->o->save_bytes ? r->o->save_bytes : SAVE_BYTES;
    r->unsaved += (int64_t)b->text.count;
    if (!r->work || r->unsaved < every || (r->o->unique && !b->lines && !b->ends)) return OK;
    r->unsaved = 0;
    return reading_at(r, b->source, &ring_next(&r->ring)->point, e);
}

static enum status read_batch(struct run *r, struct reading *f, struct err *e) {
    struct batch *b = NULL;
    char hex[SHA256_HEX];
    TRY(next_batch(r, &b, e));
    TRY(read_part(r, f, b, e));
    b->begins = f->begins;
    b->ends = !f->more;
    if (f->sha && b->text.count) sha256_add(f->sha, b->text.bytes, b->text.count);
    if (f->sha && b->ends) sha256_finish(f->sha, hex);
    if (f->sha && b->ends) unique_key(hex, b->key);
    b->source = f->source;
    b->line = f->line;
    snprintf(b->name, sizeof b->name, "%.127s", f->inside ? f->name : "");
    f->line += batch_lines(b);
    f->begins = false;
    show(r);
    if (r->batches++ < r->go_on.batches) return check_point(r, f->source, e);
    TRY(set_point(r, b, e));
    ring_hand_over(&r->ring);
    return OK;
}

/* Reads the file in the source to its end, batch by batch. */
static enum status read_file(struct run *r, struct reading *f, struct err *e) {
    f->lines = is_json_lines(r->o, f->name);
    f->begins = f->more = true;
    f->line = 1;
    enum status st = r->o->unique && !f->lines ? sha256_create(&f->sha, e) : OK;
    while (st == OK && f->more) st = read_batch(r, f, e);
    free(f->rest.bytes);
    sha256_destroy(f->sha);
    return st;
}

static enum status read_source(struct run *r, int64_t i, json_t *sources, struct err *e) {
    char digest[SHA256_HEX];
    const char *path = r->o->paths[i], *name;
    int64_t bytes = 0;
    bool failed = false, inside = false;
    TRY(source_open(&r->source, path, e));
    enum status st = OK;
    while (st == OK && (st = source_next(r->source, &name, &inside, e)) == OK && name) {
        warn_of_json(r, path, name, inside);
        st = read_file(r, &(struct reading){ .source = i, .name = name, .inside = inside }, e);
    }
    if (st == OK) st = source_finish(r->source, digest, &bytes, e);
    source_close(r->source);
    r->source = NULL;
    r->bytes_before += bytes;
    if (st != OK) return st;
    sha256_add(r->read, digest, SHA256_HEX);
    json_append(sources, json_pack("{s:o,s:I,s:s}", "path", json_from_text(path), "bytes",
                                   (json_int_t)bytes, "sha256", digest), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "memory for the list of files") : OK;
}

/* ---- all ----------------------------------------------------------------------------------- */
static void describe_lines(const struct run *r, json_t *d, bool *failed) {
    const struct line_encoder *lines = r->o->lines;
    json_object_del(d, "field");
    json_object_del(d, "empty_documents");
    json_put(d, "chat", lines->describe(lines->context), failed);
    json_put(d, "cut_documents", json_integer(r->out->cut), failed);
    json_put(d, "lossless_documents", json_integer(r->out->lossless), failed);
}

static enum status describe(struct run *r, json_t *sources, struct err *e) {
    const struct tokenise_options *o = r->o;
    struct tokenizer_facts f = tokenizer_facts(o->tokenizer);
    static const char *const KINDS[] = { "bytes", "tokenizer.json", "tiktoken" };
    bool failed = false;
    json_t *source;
    size_t i;
    json_array_foreach(sources, i, source)
        json_put(source, "documents", json_integer(r->done.documents[i]), &failed);
    json_t *tokenizer = json_pack("{s:s,s:o,s:s,s:s,s:I,s:s}", "kind", KINDS[f.kind], "path",
                                  json_from_text(o->tokenizer_path), "sha256", f.sha256,
                                  "content_sha256", tokenizer_hash_of(o->tokenizer).content,
                                  "vocab", (json_int_t)f.vocab, "split", f.split);
    json_t *d = json_pack("{s:s,s:o,s:O,s:s,s:o,s:I,s:I,s:I,s:I,s:I}", "schema", "fp8lab.tokens/1",
                          "tokenizer", tokenizer, "sources", sources, "field",
                          o->field ? o->field : "text", "end_of_document",
                          r->ring.o.end < 0 ? json_null() : json_integer(r->ring.o.end),
                          "text_bytes", (json_int_t)r->out->text_bytes, "empty_documents",
                          (json_int_t)r->out->empty, "skipped_lines", (json_int_t)r->out->skipped,
                          "replaced_bytes", (json_int_t)r->out->replaced, "dropped_characters",
                          (json_int_t)r->out->dropped);
    if (o->lines) describe_lines(r, d, &failed);
    if (o->unique) json_put(d, "duplicate_documents", json_integer(r->out->duplicates), &failed);
    r->out->description = d;
    return d && !failed ? OK : FAIL(e, ERR_MEMORY, "memory for the description of the tokens");
}

static enum status nothing_left(const struct run *r, struct err *e) {
    const char *path = r->o->paths[0], *more = r->o->path_count > 1 ? " and the other files" : "";
    if (!r->o->lines) return FAIL(e, ERR_CONFIG, "no document with text in %s%s", path, more);
    if (!r->out->lossless)
        return FAIL(e, ERR_CONFIG, "no conversation with loss in %s%s", path, more);
    return FAIL(e, ERR_CONFIG, "no conversation with loss in %s%s: %lld were left out, because "
                "they have no turn to learn from, or max_tokens cuts them before its first token; "
                "raise max_tokens, or look at them with `data sample`", path, more,
                (long long)r->out->lossless);
}

static enum status run_all(struct run *r, json_t *sources, struct err *e) {
    TRY(sha256_create(&r->read, e));
    TRY(ring_start(&r->ring, r->o->threads, e));
    for (int64_t i = 0; i < r->o->path_count; i++) TRY(read_source(r, i, sources, e));
    r->changed = r->batches < r->go_on.batches;
    if (r->changed) return FAIL(e, ERR_STATE, "the text has changed");
    TRY(write_some(r, 0, e));
    if (r->out->documents == 0) return nothing_left(r, e);
    TRY(describe(r, sources, e));
    r->out->tokens = shards_tokens(r->shards);
    r->out->loss_tokens = shards_loss_tokens(r->shards);
    return shards_finish(r->shards, r->out->description, e);
}

/* All of the text, or what is left of it. */
static enum status read_and_write(struct run *r, struct err *e) {
    json_t *sources = json_array();
    char warning[TEXT_HEAD_CAP];
    ring_init(&r->ring);
    enum status st = sources ? run_all(r, sources, e) : FAIL(e, ERR_MEMORY, "memory for a list");
    text_doubts_warning(warning, &r->doubts);
    if (*warning && !r->changed) r->o->warn(r->o->context, warning);
    ring_stop(&r->ring);
    source_close(r->source);
    sha256_destroy(r->read);
    json_decref(sources);
    free(r->fresh.bytes);
    unique_free(&r->seen);
    return st;
}

/* ---- after a kill ---------------------------------------------------------------------------- */
/* The keys of the documents that the killed run had written. */
static enum status seen_again(struct run *r, struct err *e) {
    const struct part *p = shards_journal(r->shards, SHARDS_SEEN);
    unsigned char key[256][UNIQUE_KEY];
    for (int64_t at = 0; at < p->bytes;) {
        size_t room = sizeof key < (size_t)(p->bytes - at) ? sizeof key : (size_t)(p->bytes - at);
        ssize_t n = pread(p->fd, key, room, at);
        if (n != (ssize_t)room) return FAIL(e, ERR_IO, "read %s: %s", p->path, strerror(errno));
        bool fresh;
        for (size_t i = 0; i < room / UNIQUE_KEY; i++) TRY(unique_add(&r->seen, key[i], &fresh, e));
        at += n;
    }
    return OK;
}

/* The lines that it left out are listed again: the user may have lost its output. */
static enum status list_left_out(const struct run *r, struct err *e) {
    const struct part *p = shards_journal(r->shards, SHARDS_LEFT_OUT);
    char text[700];
    for (int64_t at = 0; at < p->bytes;) {
        ssize_t n = pread(p->fd, text, sizeof text - 1, at);
        char *end = n > 0 ? memchr(text, '\n', (size_t)n) : NULL;
        if (!end) return FAIL(e, ERR_IO, "read %s: %s", p->path, strerror(errno));
        *end = '\0';
        r->o->warn(r->o->context, text);
        at += end - text + 1;
    }
    return OK;
}

/* Takes over what a killed run saved, if it is of this work and whole. Otherwise says why not. */
static enum status take_over(struct run *r, bool *taken, struct err *e) {
    static const char AGAIN[] = "all files are tokenised again";
    const char *differs, *damaged;
    bool unreadable;
    const json_t *saved = shards_saved(r->shards, &unreadable);
    struct err why;
    *taken = false;
    if (!saved) {
        if (shards_took_over(r->shards))
            say(r, "an earlier run was killed, and %s; %s", unreadable ? "its progress.part is "
                "damaged" : "it had saved no progress", AGAIN);
        return OK;
    }
    if (!r->work) return say(r, "a pipe cannot be read again; %s", AGAIN), OK;
    differs = progress_difference(r->work, saved);
    if (differs)
        return say(r, "an earlier run that was killed had other %s; %s", differs, AGAIN), OK;
    if (progress_take(&r->done, r->o, saved, &why) != OK)
        return say(r, "progress.part is damaged: %s; %s", why.text, AGAIN), OK;
    TRY(shards_restore(r->shards, &damaged, e));
    if (damaged)
        return say(r, "an earlier run was killed, and %s is damaged; %s", damaged, AGAIN), OK;
    *taken = r->out->skipped <= r->o->skip_bad;
    if (!*taken) say(r, "an earlier run was killed that might leave out more lines; %s", AGAIN);
    return OK;
}

/* A run from the first text on, with empty files. */
static enum status begin_anew(struct run *r, struct err *e) {
    *r->out = (struct tokenise_result){ 0 };
    memset(r->done.documents, 0, (size_t)r->o->path_count * sizeof *r->done.documents);
    r->done.open_tokens = r->done.open_text = 0;
    return shards_begin(r->shards, e);
}

static enum status go_on(struct run *r, struct err *e) {
    r->go_on = r->done.at;
    r->out->text_before = r->out->text_bytes;
    say(r, "an earlier run was killed or failed after %.1f MB of text; this one goes on there",
        (double)r->out->text_bytes / 1e6);
    TRY(list_left_out(r, e));
    enum status st = seen_again(r, e);
    if (st == OK) return read_and_write(r, e);
    unique_free(&r->seen);
    return st;
}

/* A run without what the last attempt left in *r. */
static struct run fresh_run(const struct run *r) {
    struct run next = { .o = r->o, .out = r->out, .shards = r->shards, .may_cut = r->may_cut,
                        .bytes_all = r->bytes_all, .work = r->work };
    next.ring.o = r->ring.o;
    next.done.counts = r->out;
    next.done.documents = r->done.documents;
    return next;
}

static enum status run(struct run *r, struct err *e) {
    bool taken;
    r->done.documents = calloc((size_t)r->o->path_count + 1, sizeof *r->done.documents);
    if (!r->done.documents) return FAIL(e, ERR_MEMORY, "memory for a list of files");
    TRY(progress_work(r->o, r->ring.o.id_bytes, &r->work, e));
    TRY(take_over(r, &taken, e));
    enum status st = OK;
    if (taken) st = go_on(r, e);
    if (r->changed)
        say(r, "the text has changed since an earlier run was killed: %s, or a file before it; all "
            "files are tokenised again", r->o->paths[r->go_on.source]);
    else if (taken) return st;
    *r = fresh_run(r);
    TRY(begin_anew(r, e));
    return read_and_write(r, e);
}

/* Whether the next run may go on after this error. What is wrong with the text is mended in the
 * text, as a rule, so that it is another work. */
static bool may_go_on(const struct tokenise_options *o, enum status st) {
    return st == ERR_IO || st == ERR_MEMORY || (st == ERR_FORMAT && o->keep_bad);
}

enum status tokenise(const struct tokenise_options *o, struct tokenise_result *out,
                     struct err *e) {
    int64_t vocab = tokenizer_facts(o->tokenizer).vocab, begin = clock_us();
    int32_t end = o->lines ? -1 : o->end;
    if (end >= vocab) vocab = (int64_t)end + 1;
    struct run r = { .o = o, .out = out };
    struct stat is;
    *out = (struct tokenise_result){ 0 };
    r.done.counts = out;
    r.may_cut = tokenizer_may_cut(o->tokenizer);
    r.ring.o = (struct batch_options){ .tokenizer = o->tokenizer, .lines = o->lines,
                                       .field = o->field ? o->field : "text", .end = end,
                                       .id_bytes = shards_id_bytes(vocab), .unique = o->unique,
                                       .skip_bad = o->skip_bad };
    for (int64_t i = 0; i < o->path_count; i++)
        if (stat(o->paths[i], &is) == 0) r.bytes_all += is.st_size;
    TRY(shards_refuse(o->prefix, o->paths, o->path_count, e));
    TRY(shards_open(&r.shards, o->prefix, r.ring.o.id_bytes, o->lines != NULL, e));
    enum status st = run(&r, e);
    bool keep = st != OK && may_go_on(o, st) && shards_kept(r.shards);
    if (keep)
        say(&r, "what is done is kept in its .part files; the same command goes on from there");
    shards_destroy(r.shards, keep);
    json_decref(r.work);
    free(r.done.documents);
    out->us = clock_us() - begin;
    return st;
}
