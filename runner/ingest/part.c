#include "runner/ingest/part.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/run_files.h"

enum { BLOCK = 1 << 16 };

/* Whether the open file still has the name: another process may have finished and renamed it. */
static bool has_name(const struct part *p) {
    struct stat is, named;
    return fstat(p->fd, &is) == 0 && stat(p->path, &named) == 0 && is.st_ino == named.st_ino;
}

enum status part_open(struct part *p, bool *gone, struct err *e) {
    *gone = false;
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (p->fd < 0) return FAIL(e, ERR_IO, "create %s: %s", p->path, strerror(errno));
    if (flock(p->fd, LOCK_EX | LOCK_NB) != 0) {
        part_close(p, false); /* it is the other's */
        return FAIL(e, ERR_STATE, "another process writes %s; name another --to", p->path);
    }
    *gone = !has_name(p);
    if (*gone) part_close(p, false);
    return OK;
}

static void forget_mark(struct part *p) {
    sha256_destroy(p->mark);
    p->mark = NULL;
}

void part_close(struct part *p, bool remove) {
    if (p->fd >= 0) {
        if (remove) unlink(p->path);
        close(p->fd);
    }
    sha256_destroy(p->sha);
    forget_mark(p);
    p->sha = NULL;
    p->fd = -1;
}

static enum status new_hash(struct part *p, struct err *e) {
    forget_mark(p);
    sha256_destroy(p->sha);
    p->sha = NULL;
    p->bytes = 0;
    return sha256_create(&p->sha, e);
}

static enum status cut(struct part *p, int64_t bytes, struct err *e) {
    if (ftruncate(p->fd, bytes) == 0 && lseek(p->fd, bytes, SEEK_SET) == bytes) return OK;
    return FAIL(e, ERR_IO, "shorten %s: %s", p->path, strerror(errno));
}

enum status part_begin(struct part *p, struct err *e) {
    static const char ZERO[64];
    TRY(new_hash(p, e));
    TRY(cut(p, 0, e));
    return write_all(p->fd, ZERO, (size_t)p->head, p->path, e);
}

enum status part_add(struct part *p, const void *bytes, size_t n, struct err *e) {
    TRY(write_all(p->fd, bytes, n, p->path, e));
    sha256_add(p->sha, bytes, n);
    p->bytes += (int64_t)n;
    return OK;
}

enum status part_mark(struct part *p, struct err *e) {
    forget_mark(p);
    p->mark_bytes = p->bytes;
    return sha256_copy(&p->mark, p->sha, e);
}

enum status part_take_back(struct part *p, struct err *e) {
    if (!p->mark) return FAIL(e, ERR_STATE, "%s has no mark", p->path);
    sha256_destroy(p->sha);
    p->sha = p->mark;
    p->mark = NULL;
    p->bytes = p->mark_bytes;
    return cut(p, p->head + p->bytes, e);
}

json_t *part_state(const struct part *p) {
    char hex[SHA256_HEX];
    if (sha256_so_far(p->sha, hex, NULL) != OK) return NULL;
    return json_pack("{s:I,s:s}", "bytes", (json_int_t)p->bytes, "sha256", hex);
}

/* Adds the first bytes of the file to the hash; fewer if it is shorter. */
static enum status read_again(struct part *p, int64_t bytes, struct err *e) {
    unsigned char block[BLOCK];
    while (p->bytes < bytes) {
        int64_t room = bytes - p->bytes < BLOCK ? bytes - p->bytes : BLOCK;
        ssize_t n = pread(p->fd, block, (size_t)room, p->head + p->bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return FAIL(e, ERR_IO, "read %s: %s", p->path, strerror(errno));
        if (n == 0) break;
        sha256_add(p->sha, block, (size_t)n);
        p->bytes += n;
    }
    return OK;
}

enum status part_restore(struct part *p, const json_t *state, bool *intact, struct err *e) {
    int64_t bytes = json_int(state, "bytes");
    char hex[SHA256_HEX];
    *intact = false;
    TRY(new_hash(p, e));
    TRY(read_again(p, bytes, e));
    TRY(sha256_so_far(p->sha, hex, e));
    *intact = p->bytes == bytes && !strcmp(hex, json_text(state, "sha256", ""));
    return *intact ? cut(p, p->head + bytes, e) : OK;
}
