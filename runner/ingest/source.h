/* A file of text, or a pipe, as a stream: plain, gzip or zstd, or a tar of such text. Its hash is
 * made on the way. */
#ifndef FP8LAB_RUNNER_INGEST_SOURCE_H
#define FP8LAB_RUNNER_INGEST_SOURCE_H

#include "model/ground/sha256.h"
#include "runner/base/paths.h"
#include "runner/ingest/text_head.h"

struct source;

/* ERR_CONFIG for a file that cannot be opened, ERR_FORMAT for one that is no text (Parquet). */
NODISCARD enum status source_open(struct source **out, const char *path, struct err *e);
void source_close(struct source *s);

/* The next file in it: one, or each regular file of a tar. *name is borrowed until the next call:
 * the file's own name; outside a tar without .gz or .zst. *name is NULL behind the last. *inside:
 * it is in a tar. */
NODISCARD enum status source_next(struct source *s, const char **name, bool *inside,
                                  struct err *e);
/* Up to `room` bytes of that file; *n = 0 at its end. ERR_FORMAT for damage and truncation, and at
 * the first read for an archive that is not unpacked, such as a zip file or a tar in a tar. */
NODISCARD enum status source_read(struct source *s, void *out, size_t room, size_t *n,
                                  struct err *e);

/* The head of that file, as far as it was read, and its name for messages: "x.tar: a.txt". */
struct text_head source_head(const struct source *s, char name[2 * PATH_CAP]);

/* How much of the file on disk has been read. */
int64_t source_read_bytes(const struct source *s);
/* The hash of these bytes. It is the same whenever the same file is read as far. ERR_MEMORY. */
NODISCARD enum status source_so_far(const struct source *s, char sha256[SHA256_HEX],
                                    struct err *e);
/* After the last: the hash and size of the file on disk, all of which has been read. ERR_FORMAT if
 * a regular file has another size than when it was opened. */
NODISCARD enum status source_finish(struct source *s, char sha256[SHA256_HEX], int64_t *bytes,
                                    struct err *e);

#endif
