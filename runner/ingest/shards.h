/* Token ids as Megatron's indexed dataset, PREFIX.bin and PREFIX.idx, with a description beside it
 * in PREFIX.json; for conversations PREFIX.loss, a byte for each token: 1 if it carries loss, else
 * 0. The files get their names when all of them are complete and on disk. */
#ifndef FP8LAB_RUNNER_INGEST_SHARDS_H
#define FP8LAB_RUNNER_INGEST_SHARDS_H

#include <jansson.h>

#include "model/ground/sha256.h"

struct shards;
struct part;

/* Bytes of an id in a vocabulary, by Megatron's rule (indexed_dataset.py, best_fitting_dtype):
 * 2 below 65,500, else 4. */
int shards_id_bytes(int64_t vocab);

/* ERR_CONFIG if a source is one of the .part files that shards_open() would take over. */
NODISCARD enum status shards_refuse(const char *prefix, const char *const *sources, int64_t count,
                                    struct err *e);
/* Opens PREFIX.bin.part and so on, which are locked, with what a killed run left of them. Then
 * shards_restore() or shards_begin() comes, before all others. ERR_CONFIG if one of the final files
 * exists, ERR_STATE if another process writes them, ERR_IO. */
NODISCARD enum status shards_open(struct shards **out, const char *prefix, int id_bytes, bool loss,
                                  struct err *e);
/* Whether a killed run had left something. */
bool shards_took_over(const struct shards *s);
/* What a killed run saved last; borrowed until the next call of this file. NULL: nothing, or it is
 * damaged, which *damaged says. */
const json_t *shards_saved(const struct shards *s, bool *damaged);
/* Goes back to that point. *damaged: the file that has other bytes than then, borrowed, or NULL. */
NODISCARD enum status shards_restore(struct shards *s, const char **damaged, struct err *e);
/* Begins with empty files; also after shards_restore(). */
NODISCARD enum status shards_begin(struct shards *s, struct err *e);
/* Begins to save: what is added so far, and `state` (taken; NULL: no memory) for shards_saved().
 * An error may come from a later call. */
NODISCARD enum status shards_save(struct shards *s, json_t *state, struct err *e);
/* Waits for the disk. Whether something is saved there, by this process or the last. */
bool shards_kept(struct shards *s);

/* Files of the caller's own, which are restored like the others, and removed at the end. */
enum shards_journal { SHARDS_SEEN, SHARDS_LEFT_OUT };
struct part *shards_journal(struct shards *s, enum shards_journal which);

/* Appends ids of id_bytes each, little endian; then the end of a document of `tokens` ids. */
NODISCARD enum status shards_add(struct shards *s, const void *ids, int64_t count, struct err *e);
NODISCARD enum status shards_add_loss(struct shards *s, const uint8_t *loss, int64_t count,
                                      struct err *e);
NODISCARD enum status shards_end_document(struct shards *s, int64_t tokens, struct err *e);

/* Remembers this point; then takes back the ids behind it, which no end of a document follows yet.
 * There is no loss. */
NODISCARD enum status shards_mark(struct shards *s, struct err *e);
NODISCARD enum status shards_take_back(struct shards *s, struct err *e);

int64_t shards_tokens(const struct shards *s);
int64_t shards_documents(const struct shards *s);
int64_t shards_loss_tokens(const struct shards *s);

/* Writes the index, adds "shards" to the description (borrowed), and renames. ERR_IO. */
NODISCARD enum status shards_finish(struct shards *s, json_t *description, struct err *e);
/* Removes what is not finished, unless shards_kept() and `keep`; frees. NULL is fine. */
void shards_destroy(struct shards *s, bool keep);

#endif
