#include "model/data.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "model/data_source.h"

enum { READ_BYTES = 1 << 15 }; /* a read buffer on the stack */

/* ---- reading a stream ---- */

/* The run that holds token `at`; at < count. */
static const struct token_run *find_run(const struct token_stream *s, int64_t at) {
    int64_t low = 0, high = s->run_count - 1;
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (s->run[middle].first <= at) low = middle;
        else high = middle - 1;
    }
    return &s->run[low];
}

/* Contiguous tokens of one file. */
struct piece { const struct input_file *file; int64_t offset, count; };

/* The first part of tokens at .. at+count-1 that lies in one file; count > 0. */
static struct piece piece_at(const struct data *d, const struct token_stream *s, int64_t at,
                             int64_t count) {
    const struct token_run *run = find_run(s, at);
    int64_t left = run->first + run->count - at;
    return (struct piece){ .file = &d->file[run->file],
                           .offset = run->offset + (at - run->first) * s->token_bytes,
                           .count = left < count ? left : count };
}

/* Receives a sequence of `length` tokens and one token more. Every token but the last is an input;
 * every token but the first is the target of the token before. */
struct window { int32_t *tokens, *targets; int64_t length, taken; };

static void take(struct window *w, int32_t id) {
    if (w->taken < w->length) w->tokens[w->taken] = id;
    if (w->taken > 0) w->targets[w->taken - 1] = id;
    w->taken++;
}

/* Reads a piece and checks each token against the vocabulary. `out` NULL: only checks. */
static enum status read_piece(const struct data *d, const struct piece *p, int bytes,
                              struct window *out, struct err *e) {
    unsigned char buffer[READ_BYTES];
    int64_t offset = p->offset, count = p->count;
    while (count > 0) {
        int64_t n = count < READ_BYTES / bytes ? count : READ_BYTES / bytes;
        TRY(input_read(p->file, offset, n * bytes, buffer, e));
        for (int64_t i = 0; i < n; i++, offset += bytes) {
            uint64_t id = load_le(buffer + i * bytes, bytes);
            if (id >= (uint64_t)d->vocab)
                return FAIL(e, ERR_FORMAT, "%s: token id %llu at byte %lld is beyond the "
                            "vocabulary of %lld", p->file->path, (unsigned long long)id,
                            (long long)offset, (long long)d->vocab);
            if (out) take(out, (int32_t)id);
        }
        count -= n;
    }
    return OK;
}

/* Reads tokens at .. at+count-1 of a stream, as read_piece does. */
static enum status read_tokens(const struct data *d, const struct token_stream *s, int64_t at,
                               int64_t count, struct window *out, struct err *e) {
    while (count > 0) {
        struct piece p = piece_at(d, s, at, count);
        TRY(read_piece(d, &p, s->token_bytes, out, e));
        at += p.count;
        count -= p.count;
    }
    return OK;
}

/* Checks ids against the vocabulary in the first DATA_SCAN_BYTES: opening must stay fast. */
static enum status scan(const struct data *d, const struct token_stream *s, struct err *e) {
    if (s->token_bytes < 4 && d->vocab >= (int64_t)1 << (8 * s->token_bytes)) return OK;
    int64_t most = DATA_SCAN_BYTES / s->token_bytes;
    return read_tokens(d, s, 0, s->count < most ? s->count : most, NULL, e);
}

/* ---- opening ---- */

/* The sequences in `tokens` tokens. The last target of a sequence is the token after it. */
static int64_t sequences_in(const struct data *d, int64_t tokens) {
    return tokens > 0 ? (tokens - 1) / d->seq_len : 0;
}

static enum status split(struct data *d, double holdout, struct err *e) {
    int64_t held = 0;
    d->sequences[SPLIT_TRAIN] = sequences_in(d, d->train.count);
    if (d->eval.run) {
        d->sequences[SPLIT_EVAL] = sequences_in(d, d->eval.count);
    } else if (holdout > 0) {
        int64_t kept = (int64_t)((double)d->train.count * (1 - holdout));
        d->first[SPLIT_EVAL] = kept;
        held = sequences_in(d, d->train.count - kept);
        d->sequences[SPLIT_TRAIN] = sequences_in(d, kept);
        d->sequences[SPLIT_EVAL] = held;
    }
    if (d->sequences[SPLIT_TRAIN] > 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: %lld tokens, %g%% of them held out, do not make one sequence "
                "of %lld and its last target", d->file[0].path, (long long)d->train.count,
                100 * holdout, (long long)d->seq_len);
}

