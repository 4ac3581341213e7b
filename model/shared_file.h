/* A new file that the ranks of a job write together, each in places that nobody else writes.
 *
 * Rank 0 creates it at its full size and puts a random word in front. A rank that reads this word
 * under the same path sees the same file and writes there itself; one that does not (its host does
 * not share the file system, or still remembers another directory under this name, as NFS clients
 * do for a minute) has to hand its bytes to another rank. Ranks should write in multiples of a
 * page, from multiples of a page on: network file systems put together what two hosts write by
 * pages. */
#ifndef FP8LAB_MODEL_SHARED_FILE_H
#define FP8LAB_MODEL_SHARED_FILE_H

#include "model/pieces.h"

struct shared_file {
    const char *path; /* borrowed */
    int fd;           /* -1: not to be seen from here */
    uint32_t *seen;   /* owned: [world], whether a rank sees it; the same on every rank */
};

/* All ranks call it; it fails on all if it fails on one, and then only shared_file_free is needed.
 * ERR_IO on rank 0 where the file exists or cannot be made. */
NODISCARD enum status shared_file_create(struct shared_file *f, const struct pieces *p,
                                         const char *path, int64_t bytes, struct err *e);
/* Bytes at .. at+n-1, by a rank that sees the file. ERR_IO, disk full included. */
NODISCARD enum status shared_file_write(const struct shared_file *f, int64_t at, const void *data,
                                        int64_t n, struct err *e);
/* What this rank has written is on the disk on return. ERR_IO. Not collective. */
NODISCARD enum status shared_file_sync(const struct shared_file *f, struct err *e);
/* Closes it, not collective; fine at any time after shared_file_create began. */
void shared_file_free(struct shared_file *f);

#endif
