/* The index is PREFIX.idx: 9 B magic, u64 version 1, u8 dtype, u64 sequences S, u64 documents, i32
 * length[S], i64 byte_pointer[S], i64 document_index[S + 1] (Megatron-LM, indexed_dataset.py). A
 * document is one sequence here. Lengths are written as they come, so memory does not grow. */
#include "runner/ingest/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

enum { BIN, IDX, JSON, LOSS, FILES, INDEX_HEADER = 34, PIECE = 1 << 13 };
static const char *const SUFFIX[FILES] = { "bin", "idx", "json", "loss" };

/* Of renaming. They are opened from the end: who has the index may write the others. */
static const int ORDER[FILES] = { BIN, LOSS, JSON, IDX };

struct shards {
    char prefix[PATH_CAP];
    int fd[FILES];
    int id_bytes;
    int64_t tokens, documents, losses, loss_tokens; /* losses: bytes of the .loss */
    bool taken_back;                                /* sha has bytes that the file has not */
    bool took_over;                                 /* a killed run left something */
    struct sha256 *sha, *loss_sha;                  /* loss_sha: NULL without a .loss */
    unsigned char length[4 * PIECE]; /* not yet written */
    int lengths;
};

static void put_le(unsigned char *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
}

/* Final and temporary name. */
enum { NAME_CAP = PATH_CAP + 16 };
static void names(const struct shards *s, int file, char final[NAME_CAP], char part[NAME_CAP]) {
    snprintf(final, NAME_CAP, "%s.%s", s->prefix, SUFFIX[file]);
    snprintf(part, NAME_CAP, "%s.%s.part", s->prefix, SUFFIX[file]);
}

int shards_id_bytes(int64_t vocab) { return vocab < 65500 ? 2 : 4; }
int64_t shards_tokens(const struct shards *s) { return s->tokens; }
int64_t shards_documents(const struct shards *s) { return s->documents; }
int64_t shards_loss_tokens(const struct shards *s) { return s->loss_tokens; }

bool shards_took_over(const struct shards *s) { return s->took_over; }

static enum status exists(const char *final, struct err *e) {
    return FAIL(e, ERR_CONFIG, "%s exists already; name another --to, or remove it", final);
}

/* Whether the open file still has the name: another process may have finished and renamed it. */
static bool has_name(int fd, const char *part, struct stat *is) {
    struct stat named;
    return fstat(fd, is) == 0 && stat(part, &named) == 0 && is->st_ino == named.st_ino;
}

/* The index is renamed last. So the others without it are no data, if its part is there. */
static void remove_unfinished(struct shards *s) {
    char final[NAME_CAP], part[NAME_CAP];
    names(s, IDX, final, part);
    if (path_exists(final) || !s->took_over) return;
    for (int i = 0; i < FILES; i++) {
        names(s, i, final, part);
        if (i != IDX) unlink(final);
    }
}

