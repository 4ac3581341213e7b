#include "runner/infer/questions_llmc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/input_file.h"

enum {
    HEADER_BYTES = 1024, MAGIC = 20240522, VERSION = 1,
    BEGIN = 65535,            /* the word that begins an example */
    WORDS_MAX = 65535 / 2,    /* of an example: its size in bytes is a word */
    HEAD_WORDS = 6,           /* up to the number of context tokens */
    EXAMPLES_MAX = 65536      /* an example's number is a word */
};

/* Tokens inside struct example. */
struct piece { const uint16_t *token; int64_t count; };

struct reader {
    struct input_file file;
    int64_t count, longest_bytes; /* as the header says */
    int64_t at;                   /* byte where the example begins that is read */
};

struct example {
    int64_t number, bytes, right, completions;
    struct piece context, completion[COMPLETIONS_MAX];
    uint16_t word[WORDS_MAX + 1];
    int32_t wide[WORDS_MAX]; /* one piece at a time */
};

/* ---- reading ----------------------------------------------------------------------------------*/

static enum status bad(const struct reader *r, int64_t i, const char *what, int64_t found,
                       const char *expected, struct err *e) {
    return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " at byte %" PRId64 ": %s is %" PRId64
                "; expected %s", r->file.path, i, r->at, what, found, expected);
}

static enum status read_words(const struct reader *r, int64_t at, int64_t n, uint16_t *out,
                              struct err *e) {
    TRY(input_read(&r->file, at, 2 * n, out, e));
    for (int64_t i = 0; i < n; i++) {
        unsigned char bytes[2];
        memcpy(bytes, out + i, sizeof bytes);
        out[i] = (uint16_t)load_le(bytes, 2);
    }
    return OK;
}

/* The words that every example has, and that its other words are in the file. */
static enum status read_head(const struct reader *r, int64_t i, struct example *x,
                             struct err *e) {
    char expected[64];
    int64_t left = r->file.bytes - r->at;
    if (left < 2 * HEAD_WORDS)
        return bad(r, i, "what is left of the file", left, "an example (truncated?)", e);
    TRY(read_words(r, r->at, HEAD_WORDS, x->word, e));
    x->bytes = x->word[1];
    x->number = x->word[2];
    x->right = x->word[3];
    x->completions = x->word[4];
    if (x->word[0] != BEGIN) return bad(r, i, "its first word", x->word[0], "65535", e);
    if (x->bytes % 2 || x->bytes < 2 * HEAD_WORDS)
        return bad(r, i, "its size in bytes", x->bytes, "an even number of at least 12", e);
    if (x->bytes > left)
        return bad(r, i, "its size in bytes", x->bytes, "what the file has (truncated?)", e);
    snprintf(expected, sizeof expected, "%" PRId64, i);
    if (x->number != i) return bad(r, i, "its number", x->number, expected, e);
    if (x->completions < 2 || x->completions > COMPLETIONS_MAX)
        return bad(r, i, "the number of completions", x->completions, "from 2 to 64", e);
    snprintf(expected, sizeof expected, "less than its %" PRId64 " completions", x->completions);
    if (x->right >= x->completions)
        return bad(r, i, "the right completion", x->right, expected, e);
    return OK;
}

/* Takes {n, n tokens} at word *at of the `end` words. */
static enum status take_piece(const struct reader *r, int64_t i, const struct example *x,
                              const char *what, int64_t *at, struct piece *out, struct err *e) {
    int64_t end = x->bytes / 2, n = *at < end ? x->word[*at] : -1;
    if (n < 0 || n > end - *at - 1)
        return bad(r, i, what, n < 0 ? 0 : n, "tokens that its size in bytes holds", e);
    if (n == 0) return bad(r, i, what, n, "at least 1 token", e);
    *out = (struct piece){ x->word + *at + 1, n };
    *at += 1 + n;
    return OK;
}

static enum status read_example(const struct reader *r, int64_t i, struct example *x,
                                struct err *e) {
    int64_t at = HEAD_WORDS - 1;
    TRY(read_head(r, i, x, e));
    TRY(read_words(r, r->at, x->bytes / 2, x->word, e));
    TRY(take_piece(r, i, x, "the length of its context", &at, &x->context, e));
    for (int64_t k = 0; k < x->completions; k++)
        TRY(take_piece(r, i, x, "the length of a completion", &at, &x->completion[k], e));
    if (at == x->bytes / 2) return OK;
    return bad(r, i, "its size in bytes", x->bytes, "the end of its last completion", e);
}

/* ---- opening ----------------------------------------------------------------------------------*/

