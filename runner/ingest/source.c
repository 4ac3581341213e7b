#include "runner/ingest/source.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/paths.h"
#include "runner/ingest/gunzip.h"
#include "runner/ingest/source_kind.h"

enum { BLOCK = 1 << 18 };
static const char GZIP[] = "a gzip file"; /* of source_kind() */

struct source {
    struct archive *archive;
    struct sha256 *sha;
    struct gunzip *gunzip; /* NULL: not gzip, or nothing was read yet */
    size_t packed_at, packed_end; /* of `block`: what is still to be unpacked */
    const char *path; /* borrowed */
    int fd;
    int64_t bytes;
    int64_t size; /* of a regular file when it was opened */
    bool regular; /* no pipe */
    bool begun;   /* an entry of the archive was seen */
    bool inside;  /* the entry is in a tar */
    bool fresh;   /* nothing of the entry has been read */
    char name[PATH_CAP];
    struct text_head head; /* of the entry, as far as it was read */
    unsigned char block[BLOCK], text[BLOCK]; /* as it is in the file; unpacked */
};

/* What is named .gz or .zst and is not would pass as plain text: its head is damaged, or something
 * has unpacked it. `kind`: what it is, NULL for no kind. */
static enum status check_name(const struct source *s, const char *kind, struct err *e) {
    static const struct { const char *end, *kind; } NAMES[] = {
        { ".gz", GZIP }, { ".zst", "a zstd file" }, { ".zstd", "a zstd file" },
    };
    const char *end = strrchr(s->path, '.');
    for (size_t i = 0; end && i < sizeof NAMES / sizeof *NAMES; i++)
        if (!strcmp(end, NAMES[i].end) && (!kind || strcmp(kind, NAMES[i].kind) != 0))
            return FAIL(e, ERR_FORMAT, "it is not %s, as its name says: its first bytes are "
                        "damaged, or it is unpacked already; then rename it", NAMES[i].kind);
    return OK;
}

static enum status begin(struct source *s, size_t n, struct err *e) {
    const char *kind = source_kind(s->block, n).name;
    if (n > 0) TRY(check_name(s, kind, e));
    return kind && !strcmp(kind, GZIP) ? gunzip_create(&s->gunzip, e) : OK;
}

/* Blocks of a regular file are whole, so its reader is always at the same places. The first block
 * of a pipe has four bytes or more, which tell whether it is packed. */
static enum status read_block(struct source *s, size_t *n, struct err *e) {
    size_t least = s->regular ? BLOCK : s->bytes ? 1 : 4;
    *n = 0;
    for (ssize_t got = 1; got != 0 && *n < least; *n += (size_t)got) {
        do got = read(s->fd, s->block + *n, BLOCK - *n);
        while (got < 0 && errno == EINTR);
        if (got < 0) return FAIL(e, ERR_FORMAT, "%s", strerror(errno));
    }
    if (!s->bytes) TRY(begin(s, *n, e));
    sha256_add(s->sha, s->block, *n);
    s->bytes += (int64_t)*n;
    return OK;
}

static enum status unpack_block(struct source *s, size_t *n, struct err *e) {
    size_t used;
    for (;;) {
        TRY(gunzip_some(s->gunzip, s->block + s->packed_at, s->packed_end - s->packed_at, &used,
                        s->text, BLOCK, n, e));
        s->packed_at += used;
        if (*n) return OK;
        if (s->packed_at < s->packed_end) continue;
        TRY(read_block(s, &s->packed_end, e));
        s->packed_at = 0;
        if (s->packed_end == 0) return gunzip_end(s->gunzip, e);
    }
}

/* The next bytes of the file; of a gzip file those of its content. *n = 0: its end. */
static enum status next_block(struct source *s, const void **out, size_t *n, struct err *e) {
    bool first = !s->bytes;
    if (!s->gunzip) TRY(read_block(s, n, e));
    if (s->gunzip && first) s->packed_end = *n;
    if (s->gunzip) TRY(unpack_block(s, n, e));
    *out = s->gunzip ? s->text : s->block;
    return OK;
}

static la_ssize_t give_block(struct archive *a, void *data, const void **out) {
    struct err why;
    size_t n;
    enum status st = next_block(data, out, &n, &why);
    if (st == OK) return (la_ssize_t)n;
    archive_set_error(a, st == ERR_MEMORY ? ENOMEM : EIO, "%s", why.text);
    return -1;
}

enum status source_open(struct source **out, const char *path, struct err *e) {
    struct source *s = calloc(1, sizeof *s);
    struct stat is;
    if (!s) return FAIL(e, ERR_MEMORY, "%zu bytes to read %s", sizeof *s, path);
    s->path = path;
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status st = OK;
    if (s->fd < 0)
        st = FAIL(e, ERR_CONFIG, "open %s: %s", path, strerror(errno));
    else if (fstat(s->fd, &is) == 0 && S_ISDIR(is.st_mode))
        st = FAIL(e, ERR_CONFIG, "%s is a folder; name the files in it", path);
    else if (fstat(s->fd, &is) != 0 || !(S_ISREG(is.st_mode) || S_ISFIFO(is.st_mode)))
        st = FAIL(e, ERR_CONFIG, "%s is neither a regular file nor a pipe; name files of text",
                  path);
    s->regular = st == OK && S_ISREG(is.st_mode);
    s->size = s->regular ? (int64_t)is.st_size : 0;
    if (st == OK) st = sha256_create(&s->sha, e);
    if (st == OK && !(s->archive = archive_read_new()))
        st = FAIL(e, ERR_MEMORY, "memory to read %s", path);
    if (st == OK) {
        archive_read_support_filter_zstd(s->archive);
        archive_read_support_format_tar(s->archive);
        archive_read_support_format_raw(s->archive);
        archive_read_support_format_empty(s->archive);
        if (archive_read_open(s->archive, s, NULL, give_block, NULL) != ARCHIVE_OK)
            st = FAIL(e, ERR_FORMAT, "read %s: %s", path, archive_error_string(s->archive));
    }
    if (st != OK) source_close(s);
    else *out = s;
    return st;
}

