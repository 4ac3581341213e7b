/* The fields of a data stream: token files and their runs of tokens. */
#ifndef FP8LAB_MODEL_DATA_SOURCE_H
#define FP8LAB_MODEL_DATA_SOURCE_H

#include "model/data_options.h"
#include "model/ground/input_file.h"

/* A run of tokens inside a file. */
struct token_run {
    int64_t file, offset; /* index of the file; byte where its tokens begin */
    int64_t first, count; /* tokens: position of the first in the stream, how many */
};

/* Tokens from one or more files, seen as one stream; one integer width for all. */
struct token_stream {
    struct token_run *run; /* owned */
    int64_t run_count, count; /* tokens */
    int token_bytes;       /* 1 and 2 unsigned; 4: i32 and u32 are read alike, ids are below 2^31 */
};

/* The documents of a part and their order in an epoch (data_documents.c). */
struct document_order;

/* A source of a blend. */
struct token_source {
    struct token_stream stream;
    int64_t first[2], sequences[2]; /* per split: first token in the stream, sequences */
    uint64_t weight, rest;          /* its share is weight / rest of what earlier parts leave */
    struct document_order *documents; /* owned; NULL: the order of the files */
};

struct data {
    enum data_kind kind;
    enum data_order order;
    int64_t vocab, seq_len;
    uint64_t seed, synthetic_seed;
    const char *root;         /* of all paths, or NULL; owned */
    struct input_file *file;  /* owned */
    int64_t file_count;
    struct token_source *part; /* owned; none for synthetic data */
    int64_t part_count;
    struct token_stream eval;  /* run NULL: the tail of each part */
    int64_t sequences[2];      /* per split, of all parts */
};

/* Checks a file of one kind, adds it to data->file, and appends its tokens to a stream. All files
 * of a stream have one integer width. */
NODISCARD enum status data_add_text(struct data *d, struct token_stream *s, const char *path,
                                    struct err *e);
NODISCARD enum status data_add_megatron(struct data *d, struct token_stream *s, const char *path,
                                        struct err *e);
NODISCARD enum status data_add_llmc(struct data *d, struct token_stream *s, const char *path,
                                    struct err *e);

/* Adds a file, its path counted from the root; returns its index through *index. */
NODISCARD enum status data_add_file(struct data *d, const char *path, int64_t *index,
                                    struct err *e);
/* Appends a run of tokens to a stream. ERR_FORMAT if its integer width is not the stream's. */
NODISCARD enum status stream_append(struct data *d, struct token_stream *s, int64_t file,
                                    int64_t offset, int64_t count, int token_bytes, struct err *e);

/* The ids that a window is made of. A sequence has `length` tokens and one token more. Every token
 * but the last is an input; every token but the first is the target of the token before. */
struct window { int32_t *tokens, *targets; int64_t length, taken; };

/* Reads tokens at .. at+count-1 of a stream and checks each against the vocabulary. `out` NULL:
 * only checks. */
NODISCARD enum status stream_read(const struct data *d, const struct token_stream *s, int64_t at,
                                  int64_t count, struct window *out, struct err *e);

/* ---- order (data_order.c) ---- */

/* A permutation of [0, n) without a table; i < n. */
int64_t data_permute(uint64_t key, int64_t n, int64_t i);

/* The part that a position of the blend draws from, and how many of its sequences were drawn
 * before. No state: the share of a part among the first p positions is exact to one sequence. */
struct blended { int64_t part, drawn; };
struct blended data_blend(const struct data *d, int64_t position);

/* How many of the first `positions` draw from a part. */
int64_t data_blend_count(const struct data *d, int64_t part, int64_t positions);

/* The shares of the parts by their weights. ERR_CONFIG for a weight that is not above 0. */
NODISCARD enum status data_blend_weights(struct data *d, const struct data_options *o,
                                         struct err *e);

/* ---- shuffled documents (data_documents.c) ---- */

/* Reads where the documents of a Megatron part begin. The part's training split then ends with a
 * document: the token is returned through *kept, which holds the wanted end. Later calls of
 * documents_read allocate nothing. ERR_CONFIG if no document lies before the wanted end. */
NODISCARD enum status documents_open(struct document_order **out, const struct data *d,
                                     const struct token_source *part, int64_t *kept,
                                     struct err *e);
void documents_close(struct document_order *o); /* NULL is fine */

/* As stream_read for training token `at` of the part in the order of documents of an epoch.
 * Thread-safe. */
NODISCARD enum status documents_read(const struct data *d, int64_t part, int64_t epoch, int64_t at,
                                     int64_t count, struct window *out, struct err *e);

/* Sequence `index` of the synthetic stream, seq_len + 1 tokens. A noisy walk that a model can
 * learn: 7 of 8 tokens follow from the token before. */
void synthetic_sequence(const struct data *d, enum data_split split, int64_t index, int32_t *tokens,
                        int32_t *targets);

#endif
