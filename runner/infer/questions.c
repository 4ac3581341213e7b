#include "runner/infer/questions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER_BYTES = 1024, MAGIC = 20240522, VERSION = 1,
    BEGIN = 65535,            /* the word that begins an example */
    WORDS_MAX = 65535 / 2,    /* of an example: its size in bytes is a word */
    HEAD_WORDS = 6,           /* up to the number of context tokens */
    EXAMPLES_MAX = 65536      /* an example's number is a word */
};

/* Tokens inside struct example. */
struct piece { const uint16_t *token; int64_t count; };

struct example {
    int64_t number, bytes, right, completions;
    struct piece context, completion[COMPLETIONS_MAX];
    uint16_t word[WORDS_MAX + 1];
};

/* ---- reading ----------------------------------------------------------------------------------*/

static enum status bad(const struct questions *c, int64_t i, const char *what, int64_t found,
                       const char *expected, struct err *e) {
    return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " at byte %" PRId64 ": %s is %" PRId64
                "; expected %s", c->file.path, i, c->at[i], what, found, expected);
}

static enum status read_words(const struct questions *c, int64_t at, int64_t n, uint16_t *out,
                              struct err *e) {
    TRY(input_read(&c->file, at, 2 * n, out, e));
    for (int64_t i = 0; i < n; i++) {
        unsigned char bytes[2];
        memcpy(bytes, out + i, sizeof bytes);
        out[i] = (uint16_t)load_le(bytes, 2);
    }
    return OK;
}

/* The words that every example has, and that its other words are in the file. */
static enum status read_head(const struct questions *c, int64_t i, struct example *x,
                             struct err *e) {
    char expected[64];
    int64_t left = c->file.bytes - c->at[i];
    if (left < 2 * HEAD_WORDS)
        return bad(c, i, "what is left of the file", left, "an example (truncated?)", e);
    TRY(read_words(c, c->at[i], HEAD_WORDS, x->word, e));
    x->bytes = x->word[1];
    x->number = x->word[2];
    x->right = x->word[3];
    x->completions = x->word[4];
    if (x->word[0] != BEGIN) return bad(c, i, "its first word", x->word[0], "65535", e);
    if (x->bytes % 2 || x->bytes < 2 * HEAD_WORDS)
        return bad(c, i, "its size in bytes", x->bytes, "an even number of at least 12", e);
    if (x->bytes > left)
        return bad(c, i, "its size in bytes", x->bytes, "what the file has (truncated?)", e);
    snprintf(expected, sizeof expected, "%" PRId64, i);
    if (x->number != i) return bad(c, i, "its number", x->number, expected, e);
    if (x->completions < 2 || x->completions > COMPLETIONS_MAX)
        return bad(c, i, "the number of completions", x->completions, "from 2 to 64", e);
    snprintf(expected, sizeof expected, "less than its %" PRId64 " completions", x->completions);
    if (x->right >= x->completions)
        return bad(c, i, "the right completion", x->right, expected, e);
    return OK;
}

/* Takes {n, n tokens} at word *at of the `end` words. */
static enum status take_piece(const struct questions *c, int64_t i, const struct example *x,
                              const char *what, int64_t *at, struct piece *out, struct err *e) {
    int64_t end = x->bytes / 2, n = *at < end ? x->word[*at] : -1;
    if (n < 0 || n > end - *at - 1)
        return bad(c, i, what, n < 0 ? 0 : n, "tokens that its size in bytes holds", e);
    if (n == 0) return bad(c, i, what, n, "at least 1 token", e);
    *out = (struct piece){ x->word + *at + 1, n };
    *at += 1 + n;
    return OK;
}

static enum status read_example(const struct questions *c, int64_t i, struct example *x,
                                struct err *e) {
    int64_t at = HEAD_WORDS - 1;
    TRY(read_head(c, i, x, e));
    TRY(read_words(c, c->at[i], x->bytes / 2, x->word, e));
    TRY(take_piece(c, i, x, "the length of its context", &at, &x->context, e));
    for (int64_t k = 0; k < x->completions; k++)
        TRY(take_piece(c, i, x, "the length of a completion", &at, &x->completion[k], e));
    if (at == x->bytes / 2) return OK;
    return bad(c, i, "its size in bytes", x->bytes, "the end of its last completion", e);
}

/* ---- opening ----------------------------------------------------------------------------------*/

