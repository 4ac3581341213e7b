/* Token ids as Megatron's indexed dataset, PREFIX.bin and PREFIX.idx, with a description beside it
 * in PREFIX.json; for conversations PREFIX.loss, a byte for each token: 1 if it carries loss, else
 * 0. The files get their names when all of them are complete and on disk. */
#ifndef FP8LAB_RUNNER_INGEST_SHARDS_H
#define FP8LAB_RUNNER_INGEST_SHARDS_H

#include <jansson.h>

#include "model/ground/sha256.h"

struct shards;

/* Bytes of an id in a vocabulary, by Megatron's rule (indexed_dataset.py, best_fitting_dtype):
 * 2 below 65,500, else 4. */
int shards_id_bytes(int64_t vocab);

/* Opens PREFIX.bin.part and so on, which are locked. What a killed run left of them is emptied; if
 * it was killed while it renamed them, the files without their index are removed. ERR_CONFIG if one
 * of the final files exists, ERR_STATE if another process writes them, ERR_IO. */
NODISCARD enum status shards_create(struct shards **out, const char *prefix, int id_bytes,
                                    bool loss, struct err *e);
/* Appends ids of id_bytes each, little endian; then the end of a document of `tokens` ids. */
NODISCARD enum status shards_add(struct shards *s, const void *ids, int64_t count, struct err *e);
NODISCARD enum status shards_add_loss(struct shards *s, const uint8_t *loss, int64_t count,
                                      struct err *e);
NODISCARD enum status shards_end_document(struct shards *s, int64_t tokens, struct err *e);

/* Takes back the last `tokens` ids, which no end of a document follows yet; there is no loss. */
NODISCARD enum status shards_take_back(struct shards *s, int64_t tokens, struct err *e);

int64_t shards_tokens(const struct shards *s);
int64_t shards_documents(const struct shards *s);
int64_t shards_loss_tokens(const struct shards *s);
/* Whether a killed run had left something. */
bool shards_took_over(const struct shards *s);

/* Writes the index, adds "shards" to the description (borrowed), and renames. ERR_IO. */
NODISCARD enum status shards_finish(struct shards *s, json_t *description, struct err *e);
/* Removes what is not finished; frees. NULL is fine. */
void shards_destroy(struct shards *s);

#endif
