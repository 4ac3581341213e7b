/* tiktoken files: lines of base64, a space and a rank, which is also the id. The file names neither
 * its split pattern nor its special tokens; OpenAI's own are known by their hash. */
#include <stdlib.h>
#include <string.h>

#include "runner/base/nearest.h"
#include "runner/ingest/tokenizer_parts.h"

/* The files, patterns and special tokens of tiktoken 0.14, openai_public.py. */
static const struct {
    const char *sha256;
    enum split_kind split;
    struct { const char *text; uint32_t id; } special[5];
} KNOWN[] = {
    { "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", SPLIT_GPT2,
      { { "<|endoftext|>", 50256 } } }, /* r50k_base */
    { "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", SPLIT_GPT2,
      { { "<|endoftext|>", 50256 } } }, /* p50k_base */
    { "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", SPLIT_CL100K,
      { { "<|endoftext|>", 100257 }, { "<|fim_prefix|>", 100258 }, { "<|fim_middle|>", 100259 },
        { "<|fim_suffix|>", 100260 }, { "<|endofprompt|>", 100276 } } }, /* cl100k_base */
    { "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", SPLIT_O200K,
      { { "<|endoftext|>", 199999 }, { "<|endofprompt|>", 200018 } } }, /* o200k_base */
};
enum { KNOWN_COUNT = sizeof KNOWN / sizeof *KNOWN, SPECIALS_MAX = 5 };

struct loading {
    struct tokenizer *t;
    const char *path;
    struct vocab_rows rows;
    uint8_t *bytes; /* of all tokens; owned */
    size_t used;
    struct err *e;
};

static int digit_of(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Appends the bytes of base64 text[0..n-1]; false if it is none. */
static bool decode(struct loading *l, const char *text, size_t n) {
    uint32_t bits = 0;
    if (n == 0 || n % 4) return false;
    for (size_t i = 0; i < n; i++) {
        bool padding = text[i] == '=' && i + 2 >= n && (i + 1 == n || text[n - 1] == '=');
        int digit = padding ? 0 : digit_of(text[i]);
        if (digit < 0) return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 3) continue;
        for (int k = 2; k >= 0; k--) l->bytes[l->used++] = (uint8_t)(bits >> 8 * k);
    }
    l->used -= (text[n - 1] == '=') + (text[n - 2] == '=');
    return true;
}

static enum status read_line(struct loading *l, int64_t number, const char *line, size_t n) {
    const char *space = memchr(line, ' ', n);
    size_t used = l->used, at = space ? (size_t)(space - line) + 1 : n;
    int64_t rank = at < n ? 0 : -1;
    for (size_t i = at; i < n && rank >= 0 && rank < VOCAB_MAX; i++)
        rank = line[i] >= '0' && line[i] <= '9' ? rank * 10 + (line[i] - '0') : -1;
    if (rank < 0 || rank >= VOCAB_MAX || !decode(l, line, at - 1))
        return FAIL(l->e, ERR_FORMAT, "%s:%lld: \"%.*s\" is not a token in base64, a space, and a "
                    "rank from 0 to %d", l->path, (long long)number, (int)(n < 60 ? n : 60), line,
                    VOCAB_MAX - 1);
    struct vocab_row *row;
    TRY(vocab_row(&l->rows, rank, &row, l->e));
    if (row->flags)
        return FAIL(l->e, ERR_FORMAT, "%s:%lld: the rank %lld is already another token's", l->path,
                    (long long)number, (long long)rank);
    *row = (struct vocab_row){ l->bytes + used, l->used - used, TOKEN_MODEL | TOKEN_REACHED };
    l->t->tokens++;
    return OK;
}

static enum status read_lines(struct loading *l, const char *text, size_t n) {
    int64_t number = 0;
    for (size_t at = 0; at < n;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t next = end ? (size_t)(end - text) + 1 : n, length = next - at - (end != NULL);
        if (length && text[at + length - 1] == '\r') length--;
        number++;
        if (length) TRY(read_line(l, number, text + at, length));
        at = next;
    }
    return OK;
}

