/* The fields of a data stream: token files and their runs of tokens. */
#ifndef FP8LAB_MODEL_DATA_SOURCE_H
#define FP8LAB_MODEL_DATA_SOURCE_H

#include "model/data.h"
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

struct data {
    enum data_kind kind;
    int64_t vocab, seq_len;
    uint64_t seed, synthetic_seed;
    const char *root;         /* of all paths, or NULL; owned */
    struct input_file *file;  /* owned */
    int64_t file_count;
    struct token_stream train, eval; /* eval.run NULL: the tail of train */
    int64_t first[2], sequences[2];  /* per split: first token in its stream, sequences */
};

/* Fills the streams of one kind from data->file, which the function extends. */
NODISCARD enum status data_open_text(struct data *d, const struct data_options *o, struct err *e);
NODISCARD enum status data_open_megatron(struct data *d, const struct data_options *o,
                                         struct err *e);
NODISCARD enum status data_open_llmc(struct data *d, const struct data_options *o, struct err *e);

/* Adds a file, its path counted from the root; returns its index through *index. */
NODISCARD enum status data_add_file(struct data *d, const char *path, int64_t *index,
                                    struct err *e);
/* Appends a run of tokens to a stream. */
NODISCARD enum status stream_append(struct token_stream *s, int64_t file, int64_t offset,
                                    int64_t count, struct err *e);

/* Sequence `index` of the synthetic stream, seq_len + 1 tokens. A noisy walk that a model can
 * learn: 7 of 8 tokens follow from the token before. */
void synthetic_sequence(const struct data *d, enum data_split split, int64_t index, int32_t *tokens,
                        int32_t *targets);

#endif
