/* Megatron datasets for tests: PREFIX.bin with i32 ids, PREFIX.idx, and PREFIX.loss if asked. */
#ifndef FP8LAB_TESTS_SUPPORT_SHARDS_H
#define FP8LAB_TESTS_SUPPORT_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

enum { SHARD_DOCUMENTS_MAX = 3000, SHARD_TOKENS_MAX = 1 << 16 };

struct shard {
    const char *prefix;
    int64_t documents;
    const int *length;    /* tokens of each */
    int32_t first, vocab; /* ids count up from first, so an id names its place; with a vocab they
                             are random below it */
    bool split;           /* document 1 is two sequences */
    bool loss;            /* writes PREFIX.loss: two of three tokens count */
};

/* Writes the files; a test fails if it cannot. Returns the number of tokens. */
int64_t shard_put(const struct shard *s);
/* Removes them. */
void shard_drop(const char *prefix);

/* Whether the token at this place of a shard with loss counts. */
static inline bool shard_counts(int64_t token) { return token * 7 % 3 != 0; }

#endif
