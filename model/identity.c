/* SHA-256 of weights and of data. A file of its own, so that a program that only trains does not
 * need libcrypto. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model/data_source.h"
#include "model/ground/parallel.h"
#include "model/ground/sha256.h"
#include "model/trainer.h"

/* ---- weights ---- */

/* Read-back slots that no step uses: one piece is hashed while the next is transferred. */
enum { HASH_SLOT = IN_FLIGHT_MAX };
static_assert(HASH_SLOT + 1 < READBACK_SLOTS && (int)PIECE_BYTES <= (int)READBACK_BYTES,
              "two pieces have a place");

static enum status hash_param(struct trainer *t, const struct param *p, struct sha256 *sha,
                              unsigned char *host, struct err *e) {
    const struct tensor *x = &p->own_value;
    char head[160];
    bool here = false; /* the slot that receives the next piece */
    int n = snprintf(head, sizeof head, "%s %s %lld %lld\n", p->name, dtype_name(x->dtype),
                     (long long)p->rows, (long long)p->cols);
    sha256_add(sha, head, (size_t)n);
    struct holding held = holding_of(&t->params, p, x->data, dtype_bytes(x->dtype), 1);
    int64_t bytes = param_count(p) * dtype_bytes(x->dtype);
    int64_t coming = 0;
    for (int64_t at = 0, next; at < bytes || coming; at += next, coming = next) {
        int slot = HASH_SLOT + here;
        next = 0;
        if (at < bytes)
            TRY(pieces_queue(&t->pieces, &held, at, bytes - at, HASH_SLOT + !here, &next, e));
        here = !here;
        if (!coming) continue;
        TRY(t->backend->ops->readback_fetch(t->backend, slot, host, e));
        sha256_add(sha, host, (size_t)coming);
    }
    return OK;
}

enum status trainer_weights_sha256(struct trainer *t, char hex[65], struct err *e) {
    TRY(trainer_check_idle(t, e));
    struct sha256 *sha = NULL;
    unsigned char *host = malloc(PIECE_BYTES);
    if (!host) return FAIL(e, ERR_MEMORY, "no host memory for a buffer to hash");
    enum status st = sha256_create(&sha, e);
    for (int i = 0; st == OK && i < t->params.count; i++)
        st = hash_param(t, &t->params.param[i], sha, host, e);
    if (st == OK) sha256_finish(sha, hex);
    sha256_destroy(sha);
    free(host);
    return st;
}

/* ---- data ---- */

/* A file of the data or of a set. */
struct located {
    const struct data *of;
    int64_t at, set; /* -1: of the data themselves */
};

static struct located locate(const struct data *d, int64_t at) {
    struct located l = { d, at, -1 };
    for (int64_t i = 0; l.at >= l.of->file_count; i++) {
        l.at -= l.of->file_count;
        l.of = d->set[i];
        l.set = i;
    }
    return l;
}

static const struct input_file *file_of(const struct data *d, int64_t at) {
    struct located l = locate(d, at);
    return &l.of->file[l.at];
}

int64_t data_file_count(const struct data *d) {
    int64_t n = d->file_count;
    for (int64_t i = 0; i < d->set_count; i++) n += d->set[i]->file_count;
    return n;
}

static int64_t nanoseconds(struct timespec t) {
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

struct data_file data_file_at(const struct data *d, int64_t at) {
    const struct input_file *f = file_of(d, at);
    struct data_file file = { .path = f->path + (d->root ? strlen(d->root) + 1 : 0),
                              .bytes = f->bytes, .set = locate(d, at).set };
    struct stat now;
    if (fstat(f->fd, &now) != 0) return file;
    file.version[0] = (int64_t)now.st_dev;
    file.version[1] = (int64_t)now.st_ino;
    file.version[2] = nanoseconds(now.st_mtim);
    file.version[3] = nanoseconds(now.st_ctim);
    return file;
}

enum status data_sample_sha256(const struct data *d, int64_t at, char hex[65], struct err *e) {
    return input_sample_sha256(file_of(d, at), hex, e);
}

static enum status hash_file(const struct data *d, int64_t at, struct data_file *out,
                             struct err *e) {
    const struct input_file *f = file_of(d, at);
    int64_t bytes;
    *out = data_file_at(d, at);
    if (lseek(f->fd, 0, SEEK_SET) != 0)
        return FAIL(e, ERR_IO, "seek %s: %s", f->path, strerror(errno));
    TRY(sha256_fd(f->fd, f->path, out->sha256, &bytes, e));
    TRY(input_check_size(f, bytes, e));
    return data_sample_sha256(d, at, out->sample_sha256, e);
}

/* Less is hashed by one thread. */
enum { HASH_ALONE_BYTES = 64 << 20 };

struct hashing {
    const struct data *d;
    struct data_file *files; /* [data_file_count]; an entry with digests is done */
};

static enum status hash_one(void *user, int64_t i, struct err *e) {
    const struct hashing *h = user;
    return *h->files[i].sha256 ? OK : hash_file(h->d, i, &h->files[i], e);
}

/* Threads that are worth their start: one for each file to read, at most one for each processor. */
static int helpful_threads(const struct data *d, const struct data_file *files) {
    int64_t bytes = 0;
    int unread = 0, here = parallel_processors();
    for (int64_t i = 0; i < data_file_count(d) && unread < PARALLEL_MAX; i++) {
        unread += !*files[i].sha256;
        bytes += *files[i].sha256 ? 0 : file_of(d, i)->bytes;
    }
    if (bytes < HASH_ALONE_BYTES) return 1;
    return unread < here ? unread : here;
}

static enum status hash_all(const struct data *d, struct data_file *files, struct err *e) {
    struct hashing h = { d, files };
    return parallel_each(data_file_count(d), helpful_threads(d, files), hash_one, &h, e);
}

/* Sizes and digests of the files of a set; -1: of the data themselves. */
static void add_digests(struct sha256 *sha, const struct data *d, const struct data_file *files,
                        int64_t set) {
    char line[96];
    for (int64_t i = 0; i < data_file_count(d); i++) {
        if (locate(d, i).set != set) continue;
        int n = snprintf(line, sizeof line, "%lld %s\n", (long long)files[i].bytes,
                         files[i].sha256);
        sha256_add(sha, line, (size_t)n);
    }
}

static enum status hash_data(const struct data *d, struct data_file *files, char hex[65],
                             struct err *e) {
    char line[96];
    struct sha256 *sha = NULL;
    TRY(hash_all(d, files, e));
    TRY(sha256_create(&sha, e));
    add_digests(sha, d, files, -1);
    if (d->kind == DATA_SYNTHETIC) {
        int n = snprintf(line, sizeof line, "synthetic 1 %llu\n",
                         (unsigned long long)d->synthetic_seed);
        sha256_add(sha, line, (size_t)n);
    }
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}

enum status data_set_sha256(const struct data *d, const struct data_file *files, int64_t set,
                            char hex[65], struct err *e) {
    struct sha256 *sha = NULL;
    TRY(sha256_create(&sha, e));
    add_digests(sha, d, files, set);
    sha256_finish(sha, hex);
    sha256_destroy(sha);
    return OK;
}

enum status data_sha256(const struct data *d, struct data_file *files, char hex[65],
                        struct err *e) {
    if (files) return hash_data(d, files, hex, e);
    int64_t count = data_file_count(d);
    struct data_file *own = calloc((size_t)count + 1, sizeof *own);
    if (!own) return FAIL(e, ERR_MEMORY, "%lld files of data", (long long)count);
    enum status st = hash_data(d, own, hex, e);
    free(own);
    return st;
}
