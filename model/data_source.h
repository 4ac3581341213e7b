/* The fields of a data stream: token files and their runs of tokens. */
#ifndef FP8LAB_MODEL_DATA_SOURCE_H
#define FP8LAB_MODEL_DATA_SOURCE_H

#include "model/data_options.h"
#include "model/ground/input_file.h"

/* A run of tokens inside a file. */
struct token_run {
    int64_t file, offset; /* index of the file; byte where its tokens begin */
    int64_t loss;         /* index of the file that tells which tokens count; -1: all */
    int64_t first, count; /* tokens: position of the first in the stream, how many */
};

/* Where the documents of a stream begin. */
struct documents { int64_t *start, count; }; /* start [count + 1], owned, the last is the end; NULL:
                                                nobody needs them */

/* Tokens from one or more files, seen as one stream; one integer width for all. */
struct token_stream {
    struct token_run *run; /* owned */
    int64_t run_count, count; /* tokens */
    int token_bytes;       /* 1 and 2 unsigned; 4: i32 and u32 are read alike, ids are below 2^31 */
    struct documents documents;
};

/* The documents of a part in the order of an epoch (data_documents.c). */
struct document_order;

/* Whole documents in sequences: sequence i has the documents first[i] .. first[i + 1] - 1. */
struct packing { int64_t *first, count; }; /* count + 1 entries, owned */

/* A source of a blend. */
struct token_source {
    struct token_stream stream;
    int64_t first[2], sequences[2]; /* per split: first token in the stream, sequences */
    struct packing packing[2];      /* per split, in layouts with whole documents */
    uint64_t weight, rest;          /* its share is weight / rest of what earlier parts leave */
    struct document_order *order;   /* owned; NULL: the order of the files */
};

struct data {
    enum data_kind kind;
    enum data_order order;
    enum data_layout layout;
    struct document_options documents;
    bool borders; /* no target is the first token of another document */
    bool loss;
    bool pads;    /* the last sequence of `eval` is padded */
    int64_t vocab, seq_len;
    uint64_t seed, synthetic_seed;
    const char *root;         /* of all paths, or NULL; owned */
    struct input_file *file;  /* owned */
    int64_t file_count;
    struct token_source *part; /* owned; none for synthetic data */
    int64_t part_count;
    struct token_stream eval;  /* only evaluated; run NULL: the tail of each part is */
    struct packing eval_packing;
    int64_t sequences[2];      /* per split, of all parts */
    struct data **set;         /* further sets, only evaluated; all owned */
    char **set_name;
    int64_t set_count;
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

/* The ids that a sequence is made of: `length` tokens, and of a window of the stream one more.
 * Every token but the last is an input. Every token but the first is the target of the token
 * before, unless a document begins with it or its loss byte is 0: then that target is -1. */
struct window {
    int32_t *tokens, *targets; /* NULL: counts the targets that are not -1, and reads no id */
    int32_t *starts;           /* where each token's document begins in the sequence, or NULL */
    bool advises, loss_only;   /* nothing is read: the system is asked to read ids and loss bytes
                                  soon, or only the latter */
    int64_t length, taken;
    int64_t start;             /* `taken` where the document that is being read began */
    int64_t counted;
};

/* Fills the rest of a window that is shorter than a sequence (data_packing.c). */
void window_pad(struct window *w);

/* What is taken next is of another document. */
static inline void window_document(const struct data *d, struct window *w) {
    if (d->borders) w->start = w->taken;
}

/* Reads tokens at .. at+count-1 of a stream and checks each against the vocabulary, and the bytes
 * of its loss file. `out` NULL: only checks. */
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

/* ---- documents (data_documents.c) ---- */

/* Reads where the documents of a Megatron stream begin. ERR_FORMAT names what is damaged.
 * ERR_CONFIG names a document with more than `longest` tokens; 0: any length. */
NODISCARD enum status documents_open(const struct data *d, struct token_stream *s, int64_t longest,
                                     struct err *e);

/* How many documents end at or before token `end`. */
int64_t documents_before(const struct documents *o, int64_t end);

/* As stream_read; `out` gets to know where documents begin. */
NODISCARD enum status documents_read(const struct data *d, const struct token_stream *s, int64_t at,
                                     int64_t count, struct window *out, struct err *e);

/* The order of the first `count` documents of a part. Later calls of shuffled_read allocate
 * nothing. */
NODISCARD enum status order_open(struct document_order **out, const struct token_source *part,
                                 int64_t count, struct err *e);
void order_close(struct document_order *o); /* NULL is fine */

/* Whether shuffled_read can find any token of an epoch at once. Thread-safe, as the next one. */
bool order_prepared(struct document_order *o, int64_t epoch);
/* Prepares a slice of an epoch, in less than a millisecond. It takes the place of the epoch that is
 * two before or behind. */
void order_prepare(const struct data *d, int64_t part, int64_t epoch);

/* As documents_read for training token `at` of the part in the order of documents of an epoch.
 * Thread-safe. */
NODISCARD enum status shuffled_read(const struct data *d, int64_t part, int64_t epoch, int64_t at,
                                    int64_t count, struct window *out, struct err *e);

/* ---- whole documents in sequences (data_packing.c) ---- */

/* Lays out documents first .. end-1 of a stream. Empty documents take no place. */
NODISCARD enum status packing_make(struct packing *out, const struct data *d,
                                   const struct documents *documents, int64_t first, int64_t end,
                                   struct err *e);

/* Reads a sequence, and pads it. */
NODISCARD enum status packing_read(const struct data *d, const struct token_stream *s,
                                   const struct packing *p, int64_t sequence, struct window *out,
                                   struct err *e);

/* Sequence `index` of the synthetic stream, seq_len + 1 tokens. A noisy walk that a model can
 * learn: 7 of 8 tokens follow from the token before. */
void synthetic_sequence(const struct data *d, enum data_split split, int64_t index, int32_t *tokens,
                        int32_t *targets);

#endif