static enum status open_part(struct shards *s, int file, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    struct stat is;
    names(s, file, final, part);
    if (path_exists(final)) return exists(final, e);
    if (file == LOSS && !s->loss_sha) return unlink(part), OK; /* of another kind of run */
    s->fd[file] = open(part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (s->fd[file] < 0) return FAIL(e, ERR_IO, "create %s: %s", part, strerror(errno));
    if (flock(s->fd[file], LOCK_EX | LOCK_NB) != 0) {
        close(s->fd[file]); /* it is the other's: shards_destroy must not remove it */
        s->fd[file] = -1;
        return FAIL(e, ERR_STATE, "another process writes %s; name another --to", part);
    }
    if (!has_name(s->fd[file], part, &is)) {
        close(s->fd[file]);
        s->fd[file] = -1;
        return exists(final, e);
    }
    s->took_over |= is.st_size > 0;
    if (file == IDX) remove_unfinished(s);
    if (ftruncate(s->fd[file], 0) == 0) return OK;
    return FAIL(e, ERR_IO, "empty %s: %s", part, strerror(errno));
}

enum status shards_create(struct shards **out, const char *prefix, int id_bytes, bool loss,
                          struct err *e) {
    struct shards *s = calloc(1, sizeof *s);
    unsigned char header[INDEX_HEADER] = { 0 };
    if (!s) return FAIL(e, ERR_MEMORY, "%zu bytes to write tokens", sizeof *s);
    for (int i = 0; i < FILES; i++) s->fd[i] = -1;
    enum status st = OK;
    if (strlen(prefix) >= PATH_CAP - 16) st = FAIL(e, ERR_ARG, "the path %s is too long", prefix);
    else strcpy(s->prefix, prefix);
    s->id_bytes = id_bytes;
    if (st == OK) st = sha256_create(&s->sha, e);
    if (st == OK && loss) st = sha256_create(&s->loss_sha, e);
    for (int i = 0; i < FILES && st == OK; i++) st = open_part(s, ORDER[FILES - 1 - i], e);
    if (st == OK) st = write_all(s->fd[IDX], header, sizeof header, "the index", e);
    if (st != OK) shards_destroy(s);
    else *out = s;
    return st;
}

void shards_destroy(struct shards *s) {
    char final[NAME_CAP], part[NAME_CAP];
    if (!s) return;
    for (int i = 0; i < FILES; i++) {
        if (s->fd[i] < 0) continue;
        names(s, i, final, part);
        unlink(part);
        close(s->fd[i]);
    }
    sha256_destroy(s->sha);
    sha256_destroy(s->loss_sha);
    free(s);
}

enum status shards_add(struct shards *s, const void *ids, int64_t count, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    size_t n = (size_t)(count * s->id_bytes);
    names(s, BIN, final, part);
    TRY(write_all(s->fd[BIN], ids, n, part, e));
    sha256_add(s->sha, ids, n);
    s->tokens += count;
    return OK;
}

enum status shards_take_back(struct shards *s, int64_t tokens, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    names(s, BIN, final, part);
    s->tokens -= tokens;
    s->taken_back = true;
    if (ftruncate(s->fd[BIN], s->tokens * s->id_bytes) == 0 && lseek(s->fd[BIN], 0, SEEK_END) >= 0)
        return OK;
    return FAIL(e, ERR_IO, "shorten %s: %s", part, strerror(errno));
}

enum status shards_add_loss(struct shards *s, const uint8_t *loss, int64_t count,
                            struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    names(s, LOSS, final, part);
    TRY(write_all(s->fd[LOSS], loss, (size_t)count, part, e));
    sha256_add(s->loss_sha, loss, (size_t)count);
    s->losses += count;
    for (int64_t i = 0; i < count; i++) s->loss_tokens += loss[i];
    return OK;
}

static enum status write_lengths(struct shards *s, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    names(s, IDX, final, part);
    size_t n = 4 * (size_t)s->lengths;
    s->lengths = 0;
    return write_all(s->fd[IDX], s->length, n, part, e);
}

enum status shards_end_document(struct shards *s, int64_t tokens, struct err *e) {
    if (tokens > INT32_MAX)
        return FAIL(e, ERR_FORMAT, "a document has %lld tokens; Megatron's index holds at most %d",
                    (long long)tokens, INT32_MAX);
    put_le(s->length + 4 * s->lengths, (uint64_t)tokens, 4);
    s->documents++;
    return ++s->lengths == PIECE ? write_lengths(s, e) : OK;
}

/* ---- finishing ----------------------------------------------------------------------------- */

/* Appends the byte pointers, which follow from the lengths in the file, or the document indices. */
static enum status append_array(struct shards *s, bool pointers, const char *part, struct err *e) {
    unsigned char out[8 * PIECE];
    int64_t total = s->documents + !pointers, pointer = 0;
    for (int64_t at = 0; at < total; at += PIECE) {
        int64_t n = total - at < PIECE ? total - at : PIECE;
        int64_t from = INDEX_HEADER + 4 * at;
        if (pointers && pread(s->fd[IDX], s->length, (size_t)(4 * n), from) != 4 * n)
            return FAIL(e, ERR_IO, "read %s again: %s", part, strerror(errno));
        for (int64_t i = 0; i < n; i++) {
            const unsigned char *l = s->length + 4 * i;
            put_le(out + 8 * i, (uint64_t)(pointers ? pointer : at + i), 8);
            uint32_t length = l[0] | (uint32_t)l[1] << 8 | (uint32_t)l[2] << 16 |
                              (uint32_t)l[3] << 24;
            pointer += pointers ? (int64_t)length * s->id_bytes : 0;
        }
        TRY(write_all(s->fd[IDX], out, (size_t)(8 * n), part, e));
    }
    return OK;
}

static enum status finish_index(struct shards *s, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    unsigned char header[INDEX_HEADER] = "MMIDIDX\0";
    names(s, IDX, final, part);
    TRY(write_lengths(s, e));
    TRY(append_array(s, true, part, e));
    TRY(append_array(s, false, part, e));
    put_le(header + 9, 1, 8);
    header[17] = s->id_bytes == 2 ? 8 : 4; /* u16, i32 */
    put_le(header + 18, (uint64_t)s->documents, 8);
    put_le(header + 26, (uint64_t)s->documents + 1, 8);
    if (pwrite(s->fd[IDX], header, sizeof header, 0) != (ssize_t)sizeof header)
        return FAIL(e, ERR_IO, "write %s: %s", part, strerror(errno));
    return OK;
}

/* The hash of a file from its beginning. */
static enum status hash_again(const struct shards *s, int file, char digest[SHA256_HEX],
                              struct err *e) {
    char final[NAME_CAP], part[NAME_CAP];
    names(s, file, final, part);
    if (lseek(s->fd[file], 0, SEEK_SET) != 0)
        return FAIL(e, ERR_IO, "read %s again: %s", part, strerror(errno));
    return sha256_fd(s->fd[file], part, digest, NULL, e);
}

static enum status write_description(struct shards *s, json_t *description, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP], digest[SHA256_HEX], index[SHA256_HEX];
    bool failed = false;
    names(s, JSON, final, part);
    TRY(hash_again(s, IDX, index, e));
    sha256_finish(s->sha, digest);
    if (s->taken_back) TRY(hash_again(s, BIN, digest, e));
    json_t *shards = json_pack("{s:s,s:s,s:i,s:I,s:I}", "sha256", digest, "index_sha256",
                               index, "token_bytes", s->id_bytes, "tokens", (json_int_t)s->tokens,
                               "documents", (json_int_t)s->documents);
    if (s->loss_sha) {
        sha256_finish(s->loss_sha, digest);
        json_put(shards, "loss_sha256", json_string(digest), &failed);
        json_put(shards, "loss_tokens", json_integer(s->loss_tokens), &failed);
    }
    json_put(description, "shards", shards, &failed);
    char *text = failed ? NULL : json_dump_text(description, JSON_SORT_KEYS | JSON_INDENT(2));
    if (!text) return FAIL(e, ERR_MEMORY, "memory for %s", final);
    enum status st = write_all(s->fd[JSON], text, strlen(text), part, e);
    if (st == OK) st = write_all(s->fd[JSON], "\n", 1, part, e);
    free(text);
    return st;
}