static enum status read_header(struct questions *c, int64_t *longest_bytes, struct err *e) {
    const char *path = c->file.path;
    unsigned char head[16];
    if (c->file.bytes < HEADER_BYTES)
        return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes; a file of choices has a header of %d "
                    "(truncated?)", path, c->file.bytes, HEADER_BYTES);
    TRY(input_read(&c->file, 0, sizeof head, head, e));
    int64_t magic = (int32_t)load_le(head, 4), version = (int32_t)load_le(head + 4, 4);
    c->count = (int32_t)load_le(head + 8, 4);
    *longest_bytes = (int32_t)load_le(head + 12, 4);
    if (magic != MAGIC)
        return FAIL(e, ERR_CONFIG, "%s: not a file of choices of llm.c: magic %" PRId64 " at byte "
                    "0, expected %d", path, magic, MAGIC);
    if (version != VERSION)
        return FAIL(e, ERR_CONFIG, "%s: version %" PRId64 " at byte 4; only %d is supported", path,
                    version, VERSION);
    if (c->count < 1 || c->count > EXAMPLES_MAX ||
        c->count > (c->file.bytes - HEADER_BYTES) / (2 * HEAD_WORDS))
        return FAIL(e, ERR_CONFIG, "%s: byte 8 announces %" PRId64 " examples; expected from 1 to "
                    "%d, and the file has room for %" PRId64 " (truncated?)", path, c->count,
                    EXAMPLES_MAX, (c->file.bytes - HEADER_BYTES) / (2 * HEAD_WORDS));
    return OK;
}

static enum status check_tokens(const struct questions *c, const struct example *x,
                                const struct piece *p, int64_t vocab, struct err *e) {
    for (int64_t k = 0; k < p->count; k++)
        if (p->token[k] >= vocab)
            return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " has token %d; the model has %"
                        PRId64 " tokens: it is a file for another tokenizer", c->file.path,
                        x->number, p->token[k], vocab);
    return OK;
}

/* Tokens that fit the model; *reads is what the longest row reads. */
static enum status check_fit(const struct questions *c, const struct example *x, int64_t vocab,
                             int64_t seq_len, int64_t *reads, struct err *e) {
    *reads = 0;
    TRY(check_tokens(c, x, &x->context, vocab, e));
    for (int64_t k = 0; k < x->completions; k++) {
        int64_t row = x->context.count + x->completion[k].count - 1;
        TRY(check_tokens(c, x, &x->completion[k], vocab, e));
        if (row > *reads) *reads = row;
    }
    if (*reads <= seq_len) return OK;
    return FAIL(e, ERR_CONFIG, "%s: example %" PRId64 " reads %" PRId64 " tokens; the model reads "
                "at most %" PRId64, c->file.path, x->number, *reads, seq_len);
}

static enum status check_examples(struct questions *c, int64_t vocab, int64_t seq_len,
                                  int64_t longest_bytes, struct example *x, struct err *e) {
    int64_t at = HEADER_BYTES, most = 0, reads;
    for (int64_t i = 0; i < c->count; i++) {
        c->at[i] = at;
        TRY(read_example(c, i, x, e));
        TRY(check_fit(c, x, vocab, seq_len, &reads, e));
        c->rows += x->completions;
        for (int64_t k = 0; k < x->completions; k++) c->tokens += x->completion[k].count;
        at += x->bytes;
        if (x->bytes > most) most = x->bytes;
        if (reads > c->longest) c->longest = reads;
    }
    if (at != c->file.bytes)
        return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes follow the last of its %" PRId64
                    " examples", c->file.path, c->file.bytes - at, c->count);
    if (most == longest_bytes) return OK;
    return FAIL(e, ERR_CONFIG, "%s: byte 12 says that the longest example has %" PRId64 " bytes; "
                "it has %" PRId64, c->file.path, longest_bytes, most);
}

enum status questions_open(const char *path, int64_t vocab, int64_t seq_len, struct questions *out,
                         struct err *e) {
    int64_t longest_bytes = 0;
    struct questions c = { 0 };
    *out = c;
    if (input_open(&c.file, path, e) != OK) return e->code = ERR_CONFIG; /* name another */
    *out = c;
    TRY(read_header(out, &longest_bytes, e));
    struct example *x = malloc(sizeof *x);
    out->at = malloc((size_t)out->count * sizeof *out->at);
    enum status st = x && out->at ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " examples", out->count);
    if (st == OK) st = check_examples(out, vocab, seq_len, longest_bytes, x, e);
    free(x);
    return st;
}

void questions_close(struct questions *c) {
    if (c->file.path) input_close(&c->file);
    free(c->at);
    *c = (struct questions){ 0 };
}

