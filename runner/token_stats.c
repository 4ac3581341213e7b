#include "runner/token_stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/data.h"
#include "model/data_source.h"
#include "runner/base/run_files.h"
#include "runner/text_stats.h"

enum { CHUNK = 1 << 16, IDS_FIRST = 1 << 16, IDS_MAX = 1 << 22, INDEX_COUNTS = 18 };

const char *token_format_name(enum token_format format) {
    static const char *const NAMES[] = { "text", "megatron", "llmc" };
    return NAMES[format];
}

/* ---- which format -------------------------------------------------------------------------- */

static const unsigned char MEGATRON_MAGIC[9] = "MMIDIDX\0";

/* The first bytes of a file; how many there are, 0 where it cannot be read. */
static int64_t read_head(const char *path, unsigned char head[16]) {
    struct input_file f;
    struct err ignored;
    memset(head, 0, 16);
    if (input_open(&f, path, &ignored) != OK) return 0;
    int64_t n = f.bytes < 16 ? f.bytes : 16;
    if (input_read(&f, 0, n, head, &ignored) != OK) n = 0;
    input_close(&f);
    return n;
}

static bool is_index(const char *path) {
    unsigned char head[16];
    return read_head(path, head) >= 9 && !memcmp(head, MEGATRON_MAGIC, sizeof MEGATRON_MAGIC);
}

/* Whether PATH.idx is an index, and PATH.bin is there. */
static bool has_index(const char *path) {
    char stem[PATH_CAP], name[PATH_CAP + 8];
    size_t n = strlen(path);
    if (n >= sizeof stem) return false;
    bool bin = n > 4 && !strcmp(path + n - 4, ".bin");
    if (!bin && path_exists(path)) return false; /* another file that happens to have neighbours */
    snprintf(stem, sizeof stem, "%.*s", (int)(bin ? n - 4 : n), path);
    snprintf(name, sizeof name, "%s.bin", stem);
    if (!path_exists(name)) return false;
    snprintf(name, sizeof name, "%s.idx", stem);
    return is_index(name);
}

/* llm.c's files begin with a number of their own (llmc/dataloader.h, train_gpt2.py,
 * train_llama3.py). `what` NULL: a shard of tokens. */
static const struct { int64_t magic; const char *what; } LLMC[] = {
    { 20240520, NULL },
    { 20240801, NULL },
    { 20240522, "an evaluation set" },
    { 20240326, "a GPT-2 model" },
    { 20240803, "a Llama-3 model" },
    { 20240527, "the state of an optimizer" },
    { 20240327, "a state for debugging" },
    { 20240328, "a tokenizer" },
};

enum status token_format_find(const char *path, enum token_format *out, struct err *e) {
    unsigned char head[16];
    *out = TOKENS_NONE;
    if (has_index(path)) {
        *out = TOKENS_MEGATRON;
        return OK;
    }
    if (is_index(path))
        return FAIL(e, ERR_FORMAT, "%s is an index of Megatron's; name the .bin beside it, which "
                    "has the tokens", path);
    int64_t n = read_head(path, head), magic = n >= 8 ? (int64_t)load_le(head, 4) : 0;
    for (size_t i = 0; i < sizeof LLMC / sizeof *LLMC; i++) {
        if (magic != LLMC[i].magic) continue;
        if (LLMC[i].what)
            return FAIL(e, ERR_FORMAT, "%s is %s of llm.c (magic %lld), no data to train on; its "
                        "token shards have magic 20240520 or 20240801", path, LLMC[i].what,
                        (long long)magic);
        *out = TOKENS_LLMC;
    }
    return OK;
}

/* ---- counting ------------------------------------------------------------------------------ */

struct counts {
    int64_t *of, size; /* occurrences of each id; owned */
};

/* Counts one id; `at` is its byte in the file. */
static enum status count_id(struct counts *c, uint64_t id, const char *path, int64_t at,
                            struct err *e) {
    if (id >= IDS_MAX)
        return FAIL(e, ERR_FORMAT, "%s: the token at byte %lld is %llu, and no vocabulary has ids "
                    "of %d and more; is the file damaged?", path, (long long)at,
                    (unsigned long long)id, IDS_MAX);
    if ((int64_t)id >= c->size) {
        int64_t size = c->size ? c->size : IDS_FIRST;
        while (size <= (int64_t)id) size *= 2;
        int64_t *more = realloc(c->of, (size_t)size * sizeof *more);
        if (!more) return FAIL(e, ERR_MEMORY, "counts of %lld ids", (long long)size);
        memset(more + c->size, 0, (size_t)(size - c->size) * sizeof *more);
        c->of = more;
        c->size = size;
    }
    c->of[id]++;
    return OK;
}

/* The whole file goes through the hash, what follows its header through the counts. */
static enum status read_all(const struct input_file *f, int64_t header, int size,
                            struct counts *counts, struct sha256 *sha, struct err *e) {
    unsigned char *chunk = malloc(CHUNK);
    enum status st = chunk ? OK : FAIL(e, ERR_MEMORY, "%d bytes to read %s", CHUNK, f->path);
    for (int64_t at = 0; st == OK && at < f->bytes; at += CHUNK) {
        int64_t n = f->bytes - at < CHUNK ? f->bytes - at : CHUNK;
        st = input_read(f, at, n, chunk, e);
        if (st == OK) sha256_add(sha, chunk, (size_t)n);
        for (int64_t i = at < header ? header - at : 0; st == OK && i + size <= n; i += size)
            st = count_id(counts, load_le(chunk + i, size), f->path, at + i, e);
    }
    free(chunk);
    return st;
}

static void summarise(const struct counts *c, struct token_stats *out) {
    for (int64_t i = 0; i < c->size; i++) {
        if (c->of[i] == 0) continue;
        out->distinct++;
        out->id_max = i;
    }
    out->unigram_nats = text_entropy(c->of, c->size, out->tokens);
}

enum status token_stats_file(const char *path, enum token_format format, struct token_stats *out,
                             struct err *e) {
    const char *const paths[] = { path };
    const struct data_options o = {
        .kind = format == TOKENS_MEGATRON ? DATA_MEGATRON : DATA_LLMC, .paths = paths,
        .path_count = 1,
    };
    struct data *d = NULL;
    struct counts counts = { 0 };
    struct sha256 *sha = NULL;
    unsigned char head[16];
    TRY(data_open(&d, &o, IDS_MAX, 1, 0, e));
    const struct token_run *run = &d->part[0].stream.run[0];
    const struct input_file *f = &d->file[run->file];
    *out = (struct token_stats){ .bytes = f->bytes, .tokens = run->count,
                                 .token_bytes = d->part[0].stream.token_bytes };
    enum status st = sha256_create(&sha, e);
    if (st == OK) st = read_all(f, run->offset, out->token_bytes, &counts, sha, e);
    if (st == OK && format == TOKENS_MEGATRON)
        st = input_read(&d->file[1], INDEX_COUNTS, sizeof head, head, e);
    if (st == OK && format == TOKENS_MEGATRON) {
        out->sequences = (int64_t)load_le(head, 8);
        out->documents = (int64_t)load_le(head + 8, 8) - 1; /* the array has their ends, and a 0 */
    }
    if (st == OK) {
        summarise(&counts, out);
        sha256_finish(sha, out->sha256);
    }
    sha256_destroy(sha);
    free(counts.of);
    data_close(d);
    return st;
}
