#include "runner/bundle/bundle_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/run_files.h"
#include "runner/bundle/archive.h"
#include "runner/bundle/zstd_frames.h"

/* SLICE: bytes of a zstd file that libarchive gets before the next guard check. A zstd block of 4
 * bytes becomes at most 128 KiB, so a slice becomes at most 128 MiB. HEADERS_MAX: bytes of tar
 * headers for one entry; a name of 512 bytes takes two headers of one block and two blocks of
 * text. END_MAX: bytes behind the last entry: the two blocks of zeros that end a tar. */
enum { BLOCK = 256 * 1024, FEED = 64 * 1024, SLICE = 4096, HEADERS_MAX = 4096, TAR_BLOCK = 512,
       END_MAX = 2 * TAR_BLOCK };

struct bundle {
    char *path;       /* owned copy */
    char folder[256]; /* the archive's folder, or the directory's base name */
    struct bundle_limits limits;
    struct guard *guard;
    int64_t unpacked; /* bytes handed out, skipped ones included */
    /* an archive */
    struct archive *archive;
    struct archive_entry *entry; /* owned; libarchive would allocate its own without a check */
    char *skip; /* owned, BLOCK bytes: receives skipped data */
    char *feed; /* owned, FEED bytes of the file */
    size_t feed_at, feed_end;  /* the part of feed that libarchive has not read yet */
    int64_t fed;
    bool zstd;
    struct zstd_frames frames;
    struct err refusal; /* the error that ended the input of libarchive */
    int stage;          /* archive_stage() of the last file */
    int64_t declared, delivered; /* of the current entry */
    bool at_entry;
    /* a directory */
    int root;
    int file; /* of the archive, or the current file of the directory; -1: none */
    struct tree tree;
    int64_t next; /* index into tree */
};

/* ---- opening ------------------------------------------------------------------------------- */

/* Drops checkpoints outside the bag from the list. */
static void drop_aside(struct tree *tree) {
    int64_t kept = 0;
    for (int64_t i = 0; i < tree->count; i++) {
        if (strncmp(tree->file[i].path, ARCHIVE_ASIDE "/", sizeof ARCHIVE_ASIDE) != 0)
            tree->file[kept++] = tree->file[i];
        else free(tree->file[i].path);
    }
    tree->count = kept;
}

static enum status open_directory(struct bundle *b, struct err *e) {
    char base[PATH_CAP];
    path_base(base, b->path);
    snprintf(b->folder, sizeof b->folder, "%.255s", base);
    b->root = open(b->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->root < 0) return FAIL(e, ERR_IO, "open %s: %s", b->path, strerror(errno));
    TRY(tree_list(b->path, b->limits.entries, &b->tree, e));
    drop_aside(&b->tree);
    archive_sort(&b->tree);
    return OK;
}

#define ZSTD_HEAD "\x28\xb5\x2f\xfd"

