#include "model/data.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "model/data_source.h"

/* Checks ids against the vocabulary in the first DATA_SCAN_BYTES: opening must stay fast. */
static enum status scan(const struct data *d, const struct token_stream *s, struct err *e) {
    if (s->token_bytes < 4 && d->vocab >= (int64_t)1 << (8 * s->token_bytes)) return OK;
    int64_t most = DATA_SCAN_BYTES / s->token_bytes;
    return stream_read(d, s, 0, s->count < most ? s->count : most, NULL, e);
}

/* ---- opening ---- */

/* The sequences in `tokens` tokens. The last target of a sequence is the token after it. */
static int64_t sequences_in(const struct data *d, int64_t tokens) {
    return tokens > 0 ? (tokens - 1) / d->seq_len : 0;
}

static const char *first_path(const struct data *d, const struct token_source *part) {
    return d->file[part->stream.run[0].file].path;
}

/* The end of the training tokens of a part. With an evaluation file that is all of them. */
static enum status split_part(struct data *d, struct token_source *part, double holdout,
                              struct err *e) {
    int64_t count = part->stream.count, kept = count;
    if (!d->eval.run && holdout > 0) kept = (int64_t)((double)count * (1 - holdout));
    if (d->order == ORDER_DOCUMENTS)
        TRY(documents_open(&part->documents, d, part, &kept, e));
    part->first[SPLIT_EVAL] = kept;
    part->sequences[SPLIT_TRAIN] = sequences_in(d, kept);
    part->sequences[SPLIT_EVAL] = d->eval.run || holdout == 0 ? 0 : sequences_in(d, count - kept);
    if (part->sequences[SPLIT_TRAIN] > 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: %lld tokens, %g%% of them held out, are too few for one "
                "sequence of %lld and its last target", first_path(d, part), (long long)count,
                100 * holdout, (long long)d->seq_len);
}

/* The longest prefix of the blend for which every part has held-out sequences. */
static int64_t blended_eval_sequences(const struct data *d) {
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < d->part_count; i++) high += d->part[i].sequences[SPLIT_EVAL];
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        bool fits = true;
        for (int64_t i = 0; i < d->part_count; i++)
            fits = fits && data_blend_count(d, i, middle) <= d->part[i].sequences[SPLIT_EVAL];
        if (fits) low = middle;
        else high = middle - 1;
    }
    return low;
}

static enum status split(struct data *d, const struct data_options *o, struct err *e) {
    for (int64_t i = 0; i < d->part_count; i++) {
        TRY(split_part(d, &d->part[i], o->holdout, e));
        d->sequences[SPLIT_TRAIN] += d->part[i].sequences[SPLIT_TRAIN];
    }
    d->sequences[SPLIT_EVAL] = d->eval.run ? sequences_in(d, d->eval.count)
                                           : blended_eval_sequences(d);
    return OK;
}

static enum status add_file(struct data *d, struct token_stream *s, const char *path,
                            struct err *e) {
    switch (d->kind) {
    case DATA_TEXT: return data_add_text(d, s, path, e);
    case DATA_MEGATRON: return data_add_megatron(d, s, path, e);
    case DATA_LLMC: return data_add_llmc(d, s, path, e);
    case DATA_SYNTHETIC: break;
    }
    return OK;
}

static enum status open_part(struct data *d, struct token_source *part, const char *const *path,
                             int64_t paths, struct err *e) {
    for (int64_t i = 0; i < paths; i++) TRY(add_file(d, &part->stream, path[i], e));
    if (part->stream.count == 0) return FAIL(e, ERR_FORMAT, "%s: no token in it", path[0]);
    return scan(d, &part->stream, e);
}

static enum status open_files(struct data *d, const struct data_options *o, struct err *e) {
    const char *const *path = o->paths;
    if (o->path_count < 1) return FAIL(e, ERR_CONFIG, "data names no file");
    if (!(o->holdout >= 0 && o->holdout < 1))
        return FAIL(e, ERR_CONFIG, "data.holdout is %g; it must be at least 0 and below 1",
                    o->holdout);
    if (d->order == ORDER_DOCUMENTS && d->kind != DATA_MEGATRON)
        return FAIL(e, ERR_CONFIG, "data.order = \"documents\" needs Megatron's index; %s does not "
                    "say where documents end", o->paths[0]);
    d->part_count = o->parts ? o->part_count : 1;
    d->part = calloc((size_t)d->part_count, sizeof *d->part);
    if (!d->part) return FAIL(e, ERR_MEMORY, "no host memory for the parts of the data");
    TRY(data_blend_weights(d, o, e));
    for (int64_t i = 0; i < d->part_count; i++) {
        int64_t paths = o->parts ? o->parts[i].path_count : o->path_count;
        TRY(open_part(d, &d->part[i], path, paths, e));
        path += paths;
    }
    if (o->eval_path) {
        TRY(add_file(d, &d->eval, o->eval_path, e));
        TRY(scan(d, &d->eval, e));
    }
    return split(d, o, e);
}

