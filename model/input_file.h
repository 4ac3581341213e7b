/* A file that is read when it is needed, at any time of a run. It is not mapped: touching a mapping
 * of a file that somebody truncates ends the process, reading it is an error that can be told. */
#ifndef FP8LAB_MODEL_INPUT_FILE_H
#define FP8LAB_MODEL_INPUT_FILE_H

#include "kernels/base.h"

struct input_file {
    char *path;    /* owned */
    int fd;        /* owned */
    int64_t bytes; /* when it was opened */
};

/* ERR_IO naming it, also for what is no regular file. On failure there is nothing to close. */
NODISCARD enum status input_open(struct input_file *f, const char *path, struct err *e);
void input_close(struct input_file *f); /* one that is all zero is fine */

/* Bytes at .. at+n-1, which must lie inside what it had when it was opened. Any number of threads.
 * ERR_IO with both sizes where the file has become shorter since. */
NODISCARD enum status input_read(const struct input_file *f, int64_t at, int64_t n, void *out,
                                 struct err *e);

/* Says that these bytes are read soon: the host fetches them ahead, if it likes. Does not wait. */
void input_expect(const struct input_file *f, int64_t at, int64_t n);

/* ERR_IO unless `bytes`, all that could be read of it, is what it had when it was opened. */
NODISCARD enum status input_whole(const struct input_file *f, int64_t bytes, struct err *e);

/* A little-endian number of `bytes` bytes. */
static inline uint64_t load_le(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    for (int i = bytes; i-- > 0;) x = x << 8 | p[i];
    return x;
}

#endif
