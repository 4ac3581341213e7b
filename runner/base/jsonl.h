/* Reading JSON lines: one object a line, appended and flushed during a run. A killed process may
 * leave an incomplete last line, which every reader here ignores. */
#ifndef FP8LAB_RUNNER_BASE_JSONL_H
#define FP8LAB_RUNNER_BASE_JSONL_H

#include <jansson.h>
#include <stdio.h>

#include "kernels/base.h"

/* A record with the fingerprints of ten thousand tensors has 200 kB. A line longer than this limit
 * is an error. */
enum { JSONL_LINE_LIMIT = 16 << 20 };

struct jsonl {
    FILE *file;       /* borrowed */
    const char *name; /* borrowed; for messages */
    char *line;       /* owned */
    size_t capacity;
    int64_t number;   /* of the last line read, from 1 */
};

void jsonl_open(struct jsonl *j, FILE *file, const char *name);
void jsonl_close(struct jsonl *j); /* frees the line; the file stays open */

/* The next object, owned by the caller; *out is NULL at the end. A last line without a newline is
 * incomplete and counts as the end. ERR_FORMAT, with file and line, for any other line that is not
 * an object or is longer than JSONL_LINE_LIMIT. */
NODISCARD enum status jsonl_next(struct jsonl *j, json_t **out, struct err *e);

#endif
