/* What a text is before anything is learned from it: its bytes, and how well counting alone
 * predicts them. A trained model's loss in nats per byte is read against these. */
#ifndef FP8LAB_RUNNER_TEXT_STATS_H
#define FP8LAB_RUNNER_TEXT_STATS_H

#include "kernels/base.h"
#include "model/sha256.h"

struct text_stats {
    int64_t bytes;
    int64_t distinct;        /* byte values that occur, 0..256 */
    int64_t controls;        /* bytes below 32 but tab to return and escape: no text has them */
    double unigram_nats;     /* entropy of a byte, H(b); 0 for an empty text */
    double bigram_nats;      /* entropy of a byte given the one before it, H(b | a) */
    char sha256[SHA256_HEX]; /* of the file's bytes */
};

/* Reads the whole file once, in a fixed amount of memory. Both entropies are those of the text's
 * own frequencies, so that they are a lower bound for a model of that order, not an estimate for
 * other text. Text comes from a regular file or a pipe. ERR_IO or ERR_MEMORY. */
NODISCARD enum status text_stats_file(const char *path, struct text_stats *out, struct err *e);

/* -sum p log p of n counts that sum to `total`, in nats; 0 for a total of 0. */
double text_entropy(const int64_t *count, int64_t n, int64_t total);

#endif
