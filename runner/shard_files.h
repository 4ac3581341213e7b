/* Token shards opened for reading: PREFIX.bin and PREFIX.idx, checked as training checks them, and
 * what `data tokenise` writes beside them, if it is there. */
#ifndef FP8LAB_RUNNER_SHARD_FILES_H
#define FP8LAB_RUNNER_SHARD_FILES_H

#include <jansson.h>

#include "model/ground/input_file.h"
#include "runner/base/paths.h"

struct data;

struct shard_files {
    char prefix[PATH_CAP];
    struct data *data;                  /* owned; has the next two */
    const struct input_file *bin, *idx;
    struct input_file loss;             /* owned; path NULL: there is no .loss */
    json_t *description;                /* of the .json; owned; NULL: there is none */
    int token_bytes;
    int64_t tokens, sequences, documents;
};

/* `path` is PREFIX, or one of its files. ERR_FORMAT for a damaged index, ERR_IO, ERR_CONFIG. After
 * an error the caller closes as well. */
NODISCARD enum status shard_files_open(struct shard_files *f, const char *path, struct err *e);
void shard_files_close(struct shard_files *f); /* allowed for a zeroed struct */

/* Reads the ends of n documents from number `first` on, 0 <= first, first + n <= documents:
 * end[i] is the number of tokens up to the end of document first + i. ERR_FORMAT if they do
 * not cover the sequences in order. */
NODISCARD enum status shard_ends(const struct shard_files *f, int64_t first, int64_t n,
                                 int64_t *end, struct err *e);

/* Reads ids at .. at+n-1 into out. */
NODISCARD enum status shard_ids(const struct shard_files *f, int64_t at, int64_t n, uint32_t *out,
                                struct err *e);

#endif
