/* A new file that the ranks of a job write together, each its own byte ranges.
 *
 * Rank 0 creates it with its full size and writes a random word at the start. A rank that reads the
 * same word under the path sees the same file and writes to it. Any other rank must send its bytes
 * to a rank that sees the file. Its host does not share the file system, or its NFS client caches
 * an old directory (for up to a minute). Ranks should write whole pages at page boundaries, because
 * network file systems merge the writes of two hosts by pages. */
#ifndef FP8LAB_MODEL_SHARED_FILE_H
#define FP8LAB_MODEL_SHARED_FILE_H

#include "model/pieces.h"

struct shared_file {
    const char *path; /* borrowed */
    int fd;           /* -1: this rank does not see the file */
    uint32_t *seen;   /* owned: [world], whether each rank sees it; equal on every rank */
};

/* Every rank calls it. An error on one rank is an error on all; then only shared_file_free is
 * needed. ERR_IO on rank 0 if the file exists or cannot be created. */
NODISCARD enum status shared_file_create(struct shared_file *f, const struct pieces *p,
                                         const char *path, int64_t bytes, struct err *e);
/* Bytes at .. at+n-1, by a rank that sees the file. ERR_IO, disk full included. */
NODISCARD enum status shared_file_write(const struct shared_file *f, int64_t at, const void *data,
                                        int64_t n, struct err *e);
/* Syncs this rank's writes to disk. ERR_IO. Not collective. */
NODISCARD enum status shared_file_sync(const struct shared_file *f, struct err *e);
/* Closes it. Not collective. Allowed after any result of shared_file_create. */
void shared_file_free(struct shared_file *f);

#endif
