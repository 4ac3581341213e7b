#include "runner/bundle/archive.h"
#include "runner/record/documents.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 256 * 1024 };

/* ---- the order ----------------------------------------------------------------------------- */

/* The rank of a file is the index of the first pattern that matches. A pattern is a whole name, a
 * folder with a trailing '/', or the beginning and end of a name with '*' between. */
static const char *const ORDER[] = {
    "bagit.txt",
    "bag-info.txt",
    "manifest-sha256.txt",
    "tagmanifest-sha256.txt",
    DOCUMENT_run,
    DOCUMENT_summary,
    RUN_PATH_crate,
    "data/experiment/",
    "data/system/",
    "data/source/",
    "data/metrics/*.json", /* labels, before the records that use them */
    "data/*.json",
    RUN_PATH_choices,
    "data/metrics/*.cols", /* of bundle format 1 */
    "data/fp8/*.cols",
    "data/*.cols",
    "data/metrics/",
    "data/logs/",
    "data/tensorboard/",
};
enum { ORDER_COUNT = sizeof ORDER / sizeof *ORDER, BAG_FILES = 4, STAGES = 3 };

bool archive_is_checkpoint(const char *path) {
    return strncmp(path, "data/checkpoints/", strlen("data/checkpoints/")) == 0;
}

static bool matches(const char *pattern, const char *path) {
    const char *star = strchr(pattern, '*');
    size_t n = star ? (size_t)(star - pattern) : strlen(pattern);
    if (strncmp(pattern, path, n) != 0) return false;
    if (!star) return path[n] == 0 || pattern[n - 1] == '/';
    size_t tail = strlen(star + 1), rest = strlen(path + n);
    return rest >= tail && strcmp(path + n + rest - tail, star + 1) == 0;
}

static int rank_of(const char *path) {
    if (archive_is_checkpoint(path)) return ORDER_COUNT + 1;
    for (int i = 0; i < ORDER_COUNT; i++)
        if (matches(ORDER[i], path)) return i;
    return ORDER_COUNT;
}

int archive_stage(const char *path) {
    int rank = rank_of(path);
    if (rank < BAG_FILES) return 0;
    return rank - BAG_FILES + 1 < STAGES ? rank - BAG_FILES + 1 : STAGES;
}

static int by_rank(const void *a, const void *b) {
    const char *x = ((const struct tree_file *)a)->path, *y = ((const struct tree_file *)b)->path;
    int rx = rank_of(x), ry = rank_of(y);
    return rx != ry ? (rx < ry ? -1 : 1) : strcmp(x, y);
}

void archive_sort(struct tree *list) {
    if (list->count) qsort(list->file, (size_t)list->count, sizeof *list->file, by_rank);
}

/* ---- packing ------------------------------------------------------------------------------- */

struct packer {
    const char *dir, *folder, *temporary;
    const struct archive_options *options;
    struct archive *archive;     /* owned */
    struct archive_entry *entry; /* owned; reused */
    char *block;                 /* owned; BLOCK bytes */
    int fd, root, write_errno;   /* write_errno: errno of the failed write, or 0 */
    int64_t packed;
};

/* Called by libarchive with each finished block. */
static la_ssize_t take_block(struct archive *archive, void *context, const void *bytes, size_t n) {
    struct packer *p = context;
    const char *at = bytes;
    for (size_t left = n; left > 0;) {
        ssize_t put = write(p->fd, at, left);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) {
            p->write_errno = errno;
            archive_set_error(archive, errno, "%s", strerror(errno));
            return -1;
        }
        at += put;
        left -= (size_t)put;
    }
    p->packed += (int64_t)n;
    return (la_ssize_t)n;
}

static enum status pack_failed(const struct packer *p, struct err *e) {
    struct statvfs fs;
    if (p->write_errno == ENOSPC || p->write_errno == EDQUOT || p->write_errno == EFBIG)
        return FAIL(e, ERR_IO,
                    "%s after %lld bytes of %s (%lld MB free there); the run directory %s is kept: "
                    "make room, then fp8lab close %s",
                    strerror(p->write_errno), (long long)p->packed, p->temporary,
                    fstatvfs(p->fd, &fs) == 0 ? (long long)(fs.f_bavail * fs.f_frsize / 1000000)
                                              : -1LL,
                    p->dir, p->dir);
    const char *why = archive_error_string(p->archive);
    bool memory = !p->write_errno && archive_errno(p->archive) == ENOMEM;
    return FAIL(e, memory ? ERR_MEMORY : ERR_IO, "pack %s into %s: %s", p->dir, p->temporary,
                p->write_errno ? strerror(p->write_errno) : why ? why : "libarchive failed");
}

