/* The model on words: one thread's ids so far, and its memory of the words that it has met. */
#ifndef FP8LAB_RUNNER_INGEST_WORD_IDS_H
#define FP8LAB_RUNNER_INGEST_WORD_IDS_H

#include "runner/ingest/tokenizer_parts.h"

enum { WORDS_AHEAD = 32 + BLOCK_PIECES }; /* words that are looked up together */

struct word_ids {
    const struct tokenizer *t; /* borrowed */
    struct short_word *shorts; /* by hash; owned, as the next */
    struct long_word *longs;
    uint32_t *id;              /* the ids so far; owned */
    size_t count, room;
    struct bpe_work work;
    int64_t dropped;           /* characters without a token */
};

/* ERR_MEMORY. On an error nothing is owned. */
NODISCARD enum status word_ids_open(struct word_ids *w, const struct tokenizer *t, struct err *e);
void word_ids_close(struct word_ids *w);

/* Room for n more ids. */
NODISCARD enum status word_ids_room(struct word_ids *w, size_t n, struct err *e);

/* Appends the ids of `count` words, at most WORDS_AHEAD, none empty. The first begins at p; each
 * ends where the next begins. Bytes before `limit` may be read. */
NODISCARD enum status word_ids_add(struct word_ids *w, const uint8_t *p, const uint8_t *const *ends,
                                    int count, const uint8_t *limit, struct err *e);

#endif