/* ---- scoring ----------------------------------------------------------------------------------*/

/* Rows of one batch, each a completion after its context. */
struct scorer {
    struct trainer *trainer;
    int64_t batch, seq_len, rows;
    struct row { int64_t number, example, completion, first, count; } *row;
    int32_t *tokens, *targets;
    float *losses;
    double *mean; /* by number of the row */
};

/* Behind its tokens a row repeats its first one, which no token before it sees. */
static void add_row(struct scorer *s, const struct example *x, int64_t k, int64_t number) {
    int64_t T = s->seq_len, n = x->context.count, m = x->completion[k].count;
    int32_t *tokens = s->tokens + s->rows * T, *targets = s->targets + s->rows * T;
    for (int64_t i = 0; i < T; i++) {
        tokens[i] = i < n ? x->context.token[i]
                          : i < n + m - 1 ? x->completion[k].token[i - n] : x->context.token[0];
        targets[i] = i >= n - 1 && i < n + m - 1 ? x->completion[k].token[i - n + 1] : -1;
    }
    s->row[s->rows++] = (struct row){ number, x->number, k, n - 1, m };
}

static enum status take_row(struct scorer *s, const struct row *r, const float *losses,
                            struct err *e) {
    double sum = 0;
    for (int64_t i = 0; i < r->count; i++) sum += (double)losses[r->first + i];
    double mean = sum / (double)r->count;
    s->mean[r->number] = mean;
    if (isfinite(mean)) return OK;
    return FAIL(e, ERR_NUMERIC, "the loss of completion %" PRId64 " of example %" PRId64
                " is not finite", r->completion, r->example);
}

static enum status run_rows(struct scorer *s, struct err *e) {
    int64_t T = s->seq_len;
    for (int64_t i = s->rows * T; i < s->batch * T; i++) { /* the last batch may be short */
        s->tokens[i] = s->tokens[0];
        s->targets[i] = -1;
    }
    TRY(trainer_losses(s->trainer, s->tokens, s->targets, s->losses, e));
    for (int64_t i = 0; i < s->rows; i++)
        TRY(take_row(s, &s->row[i], s->losses + i * T, e));
    s->rows = 0;
    return OK;
}

static enum status score_part(const struct questions *c, const struct questions_part *part,
                              struct scorer *s, struct example *x, struct err *e) {
    int64_t number = 0;
    for (int64_t i = 0; i < c->count; i++) {
        TRY(read_example(c, i, x, e));
        for (int64_t k = 0; k < x->completions; k++, number++) {
            if (number / s->batch % part->stride != part->first) continue;
            add_row(s, x, k, number);
            if (s->rows == s->batch) TRY(run_rows(s, e));
        }
    }
    return s->rows ? run_rows(s, e) : OK;
}

enum status questions_losses(const struct questions *c, struct trainer *trainer,
                             const struct questions_part *part, double *mean, struct err *e) {
    size_t all = (size_t)(part->batch * part->seq_len);
    struct example *x = malloc(sizeof *x);
    struct scorer s = {
        .trainer = trainer, .batch = part->batch, .seq_len = part->seq_len, .mean = mean,
        .row = malloc((size_t)part->batch * sizeof *s.row),
        .tokens = malloc(all * sizeof *s.tokens),
        .targets = malloc(all * sizeof *s.targets), .losses = malloc(all * sizeof *s.losses),
    };
    bool made = x && s.row && s.tokens && s.targets && s.losses;
    enum status st = made ? score_part(c, part, &s, x, e)
                          : FAIL(e, ERR_MEMORY, "%" PRId64 " rows of choices", part->batch);
    free(x);
    free(s.row);
    free(s.tokens);
    free(s.targets);
    free(s.losses);
    return st;
}

enum status questions_judge(const struct questions *c, const double *mean,
                            struct questions_result *out, struct err *e) {
    *out = (struct questions_result){ .examples = c->count, .tokens = c->tokens };
    struct example *x = malloc(sizeof *x);
    enum status st = x ? OK : FAIL(e, ERR_MEMORY, "%" PRId64 " examples", c->count);
    for (int64_t i = 0; i < c->count && st == OK; i++) {
        int64_t best = 0;
        st = read_head(c, i, x, e);
        if (st != OK) break;
        for (int64_t k = 1; k < x->completions; k++)
            if (mean[k] < mean[best]) best = k;
        out->right += best == x->right;
        out->loss += mean[x->right];
        mean += x->completions;
    }
    out->loss /= (double)c->count;
    free(x);
    return st;
}
