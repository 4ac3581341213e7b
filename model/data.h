/* Token sequences for training and evaluation, from files or generated.
 *
 * A sequence is T tokens and their T targets, each target the token that follows. Sequence j of
 * a stream covers tokens j*T .. j*T+T, so neighbours share one token. Training visits every
 * sequence once per epoch in an order that is a pure function of (seed, epoch): a position is
 * all there is to save. Evaluation reads held-out sequences from the start, in file order.
 *
 * Files are checked at open: sizes, magic, and ids against the vocabulary over the first
 * DATA_SCAN_BYTES; what lies behind is checked when drawn. They stay open and are read when they
 * are needed; one that has become shorter by then is an error. */
#ifndef FP8LAB_MODEL_DATA_H
#define FP8LAB_MODEL_DATA_H

#include "kernels/base.h"

enum { DATA_SCAN_BYTES = 1 << 30 };

enum data_kind {
    DATA_TEXT,     /* files, concatenated; one token a byte */
    DATA_MEGATRON, /* PATH.bin and PATH.idx (PATH may end in .bin) */
    DATA_LLMC,     /* llm.c: .bin with a 1,024-byte header, u16 (GPT-2) or u32 (Llama-3) tokens */
    DATA_SYNTHETIC /* generated from `seed`; equal on every machine */
};

/* Strings are borrowed for the duration of data_open. */
struct data_options {
    enum data_kind kind;
    const char *const *paths; /* DATA_TEXT: path_count files; else paths[0] */
    int64_t path_count;
    const char *eval_path; /* Megatron and llm.c: a second file, or NULL: the tail is held out */
    double holdout;        /* tail share held out for evaluation; unless there is an eval_path */
    uint64_t seed;         /* synthetic only */
    const char *root;      /* paths, absolute ones too, count from here; NULL: as they stand */
};

enum data_split { SPLIT_TRAIN, SPLIT_EVAL };

struct data; /* opaque; read-only after data_open */

/* Opens and checks. ERR_IO, or ERR_FORMAT naming file and byte offset, or ERR_CONFIG when the
 * stream holds not one sequence. `seed` is the run's: it decides the order of sequences. */
NODISCARD enum status data_open(struct data **out, const struct data_options *options,
                                int64_t vocab, int64_t seq_len, uint64_t seed, struct err *e);
void data_close(struct data *d);

/* Sequences in a split; synthetic data have 2^31. */
int64_t data_sequences(const struct data *d, enum data_split split);

/* Writes `count` sequences from `position` on: tokens and targets [count, T]. Training wraps
 * into the next epoch. Past the end of the held-out sequences the last of them comes again, with
 * targets of -1, which the loss ignores: made-up tokens would reach the scales that a tensor has
 * in common. ERR_FORMAT for an id beyond the vocabulary, naming file and offset; ERR_IO for a file
 * that cannot be read, or no longer; ERR_STATE for a split without a sequence. */
NODISCARD enum status data_batch(const struct data *d, enum data_split split, int64_t position,
                                 int64_t count, int32_t *tokens, int32_t *targets,
                                 struct err *e);

/* Says which training sequences are drawn next, so that the host reads their files ahead while the
 * device works. Only a hint: it changes nothing and cannot fail. */
void data_expect(const struct data *d, int64_t position, int64_t count);

/* A file of the stream, so that another machine can find it by what is in it. */
struct data_file {
    const char *path; /* as it was configured, without the root; borrowed from the data */
    int64_t bytes;
    char sha256[65];
    char sample_sha256[65]; /* as data_sample_sha256() has it */
};
int64_t data_file_count(const struct data *d);
struct data_file data_file_at(const struct data *d, int64_t at); /* its digests are "" */

/* What a process can see in milliseconds of whether a file is the one that another hashed whole: in
 * hex, SHA-256 over 64 pieces of 4 KiB, evenly from its first byte to its last, or over all of a
 * smaller one. ERR_IO for a file that cannot be read, or has shrunk. */
NODISCARD enum status data_sample_sha256(const struct data *d, int64_t at, char hex[65],
                                         struct err *e);

/* What identifies the data among a run's inputs, in hex: SHA-256 over every file's size and digest
 * in order, or over the generator's name and seed. Reads all of them. `files`, which may be NULL,
 * takes data_file_count() entries. */
NODISCARD enum status data_sha256(const struct data *d, struct data_file *files, char hex[65],
                                  struct err *e);

#endif