/* The index last: without it the others are no data. */
enum status shards_finish(struct shards *s, json_t *description, struct err *e) {
    char final[NAME_CAP], part[NAME_CAP], parent[PATH_CAP];
    if (s->loss_sha && s->losses != s->tokens)
        return FAIL(e, ERR_STATE, "%lld tokens, but %lld bytes of loss", (long long)s->tokens,
                    (long long)s->losses);
    TRY(finish_index(s, e));
    TRY(write_description(s, description, e));
    for (int i = 0; i < FILES; i++) {
        if (s->fd[i] < 0) continue;
        names(s, i, final, part);
        if (fsync(s->fd[i]) != 0) return FAIL(e, ERR_IO, "write %s: %s", part, strerror(errno));
    }
    for (int i = 0; i < FILES; i++) {
        if (s->fd[ORDER[i]] < 0) continue;
        names(s, ORDER[i], final, part);
        if (rename(part, final) != 0)
            return FAIL(e, ERR_IO, "rename %s to %s: %s", part, final, strerror(errno));
    }
    for (int i = 0; i < FILES; i++) { /* nothing is left to remove */
        if (s->fd[i] >= 0) close(s->fd[i]);
        s->fd[i] = -1;
    }
    path_parent(parent, s->prefix);
    return directory_sync(parent, e);
}
