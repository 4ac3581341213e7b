/* What a file is by its first bytes, if they are no UTF-8: packed, an archive, tokens, arrays, or
 * text in UTF-16 or UTF-32. */
#ifndef FP8LAB_RUNNER_INGEST_SOURCE_KIND_H
#define FP8LAB_RUNNER_INGEST_SOURCE_KIND_H

#include <stdbool.h>
#include <stddef.h>

struct source_kind {
    const char *name;    /* "a gzip file"; NULL: none of these kinds. Static, as the next one */
    const char *instead; /* what to use in its place, for an error; NULL: unpack it */
    bool opened;         /* source.c unpacks it */
};

/* `n` first bytes; fewer than INPUT_KIND_HEAD (model/ground/input_kind.h) only of a file that has
 * no more. */
struct source_kind source_kind(const void *head, size_t n);

#endif