enum status data_open(struct data **out, const struct data_options *options, int64_t vocab,
                      int64_t seq_len, uint64_t seed, struct err *e) {
    *out = NULL;
    struct data *d = calloc(1, sizeof *d);
    if (!d) return FAIL(e, ERR_MEMORY, "no host memory for a data stream");
    d->kind = options->kind;
    d->vocab = vocab;
    d->seq_len = seq_len;
    d->order = options->order;
    d->seed = seed;
    d->synthetic_seed = options->seed;
    d->root = options->root ? strdup(options->root) : NULL;
    enum status st = OK;
    if (d->kind == DATA_SYNTHETIC)
        d->sequences[SPLIT_TRAIN] = d->sequences[SPLIT_EVAL] = (int64_t)1 << 31;
    else if (options->root && !d->root)
        st = FAIL(e, ERR_MEMORY, "no host memory for a path");
    else
        st = open_files(d, options, e);
    if (st == OK) *out = d;
    else data_close(d);
    return st;
}

void data_close(struct data *d) {
    if (!d) return;
    for (int64_t i = 0; i < d->file_count; i++) input_close(&d->file[i]);
    free(d->file);
    for (int64_t i = 0; i < d->part_count && d->part; i++) {
        documents_close(d->part[i].documents);
        free(d->part[i].stream.run);
    }
    free(d->part);
    free((char *)d->root);
    free(d->eval.run);
    free(d);
}

int64_t data_sequences(const struct data *d, enum data_split which) { return d->sequences[which]; }

int64_t data_part_count(const struct data *d) { return d->part_count; }

struct data_use data_use_at(const struct data *d, int64_t part, int64_t sequences) {
    int64_t root = d->root ? (int64_t)strlen(d->root) + 1 : 0;
    return (struct data_use){ .path = first_path(d, &d->part[part]) + root,
                              .sequences = d->part[part].sequences[SPLIT_TRAIN],
                              .read = data_blend_count(d, part, sequences) };
}

/* ---- drawing ---- */

static enum status draw_training(const struct data *d, int64_t position, struct window *w,
                                 struct err *e) {
    struct blended b = data_blend(d, position);
    const struct token_source *part = &d->part[b.part];
    int64_t n = part->sequences[SPLIT_TRAIN], epoch = b.drawn / n;
    uint64_t key = rng_key(d->seed, RNG_DATA_ORDER, (uint64_t)b.part, (uint64_t)epoch);
    int64_t at = data_permute(key, n, b.drawn % n) * d->seq_len;
    if (part->documents)
        return documents_read(d, b.part, epoch, at, d->seq_len + 1, w, e);
    return stream_read(d, &part->stream, at, d->seq_len + 1, w, e);
}

static enum status draw_held_out(const struct data *d, int64_t position, struct window *w,
                                 struct err *e) {
    if (d->eval.run)
        return stream_read(d, &d->eval, position * d->seq_len, d->seq_len + 1, w, e);
    struct blended b = data_blend(d, position);
    const struct token_source *part = &d->part[b.part];
    int64_t at = part->first[SPLIT_EVAL] + b.drawn * d->seq_len;
    return stream_read(d, &part->stream, at, d->seq_len + 1, w, e);
}

static enum status draw_sequence(const struct data *d, enum data_split which, int64_t position,
                                 int32_t *tokens, int32_t *targets, struct err *e) {
    struct window w = { .tokens = tokens, .targets = targets, .length = d->seq_len };
    if (d->kind != DATA_SYNTHETIC)
        return which == SPLIT_TRAIN ? draw_training(d, position, &w, e)
                                    : draw_held_out(d, position, &w, e);
    synthetic_sequence(d, which, position % d->sequences[which], tokens, targets);
    return OK;
}

enum status data_batch(const struct data *d, enum data_split which, int64_t position, int64_t count,
                       int32_t *tokens, int32_t *targets, struct err *e) {
    int64_t T = d->seq_len, last = d->sequences[which] - 1;
    if (last < 0) return FAIL(e, ERR_STATE, "no sequence to draw in this part of the data");
    for (int64_t i = position; i < position + count; i++, tokens += T, targets += T) {
        bool filler = which == SPLIT_EVAL && i > last;
        TRY(draw_sequence(d, which, filler ? last : i, tokens, targets, e));
        for (int64_t k = 0; filler && k < T; k++) targets[k] = -1;
    }
    return OK;
}
