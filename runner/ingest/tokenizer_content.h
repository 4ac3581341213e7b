/* Whether two tokenizers are the same. A file that another program wrote again, with other white
 * space, another order of keys or another form of its merges, gives the same ids. */
#ifndef FP8LAB_RUNNER_INGEST_TOKENIZER_CONTENT_H
#define FP8LAB_RUNNER_INGEST_TOKENIZER_CONTENT_H

#include <jansson.h>

#include "model/ground/sha256.h"
#include "runner/ingest/tokenizer.h"

/* "": not known. */
struct tokenizer_hash {
    char file[SHA256_HEX];    /* of its bytes; of the empty text for bytes */
    char content[SHA256_HEX]; /* of what in a tokenizer.json determines ids; else as `file` */
};

/* The hash of what determines ids: model, added tokens, normalizer, pre-tokenizer, post-processor.
 * Keys are sorted, null is as absent, and a merge has one form. `file`: a tokenizer.json. */
NODISCARD enum status tokenizer_content(const json_t *file, char out[SHA256_HEX], struct err *e);

struct tokenizer_hash tokenizer_hash_of(const struct tokenizer *t);
/* Those of the file at the path, or of "bytes"; not known if it cannot be read. */
struct tokenizer_hash tokenizer_hash_file(const char *path);
/* Those of a record: {sha256, content_sha256}. Earlier records lack the second. */
struct tokenizer_hash tokenizer_hash_read(const json_t *record);

/* Whether both are known. */
bool tokenizer_hash_known(const struct tokenizer_hash *a, const struct tokenizer_hash *b);
/* Whether the files are equal, or their contents if both are known. */
bool tokenizer_hash_equal(const struct tokenizer_hash *a, const struct tokenizer_hash *b);

#endif
