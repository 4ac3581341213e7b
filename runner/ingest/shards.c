/* The index is PREFIX.idx: 9 B magic, u64 version 1, u8 dtype, u64 sequences S, u64 documents, i32
 * length[S], i64 byte_pointer[S], i64 document_index[S + 1] (Megatron-LM, indexed_dataset.py). A
 * document is one sequence here. Lengths are written as they come, so memory does not grow. */
#include "runner/ingest/shards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/ingest/save.h"

/* SEEN and LEFT_OUT get no final name. */
enum { BIN, IDX, JSON, LOSS, NAMED, SEEN = NAMED, LEFT_OUT, FILES, INDEX_HEADER = 34,
       PIECE = 1 << 13 };
static const char *const SUFFIX[FILES] = { "bin", "idx", "json", "loss", "seen", "left_out" };

/* Of renaming. They are opened from the end: who has the index may write the others. */
static const int ORDER[FILES] = { SEEN, LEFT_OUT, BIN, LOSS, JSON, IDX };

struct shards {
    char prefix[PATH_CAP];
    struct part part[FILES];
    struct save save;
    json_t *saved;           /* what the last process saved; owned */
    bool damaged;            /* it cannot be read */
    bool loss;               /* there is a .loss */
    bool took_over;          /* a killed run left something */
    int id_bytes;
    int64_t documents, loss_tokens;
    unsigned char length[4 * PIECE]; /* not yet written */
    int lengths;
};

static void put_le(unsigned char *p, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) p[i] = (unsigned char)(value >> 8 * i);
}

enum { NAME_CAP = PATH_CAP + 16 };
static void final_name(const struct shards *s, int file, char final[NAME_CAP]) {
    snprintf(final, NAME_CAP, "%s.%s", s->prefix, SUFFIX[file]);
}

int shards_id_bytes(int64_t vocab) { return vocab < 65500 ? 2 : 4; }
int64_t shards_tokens(const struct shards *s) { return s->part[BIN].bytes / s->id_bytes; }
int64_t shards_documents(const struct shards *s) { return s->documents; }
int64_t shards_loss_tokens(const struct shards *s) { return s->loss_tokens; }

bool shards_took_over(const struct shards *s) { return s->took_over; }

bool shards_kept(struct shards *s) {
    save_end(&s->save);
    return s->save.exists;
}

struct part *shards_journal(struct shards *s, enum shards_journal which) {
    return &s->part[which == SHARDS_SEEN ? SEEN : LEFT_OUT];
}

/* ---- opening --------------------------------------------------------------------------------- */

/* What a run that was killed behind its last renaming left. */
static void remove_remains(struct shards *s) {
    save_remove(&s->save);
    unlink(s->part[SEEN].path);
    unlink(s->part[LEFT_OUT].path);
}

static enum status exists(struct shards *s, int file, struct err *e) {
    char final[NAME_CAP];
    final_name(s, file, final);
    if (file == IDX) remove_remains(s);
    return FAIL(e, ERR_CONFIG, "%s exists already; name another --to, or remove it", final);
}

/* The index is renamed last. So the others without it are no data, if its part is there. */
static void undo_renaming(struct shards *s) {
    char final[NAME_CAP];
    for (int i = 0; i < NAMED; i++) {
        final_name(s, i, final);
        if (i != IDX && path_exists(final)) (void)rename(final, s->part[i].path);
    }
}

