/* Byte-pair encoding: a table of pairs, and the merging of the symbols of one word.
 *
 * The rule, of `tokenizers` and of tiktoken alike: while two neighbours are a pair of the table,
 * the pair of the lowest rank is merged, the leftmost of equals first. */
#ifndef FP8LAB_RUNNER_INGEST_BPE_H
#define FP8LAB_RUNNER_INGEST_BPE_H

#include "kernels/base.h"

struct bpe; /* the table; read-only once it is full */

/* Room for `count` pairs. ERR_MEMORY. */
NODISCARD enum status bpe_create(struct bpe **out, int64_t count, struct err *e);
void bpe_destroy(struct bpe *b);

/* The pair (left, right) becomes `id`. A pair that is set again takes the last rank and id. */
void bpe_set(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
/* Whether the table has the pair. */
bool bpe_has(const struct bpe *b, uint32_t left, uint32_t right);

/* byte_id[i], which is borrowed until bpe_destroy, is the symbol of byte i; all pairs are set. For
 * bpe_merge_bytes. ERR_MEMORY. */
NODISCARD enum status bpe_set_bytes(struct bpe *b, const uint32_t byte_id[256], struct err *e);

/* Memory of one thread for long words. Zeroed at first; bpe_work_free frees what it owns. */
struct bpe_work {
    uint32_t *next, *previous; /* the symbols of a word as a list */
    uint64_t *entry;           /* candidates, rank << 32 | position, in ascending runs */
    struct bpe_run { uint64_t head; uint32_t at, end; } *heap;
    size_t room;               /* symbols that the arrays have room for */
};
void bpe_work_free(struct bpe_work *w);

/* Merges ids[0..n-1] in place and returns how many are left through *out. n < 2^30. Time is
 * O(n log n), and O(n) for a word of one repeated character. ERR_MEMORY. */
NODISCARD enum status bpe_merge(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n,
                                size_t *out, struct err *e);
/* The same for the symbols of the bytes p[0..n-1], through ids[0..n-1]. */
NODISCARD enum status bpe_merge_bytes(const struct bpe *b, struct bpe_work *w, const uint8_t *p,
                                      size_t n, uint32_t *ids, size_t *out, struct err *e);

#endif
