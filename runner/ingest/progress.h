/* How far an ingestion is, as shards_save() keeps it: which work it is, where reading stands, and
 * what has been counted. */
#ifndef FP8LAB_RUNNER_INGEST_PROGRESS_H
#define FP8LAB_RUNNER_INGEST_PROGRESS_H

#include <jansson.h>

#include "runner/ingest/tokenise_options.h"

/* A place behind a batch. Batches are cut by the text alone, so their number is enough. */
struct progress_point {
    int64_t batches;             /* read so far; 0: no place */
    int64_t source;              /* index of the file of the last one */
    char read_sha256[SHA256_HEX]; /* of all that has been read, in that order */
};

/* What is written behind a point. */
struct progress {
    struct progress_point at;
    struct tokenise_result *counts; /* borrowed */
    int64_t *documents;             /* [paths] of each file; borrowed */
    int64_t open_tokens, open_text; /* of a document that goes on behind it */
};

/* *out = all that determines what is written; owned. NULL if a file cannot be read twice, as a
 * pipe. ERR_MEMORY. */
NODISCARD enum status progress_work(const struct tokenise_options *o, int id_bytes, json_t **out,
                                    struct err *e);
/* The member in which two works differ, or NULL. */
const char *progress_difference(const json_t *work, const json_t *saved);

/* New reference; NULL: no memory. */
json_t *progress_json(const struct progress *p, json_t *work);
/* The reverse. ERR_FORMAT if `saved` is not of these options. */
NODISCARD enum status progress_take(struct progress *p, const struct tokenise_options *o,
                                    const json_t *saved, struct err *e);

#endif
