/* Reading a run: from a bundle file (tar, zstd or plain) or from a run directory, finished or live,
 * whichever `path` is. Entry by entry, streaming, in the bundle's order for a directory too; the
 * source is treated as hostile (guard.h) and memory stays flat. */
#ifndef FP8LAB_RUNNER_BUNDLE_BUNDLE_READER_H
#define FP8LAB_RUNNER_BUNDLE_BUNDLE_READER_H

#include "kernels/base.h"
#include "runner/bundle/guard.h"

struct bundle;

struct bundle_entry {
    const char *path; /* "data/run.json"; borrowed until the next call; NULL: there are no more */
    int64_t size;     /* bytes; what the archive declares, checked while reading */
};

/* Opens path. ERR_IO when it is not there or unreadable; ERR_FORMAT when it is neither a directory
 * nor an archive of ours, naming what it looks like. */
NODISCARD enum status bundle_open(const char *path, const struct bundle_limits *limits,
                                  struct bundle **out, struct err *e);
void bundle_close(struct bundle *b); /* NULL is fine */

/* The next regular file. ERR_FORMAT for a refused entry or a truncated archive; after an error the
 * bundle can only be closed. */
NODISCARD enum status bundle_next(struct bundle *b, struct bundle_entry *entry, struct err *e);

/* The next bytes of the current entry; *got is 0 at its end. What is left unread is skipped by
 * bundle_next. */
NODISCARD enum status bundle_read(struct bundle *b, void *buffer, size_t n, size_t *got,
                                  struct err *e);

/* The rest of the current entry in one buffer, owned by the caller, NUL-terminated beyond *n.
 * ERR_FORMAT when it has more than `limit` bytes. */
NODISCARD enum status bundle_read_all(struct bundle *b, int64_t limit, char **out, size_t *n,
                                      struct err *e);

/* The name of the folder in the archive (known after the first entry), or of the directory. */
const char *bundle_folder(const struct bundle *b);
bool bundle_is_directory(const struct bundle *b);

#endif
