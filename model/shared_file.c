#include "model/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

struct word { unsigned char byte[16]; };

/* Rank 0. */
static enum status create(struct shared_file *f, int64_t bytes, struct word *word, struct err *e) {
    if (getrandom(word, sizeof *word, 0) != (ssize_t)sizeof *word)
        return FAIL(e, ERR_IO, "no random bytes from the kernel: %s", strerror(errno));
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->fd < 0) return FAIL(e, ERR_IO, "create %s: %s", f->path, strerror(errno));
    if (ftruncate(f->fd, bytes) != 0)
        return FAIL(e, ERR_IO, "create %s with %lld bytes: %s", f->path, (long long)bytes,
                    strerror(errno));
    TRY(shared_file_write(f, 0, word, sizeof *word, e));
    return shared_file_sync(f, e);
}

/* The other ranks. After any error the rank does not see the file. */
static void find(struct shared_file *f, const struct word *word) {
    struct word found;
    f->fd = open(f->path, O_RDWR | O_CLOEXEC);
    if (f->fd < 0) return;
    ssize_t n = pread(f->fd, &found, sizeof found, 0);
    if (n == (ssize_t)sizeof found && memcmp(&found, word, sizeof found) == 0) return;
    close(f->fd);
    f->fd = -1;
}

enum status shared_file_create(struct shared_file *f, const struct pieces *p, const char *path,
                               int64_t bytes, struct err *e) {
    struct word word = { { 0 } };
    enum status st = OK;
    *f = (struct shared_file){ .path = path, .fd = -1,
                               .seen = calloc((size_t)p->world, sizeof *f->seen) };
    if (!f->seen) st = FAIL(e, ERR_MEMORY, "no host memory to write %s", path);
    if (st == OK && p->rank == 0) st = create(f, bytes, &word, e);
    TRY(pieces_agree(p, st, path, e));
    TRY(pieces_broadcast(p, &word, sizeof word, e));
    if (p->rank != 0) find(f, &word);
    f->seen[p->rank] = f->fd >= 0;
    return pieces_join(p, f->seen, p->world, e);
}

enum status shared_file_write(const struct shared_file *f, int64_t at, const void *data, int64_t n,
                              struct err *e) {
    const char *from = data;
    while (n > 0) {
        ssize_t done = pwrite(f->fd, from, (size_t)n, at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return FAIL(e, ERR_IO, "write %s: %s", f->path, strerror(errno));
        from += done;
        at += done;
        n -= done;
    }
    return OK;
}

enum status shared_file_sync(const struct shared_file *f, struct err *e) {
    if (fsync(f->fd) == 0) return OK;
    return FAIL(e, ERR_IO, "sync %s: %s", f->path, strerror(errno));
}

void shared_file_free(struct shared_file *f) {
    if (f->fd >= 0) close(f->fd);
    free(f->seen);
    *f = (struct shared_file){ .fd = -1 };
}
