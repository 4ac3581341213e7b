#include "runner/ingest/tokenise.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/ingest/batch.h"
#include "runner/ingest/shards.h"
#include "runner/ingest/source.h"

/* A JSON line, or the stretch of a text without a place to cut it, has less than this. */
enum { PART_MAX = 256 << 20 };

/* ---- the ring of batches ------------------------------------------------------------------- */
/* Batches are numbered as they are read; batch i is slot i % slots. Numbers below `written` are
 * free again, below `taken` have a thread, below `filled` are read. */

struct ring {
    pthread_mutex_t lock;
    pthread_cond_t filled_more, encoded_more;
    struct batch *slot; /* owned */
    bool *encoded;      /* of each slot; owned */
    int64_t slots, filled, taken, written;
    bool closed;        /* nothing more is read */
    struct batch_options o;
};

struct worker { struct ring *ring; struct encoder *encoder; pthread_t thread; };

static void *work(void *argument) {
    struct worker *w = argument;
    struct ring *r = w->ring;
    struct bytes line = { 0 };
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (r->taken == r->filled && !r->closed) pthread_cond_wait(&r->filled_more, &r->lock);
        if (r->taken == r->filled) break;
        int64_t at = r->taken++ % r->slots;
        pthread_mutex_unlock(&r->lock);
        batch_encode(&r->slot[at], &r->o, w->encoder, &line);
        pthread_mutex_lock(&r->lock);
        r->encoded[at] = true;
        pthread_cond_signal(&r->encoded_more);
    }
    pthread_mutex_unlock(&r->lock);
    free(line.bytes);
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------- */

struct run {
    const struct tokenise_options *o;
    struct tokenise_result *out;
    struct shards *shards;
    struct ring ring;
    struct worker *worker;   /* owned */
    int workers;
    bool may_cut;            /* a text may be encoded in parts */
    int64_t open_tokens, open_text; /* of a document that goes on in the next batch */
    struct unique seen;
    int64_t bytes_all, bytes_before, shown_us; /* of all files; of those that are finished */
    struct source *source;
    int64_t *documents;      /* of each file; owned */
};

static enum status bad_lines(struct run *r, const struct batch *b, struct err *e) {
    const struct bad_line *bad = (const struct bad_line *)b->bad.bytes;
    const char *path = r->o->paths[b->source];
    for (size_t i = 0; i < b->bad.count / sizeof *bad; i++) {
        char text[600] = "left out: ", *line = text + strlen(text);
        snprintf(line, sizeof text - 10, "%.200s%s%.100s:%lld: %s", path, *b->name ? ": " : "",
                 b->name, (long long)bad[i].line, bad[i].text);
        if (r->out->skipped++ >= r->o->skip_bad)
            return FAIL(e, ERR_FORMAT, "%s. --skip-bad N leaves out up to N such lines", line);
        r->o->warn(r->o->context, text);
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
    if (r->o->unique) TRY(unique_add(&r->seen, end->key, fresh, e));
    if (*fresh) {
        TRY(shards_end_document(r->shards, r->open_tokens + end->tokens - begin, e));
    } else {
        if (r->open_tokens) TRY(shards_take_back(r->shards, r->open_tokens, e));
        r->out->text_bytes -= r->open_text + end->text_bytes;
        r->out->duplicates++;
        r->out->documents--;
        r->documents[b->source]--;
    }
    r->open_tokens = r->open_text = 0;
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
    if (!b->lines && !b->ends) r->open_text += b->text_bytes;
    r->open_tokens += count - done;
    return write_tokens(r, b, from, count, e);
}

static enum status write_batch(struct run *r, struct batch *b, struct err *e) {
    if (b->status != OK) {
        *e = b->e;
        err_prefix(e, "%s%s%s", r->o->paths[b->source], *b->name ? ": " : "", b->name);
        return b->status;
    }
    TRY(bad_lines(r, b, e));
    TRY(write_documents(r, b, e));
    r->documents[b->source] += b->documents;
    r->out->documents += b->documents;
    r->out->empty += b->empty;
    r->out->text_bytes += b->text_bytes;
    r->out->replaced += b->replaced;
    r->out->dropped += b->dropped;
    r->out->cut += b->cut;
    r->out->lossless += b->lossless;
    return OK;
}

/* Writes what is encoded; waits until at most `left` batches are unwritten. */
static enum status write_some(struct run *r, int64_t left, struct err *e) {
    struct ring *g = &r->ring;
    enum status st = OK;
    pthread_mutex_lock(&g->lock);
    while (st == OK && g->written < g->filled) {
        int64_t at = g->written % g->slots;
        if (!g->encoded[at] && g->filled - g->written <= left) break;
        if (!g->encoded[at]) {
            pthread_cond_wait(&g->encoded_more, &g->lock);
            continue;
        }
        pthread_mutex_unlock(&g->lock);
        st = write_batch(r, &g->slot[at], e);
        pthread_mutex_lock(&g->lock);
        g->encoded[at] = false;
        g->written++;
    }
    pthread_mutex_unlock(&g->lock);
    return st;
}

/* The next free batch, empty. */
static enum status next_batch(struct run *r, struct batch **out, struct err *e) {
    struct ring *g = &r->ring;
    TRY(write_some(r, g->slots - 1, e));
    *out = &g->slot[g->filled % g->slots];
    (*out)->text.count = 0;
    return OK;
}

static void hand_over(struct run *r) {
    pthread_mutex_lock(&r->ring.lock);
    r->ring.filled++;
    pthread_cond_signal(&r->ring.filled_more);
    pthread_mutex_unlock(&r->ring.lock);
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
             "--field text or name it .jsonl", path);
    r->o->warn(r->o->context, text);
}

