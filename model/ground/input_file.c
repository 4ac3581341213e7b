#include "model/ground/input_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status input_open(struct input_file *f, const char *path, struct err *e) {
    enum status st = OK;
    struct stat info;
    *f = (struct input_file){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would block */
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    char *copy = strdup(path);
    if (!copy) st = FAIL(e, ERR_MEMORY, "no host memory for a path");
    else if (fstat(fd, &info) != 0) st = FAIL(e, ERR_IO, "stat %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode)) st = FAIL(e, ERR_CONFIG, "%s is not a regular file", path);
    if (st != OK) {
        close(fd);
        free(copy);
        return st;
    }
    *f = (struct input_file){ .path = copy, .fd = fd, .bytes = info.st_size };
    return OK;
}

void input_close(struct input_file *f) {
    if (f->path) close(f->fd);
    free(f->path);
    *f = (struct input_file){ 0 };
}

/* The system may decline: then the read waits, as without it. */
void input_advise(const struct input_file *f, int64_t at, int64_t n) {
    (void)posix_fadvise(f->fd, at, n, POSIX_FADV_WILLNEED);
}

enum status input_check_size(const struct input_file *f, int64_t bytes, struct err *e) {
    if (bytes == f->bytes) return OK;
    return FAIL(e, ERR_IO, "%s: %lld bytes when it was opened, now %lld: it was changed while in "
                "use; restore the file, then resume or start again", f->path,
                (long long)f->bytes, (long long)bytes);
}

/* The error for a read that returned 0 bytes before the size at open. */
static enum status ends_early(const struct input_file *f, int64_t at, struct err *e) {
    struct stat info;
    bool shorter = fstat(f->fd, &info) == 0 && info.st_size < f->bytes;
    return input_check_size(f, shorter ? info.st_size : at, e);
}

enum status input_read(const struct input_file *f, int64_t at, int64_t n, void *out,
                       struct err *e) {
    assert(at >= 0 && n >= 0 && n <= f->bytes - at);
    for (char *to = out; n > 0;) {
        ssize_t got = pread(f->fd, to, (size_t)n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return FAIL(e, ERR_IO, "read %s: %s", f->path, strerror(errno));
        if (got == 0) return ends_early(f, at, e);
        to += got;
        at += got;
        n -= got;
    }
    return OK;
}