static enum status open_kind(struct data *d, const struct data_options *o, struct err *e) {
    if (d->kind == DATA_SYNTHETIC) {
        d->sequences[SPLIT_TRAIN] = d->sequences[SPLIT_EVAL] = (int64_t)1 << 31;
        return OK;
    }
    if (o->path_count < 1) return FAIL(e, ERR_CONFIG, "data names no file");
    if (!(o->holdout >= 0 && o->holdout < 1))
        return FAIL(e, ERR_CONFIG, "data.holdout is %g; it must be at least 0 and below 1",
                    o->holdout);
    switch (d->kind) {
    case DATA_TEXT: TRY(data_open_text(d, o, e)); break;
    case DATA_MEGATRON: TRY(data_open_megatron(d, o, e)); break;
    case DATA_LLMC: TRY(data_open_llmc(d, o, e)); break;
    case DATA_SYNTHETIC: break;
    }
    TRY(scan(d, &d->train, e));
    if (d->eval.run) TRY(scan(d, &d->eval, e));
    return split(d, o->holdout, e);
}

enum status data_open(struct data **out, const struct data_options *options, int64_t vocab,
                      int64_t seq_len, uint64_t seed, struct err *e) {
    *out = NULL;
    struct data *d = calloc(1, sizeof *d);
    if (!d) return FAIL(e, ERR_MEMORY, "no host memory for a data stream");
    d->kind = options->kind;
    d->vocab = vocab;
    d->seq_len = seq_len;
    d->seed = seed;
    d->synthetic_seed = options->seed;
    d->root = options->root ? strdup(options->root) : NULL;
    enum status st = options->root && !d->root ? FAIL(e, ERR_MEMORY, "no host memory for a path")
                                               : open_kind(d, options, e);
    if (st == OK) *out = d;
    else data_close(d);
    return st;
}

void data_close(struct data *d) {
    if (!d) return;
    for (int64_t i = 0; i < d->file_count; i++) input_close(&d->file[i]);
    free(d->file);
    free((char *)d->root);
    free(d->train.run);
    free(d->eval.run);
    free(d);
}

int64_t data_sequences(const struct data *d, enum data_split which) { return d->sequences[which]; }

/* ---- drawing ---- */

/* A permutation of [0, n) without a table: a four-round Feistel network over the next power of
 * four, repeated until the result is below n (cycle walking, Black & Rogaway 2002). */
static int64_t permute(uint64_t key, int64_t n, int64_t i) {
    int half = 1;
    while ((int64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (rng_bits(key, right * 4 + round) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* The sequence at a position of the training order. */
static int64_t training_sequence(const struct data *d, int64_t position) {
    int64_t n = d->sequences[SPLIT_TRAIN], epoch = position / n;
    if (d->kind == DATA_SYNTHETIC) return position % n;
    return permute(rng_key(d->seed, RNG_DATA_ORDER, 0, (uint64_t)epoch), n, position % n);
}

static const struct token_stream *stream_of(const struct data *d, enum data_split which) {
    return which == SPLIT_EVAL && d->eval.run ? &d->eval : &d->train;
}

static enum status draw_one(const struct data *d, enum data_split which, int64_t index,
                            int32_t *tokens, int32_t *targets, struct err *e) {
    if (d->kind == DATA_SYNTHETIC) {
        synthetic_sequence(d, which, index, tokens, targets);
        return OK;
    }
    struct window w = { .tokens = tokens, .targets = targets, .length = d->seq_len };
    int64_t at = d->first[which] + index * d->seq_len;
    return read_tokens(d, stream_of(d, which), at, d->seq_len + 1, &w, e);
}

enum status data_batch(const struct data *d, enum data_split which, int64_t position, int64_t count,
                       int32_t *tokens, int32_t *targets, struct err *e) {
    int64_t T = d->seq_len, last = d->sequences[which] - 1;
    if (last < 0) return FAIL(e, ERR_STATE, "no sequence to draw in this part of the data");
    for (int64_t i = 0; i < count; i++, tokens += T, targets += T) {
        int64_t index = position + i;
        if (which == SPLIT_TRAIN) index = training_sequence(d, index);
        bool filler = index > last;
        TRY(draw_one(d, which, filler ? last : index, tokens, targets, e));
        for (int64_t k = 0; filler && k < T; k++) targets[k] = -1;
    }
    return OK;
}

void data_prefetch(const struct data *d, int64_t position, int64_t count) {
    if (d->kind == DATA_SYNTHETIC) return;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = d->first[SPLIT_TRAIN] + training_sequence(d, position + i) * d->seq_len;
        for (int64_t left = d->seq_len + 1; left > 0;) {
            struct piece p = piece_at(d, &d->train, at, left);
            input_prefetch(p.file, p.offset, p.count * d->train.token_bytes);
            at += p.count;
            left -= p.count;
        }
    }
}
