/* An input file that is read on demand during a run. It is not mapped: if the file is truncated, a
 * mapping kills the process with SIGBUS, while a read returns an error. */
#ifndef FP8LAB_GROUND_INPUT_FILE_H
#define FP8LAB_GROUND_INPUT_FILE_H

#include "kernels/base.h"
#include "model/ground/sha256.h"

struct input_file {
    char *path;    /* owned */
    int fd;        /* owned */
    int64_t bytes; /* when it was opened */
};

/* ERR_IO naming the file, also if it is not a regular file. After an error there is nothing to
 * close. */
NODISCARD enum status input_open(struct input_file *f, const char *path, struct err *e);
void input_close(struct input_file *f); /* allowed for a zeroed struct */

/* Reads bytes at .. at+n-1, which must lie within the size at open. Thread-safe. ERR_IO with both
 * sizes if the file has shrunk. */
NODISCARD enum status input_read(const struct input_file *f, int64_t at, int64_t n, void *out,
                                 struct err *e);

/* Asks the system to have bytes at .. at+n-1 in memory soon, and does not wait for them. */
void input_advise(const struct input_file *f, int64_t at, int64_t n);

/* ERR_IO unless `bytes`, the bytes that could be read, equals the size at open. */
NODISCARD enum status input_check_size(const struct input_file *f, int64_t bytes, struct err *e);

/* SHA-256 of 64 pieces of 4 KiB, spread over the file; of all bytes if they are no more. */
NODISCARD enum status input_sample_sha256(const struct input_file *f, char hex[SHA256_HEX],
                                          struct err *e);

/* A little-endian number of `bytes` bytes. */
static inline uint64_t load_le(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;) x = x << 8 | p[i];
    return x;
}

#endif
