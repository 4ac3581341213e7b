/* Reads a run from a bundle file (tar, zstd or plain) or from a run directory, finished or live.
 * Entries stream in the bundle's order, from a directory too. The source is treated as hostile
 * (guard.h), and memory stays constant. */
#ifndef FP8LAB_RUNNER_BUNDLE_BUNDLE_READER_H
#define FP8LAB_RUNNER_BUNDLE_BUNDLE_READER_H

#include "kernels/base.h"
#include "runner/bundle/guard.h"

struct bundle;

struct bundle_entry {
    const char *path; /* borrowed until the next call; NULL: no more entries */
    int64_t size;     /* bytes, as the archive declares; checked while reading */
};

/* Opens path. ERR_IO if it is absent or cannot be read. ERR_FORMAT if it is neither a directory nor
 * a tar or zstd file; the text names the type found. */
NODISCARD enum status bundle_open(const char *path, const struct bundle_limits *limits,
                                  struct bundle **out, struct err *e);
void bundle_close(struct bundle *b); /* b may be NULL. */

/* The next regular file. ERR_FORMAT for a refused entry or a truncated archive; after an error the
 * bundle can only be closed. */
NODISCARD enum status bundle_next(struct bundle *b, struct bundle_entry *entry, struct err *e);

/* The next bytes of the current entry; *got is 0 at its end. bundle_next skips unread bytes. */
NODISCARD enum status bundle_read(struct bundle *b, void *buffer, size_t n, size_t *got,
                                  struct err *e);

/* The rest of the current entry in one buffer, owned by the caller, with a NUL behind *n bytes.
 * ERR_FORMAT if it has more than `limit` bytes. */
NODISCARD enum status bundle_read_all(struct bundle *b, int64_t limit, char **out, size_t *n,
                                      struct err *e);

/* The name of the archive's folder (known after the first entry), or of the directory. */
const char *bundle_folder(const struct bundle *b);
bool bundle_is_directory(const struct bundle *b);

#endif