/* Which pattern and special tokens: by name, or by the file's hash. */
static enum status find_pattern(struct loading *l, const char *pattern) {
    static const char *const NAMES[] = { "gpt2", "llama3", "qwen2", "cl100k", "o200k", "tekken" };
    struct tokenizer *t = l->t;
    int known = 0;
    while (known < KNOWN_COUNT && strcmp(KNOWN[known].sha256, t->sha256)) known++;
    t->stages = 1;
    if (pattern) {
        for (int kind = SPLIT_GPT2; kind <= SPLIT_TEKKEN; kind++)
            if (!strcmp(pattern, split_name((enum split_kind)kind)))
                t->stage[0].split = (enum split_kind)kind;
        const char *near = nearest_name(pattern, NAMES, sizeof NAMES / sizeof *NAMES);
        if (!t->stage[0].split)
            return FAIL(l->e, ERR_CONFIG, "--pattern %s: there is gpt2, llama3, qwen2, cl100k, "
                        "o200k and tekken%s%s%s", pattern, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
    } else if (known < KNOWN_COUNT) {
        t->stage[0].split = KNOWN[known].split;
    } else {
        return FAIL(l->e, ERR_CONFIG, "%s: a tiktoken file does not say how text is split into "
                    "words, and this is none of OpenAI's. Add --pattern: gpt2, llama3, qwen2, "
                    "cl100k, o200k or tekken (in a script: data.pattern)", l->path);
    }
    strcpy(t->split_words, split_name(t->stage[0].split));
    for (int i = 0; known < KNOWN_COUNT && i < SPECIALS_MAX && KNOWN[known].special[i].text; i++) {
        const char *text = KNOWN[known].special[i].text;
        uint32_t id = KNOWN[known].special[i].id;
        struct added token = { .text = text, .n = strlen(text), .id = id, .special = true };
        struct vocab_row *row;
        TRY(vocab_row(&l->rows, id, &row, l->e));
        *row = (struct vocab_row){ (const uint8_t *)text, token.n, TOKEN_ADDED | TOKEN_SPECIAL };
        TRY(add_token(t, &token, l->e));
    }
    return OK;
}

/* Counts, or with a table sets, the pairs of a token: each way to cut it into two tokens. tiktoken
 * merges any two neighbours whose bytes together are a token, lowest rank first. */
static int64_t pairs_of(const struct vocab *v, uint32_t id, struct bpe *bpe) {
    const uint8_t *text = v->text + v->begin[id];
    size_t n = vocab_length(v, id);
    int64_t count = 0;
    for (size_t i = 1; i < n; i++) {
        uint32_t left = vocab_find(v, text, i);
        uint32_t right = left == NO_TOKEN ? NO_TOKEN : vocab_find(v, text + i, n - i);
        if (right == NO_TOKEN) continue;
        count++;
        if (bpe) bpe_set(bpe, left, right, id, id);
    }
    return count;
}

static enum status make_pairs(struct loading *l) {
    struct tokenizer *t = l->t;
    const struct vocab *v = &t->vocab;
    for (int64_t i = 0; i < v->size; i++) {
        uint32_t id = (uint32_t)i, found;
        if (!(v->flags[i] & TOKEN_REACHED)) continue;
        found = vocab_find(v, v->text + v->begin[i], vocab_length(v, id));
        if (found != id)
            return FAIL(l->e, ERR_FORMAT, "%s: the ranks %u and %u are the same token", l->path,
                        found, id);
        t->merges += pairs_of(v, id, NULL);
    }
    TRY(bpe_create(&t->bpe, t->merges, l->e));
    for (int64_t i = 0; i < v->size; i++)
        if (v->flags[i] & TOKEN_REACHED) pairs_of(v, (uint32_t)i, t->bpe);
    for (int byte = 0; byte < 256; byte++) {
        t->byte_id[byte] = vocab_find(v, (const uint8_t[]){ (uint8_t)byte }, 1);
        if (t->byte_id[byte] == NO_TOKEN)
            return FAIL(l->e, ERR_FORMAT, "%s: the byte %d is not a token of its own (truncated?)",
                        l->path, byte);
    }
    return OK;
}

enum status tokenizer_load_tiktoken(struct tokenizer *t, const char *path, const char *text,
                                    size_t n, const char *pattern, struct err *e) {
    struct loading l = { .t = t, .path = path, .e = e };
    l.bytes = malloc(n + 4);
    t->byte_level = t->ignore_merges = true;
    enum status st = l.bytes ? read_lines(&l, text, n)
                             : FAIL(e, ERR_MEMORY, "memory to load %s", path);
    if (st == OK) st = find_pattern(&l, pattern);
    if (st == OK) st = vocab_build(&t->vocab, &l.rows, e);
    if (st == OK) st = make_pairs(&l);
    free(l.rows.row);
    free(l.bytes);
    return st;
}
