#include "model/data.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "model/data_source.h"

/* Checks ids against the vocabulary, and loss bytes, in the first DATA_SCAN_BYTES: opening must
 * stay fast. */
static enum status scan(const struct data *d, const struct token_stream *s, struct err *e) {
    if (!d->loss && s->token_bytes < 4 && d->vocab >= (int64_t)1 << (8 * s->token_bytes)) return OK;
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

/* Whole documents are split and laid out, those that end behind token `kept` for evaluation. */
static enum status pack_part(struct data *d, struct token_source *part, int64_t kept,
                             bool holds_out, struct err *e) {
    const struct documents *documents = &part->stream.documents;
    int64_t begin[3] = { 0, documents_before(documents, kept), documents->count };
    for (int i = 0; i < (holds_out ? 2 : 1); i++) {
        TRY(packing_make(&part->packing[i], d, documents, begin[i], begin[i + 1], e));
        part->sequences[i] = part->packing[i].count;
    }
    if (part->sequences[SPLIT_TRAIN] > 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: no document is left for training: none with a token ends "
                "before its token %lld, where the held-out part begins; give more documents, or a "
                "smaller data.holdout", first_path(d, part), (long long)kept);
}

/* Shuffled documents are whole: *kept becomes the end of the last that ends before it. */
static enum status order_part(struct data *d, struct token_source *part, int64_t *kept,
                              struct err *e) {
    int64_t count = documents_before(&part->stream.documents, *kept);
    if (count == 0)
        return FAIL(e, ERR_CONFIG, "%s: its first document ends behind the first %lld tokens, "
                    "which data.holdout leaves for training; hold out less, or use order = "
                    "\"windows\"", first_path(d, part), (long long)*kept);
    *kept = part->stream.documents.start[count];
    return order_open(&part->order, part, count, e);
}

/* The end of the training tokens of a part. With an evaluation file that is all of them. */
static enum status split_part(struct data *d, struct token_source *part, double holdout,
                              struct err *e) {
    int64_t count = part->stream.count, kept = count;
    bool holds_out = !d->eval.run && holdout > 0;
    if (holds_out) kept = (int64_t)((double)count * (1 - holdout));
    if (d->layout != LAYOUT_WINDOWS) return pack_part(d, part, kept, holds_out, e);
    if (d->order == ORDER_DOCUMENTS) TRY(order_part(d, part, &kept, e));
    part->first[SPLIT_EVAL] = kept;
    part->sequences[SPLIT_TRAIN] = sequences_in(d, kept);
    part->sequences[SPLIT_EVAL] = holds_out ? sequences_in(d, count - kept) : 0;
    if (part->sequences[SPLIT_TRAIN] > 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: %lld token%s, %g%% of them held out, are too few for one "
                "sequence of %lld and its last target; give more data, or a smaller model.seq_len",
                first_path(d, part), (long long)count, count == 1 ? "" : "s", 100 * holdout,
                (long long)d->seq_len);
}

/* The sequences of what is only evaluated. */
static enum status split_eval_stream(struct data *d, struct err *e) {
    int64_t targets = d->eval.count - 1, T = d->seq_len;
    if (d->layout == LAYOUT_WINDOWS) {
        d->sequences[SPLIT_EVAL] = d->pads ? ceil_div(targets, T) : sequences_in(d, targets + 1);
        d->pads = d->pads && targets % T != 0;
        return OK;
    }
    d->pads = false; /* as a layout with documents does in any case */
    const struct documents *documents = &d->eval.documents;
    TRY(packing_make(&d->eval_packing, d, documents, 0, documents->count, e));
    d->sequences[SPLIT_EVAL] = d->eval_packing.count;
    return OK;
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
    if (d->eval.run) return split_eval_stream(d, e);
    d->sequences[SPLIT_EVAL] = blended_eval_sequences(d);
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

/* Checks the tokens of a stream, and finds its documents if anything needs them. */
static enum status open_stream(struct data *d, struct token_stream *s, bool needs_documents,
                               struct err *e) {
    TRY(scan(d, s, e));
    int64_t longest = d->layout == LAYOUT_WINDOWS ? 0 : d->seq_len;
    return needs_documents ? documents_open(d, s, longest, e) : OK;
}

static enum status open_part(struct data *d, struct token_source *part, const char *const *path,
                             int64_t paths, struct err *e) {
    for (int64_t i = 0; i < paths; i++) TRY(add_file(d, &part->stream, path[i], e));
    if (part->stream.count == 0) return FAIL(e, ERR_FORMAT, "%s: no token in it", path[0]);
    return open_stream(d, &part->stream, d->borders || d->order == ORDER_DOCUMENTS, e);
}

/* ERR_CONFIG for an option that needs Megatron's files, with data of another kind. */
static enum status check_documents(const struct data *d, const struct data_options *o,
                                   struct err *e) {
    const struct { bool set; const char *key; } needs[] = {
        { d->order == ORDER_DOCUMENTS, "data.order = \"documents\"" },
        { d->layout == LAYOUT_PACKED, "data.layout = \"packed\"" },
        { d->layout == LAYOUT_PADDED, "data.layout = \"padded\"" },
        { d->documents.mask, "data.mask = \"document\"" },
        { d->documents.restart, "data.positions = \"document\"" },
    };
    for (size_t i = 0; d->kind != DATA_MEGATRON && i < sizeof needs / sizeof *needs; i++)
        if (needs[i].set)
            return FAIL(e, ERR_CONFIG, "%s needs Megatron's index; %s does not say where documents "
                        "end", needs[i].key, o->path_count ? o->paths[0] : "generated data");
    if (d->loss && d->kind != DATA_MEGATRON)
        return FAIL(e, ERR_CONFIG, "data.loss needs Megatron's files with a .loss beside them; %s "
                    "is something else", o->path_count ? o->paths[0] : "generated data");
    if (d->layout != LAYOUT_WINDOWS && d->order == ORDER_DOCUMENTS)
        return FAIL(e, ERR_CONFIG, "data.order = \"documents\" is for windows; a data.layout with "
                    "whole documents shuffles its sequences: leave out order");
    return OK;
}

/* ERR_CONFIG if no training target counts. Ends at the first that does. */
static enum status check_loss(const struct data *d, struct err *e) {
    int64_t counted = 0;
    if (data_counts_all(d)) return OK;
    for (int64_t i = 0; i < d->sequences[SPLIT_TRAIN] && !counted; i++)
        TRY(data_count(d, SPLIT_TRAIN, i, 1, &counted, e));
    if (counted) return OK;
    if (!d->loss)
        return FAIL(e, ERR_CONFIG, "%s: no token of the training data carries loss: each document "
                    "has one token, and the first token of a document is never predicted",
                    first_path(d, &d->part[0]));
    const struct token_run *run = &d->part[0].stream.run[0];
    return FAIL(e, ERR_CONFIG, "%s: no token of the training data carries loss: its bytes are 0, "
                "or 1 only for the first token of a document", d->file[run->loss].path);
}

/* All files as one stream to evaluate. */
static enum status open_eval_only(struct data *d, const struct data_options *o, struct err *e) {
    d->pads = true;
    for (int64_t i = 0; i < o->path_count; i++) TRY(add_file(d, &d->eval, o->paths[i], e));
    if (d->eval.count < 2)
        return FAIL(e, ERR_CONFIG, "%s%s: %lld tokens; to evaluate takes at least two, one to read "
                    "and one to predict", o->paths[0], o->path_count > 1 ? " and more" : "",
                    (long long)d->eval.count);
    TRY(open_stream(d, &d->eval, d->borders, e));
    return split_eval_stream(d, e);
}

static enum status open_files(struct data *d, const struct data_options *o, struct err *e) {
    const char *const *path = o->paths;
    if (o->path_count < 1) return FAIL(e, ERR_CONFIG, "data names no file");
    if (o->eval_only) return open_eval_only(d, o, e);
    if (!(o->holdout >= 0 && o->holdout < 1))
        return FAIL(e, ERR_CONFIG, "data.holdout is %g; it must be at least 0 and below 1",
                    o->holdout);
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
        TRY(open_stream(d, &d->eval, d->borders, e));
    }
    TRY(split(d, o, e));
    return check_loss(d, e);
}

/* All but the sets. */
static enum status open_alone(struct data **out, const struct data_options *options,
                              int64_t vocab, int64_t seq_len, uint64_t seed, struct err *e) {
    *out = NULL;
    struct data *d = calloc(1, sizeof *d);
    if (!d) return FAIL(e, ERR_MEMORY, "no host memory for a data stream");
    d->kind = options->kind;
    d->vocab = vocab;
    d->seq_len = seq_len;
    d->order = options->order;
    d->layout = options->layout;
    d->documents = options->documents;
    d->borders = d->layout != LAYOUT_WINDOWS || d->documents.mask || d->documents.restart;
    d->loss = options->loss;
    d->seed = seed;
    d->synthetic_seed = options->seed;
    d->root = options->root ? strdup(options->root) : NULL;
    enum status st = check_documents(d, options, e);
    if (st == OK && d->kind == DATA_SYNTHETIC)
        d->sequences[SPLIT_TRAIN] = d->sequences[SPLIT_EVAL] = (int64_t)1 << 31;
    else if (st == OK && options->root && !d->root)
        st = FAIL(e, ERR_MEMORY, "no host memory for a path");
    else if (st == OK)
        st = open_files(d, options, e);
    if (st == OK) *out = d;
    else data_close(d);
    return st;
}

/* ---- further sets ---- */

static enum status open_set(struct data *d, const struct data_set_options *set,
                            const struct data_options *run, struct err *e) {
    struct data_options o = {
        .kind = run->kind, .paths = set->paths, .path_count = set->path_count, .eval_only = true,
        .layout = run->layout, .documents = run->documents, .loss = run->loss, .root = run->root,
    };
    char **name = &d->set_name[d->set_count];
    enum status st = open_alone(&d->set[d->set_count], &o, d->vocab, d->seq_len, d->seed, e);
    if (st != OK) return st;
    *name = strdup(set->name);
    d->set_count++;
    return *name ? OK : FAIL(e, ERR_MEMORY, "no host memory for a name");
}

static enum status open_sets(struct data *d, const struct data_options *o, struct err *e) {
    if (o->set_count == 0) return OK;
    if (d->kind == DATA_SYNTHETIC)
        return FAIL(e, ERR_CONFIG, "eval.also.%s: generated data have no files, and so no further "
                    "sets", o->sets[0].name);
    d->set = calloc((size_t)o->set_count, sizeof *d->set);
    d->set_name = calloc((size_t)o->set_count, sizeof *d->set_name);
    if (!d->set || !d->set_name) return FAIL(e, ERR_MEMORY, "no host memory for sets of data");
    for (int64_t i = 0; i < o->set_count; i++) {
        enum status st = open_set(d, &o->sets[i], o, e);
        if (st != OK) return err_prefix(e, "eval.also.%s", o->sets[i].name), st;
    }
    return OK;
}

enum status data_open(struct data **out, const struct data_options *options, int64_t vocab,
                      int64_t seq_len, uint64_t seed, struct err *e) {
    TRY(open_alone(out, options, vocab, seq_len, seed, e));
    enum status st = open_sets(*out, options, e);
    if (st == OK) return OK;
    data_close(*out);
    *out = NULL;
    return st;
}

int64_t data_set_count(const struct data *d) { return d->set_count; }

const struct data *data_set_at(const struct data *d, int64_t set) { return d->set[set]; }

const char *data_set_name(const struct data *d, int64_t set) { return d->set_name[set]; }

static void free_stream(struct token_stream *s) {
    free(s->run);
    free(s->documents.start);
}

void data_close(struct data *d) {
    if (!d) return;
    for (int64_t i = 0; i < d->set_count; i++) {
        data_close(d->set[i]);
        free(d->set_name[i]);
    }
    free(d->set);
    free(d->set_name);
    for (int64_t i = 0; i < d->file_count; i++) input_close(&d->file[i]);
    free(d->file);
    for (int64_t i = 0; i < d->part_count && d->part; i++) {
        struct token_source *part = &d->part[i];
        order_close(part->order);
        free_stream(&part->stream);
        for (int k = 0; k < 2; k++) free(part->packing[k].first);
    }
    free(d->part);
    free((char *)d->root);
    free_stream(&d->eval);
    free(d->eval_packing.first);
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

/* A window of the stream: a sequence and one token more, or what is left of it, padded. */
static enum status read_window(const struct data *d, const struct token_stream *s, int64_t at,
                               struct window *w, struct err *e) {
    int64_t left = s->count - at, n = left < d->seq_len + 1 ? left : d->seq_len + 1;
    TRY(d->borders ? documents_read(d, s, at, n, w, e) : stream_read(d, s, at, n, w, e));
    if (n <= d->seq_len) window_pad(w);
    return OK;
}

static enum status draw_training(const struct data *d, int64_t position, struct window *w,
                                 struct err *e) {
    struct blended b = data_blend(d, position);
    const struct token_source *part = &d->part[b.part];
    int64_t n = part->sequences[SPLIT_TRAIN], epoch = b.drawn / n;
    uint64_t key = rng_key(d->seed, RNG_DATA_ORDER, (uint64_t)b.part, (uint64_t)epoch);
    int64_t sequence = data_permute(key, n, b.drawn % n), at = sequence * d->seq_len;
    if (d->layout != LAYOUT_WINDOWS)
        return packing_read(d, &part->stream, &part->packing[SPLIT_TRAIN], sequence, w, e);
    if (part->order) return shuffled_read(d, b.part, epoch, at, d->seq_len + 1, w, e);
    return read_window(d, &part->stream, at, w, e);
}

static enum status draw_held_out(const struct data *d, int64_t position, struct window *w,
                                 struct err *e) {
    bool packed = d->layout != LAYOUT_WINDOWS;
    if (d->eval.run)
        return packed ? packing_read(d, &d->eval, &d->eval_packing, position, w, e)
                      : read_window(d, &d->eval, position * d->seq_len, w, e);
    struct blended b = data_blend(d, position);
    const struct token_source *part = &d->part[b.part];
    if (packed)
        return packing_read(d, &part->stream, &part->packing[SPLIT_EVAL], b.drawn, w, e);
    return read_window(d, &part->stream, part->first[SPLIT_EVAL] + b.drawn * d->seq_len, w, e);
}

static enum status draw_sequence(const struct data *d, enum data_split which, int64_t position,
                                 struct window *w, struct err *e) {
    if (d->kind != DATA_SYNTHETIC)
        return which == SPLIT_TRAIN ? draw_training(d, position, w, e)
                                    : draw_held_out(d, position, w, e);
    synthetic_sequence(d, which, position % d->sequences[which], w->tokens, w->targets);
    for (int64_t k = 0; w->starts && k < d->seq_len; k++) w->starts[k] = 0;
    return OK;
}

static enum status check_split(const struct data *d, enum data_split which, struct err *e) {
    if (d->sequences[which] > 0) return OK;
    return FAIL(e, ERR_STATE, "no sequence to draw in this part of the data");
}

enum status data_batch(const struct data *d, enum data_split which, int64_t position, int64_t count,
                       int32_t *tokens, int32_t *targets, int32_t *starts, struct err *e) {
    int64_t T = d->seq_len, last = d->sequences[which] - 1;
    TRY(check_split(d, which, e));
    for (int64_t i = 0; i < count; i++) {
        bool filler = which == SPLIT_EVAL && position + i > last;
        struct window w = { .tokens = tokens + i * T, .targets = targets + i * T, .length = T,
                            .starts = starts ? starts + i * T : NULL };
        TRY(draw_sequence(d, which, filler ? last : position + i, &w, e));
        for (int64_t k = 0; filler && k < T; k++) w.targets[k] = -1;
    }
    return OK;
}

/* Whether the sequence at a training position is found without making its epoch ready. */
static bool found_at_once(const struct data *d, int64_t position) {
    struct blended b = data_blend(d, position);
    const struct token_source *part = &d->part[b.part];
    return !part->order || order_prepared(part->order, b.drawn / part->sequences[SPLIT_TRAIN]);
}

void data_advise(const struct data *d, int64_t position, int64_t count, bool loss_only) {
    if (d->sequences[SPLIT_TRAIN] == 0 || d->kind == DATA_SYNTHETIC) return;
    if (loss_only && !d->loss) return;
    for (int64_t i = position; i < position + count; i++) {
        struct window w = { .length = d->seq_len, .advises = true, .loss_only = loss_only };
        enum status st = found_at_once(d, i) ? draw_training(d, i, &w, NULL) : OK;
        (void)st; /* who reads gets the error */
    }
}

/* The epoch behind the one that a part's first draw at or behind a position is of. */
static int64_t next_epoch(const struct data *d, int64_t part, int64_t position) {
    return data_blend_count(d, part, position) / d->part[part].sequences[SPLIT_TRAIN] + 1;
}

bool data_prepared(const struct data *d, int64_t position) {
    for (int64_t i = 0; i < d->part_count; i++) {
        struct document_order *o = d->part[i].order;
        if (o && !order_prepared(o, next_epoch(d, i, position))) return false;
    }
    return true;
}

void data_prepare(const struct data *d, int64_t position) {
    for (int64_t i = 0; i < d->part_count; i++)
        if (d->part[i].order) order_prepare(d, i, next_epoch(d, i, position));
}

bool data_counts_all(const struct data *d) { return !d->borders && !d->loss && !d->pads; }

struct document_options data_documents(const struct data *d) { return d->documents; }

enum status data_count(const struct data *d, enum data_split which, int64_t position,
                       int64_t count, int64_t *counted, struct err *e) {
    int64_t end = position + count;
    TRY(check_split(d, which, e));
    if (which == SPLIT_EVAL && end > d->sequences[which]) end = d->sequences[which];
    struct window w = { .length = d->seq_len };
    for (int64_t i = position; i < end && !data_counts_all(d); i++, w.taken = w.start = 0)
        TRY(draw_sequence(d, which, i, &w, e));
    *counted = w.counted;
    if (data_counts_all(d)) *counted = end > position ? (end - position) * d->seq_len : 0;
    return OK;
}
