/* Statistics of a text: its bytes, and how well byte frequencies alone predict them. A trained
 * model's loss in nats per byte is compared with these figures. */
#ifndef FP8LAB_RUNNER_TEXT_STATS_H
#define FP8LAB_RUNNER_TEXT_STATS_H

#include "kernels/base.h"
#include "model/ground/sha256.h"
#include "runner/ingest/text_head.h"

struct text_stats {
    int64_t bytes;
    int64_t distinct;        /* byte values that occur, 0..256 */
    int64_t controls;        /* see text_is_control(); text has almost none */
    struct text_head head;
    double unigram_nats;     /* entropy of a byte, H(b); 0 for an empty text */
    double bigram_nats;      /* entropy of a byte given the one before it, H(b | a) */
    char sha256[SHA256_HEX]; /* of the file's bytes */
};

/* Reads the whole file once with a fixed amount of memory; the file is regular or a pipe. Both
 * entropies are of this text's own frequencies. They are a lower bound for a model of that order on
 * this text, and no estimate for other text. ERR_IO or ERR_MEMORY. */
NODISCARD enum status text_stats_file(const char *path, struct text_stats *out, struct err *e);

/* The same of n bytes in memory; sha256 is "". `path` is for the error, ERR_MEMORY. */
NODISCARD enum status text_stats_memory(const void *text, int64_t n, const char *path,
                                        struct text_stats *out, struct err *e);

/* -sum p log p of n counts that sum to `total`, in nats; 0 for a total of 0. */
double text_entropy(const int64_t *count, int64_t n, int64_t total);

#endif