static enum status pack_header(struct packer *p, const struct tree_file *file, struct err *e) {
    char name[PATH_CAP];
    TRY(path_join(name, p->folder, file->path, e));
    archive_entry_clear(p->entry);
    archive_entry_set_pathname(p->entry, name);
    archive_entry_set_filetype(p->entry, AE_IFREG);
    archive_entry_set_perm(p->entry, 0644);
    archive_entry_set_uid(p->entry, 0);
    archive_entry_set_gid(p->entry, 0);
    archive_entry_set_mtime(p->entry, p->options->time, 0);
    archive_entry_set_size(p->entry, file->size);
    return archive_write_header(p->archive, p->entry) == ARCHIVE_OK ? OK : pack_failed(p, e);
}

static enum status pack_file(struct packer *p, const struct tree_file *file, struct err *e) {
    int fd = open_beneath(p->root, file->path, O_RDONLY, 0, 0);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s/%s: %s", p->dir, file->path, strerror(errno));
    enum status st = pack_header(p, file, e);
    int64_t left = file->size;
    while (st == OK && left >= 0) {
        ssize_t got = read(fd, p->block, BLOCK);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) st = FAIL(e, ERR_IO, "read %s/%s: %s", p->dir, file->path, strerror(errno));
        if (got <= 0) break;
        left -= got;
        if (left >= 0 && archive_write_data(p->archive, p->block, (size_t)got) != got)
            st = pack_failed(p, e);
    }
    if (st == OK && left != 0)
        st = FAIL(e, ERR_IO, "%s/%s changed its size while it was packed", p->dir, file->path);
    close(fd);
    return st;
}

static enum status open_writer(struct packer *p, struct err *e) {
    char text[32];
    p->archive = archive_write_new();
    p->entry = archive_entry_new();
    p->block = malloc(BLOCK);
    if (!p->archive || !p->entry || !p->block)
        return FAIL(e, ERR_MEMORY, "no memory to pack %s", p->dir);
    snprintf(text, sizeof text, "%lld", (long long)p->options->threads);
    bool ok = archive_write_set_format_pax_restricted(p->archive) == ARCHIVE_OK &&
              archive_write_add_filter_zstd(p->archive) == ARCHIVE_OK &&
              archive_write_set_filter_option(p->archive, "zstd", "threads", text) == ARCHIVE_OK;
    snprintf(text, sizeof text, "%lld", (long long)p->options->level);
    ok = ok && archive_write_set_filter_option(p->archive, "zstd", "compression-level", text) ==
                   ARCHIVE_OK;
    /* Whole blocks of our size, and no padding of the compressed stream. */
    ok = ok && archive_write_set_bytes_per_block(p->archive, BLOCK) == ARCHIVE_OK &&
         archive_write_set_bytes_in_last_block(p->archive, 1) == ARCHIVE_OK &&
         archive_write_open(p->archive, p, NULL, take_block, NULL) == ARCHIVE_OK;
    if (ok) return OK;
    const char *why = archive_error_string(p->archive);
    if (archive_errno(p->archive) == ENOMEM)
        return FAIL(e, ERR_MEMORY, "no memory to pack %s: %s", p->dir, why ? why : "libarchive");
    return FAIL(e, ERR_UNSUPPORTED, "this libarchive cannot write tar.zst: %s",
                why ? why : "no reason given");
}

static enum status publish(struct packer *p, const char *out_path, struct err *e) {
    char parent[PATH_CAP];
    if (archive_write_close(p->archive) != ARCHIVE_OK) return pack_failed(p, e);
    if (fsync(p->fd) != 0) {
        p->write_errno = errno;
        return pack_failed(p, e);
    }
    if (rename(p->temporary, out_path) != 0)
        return FAIL(e, ERR_IO, "rename %s to %s: %s", p->temporary, out_path, strerror(errno));
    path_parent(parent, out_path);
    return directory_sync(parent, e);
}

enum status archive_pack(const char *dir, const struct tree *list, const char *folder,
                         const char *out_path, const struct archive_options *options,
                         int64_t *packed, struct err *e) {
    char temporary[PATH_CAP];
    enum status st = OK;
    struct packer p = { .dir = dir, .folder = folder, .temporary = temporary, .options = options,
                        .fd = -1, .root = -1 };
    int n = snprintf(temporary, sizeof temporary, "%s.partial", out_path);
    if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", out_path);
    p.root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p.fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (p.root < 0 || p.fd < 0) {
        st = FAIL(e, ERR_IO, "open %s: %s", p.root < 0 ? dir : temporary, strerror(errno));
        goto done;
    }
    st = open_writer(&p, e);
    for (int64_t i = 0; st == OK && i < list->count; i++) st = pack_file(&p, &list->file[i], e);
    if (st == OK) st = publish(&p, out_path, e);
    if (st == OK && packed) *packed = p.packed;
done:
    if (p.archive) archive_write_free(p.archive);
    if (p.entry) archive_entry_free(p.entry);
    free(p.block);
    if (p.fd >= 0) close(p.fd);
    if (p.root >= 0) close(p.root);
    if (st != OK && p.fd >= 0) unlink(temporary);
    return st;
}
