/* Files of token ids: which format a file has, and what its ids are. Entropies are counted over
 * ids, not over bytes: entropies of the bytes say nothing about a model of the tokens. */
#ifndef FP8LAB_RUNNER_TOKEN_STATS_H
#define FP8LAB_RUNNER_TOKEN_STATS_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

enum token_format { TOKENS_NONE, TOKENS_MEGATRON, TOKENS_LLMC };

/* "megatron", "llmc": the words of an experiment's `data`. "text" of TOKENS_NONE. */
const char *token_format_name(enum token_format format);

/* The format of a file. Megatron's: PATH.idx beside PATH.bin begins with its magic; `path` may end
 * in .bin or without it. llm.c's: the shard has its magic. ERR_FORMAT for an index on its own, and
 * for llm.c's files of other kinds; the error says what to do. A file that cannot be opened is
 * TOKENS_NONE. */
NODISCARD enum status token_format_find(const char *path, enum token_format *out, struct err *e);

struct token_stats {
    int64_t bytes, tokens;
    int64_t sequences, documents; /* Megatron's index; 0 of llm.c */
    int64_t distinct, id_max;     /* different ids, the largest of them */
    int token_bytes;
    double unigram_nats;          /* entropy of a token */
    char sha256[SHA256_HEX];      /* of the file with the ids */
};

/* Checks the file as training would, then reads it once. ERR_FORMAT, also for an id of 2^22 or
 * more, which no vocabulary has; ERR_IO, ERR_CONFIG for fewer than two tokens, ERR_MEMORY. */
NODISCARD enum status token_stats_file(const char *path, enum token_format format,
                                       struct token_stats *out, struct err *e);

#endif