/* The name of a foreign file type, by the first bytes. NULL: plain tar or zstd. */
static const char *sniff(const unsigned char *head, size_t n) {
    static const struct {
        const char *bytes;
        size_t count;
        const char *name;
    } KNOWN[] = {
        { ZSTD_HEAD, 4, NULL },              { "\x1f\x8b", 2, "a gzip file" },
        { "PK\x03\x04", 4, "a zip file" },   { "\xfd"
                                               "7zXZ",
                                               5, "an xz file" },
        { "BZh", 3, "a bzip2 file" },        { "7z\xbc\xaf", 4, "a 7-Zip file" },
        { "\x7f"
          "ELF",
          4, "a program" },
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (n >= KNOWN[i].count && memcmp(head, KNOWN[i].bytes, KNOWN[i].count) == 0)
            return KNOWN[i].name;
    if (n >= 262 && memcmp(head + 257, "ustar", 5) == 0) return NULL;
    return n == 0 ? "an empty file" : "no archive";
}

/* Reads the next bytes of the file if all earlier ones were consumed. */
static enum status refill(struct bundle *b, struct err *e) {
    ssize_t n;
    if (b->feed_at < b->feed_end) return OK;
    do n = read(b->file, b->feed, FEED);
    while (n < 0 && errno == EINTR);
    if (n < 0) return FAIL(e, ERR_IO, "read %s: %s", b->path, strerror(errno));
    b->feed_at = 0;
    b->feed_end = (size_t)n;
    if (!b->zstd) return OK;
    if (n == 0 && !zstd_frames_whole(&b->frames))
        return FAIL(e, ERR_FORMAT, "%s is truncated: its last zstd frame does not end", b->path);
    return zstd_frames_pass(&b->frames, b->feed, (size_t)n, e);
}

/* Input of libarchive. The guard checks here, too: libarchive also unpacks data that no entry
 * holds, such as endless zeros behind the last entry. */
static la_ssize_t feed(struct archive *a, void *context, const void **out) {
    struct bundle *b = context;
    enum status st = guard_ratio(b->guard, b->fed, archive_filter_bytes(a, 0), &b->refusal);
    if (st == OK) st = refill(b, &b->refusal);
    if (st != OK) {
        archive_set_error(a, EINVAL, "%s", b->refusal.text);
        return ARCHIVE_FATAL;
    }
    size_t n = b->feed_end - b->feed_at;
    if (b->zstd && n > SLICE) n = SLICE;
    *out = b->feed + b->feed_at;
    b->feed_at += n;
    b->fed += (int64_t)n;
    return (la_ssize_t)n;
}

static enum status archive_broken(struct bundle *b, struct err *e) {
    if (b->refusal.code != OK) {
        if (e) *e = b->refusal;
        return b->refusal.code;
    }
    const char *why = archive_error_string(b->archive);
    if (!why) why = "unreadable";
    if (strstr(why, "nrecognized archive format"))
        return FAIL(e, ERR_FORMAT, "%s holds no tar archive: it is damaged, or no bundle%s",
                    b->path, b->zstd ? ", or packed in more than one layer" : "");
    if (archive_errno(b->archive) == ENOMEM)
        return FAIL(e, ERR_MEMORY, "no memory to read %s: %s", b->path, why);
    bool cut = strstr(why, "runcated") || strstr(why, "nexpected end");
    return FAIL(e, ERR_FORMAT, "%s is %s: %s", b->path, cut ? "truncated" : "damaged", why);
}

static enum status open_archive(struct bundle *b, struct err *e) {
    unsigned char head[512];
    struct stat info;
    b->file = open(b->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (b->file < 0) return FAIL(e, ERR_IO, "open %s: %s", b->path, strerror(errno));
    if (fstat(b->file, &info) != 0) return FAIL(e, ERR_IO, "stat %s: %s", b->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return FAIL(e, ERR_FORMAT, "%s is neither a bundle file nor a directory", b->path);
    ssize_t n = pread(b->file, head, sizeof head, 0);
    if (n < 0) return FAIL(e, ERR_IO, "read %s: %s", b->path, strerror(errno));
    const char *strange = sniff(head, (size_t)n);
    if (strange)
        return FAIL(e, ERR_FORMAT, "%s is %s, not a run bundle (.tar.zst or a run directory)",
                    b->path, strange);
    b->archive = archive_read_new();
    b->entry = archive_entry_new();
    b->skip = malloc(BLOCK);
    b->feed = malloc(FEED);
    if (!b->archive || !b->entry || !b->skip || !b->feed)
        return FAIL(e, ERR_MEMORY, "no memory to read %s", b->path);
    /* One filter is added explicitly: with detection, libarchive unpacks zstd within zstd, 25
     * deep. */
    b->zstd = n >= 4 && memcmp(head, ZSTD_HEAD, 4) == 0;
    if (archive_read_support_format_tar(b->archive) != ARCHIVE_OK ||
        (b->zstd && archive_read_append_filter(b->archive, ARCHIVE_FILTER_ZSTD) != ARCHIVE_OK)) {
        bool memory = archive_errno(b->archive) == ENOMEM;
        return FAIL(e, memory ? ERR_MEMORY : ERR_UNSUPPORTED,
                    "this libarchive cannot read tar.zst: %s", archive_error_string(b->archive));
    }
    /* Read to the end of the file, so that data behind the bundle is reported. */
    if (archive_read_set_option(b->archive, "tar", "read_concatenated_archives", "1") != ARCHIVE_OK)
        return archive_broken(b, e);
    if (archive_read_open(b->archive, b, NULL, feed, NULL) != ARCHIVE_OK)
        return archive_broken(b, e);
    return OK;
}

enum status bundle_open(const char *path, const struct bundle_limits *limits, struct bundle **out,
                        struct err *e) {
    struct bundle *b = calloc(1, sizeof *b);
    if (!b) return FAIL(e, ERR_MEMORY, "no memory to read %s", path);
    b->root = b->file = -1;
    b->limits = *limits;
    b->path = strdup(path);
    enum status st = b->path ? guard_create(limits, &b->guard, e)
                             : FAIL(e, ERR_MEMORY, "no memory to read %s", path);
    if (st == OK && !path_exists(path))
        st = FAIL(e, ERR_IO, "%s: %s", path, strerror(errno));
    if (st == OK) st = path_is_directory(path) ? open_directory(b, e) : open_archive(b, e);
    if (st == OK) *out = b;
    else bundle_close(b);
    return st;
}

void bundle_close(struct bundle *b) {
    if (!b) return;
    if (b->archive) archive_read_free(b->archive);
    if (b->entry) archive_entry_free(b->entry);
    if (b->file >= 0) close(b->file);
    if (b->root >= 0) close(b->root);
    tree_free(&b->tree);
    guard_destroy(b->guard);
    free(b->skip);
    free(b->feed);
    free(b->path);
    free(b);
}

const char *bundle_folder(const struct bundle *b) { return b->folder; }
bool bundle_is_directory(const struct bundle *b) { return !b->archive; }

/* ---- entries of an archive ----------------------------------------------------------------- */

static const char *type_name(unsigned type) {
    switch (type) {
    case AE_IFLNK: return "symbolic link";
    case AE_IFCHR: return "character device";
    case AE_IFBLK: return "block device";
    case AE_IFIFO: return "named pipe";
    case AE_IFSOCK: return "socket";
    }
    return "entry of unknown type";
}

/* Accepts regular files and directories with a plain name, then asks the guard. */
static enum status admit(struct bundle *b, struct archive_entry *entry, struct err *e) {
    char name[PATH_CAP];
    const char *given = archive_entry_pathname(entry);
    if (!given) return FAIL(e, ERR_FORMAT, "%s: an entry's name is not plain text", b->path);
    size_t n = strlen(given);
    if (n >= sizeof name) return FAIL(e, ERR_FORMAT, "an entry's name has %zu bytes", n);
    memcpy(name, given, n + 1);
    unsigned type = archive_entry_filetype(entry);
    if (type == AE_IFDIR && n > 1 && name[n - 1] == '/') name[n - 1] = 0; /* tar ends directory
                                                                             names with '/' */
    TRY(guard_name(name, &b->limits, e));
    if (archive_entry_hardlink(entry)) return FAIL(e, ERR_FORMAT, "hard link refused: %s", name);
    if (type != AE_IFREG && type != AE_IFDIR)
        return FAIL(e, ERR_FORMAT, "%s refused: %s", type_name(type), name);
    if (archive_entry_sparse_count(entry) > 0)
        return FAIL(e, ERR_FORMAT, "sparse file refused: %s", name);
    int64_t size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1;
    if (type == AE_IFDIR && size > 0) /* for example GNU tar's lists of names, type D */
        return FAIL(e, ERR_FORMAT, "directory with %lld bytes of content refused: %s",
                    (long long)size, name);
    int64_t headers = archive_filter_bytes(b->archive, 0) -
                      archive_read_header_position(b->archive);
    if (headers > HEADERS_MAX)
        return FAIL(e, ERR_FORMAT, "%lld bytes of tar headers before %s refused, at most %d",
                    (long long)headers, name, HEADERS_MAX);
    return guard_admit(b->guard, name, type == AE_IFDIR, type == AE_IFDIR ? 0 : size, e);
}

/* Removes the folder that all entries share from the name. */
static enum status strip_folder(struct bundle *b, const char **name, struct err *e) {
    size_t n = strcspn(*name, "/");
    if ((*name)[n] == 0)
        return FAIL(e, ERR_FORMAT, "%s: %s stands outside the bundle's folder", b->path, *name);
    if (b->folder[0] == 0) snprintf(b->folder, sizeof b->folder, "%.*s", (int)n, *name);
    if (strlen(b->folder) != n || strncmp(b->folder, *name, n) != 0)
        return FAIL(e, ERR_FORMAT, "%s: %s stands outside the bundle's folder %s", b->path, *name,
                    b->folder);
    *name += n + 1;
    return OK;
}

/* A reader stops after the files it needs, and relies on the manifests at the front. */
static enum status check_order(struct bundle *b, const char *name, struct err *e) {
    int stage = archive_stage(name);
    if (stage < b->stage)
        return FAIL(e, ERR_FORMAT, "%s: %s follows files that it must precede: manifests, "
                    "run.json and summary.json come first in a bundle", b->path, name);
    b->stage = stage;
    return OK;
}

static enum status skip_rest(struct bundle *b, struct err *e) {
    for (size_t got = 1; got > 0;) TRY(bundle_read(b, b->skip, BLOCK, &got, e));
    return OK;
}

/* libarchive reports no error for headers that no entry follows: a global header may have a
 * megabyte. `end`: where the last entry ends. */
static enum status check_end(const struct bundle *b, int64_t end, struct err *e) {
    int64_t rest = archive_filter_bytes(b->archive, 0) - end;
    if (rest > END_MAX)
        return FAIL(e, ERR_FORMAT, "%s: %lld bytes behind the last entry refused, at most %d",
                    b->path, (long long)rest, END_MAX);
    return guard_end(b->guard, e);
}

static enum status next_in_archive(struct bundle *b, struct bundle_entry *out, struct err *e) {
    if (b->at_entry) TRY(skip_rest(b, e));
    b->at_entry = false;
    for (;;) {
        struct archive_entry *entry = b->entry;
        int64_t end = round_up(archive_filter_bytes(b->archive, 0), TAR_BLOCK);
        int got = archive_read_next_header2(b->archive, entry);
        if (got == ARCHIVE_EOF) return check_end(b, end, e);
        /* ARCHIVE_WARN: the name does not convert to the locale; admit() checks names. */
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) return archive_broken(b, e);
        TRY(admit(b, entry, e));
        if (archive_entry_filetype(entry) == AE_IFDIR) continue;
        const char *name = archive_entry_pathname(entry);
        TRY(strip_folder(b, &name, e));
        TRY(check_order(b, name, e));
        b->declared = archive_entry_size(entry);
        b->delivered = 0;
        b->at_entry = true;
        *out = (struct bundle_entry){ .path = name, .size = b->declared };
        return OK;
    }
}

static enum status read_archive(struct bundle *b, void *buffer, size_t n, size_t *got,
                                struct err *e) {
    la_ssize_t count = archive_read_data(b->archive, buffer, n);
    if (count < 0) return archive_broken(b, e);
    b->delivered += count;
    b->unpacked += count;
    if (b->delivered > b->declared || (count == 0 && n > 0 && b->delivered != b->declared))
        return FAIL(e, ERR_FORMAT, "%s: an entry of %lld bytes delivered %lld", b->path,
                    (long long)b->declared, (long long)b->delivered);
    *got = (size_t)count;
    return guard_ratio(b->guard, archive_filter_bytes(b->archive, -1), b->unpacked, e);
}

/* ---- entries of a directory ---------------------------------------------------------------- */

static enum status next_in_directory(struct bundle *b, struct bundle_entry *out, struct err *e) {
    if (b->file >= 0) close(b->file);
    b->file = -1;
    while (b->next < b->tree.count) {
        const struct tree_file *file = &b->tree.file[b->next++];
        /* The lock file belongs to the writing process, not to the run. */
        if (strcmp(file->path, "lock") == 0) continue;
        TRY(guard_admit(b->guard, file->path, false, file->size, e));
        b->file = open_beneath(b->root, file->path, O_RDONLY | O_NONBLOCK, 0, 0);
        if (b->file < 0 && errno == ENOENT) continue; /* a live run may remove a file after it was
                                                         listed */
        if (b->file < 0)
            return FAIL(e, ERR_IO, "open %s/%s: %s", b->path, file->path, strerror(errno));
        *out = (struct bundle_entry){ .path = file->path, .size = file->size };
        return OK;
    }
    return OK;
}

static enum status read_directory(struct bundle *b, void *buffer, size_t n, size_t *got,
                                  struct err *e) {
    ssize_t count;
    do count = read(b->file, buffer, n);
    while (count < 0 && errno == EINTR);
    if (count < 0)
        return FAIL(e, ERR_IO, "read %s/%s: %s", b->path, b->tree.file[b->next - 1].path,
                    strerror(errno));
    *got = (size_t)count;
    return OK;
}

/* ---- both ---------------------------------------------------------------------------------- */

enum status bundle_next(struct bundle *b, struct bundle_entry *entry, struct err *e) {
    *entry = (struct bundle_entry){ 0 };
    return b->archive ? next_in_archive(b, entry, e) : next_in_directory(b, entry, e);
}

enum status bundle_read(struct bundle *b, void *buffer, size_t n, size_t *got, struct err *e) {
    *got = 0;
    return b->archive ? read_archive(b, buffer, n, got, e) : read_directory(b, buffer, n, got, e);
}

enum status bundle_read_all(struct bundle *b, int64_t limit, char **out, size_t *n,
                            struct err *e) {
    size_t capacity = 64 * 1024, have = 0;
    int64_t hint = b->archive ? b->declared : b->tree.file[b->next - 1].size;
    if (hint > limit)
        return FAIL(e, ERR_FORMAT, "%s: an entry has %lld bytes; at most %lld are read",
                    b->path, (long long)hint, (long long)limit);
    /* The declared size is trusted up to 64 MiB; beyond that, memory grows with the bytes read. */
    if (hint >= 0 && hint <= (64 << 20)) capacity = (size_t)hint + 2;
    char *bytes = malloc(capacity);
    enum status st = bytes ? OK : FAIL(e, ERR_MEMORY, "%zu bytes of %s", capacity, b->path);
    for (size_t got = 1; st == OK && got > 0;) {
        if (capacity - have < 2) {
            char *more = realloc(bytes, capacity * 2);
            if (!more) {
                st = FAIL(e, ERR_MEMORY, "%zu bytes of %s", capacity * 2, b->path);
                break;
            }
            bytes = more;
            capacity *= 2;
        }
        st = bundle_read(b, bytes + have, capacity - have - 1, &got, e);
        have += got;
        if (st == OK && (int64_t)have > limit)
            st = FAIL(e, ERR_FORMAT, "%s: an entry of more than %lld bytes", b->path,
                      (long long)limit);
    }
    if (st != OK) {
        free(bytes);
        return st;
    }
    bytes[have] = 0;
    *out = bytes;
    *n = have;
    return OK;
}