static enum status read_header(struct reader *r, struct err *e) {
    const char *path = r->file.path;
    unsigned char head[16];
    if (r->file.bytes < HEADER_BYTES)
        return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes; a file of choices has a header of %d "
                    "(truncated?)", path, r->file.bytes, HEADER_BYTES);
    TRY(input_read(&r->file, 0, sizeof head, head, e));
    int64_t magic = (int32_t)load_le(head, 4), version = (int32_t)load_le(head + 4, 4);
    r->count = (int32_t)load_le(head + 8, 4);
    r->longest_bytes = (int32_t)load_le(head + 12, 4);
    if (magic != MAGIC)
        return FAIL(e, ERR_CONFIG, "%s: not a file of choices of llm.c: magic %" PRId64 " at byte "
                    "0, expected %d", path, magic, MAGIC);
    if (version != VERSION)
        return FAIL(e, ERR_CONFIG, "%s: version %" PRId64 " at byte 4; only %d is supported", path,
                    version, VERSION);
    if (r->count < 1 || r->count > EXAMPLES_MAX ||
        r->count > (r->file.bytes - HEADER_BYTES) / (2 * HEAD_WORDS))
        return FAIL(e, ERR_CONFIG, "%s: byte 8 announces %" PRId64 " examples; expected from 1 to "
                    "%d, and the file has room for %" PRId64 " (truncated?)", path, r->count,
                    EXAMPLES_MAX, (r->file.bytes - HEADER_BYTES) / (2 * HEAD_WORDS));
    return OK;
}

/* The tokens of a piece, each one of the model's, in x->wide. */
static enum status widen(const struct reader *r, struct example *x, const struct piece *p,
                         int64_t vocab, struct err *e) {
    for (int64_t k = 0; k < p->count; k++) {
        if (p->token[k] >= vocab)
            return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " has token %d; the model has %"
                        PRId64 " tokens: it is a file for another tokenizer", r->file.path,
                        x->number, p->token[k], vocab);
        x->wide[k] = p->token[k];
    }
    return OK;
}

static enum status check_fit(const struct reader *r, const struct example *x, int64_t seq_len,
                             struct err *e) {
    int64_t reads = 0;
    for (int64_t k = 0; k < x->completions; k++)
        if (x->context.count + x->completion[k].count - 1 > reads)
            reads = x->context.count + x->completion[k].count - 1;
    if (reads <= seq_len) return OK;
    return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " reads %" PRId64 " tokens; the model reads "
                "at most %" PRId64, r->file.path, x->number, reads, seq_len);
}

static enum status add_example(const struct reader *r, struct example *x, int64_t vocab,
                               struct questions *out, struct err *e) {
    TRY(widen(r, x, &x->context, vocab, e));
    TRY(questions_add(out, x->number, x->right, x->wide, x->context.count, e));
    for (int64_t k = 0; k < x->completions; k++) {
        const struct piece *p = &x->completion[k];
        TRY(widen(r, x, p, vocab, e));
        TRY(questions_add_completion(out, x->context.count, x->wide, p->count, 0, e));
    }
    return OK;
}

static enum status read_examples(struct reader *r, int64_t vocab, int64_t seq_len,
                                 struct example *x, struct questions *out, struct err *e) {
    int64_t most = 0;
    r->at = HEADER_BYTES;
    for (int64_t i = 0; i < r->count; i++) {
        TRY(read_example(r, i, x, e));
        TRY(add_example(r, x, vocab, out, e));
        TRY(check_fit(r, x, seq_len, e));
        r->at += x->bytes;
        if (x->bytes > most) most = x->bytes;
    }
    if (r->at != r->file.bytes)
        return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes follow the last of its %" PRId64
                    " examples", r->file.path, r->file.bytes - r->at, r->count);
    if (most == r->longest_bytes) return OK;
    return FAIL(e, ERR_CONFIG, "%s: byte 12 says that the longest example has %" PRId64 " bytes; "
                "it has %" PRId64, r->file.path, r->longest_bytes, most);
}

static enum status read_file(struct reader *r, int64_t vocab, int64_t seq_len,
                             struct questions *out, struct err *e) {
    out->unit = "example";
    out->path = strdup(r->file.path);
    struct example *x = malloc(sizeof *x);
    enum status st = x && out->path ? OK : FAIL(e, ERR_MEMORY, "an example of choices");
    if (st == OK) st = read_header(r, e);
    if (st == OK) st = read_examples(r, vocab, seq_len, x, out, e);
    if (st == OK) st = sha256_fd(r->file.fd, r->file.path, out->sha256, NULL, e);
    if (st == OK) questions_finish(out);
    free(x);
    return st;
}

enum status questions_llmc_open(const char *path, int64_t vocab, int64_t seq_len,
                                struct questions *out, struct err *e) {
    struct reader r = { 0 };
    *out = (struct questions){ 0 };
    if (input_open(&r.file, path, e) != OK) return e->code = ERR_CONFIG; /* name another */
    enum status st = read_file(&r, vocab, seq_len, out, e);
    input_close(&r.file);
    return st;
}