static void warn_of_killed(const struct run *r) {
    char text[600];
    snprintf(text, sizeof text, "%.400s: an earlier run was killed; its parts are overwritten, and "
             "all files are tokenised anew", r->o->prefix);
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

static int64_t lines_in(const struct bytes *text, size_t n) {
    int64_t lines = 0;
    const uint8_t *p = text->bytes, *end = p + n;
    for (; (p = memchr(p, '\n', (size_t)(end - p))); p++) lines++;
    return lines;
}

static void finish_key(struct sha256 *sha, unsigned char key[UNIQUE_KEY]) {
    char hex[SHA256_HEX];
    sha256_finish(sha, hex);
    unique_key(hex, key);
}

/* Reads the file in the source to its end, batch by batch. */
static enum status read_file(struct run *r, int64_t source, const char *name, bool inside,
                             struct err *e) {
    struct bytes rest = { 0 }; /* of the last batch */
    struct sha256 *sha = NULL; /* of a plain text, if documents must differ */
    bool lines = is_json_lines(r->o, name), begins = true, more = true;
    int64_t line = 1;
    enum status st = r->o->unique && !lines ? sha256_create(&sha, e) : OK;
    while (st == OK && more) {
        struct batch *b = NULL;
        size_t part = 0;
        st = next_batch(r, &b, e);
        if (st == OK) st = bytes_add(&b->text, rest.bytes, rest.count, e);
        if (st != OK) break;
        b->lines = lines;
        while (st == OK && more && part == 0) {
            size_t room = b->text.count > BATCH_BYTES ? b->text.count : BATCH_BYTES, n = 0;
            st = bytes_reserve(&b->text, room, e);
            if (st == OK) st = source_read(r->source, b->text.bytes + b->text.count, room, &n, e);
            b->text.count += n;
            more = n == room;
            part = more ? ready(r, b) : b->text.count;
            if (part == 0 && b->text.count >= PART_MAX)
                st = FAIL(e, ERR_FORMAT, "%s: %s has more than %d MiB, from line %lld on",
                          r->o->paths[source], lines ? "a line" : "a text that cannot be cut",
                          PART_MAX >> 20, (long long)line);
        }
        if (st != OK) break;
        rest.count = 0;
        st = bytes_add(&rest, b->text.bytes + part, b->text.count - part, e);
        b->text.count = part;
        b->begins = begins;
        b->ends = !more;
        if (sha && b->text.count) sha256_add(sha, b->text.bytes, b->text.count);
        if (sha && b->ends) finish_key(sha, b->key);
        b->source = source;
        b->line = line;
        snprintf(b->name, sizeof b->name, "%.127s", inside ? name : "");
        line += lines_in(&b->text, part);
        begins = false;
        hand_over(r);
        show(r);
    }
    free(rest.bytes);
    sha256_destroy(sha);
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
        st = read_file(r, i, name, inside, e);
    }
    if (st == OK) st = source_finish(r->source, digest, &bytes, e);
    source_close(r->source);
    r->source = NULL;
    r->bytes_before += bytes;
    if (st != OK) return st;
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
        json_put(source, "documents", json_integer(r->documents[i]), &failed);
    json_t *tokenizer = json_pack("{s:s,s:o,s:s,s:I,s:s}", "kind", KINDS[f.kind], "path",
                                  json_from_text(o->tokenizer_path), "sha256", f.sha256,
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

static enum status start_workers(struct run *r, struct err *e) {
    struct ring *g = &r->ring;
    g->slots = 2 * (int64_t)r->o->threads + 2;
    g->slot = calloc((size_t)g->slots, sizeof *g->slot);
    g->encoded = calloc((size_t)g->slots, sizeof *g->encoded);
    r->worker = calloc((size_t)r->o->threads, sizeof *r->worker);
    r->documents = calloc((size_t)r->o->path_count + 1, sizeof *r->documents);
    if (!g->slot || !g->encoded || !r->worker || !r->documents)
        return FAIL(e, ERR_MEMORY, "memory for %d threads", r->o->threads);
    for (int i = 0; i < r->o->threads; i++) {
        struct worker *w = &r->worker[i];
        w->ring = g;
        TRY(encoder_create(&w->encoder, r->o->tokenizer, e));
        if (pthread_create(&w->thread, NULL, work, w) != 0) {
            encoder_destroy(w->encoder);
            return FAIL(e, ERR_MEMORY, "start thread %d of %d", i + 1, r->o->threads);
        }
        r->workers++;
    }
    return OK;
}

static void stop_workers(struct run *r) {
    struct ring *g = &r->ring;
    pthread_mutex_lock(&g->lock);
    g->closed = true;
    g->taken = g->filled; /* after an error, what nobody has begun is left */
    pthread_cond_broadcast(&g->filled_more);
    pthread_mutex_unlock(&g->lock);
    for (int i = 0; i < r->workers; i++) {
        pthread_join(r->worker[i].thread, NULL);
        encoder_destroy(r->worker[i].encoder);
    }
    for (int64_t i = 0; g->slot && i < g->slots; i++) batch_free(&g->slot[i]);
    free(g->slot);
    free(g->encoded);
    free(r->worker);
}

static enum status run_all(struct run *r, json_t *sources, struct err *e) {
    TRY(start_workers(r, e));
    for (int64_t i = 0; i < r->o->path_count; i++) TRY(read_source(r, i, sources, e));
    TRY(write_some(r, 0, e));
    if (r->out->documents == 0)
        return FAIL(e, ERR_CONFIG, "no %s in %s%s", r->o->lines ? "conversation with loss"
                    : "document with text", r->o->paths[0],
                    r->o->path_count > 1 ? " and the other files" : "");
    TRY(describe(r, sources, e));
    r->out->tokens = shards_tokens(r->shards);
    r->out->loss_tokens = shards_loss_tokens(r->shards);
    return shards_finish(r->shards, r->out->description, e);
}

enum status tokenise(const struct tokenise_options *o, struct tokenise_result *out,
                     struct err *e) {
    int64_t vocab = tokenizer_facts(o->tokenizer).vocab, begin = clock_us();
    int32_t end = o->lines ? -1 : o->end;
    if (end >= vocab) vocab = (int64_t)end + 1;
    struct run r = { .o = o, .out = out };
    struct stat is;
    *out = (struct tokenise_result){ 0 };
    r.may_cut = tokenizer_may_cut(o->tokenizer);
    r.ring.o = (struct batch_options){ .tokenizer = o->tokenizer, .lines = o->lines,
                                       .field = o->field ? o->field : "text", .end = end,
                                       .id_bytes = shards_id_bytes(vocab), .unique = o->unique,
                                       .skip_bad = o->skip_bad };
    for (int64_t i = 0; i < o->path_count; i++)
        if (stat(o->paths[i], &is) == 0) r.bytes_all += is.st_size;
    TRY(shards_create(&r.shards, o->prefix, r.ring.o.id_bytes, o->lines != NULL, e));
    if (shards_took_over(r.shards)) warn_of_killed(&r);
    json_t *sources = json_array();
    pthread_mutex_init(&r.ring.lock, NULL);
    pthread_cond_init(&r.ring.filled_more, NULL);
    pthread_cond_init(&r.ring.encoded_more, NULL);
    enum status st = sources ? run_all(&r, sources, e) : FAIL(e, ERR_MEMORY, "memory for a list");
    stop_workers(&r);
    pthread_cond_destroy(&r.ring.filled_more);
    pthread_cond_destroy(&r.ring.encoded_more);
    pthread_mutex_destroy(&r.ring.lock);
    source_close(r.source);
    shards_destroy(r.shards);
    json_decref(sources);
    free(r.documents);
    unique_free(&r.seen);
    out->us = clock_us() - begin;
    return st;
}