void source_close(struct source *s) {
    if (!s) return;
    archive_read_free(s->archive);
    sha256_destroy(s->sha);
    gunzip_destroy(s->gunzip);
    if (s->fd >= 0) close(s->fd);
    free(s);
}

/* The name without what says how it is packed. */
static void unpacked_name(char out[PATH_CAP], const char *name) {
    static const char *const PACKED[] = { ".gz", ".zst", ".zstd" };
    path_base(out, name);
    for (size_t i = 0; i < sizeof PACKED / sizeof *PACKED; i++) {
        size_t n = strlen(out), m = strlen(PACKED[i]);
        if (n > m && !strcmp(out + n - m, PACKED[i])) out[n - m] = 0;
    }
}

/* A block of zeros ends a tar, so libarchive takes what begins with one for a tar without entries.
 * Often it is a file whose blocks a crash has lost, with more text behind them. */
static enum status check_end(const struct source *s, struct err *e) {
    if (s->begun || archive_format(s->archive) == ARCHIVE_FORMAT_EMPTY) return OK;
    return FAIL(e, ERR_FORMAT, "%s begins with 512 zero bytes: a damaged file, or a tar with "
                "nothing in it; remove the zero bytes, or leave the file out", s->path);
}

enum status source_next(struct source *s, const char **name, bool *inside, struct err *e) {
    struct archive_entry *entry;
    for (;;) {
        int rc = archive_read_next_header(s->archive, &entry);
        *name = NULL;
        if (rc == ARCHIVE_EOF) return check_end(s, e);
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return FAIL(e, ERR_FORMAT, "read %s: %s", s->path, archive_error_string(s->archive));
        s->begun = true;
        *inside = s->inside = archive_format(s->archive) != ARCHIVE_FORMAT_RAW;
        s->fresh = true;
        s->head = (struct text_head){ 0 };
        if (*inside && archive_entry_filetype(entry) != AE_IFREG) continue;
        const char *path = *inside ? archive_entry_pathname(entry) : s->path;
        if (*inside) path_base(s->name, path ? path : "");
        else unpacked_name(s->name, path);
        *name = s->name;
        return OK;
    }
}

static void full_name(const struct source *s, char out[2 * PATH_CAP]) {
    snprintf(out, 2 * PATH_CAP, "%s%s%s", s->path, s->inside ? ": " : "", s->inside ? s->name : "");
}

/* gzip and zstd around a text or a tar are unpacked. Anything else would pass as text. */
static enum status check_kind(const struct source *s, const void *head, size_t n, struct err *e) {
    const struct source_kind kind = source_kind(head, n);
    char name[2 * PATH_CAP];
    if (!kind.name) return OK;
    full_name(s, name);
    return FAIL(e, ERR_FORMAT, "%s is %s, which is not %s%s", name, kind.name,
                kind.instead ? "read as text; " : "unpacked here; ",
                kind.instead ? kind.instead
                             : "unpack it, or pack its text as .gz, .zst or a tar of texts");
}

enum status source_read(struct source *s, void *out, size_t room, size_t *n, struct err *e) {
    *n = 0;
    while (*n < room) {
        la_ssize_t got = archive_read_data(s->archive, (char *)out + *n, room - *n);
        if (got == ARCHIVE_RETRY) continue;
        if (got < 0)
            return FAIL(e, ERR_FORMAT, "read %s: %s%s", s->path,
                        archive_error_string(s->archive),
                        s->gunzip ? "" : " (truncated or damaged?)");
        if (got == 0) break;
        text_head_add(&s->head, (char *)out + *n, (size_t)got);
        *n += (size_t)got;
    }
    if (!s->fresh) return OK;
    s->fresh = false;
    return check_kind(s, out, *n, e);
}

struct text_head source_head(const struct source *s, char name[2 * PATH_CAP]) {
    struct text_head head = s->head;
    head.unpacked = s->inside || s->gunzip || archive_filter_count(s->archive) > 1;
    full_name(s, name);
    return head;
}

int64_t source_read_bytes(const struct source *s) { return s->bytes; }

enum status source_so_far(const struct source *s, char sha256[SHA256_HEX], struct err *e) {
    return sha256_so_far(s->sha, sha256, e);
}

enum status source_finish(struct source *s, char sha256[SHA256_HEX], int64_t *bytes,
                          struct err *e) {
    const void *rest;
    for (size_t n = 1; n != 0;) {
        enum status st = next_block(s, &rest, &n, e);
        if (st != OK) return err_prefix(e, "read %s", s->path), st;
    }
    if (s->regular && s->bytes != s->size)
        return FAIL(e, ERR_FORMAT, "%s had %" PRId64 " bytes when it was opened, and %" PRId64
                    " were read: it changed meanwhile; try again once nothing writes it", s->path,
                    s->size, s->bytes);
    sha256_finish(s->sha, sha256);
    *bytes = s->bytes;
    return OK;
}