static enum status open_part(struct shards *s, int file, struct err *e) {
    struct part *p = &s->part[file];
    char final[NAME_CAP];
    struct stat is;
    bool gone;
    final_name(s, file, final);
    if (file < NAMED && path_exists(final)) return exists(s, file, e);
    if (file == LOSS && !s->loss) return unlink(p->path), OK; /* of another kind of run */
    TRY(part_open(p, &gone, e));
    if (gone) return exists(s, file, e);
    s->took_over |= fstat(p->fd, &is) == 0 && is.st_size > 0;
    if (file == IDX && s->took_over) undo_renaming(s);
    return OK;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

enum status shards_refuse(const char *prefix, const char *const *sources, int64_t count,
                          struct err *e) {
    char path[PART_NAME];
    if (strlen(prefix) >= PATH_CAP - 16) return OK; /* shards_open() says so */
    for (int64_t i = 0; i < count; i++)
        for (int file = 0; file <= FILES; file++) {
            snprintf(path, PART_NAME, "%s.%s.part", prefix,
                     file < FILES ? SUFFIX[file] : "progress");
            if (is_same_file(sources[i], path))
                return FAIL(e, ERR_CONFIG, "%s is to be read, and --to %s would overwrite it: give "
                            "another --to, or rename the file", sources[i], prefix);
        }
    return OK;
}

enum status shards_open(struct shards **out, const char *prefix, int id_bytes, bool loss,
                        struct err *e) {
    struct shards *s = calloc(1, sizeof *s);
    if (!s) return FAIL(e, ERR_MEMORY, "%zu bytes to write tokens", sizeof *s);
    s->id_bytes = id_bytes;
    s->loss = loss;
    for (int i = 0; i < FILES; i++) s->part[i].fd = -1;
    s->part[IDX].head = INDEX_HEADER;
    enum status st = OK;
    if (strlen(prefix) >= PATH_CAP - 16) st = FAIL(e, ERR_ARG, "the path %s is too long", prefix);
    if (st != OK) prefix = "";
    strcpy(s->prefix, prefix);
    for (int i = 0; i < FILES; i++)
        snprintf(s->part[i].path, PART_NAME, "%s.%s.part", prefix, SUFFIX[i]);
    snprintf(s->save.path, PART_NAME, "%s.progress.part", prefix);
    s->save.exists = path_exists(s->save.path); /* so an error here removes nothing */
    for (int i = 0; i < FILES && st == OK; i++) st = open_part(s, ORDER[FILES - 1 - i], e);
    if (st == OK) st = save_read(&s->save, &s->saved, &s->damaged, e);
    if (st != OK) shards_destroy(s, true);
    else *out = s;
    return st;
}

enum status shards_begin(struct shards *s, struct err *e) {
    save_remove(&s->save);
    json_decref(s->saved);
    s->saved = NULL;
    s->documents = s->loss_tokens = s->lengths = 0;
    for (int i = 0; i < FILES; i++)
        if (s->part[i].fd >= 0) TRY(part_begin(&s->part[i], e));
    return OK;
}

void shards_destroy(struct shards *s, bool keep) {
    if (!s) return;
    keep = shards_kept(s) && keep;
    if (!keep) save_remove(&s->save);
    for (int i = 0; i < FILES; i++) part_close(&s->part[i], !keep);
    json_decref(s->saved);
    free(s);
}

/* ---- going on after a kill ------------------------------------------------------------------- */

const json_t *shards_saved(const struct shards *s, bool *damaged) {
    *damaged = s->damaged;
    return s->saved;
}

enum status shards_restore(struct shards *s, const char **damaged, struct err *e) {
    const json_t *shards = json_object_get(s->saved, "shards");
    *damaged = NULL;
    for (int i = 0; i < FILES && !*damaged; i++) {
        bool intact = true;
        if (i == JSON) TRY(part_begin(&s->part[i], e));
        else if (s->part[i].fd >= 0)
            TRY(part_restore(&s->part[i], json_object_get(shards, SUFFIX[i]), &intact, e));
        if (!intact) *damaged = s->part[i].path;
    }
    s->documents = s->part[IDX].bytes / 4;
    s->loss_tokens = json_int(shards, "loss_tokens");
    return OK;
}

static enum status write_lengths(struct shards *s, struct err *e) {
    size_t n = 4 * (size_t)s->lengths;
    s->lengths = 0;
    return part_add(&s->part[IDX], s->length, n, e);
}

enum status shards_save(struct shards *s, json_t *state, struct err *e) {
    const struct part *part[FILES];
    json_t *shards = json_object();
    bool failed = false;
    int parts = 0;
    enum status st = write_lengths(s, e);
    for (int i = 0; i < FILES; i++) {
        if (i == JSON || s->part[i].fd < 0) continue;
        part[parts++] = &s->part[i];
        json_put(shards, SUFFIX[i], part_state(&s->part[i]), &failed);
    }
    json_put(shards, "loss_tokens", json_integer(s->loss_tokens), &failed);
    json_put(state, "shards", shards, &failed);
    state = json_whole(state, failed || st != OK);
    return st == OK ? save_write(&s->save, state, part, parts, e) : st;
}

/* ---- adding ---------------------------------------------------------------------------------- */

enum status shards_add(struct shards *s, const void *ids, int64_t count, struct err *e) {
    return part_add(&s->part[BIN], ids, (size_t)(count * s->id_bytes), e);
}

enum status shards_mark(struct shards *s, struct err *e) { return part_mark(&s->part[BIN], e); }

enum status shards_take_back(struct shards *s, struct err *e) {
    return part_take_back(&s->part[BIN], e);
}

enum status shards_add_loss(struct shards *s, const uint8_t *loss, int64_t count,
                            struct err *e) {
    TRY(part_add(&s->part[LOSS], loss, (size_t)count, e));
    for (int64_t i = 0; i < count; i++) s->loss_tokens += loss[i];
    return OK;
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
static enum status append_array(struct shards *s, bool pointers, struct err *e) {
    const struct part *p = &s->part[IDX];
    unsigned char out[8 * PIECE];
    int64_t total = s->documents + !pointers, pointer = 0;
    for (int64_t at = 0; at < total; at += PIECE) {
        int64_t n = total - at < PIECE ? total - at : PIECE;
        int64_t from = INDEX_HEADER + 4 * at;
        if (pointers && pread(p->fd, s->length, (size_t)(4 * n), from) != 4 * n)
            return FAIL(e, ERR_IO, "read %s again: %s", p->path, strerror(errno));
        for (int64_t i = 0; i < n; i++) {
            const unsigned char *l = s->length + 4 * i;
            put_le(out + 8 * i, (uint64_t)(pointers ? pointer : at + i), 8);
            uint32_t length = l[0] | (uint32_t)l[1] << 8 | (uint32_t)l[2] << 16 |
                              (uint32_t)l[3] << 24;
            pointer += pointers ? (int64_t)length * s->id_bytes : 0;
        }
        TRY(write_all(p->fd, out, (size_t)(8 * n), p->path, e));
    }
    return OK;
}

static enum status finish_index(struct shards *s, struct err *e) {
    const struct part *p = &s->part[IDX];
    unsigned char header[INDEX_HEADER] = "MMIDIDX\0";
    TRY(write_lengths(s, e));
    TRY(append_array(s, true, e));
    TRY(append_array(s, false, e));
    put_le(header + 9, 1, 8);
    header[17] = s->id_bytes == 2 ? 8 : 4; /* u16, i32 */
    put_le(header + 18, (uint64_t)s->documents, 8);
    put_le(header + 26, (uint64_t)s->documents + 1, 8);
    if (pwrite(p->fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        return FAIL(e, ERR_IO, "write %s: %s", p->path, strerror(errno));
    return OK;
}

/* The hash of the whole index. */
static enum status hash_index(const struct shards *s, char digest[SHA256_HEX], struct err *e) {
    const struct part *p = &s->part[IDX];
    if (lseek(p->fd, 0, SEEK_SET) != 0)
        return FAIL(e, ERR_IO, "read %s again: %s", p->path, strerror(errno));
    return sha256_fd(p->fd, p->path, digest, NULL, e);
}

static enum status write_description(struct shards *s, json_t *description, struct err *e) {
    char digest[SHA256_HEX], index[SHA256_HEX], loss[SHA256_HEX];
    bool failed = false;
    TRY(hash_index(s, index, e));
    TRY(sha256_so_far(s->part[BIN].sha, digest, e));
    if (s->loss) TRY(sha256_so_far(s->part[LOSS].sha, loss, e));
    json_t *shards = json_pack("{s:s,s:s,s:i,s:I,s:I}", "sha256", digest, "index_sha256",
                               index, "token_bytes", s->id_bytes, "tokens",
                               (json_int_t)shards_tokens(s), "documents",
                               (json_int_t)s->documents);
    if (s->loss) {
        json_put(shards, "loss_sha256", json_string(loss), &failed);
        json_put(shards, "loss_tokens", json_integer(s->loss_tokens), &failed);
    }
    json_put(description, "shards", shards, &failed);
    char *text = failed ? NULL : json_dump_text(description, JSON_SORT_KEYS | JSON_INDENT(2));
    if (!text) return FAIL(e, ERR_MEMORY, "memory for %s", s->part[JSON].path);
    enum status st = part_add(&s->part[JSON], text, strlen(text), e);
    if (st == OK) st = part_add(&s->part[JSON], "\n", 1, e);
    free(text);
    return st;
}

/* The index last: without it the others are no data. */
static enum status rename_all(struct shards *s, struct err *e) {
    char final[NAME_CAP];
    for (int i = 0; i < FILES; i++) {
        int file = ORDER[i];
        const struct part *p = &s->part[file];
        if (file >= NAMED || p->fd < 0) continue;
        final_name(s, file, final);
        if (rename(p->path, final) != 0)
            return FAIL(e, ERR_IO, "rename %s to %s: %s", p->path, final, strerror(errno));
    }
    for (int i = 0; i < FILES; i++) part_close(&s->part[i], i >= NAMED);
    save_remove(&s->save);
    return OK;
}

enum status shards_finish(struct shards *s, json_t *description, struct err *e) {
    char parent[PATH_CAP];
    if (s->loss && s->part[LOSS].bytes != shards_tokens(s))
        return FAIL(e, ERR_STATE, "%lld tokens, but %lld bytes of loss",
                    (long long)shards_tokens(s), (long long)s->part[LOSS].bytes);
    TRY(save_wait(&s->save, e));
    TRY(finish_index(s, e));
    TRY(write_description(s, description, e));
    for (int i = 0; i < NAMED; i++) {
        const struct part *p = &s->part[i];
        if (p->fd >= 0 && fsync(p->fd) != 0)
            return FAIL(e, ERR_IO, "write %s: %s", p->path, strerror(errno));
    }
    TRY(rename_all(s, e));
    path_parent(parent, s->prefix);
    return directory_sync(parent, e);
}
