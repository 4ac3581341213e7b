/* Token sequences for training and evaluation, from files or generated.
 *
 * A sequence is T tokens and T targets; a target is the next token, or -1 if it does not count.
 * Sequence j of a stream covers tokens j*T .. j*T+T, so neighbours share one token; other layouts
 * hold whole documents and padding (data_options.h). Training visits every sequence of a part once
 * per epoch of that part. The order is a pure function of (seed, part, epoch), so a checkpoint
 * saves only a position. Evaluation reads held-out sequences from the start, in file order.
 * model/NUMERICS.md defines the order for other programs.
 *
 * Opening checks sizes, magic, and ids against the vocabulary in the first DATA_SCAN_BYTES. Later
 * ids and loss bytes are checked when drawn. Files stay open and are read on demand; a file that
 * shrinks is an error. */
#ifndef FP8LAB_MODEL_DATA_H
#define FP8LAB_MODEL_DATA_H

#include "model/data_options.h"

enum { DATA_SCAN_BYTES = 1 << 30 };

struct data; /* opaque; read-only after data_open */

/* Opens and checks. ERR_IO; ERR_FORMAT naming file and byte offset; ERR_CONFIG if the stream is
 * shorter than one sequence, or no token of it has loss, or a file of a set is read twice. `seed`
 * is the run's seed; it decides the order of sequences. Errors of a set begin with
 * "eval.also.NAME". */
NODISCARD enum status data_open(struct data **out, const struct data_options *options,
                                int64_t vocab, int64_t seq_len, uint64_t seed, struct err *e);
void data_close(struct data *d);

/* Sequences in a split: of all parts for training; for evaluation as many as their weights allow
 * until a part has no more. Synthetic data have 2^31. */
int64_t data_sequences(const struct data *d, enum data_split split);

/* What the first `sequences` of training read of a part. */
struct data_use {
    const char *path;       /* the part's first file; borrowed from the data */
    int64_t sequences;      /* the part has */
    int64_t read;           /* of these, with repetitions: read / sequences epochs */
};
int64_t data_part_count(const struct data *d); /* 0 for synthetic data */
struct data_use data_use_at(const struct data *d, int64_t part, int64_t sequences);

/* Writes `count` sequences starting at `position`: tokens, targets and starts [count, T]. starts
 * may be NULL. It tells where in its sequence the document of each token begins: 0 for a document
 * that began before, and everywhere if the data do not know documents. Training continues with the
 * next epoch. After the last held-out sequence that sequence is repeated with targets of -1, which
 * the loss ignores; made-up tokens would change the scale of the whole tensor.
 * ERR_FORMAT for an id beyond the vocabulary, naming file and offset; ERR_IO for an unreadable or
 * shortened file; ERR_STATE for a split without a sequence. Allocates nothing. Thread-safe. */
NODISCARD enum status data_batch(const struct data *d, enum data_split split, int64_t position,
                                 int64_t count, int32_t *tokens, int32_t *targets, int32_t *starts,
                                 struct err *e);

/* Asks the system to read soon what data_batch will read of these training sequences, or with
 * `loss_only` what data_count will read. Sequences of an epoch that is not prepared are left out.
 * Reads and allocates nothing. Thread-safe. */
void data_advise(const struct data *d, int64_t position, int64_t count, bool loss_only);

/* *counted: the targets of these sequences that are not -1; held-out sequences behind the last have
 * none. Reads no token: only loss bytes, if there are any. The errors of data_batch. Allocates
 * nothing. Thread-safe. */
NODISCARD enum status data_count(const struct data *d, enum data_split split, int64_t position,
                                 int64_t count, int64_t *counted, struct err *e);
/* No target of the data is -1: data_count is T a sequence. */
bool data_counts_all(const struct data *d);

/* Whether the next epoch of each part is ready to be drawn, seen from training position `position`.
 * Only order = "documents" has something to make ready. Thread-safe, as the next one. */
bool data_prepared(const struct data *d, int64_t position);
/* Makes ready a slice of what is not, in less than a millisecond a part. No batch before `position`
 * should be drawn later: it would have to make its own epoch ready again. */
void data_prepare(const struct data *d, int64_t position);

/* What the data were opened with. */
struct document_options data_documents(const struct data *d);

/* The further sets, in the order of the options. A set has held-out sequences only. Borrowed. */
int64_t data_set_count(const struct data *d);
const struct data *data_set_at(const struct data *d, int64_t set);
const char *data_set_name(const struct data *d, int64_t set);

/* A file of the stream. Another machine can find it by its hashes. */
struct data_file {
    const char *path; /* as configured, without the root; borrowed from the data */
    int64_t bytes;
    int64_t set;      /* of which it is a file; -1: of the run's own data */
    /* Device, inode, and the times of the last change of bytes and of anything, in nanoseconds. If
     * all are equal, it is the same file, and it did not change between the two readings. */
    int64_t version[4];
    char sha256[65];
    char sample_sha256[65]; /* as data_sample_sha256() has it */
};
int64_t data_file_count(const struct data *d); /* also those of sets, which come last */
struct data_file data_file_at(const struct data *d, int64_t at); /* its digests are "" */

/* A fast check that a file is the one that another process hashed: SHA-256 in hex over 64 pieces of
 * 4 KiB, evenly spaced from the first byte to the last, or over all of a smaller file. Takes
 * milliseconds. ERR_IO for an unreadable or shortened file. */
NODISCARD enum status data_sample_sha256(const struct data *d, int64_t at, char hex[65],
                                         struct err *e);

/* The hash of the data, in hex: SHA-256 over every file's size and digest in order, or over the
 * generator's name and seed; sets are not in it. `files` receives data_file_count() entries, or is
 * NULL. Reads all files but those whose entry has its digests already, several at a time. The error
 * is that of the first file that failed. */
NODISCARD enum status data_sha256(const struct data *d, struct data_file *files, char hex[65],
                                  struct err *e);
/* The same of a set, from the entries that data_sha256 has filled. */
NODISCARD enum status data_set_sha256(const struct data *d, const struct data_file *files,
                                      int64_t set, char hex[65], struct err *e);

#endif
