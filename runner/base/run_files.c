#include "runner/base/run_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/json_safe.h"

/* ---- paths --------------------------------------------------------------------------------- */

enum status path_join(char out[PATH_CAP], const char *dir, const char *name, struct err *e) {
    const char *slash = *dir && dir[strlen(dir) - 1] == '/' ? "" : "/";
    int n = snprintf(out, PATH_CAP, "%s%s%s", dir, slash, name);
    if (n < 0 || n >= PATH_CAP)
        return FAIL(e, ERR_ARG, "path of %d bytes is longer than %d: %.200s…", n, PATH_CAP, dir);
    return OK;
}

bool path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool path_is_directory(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static size_t length_without_slashes(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return n;
}

void path_base(char out[PATH_CAP], const char *path) {
    size_t end = length_without_slashes(path), start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    snprintf(out, PATH_CAP, "%.*s", (int)(end - start), path + start);
}

void path_parent(char out[PATH_CAP], const char *path) {
    size_t n = length_without_slashes(path);
    while (n > 0 && path[n - 1] != '/') n--;
    while (n > 1 && path[n - 1] == '/') n--;
    if (n == 0) snprintf(out, PATH_CAP, ".");
    else snprintf(out, PATH_CAP, "%.*s", (int)n, path);
}

/* The directory that the path's last component, which is left of it, lies in: root itself, or a
 * descriptor to close. -1 with errno set. */
static int parent_open(int root, const char **path, bool make_parents) {
    int at = root;
    for (const char *slash; (slash = strchr(*path, '/')); *path = slash + 1) {
        char part[256]; /* NAME_MAX and its NUL */
        size_t n = (size_t)(slash - *path);
        int next = -1;
        if (n == 0 || n >= sizeof part) {
            errno = n ? ENAMETOOLONG : EINVAL;
        } else {
            memcpy(part, *path, n);
            part[n] = 0;
            if (strcmp(part, "..") == 0) errno = EINVAL;
            else if (!make_parents || mkdirat(at, part, 0700) == 0 || errno == EEXIST)
                next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        int saved = errno;
        if (at != root) close(at);
        errno = saved;
        if (next < 0) return -1;
        at = next;
    }
    return at;
}

static void parent_close(int root, int parent) {
    int saved = errno;
    if (parent != root) close(parent);
    errno = saved;
}

int open_beneath(int root, const char *path, int flags, unsigned mode, bool make_parents) {
    int parent = parent_open(root, &path, make_parents);
    if (parent < 0) return -1;
    int fd = openat(parent, path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    parent_close(root, parent);
    return fd;
}

/* What openat(2) says of a path beneath a run: a link or a FIFO in the way is a fault of the
 * directory, not of the system. */
static enum status refuse(const char *shown, const char *path, struct err *e) {
    int why = errno;
    bool strange = why == ELOOP || why == ENOTDIR || why == ENXIO;
    return FAIL(e, strange ? ERR_FORMAT : ERR_IO, "open %s/%s: %s%s", shown, path, strerror(why),
                strange ? " (a run holds files and directories only)" : "");
}

enum status open_file_beneath(int root, const char *path, int flags, const char *shown, int *out,
                         struct err *e) {
    struct stat info;
    *out = open_beneath(root, path, flags | O_NONBLOCK, 0644, false);
    if (*out < 0 && errno == ENOENT && !(flags & O_CREAT)) return OK;
    if (*out < 0) return refuse(shown, path, e);
    if (fstat(*out, &info) == 0 && S_ISREG(info.st_mode)) return OK;
    close(*out);
    *out = -1;
    return FAIL(e, ERR_FORMAT, "%s/%s is no regular file; a run holds files and directories only",
                shown, path);
}

enum status open_stream_beneath(int root, const char *path, const char *shown, FILE **out,
                           struct err *e) {
    int fd;
    *out = NULL;
    TRY(open_file_beneath(root, path, O_RDONLY, shown, &fd, e));
    if (fd < 0) return OK;
    *out = fdopen(fd, "r");
    if (*out) return OK;
    close(fd);
    return FAIL(e, ERR_MEMORY, "no memory to read %s/%s", shown, path);
}

/* ---- whole files --------------------------------------------------------------------------- */

enum status write_all(int fd, const void *bytes, size_t n, const char *name, struct err *e) {
    const char *at = bytes;
    while (n > 0) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return FAIL(e, ERR_IO, "write %s: %s", name, strerror(errno));
        at += put;
        n -= (size_t)put;
    }
    return OK;
}

/* Replaces `name` in a directory. The temporary file is a new one: whatever has its name, perhaps a
 * link or a FIFO, goes. */
static enum status replace_at(int dir, const char *name, const char *shown, const void *bytes,
                              size_t n, struct err *e) {
    char temporary[PATH_CAP];
    int length = snprintf(temporary, sizeof temporary, "%s.partial", name);
    if (length < 0 || length >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", name);
    (void)unlinkat(dir, temporary, 0);
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return FAIL(e, ERR_IO, "create %s.partial: %s", shown, strerror(errno));
    enum status st = write_all(fd, bytes, n, shown, e);
    if (st == OK && fsync(fd) != 0)
        st = FAIL(e, ERR_IO, "fsync %s.partial: %s", shown, strerror(errno));
    if (close(fd) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "close %s.partial: %s", shown, strerror(errno));
    if (st == OK && renameat(dir, temporary, dir, name) != 0)
        st = FAIL(e, ERR_IO, "rename %s.partial to it: %s", shown, strerror(errno));
    if (st != OK) (void)unlinkat(dir, temporary, 0);
    return st;
}

enum status file_replace(const char *path, const void *bytes, size_t n, struct err *e) {
    return replace_at(AT_FDCWD, path, path, bytes, n, e);
}

enum status replace_beneath(int root, const char *path, const char *shown, const void *bytes,
                            size_t n, struct err *e) {
    char whole[PATH_CAP];
    const char *name = path;
    TRY(path_join(whole, shown, path, e));
    int parent = parent_open(root, &name, false);
    if (parent < 0) return refuse(shown, path, e);
    enum status st = replace_at(parent, name, whole, bytes, n, e);
    parent_close(root, parent);
    return st;
}

enum status file_read_open(int fd, const char *path, int64_t limit, char **out, size_t *n,
                           struct err *e) {
    enum status st = OK;
    char *bytes = NULL;
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        st = FAIL(e, ERR_IO, "%s is not a regular file", path);
        goto done;
    }
    if (info.st_size > limit) {
        st = FAIL(e, ERR_FORMAT, "%s has %lld bytes; at most %lld are read", path,
                  (long long)info.st_size, (long long)limit);
        goto done;
    }
    size_t size = (size_t)info.st_size, have = 0;
    bytes = malloc(size + 1);
    if (!bytes) {
        st = FAIL(e, ERR_MEMORY, "%zu bytes to read %s", size + 1, path);
        goto done;
    }
    while (have < size) {
        ssize_t got = read(fd, bytes + have, size - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            st = FAIL(e, ERR_IO, "read %s: %s", path, strerror(errno));
            goto done;
        }
        if (got == 0) break;
        have += (size_t)got;
    }
    bytes[have] = 0;
    *out = bytes;
    bytes = NULL; /* moved to the caller */
    *n = have;
done:
    free(bytes);
    return st;
}

enum status file_read(const char *path, int64_t limit, char **out, size_t *n, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    enum status st = file_read_open(fd, path, limit, out, n, e);
    close(fd);
    return st;
}

static enum status make_one(const char *path, struct err *e) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return OK;
    return FAIL(e, ERR_IO, "mkdir %s: %s", path, strerror(errno));
}

enum status directory_make(const char *path, struct err *e) {
    char prefix[PATH_CAP];
    for (size_t i = 1; path[i]; i++) {
        if (path[i] != '/') continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)i, path);
        TRY(make_one(prefix, e));
    }
    return make_one(path, e);
}

enum status directory_sync(const char *path, struct err *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    /* Some network file systems answer EINVAL: they have no such notion, and that is no failure. */
    int failed = fsync(fd) != 0 && errno != EINVAL;
    int saved = errno;
    close(fd);
    return failed ? FAIL(e, ERR_IO, "fsync %s: %s", path, strerror(saved)) : OK;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static enum status parse_file(char *text, size_t n, const char *path, json_t **out,
                              struct err *e) {
    json_error_t why;
    json_t *value = NULL;
    enum status st = json_parse(&value, text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (st != OK) return FAIL(e, st, "%s:%d: %s", path, why.line, why.text);
    *out = value;
    return OK;
}

enum status json_file_read(const char *path, json_t **out, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    TRY(file_read(path, JSON_FILE_LIMIT, &text, &n, e));
    return parse_file(text, n, path, out, e);
}

enum status json_read_beneath(int root, const char *path, const char *shown, json_t **out,
                              struct err *e) {
    char whole[PATH_CAP], *text = NULL;
    size_t n = 0;
    int fd;
    TRY(path_join(whole, shown, path, e));
    TRY(open_file_beneath(root, path, O_RDONLY, shown, &fd, e));
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", whole, strerror(ENOENT));
    enum status st = file_read_open(fd, whole, JSON_FILE_LIMIT, &text, &n, e);
    close(fd);
    return st == OK ? parse_file(text, n, whole, out, e) : st;
}

/* As json_file_write() says; the caller's. */
static enum status write_text(const json_t *value, const char *path, char **out, size_t *n,
                              struct err *e) {
    char *text = json_dump_text(value, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) return FAIL(e, ERR_MEMORY, "no memory for the text of %s", path);
    *n = strlen(text) + 1;
    text[*n - 1] = '\n'; /* takes the place of the NUL: the length is known */
    *out = text;
    return OK;
}

enum status json_file_write(const char *path, const json_t *value, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    TRY(write_text(value, path, &text, &n, e));
    enum status st = file_replace(path, text, n, e);
    free(text);
    return st;
}

enum status json_write_beneath(int root, const char *path, const char *shown, const json_t *value,
                               struct err *e) {
    char *text = NULL;
    size_t n = 0;
    TRY(write_text(value, path, &text, &n, e));
    enum status st = replace_beneath(root, path, shown, text, n, e);
    free(text);
    return st;
}

const char *json_text(const json_t *object, const char *key, const char *otherwise) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

/* ---- a tree of files ----------------------------------------------------------------------- */

enum { TREE_DEPTH = 64 };

struct walk {
    const char *root;
    int64_t limit, capacity;
    struct tree *out; /* NULL: only looked at */
};

static enum status tree_add(struct walk *w, const char *path, int64_t size, struct err *e) {
    struct tree *t = w->out;
    if (!t) return OK;
    if (t->count >= w->limit)
        return FAIL(e, ERR_FORMAT, "%s holds more than %lld files", w->root, (long long)w->limit);
    if (t->count == w->capacity) {
        int64_t capacity = w->capacity ? 2 * w->capacity : 64;
        struct tree_file *file = realloc(t->file, (size_t)capacity * sizeof *file);
        if (!file) return FAIL(e, ERR_MEMORY, "%lld file names", (long long)capacity);
        t->file = file;
        w->capacity = capacity;
    }
    char *copy = strdup(path);
    if (!copy) return FAIL(e, ERR_MEMORY, "the name %s", path);
    t->file[t->count++] = (struct tree_file){ .path = copy, .size = size };
    return OK;
}

static enum status tree_walk(struct walk *w, int fd, const char *prefix, int depth, struct err *e);

static enum status tree_visit(struct walk *w, int fd, const char *prefix, const char *name,
                              int depth, struct err *e) {
    char path[PATH_CAP];
    struct stat info;
    if (*prefix) TRY(path_join(path, prefix, name, e));
    else snprintf(path, sizeof path, "%s", name);
    if (fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? OK /* a live run's temporary file, renamed since */
                               : FAIL(e, ERR_IO, "stat %s/%s: %s", w->root, path,
                                      strerror(errno));
    if (S_ISREG(info.st_mode)) return tree_add(w, path, info.st_size, e);
    if (!S_ISDIR(info.st_mode))
        return FAIL(e, ERR_FORMAT, "%s/%s is %s; a run holds files and directories only", w->root,
                    path, S_ISLNK(info.st_mode) ? "a symbolic link" : "no regular file");
    if (depth >= TREE_DEPTH)
        return FAIL(e, ERR_FORMAT, "%s/%s is nested deeper than %d", w->root, path, TREE_DEPTH);
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0 && errno == ENOENT) return OK; /* likewise */
    if (below < 0) return FAIL(e, ERR_IO, "open %s/%s: %s", w->root, path, strerror(errno));
    return tree_walk(w, below, path, depth + 1, e);
}

/* Takes fd: it is closed in every case. */
static enum status tree_walk(struct walk *w, int fd, const char *prefix, int depth,
                             struct err *e) {
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return FAIL(e, ERR_IO, "list %s/%s: %s", w->root, prefix, strerror(errno));
    }
    enum status st = OK;
    const struct dirent *entry;
    while (st == OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        st = tree_visit(w, fd, prefix, entry->d_name, depth, e);
    }
    closedir(dir);
    return st;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct tree_file *)a)->path, ((const struct tree_file *)b)->path);
}

enum status tree_list(const char *root, int64_t limit, struct tree *out, struct err *e) {
    *out = (struct tree){ 0 };
    int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", root, strerror(errno));
    struct walk w = { .root = root, .limit = limit, .out = out };
    enum status st = tree_walk(&w, fd, "", 0, e);
    if (st != OK) tree_free(out);
    else if (out->count) qsort(out->file, (size_t)out->count, sizeof *out->file, by_path);
    return st;
}

enum status tree_check(int root, const char *shown, struct err *e) {
    struct walk w = { .root = shown };
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", shown, strerror(errno));
    return tree_walk(&w, fd, "", 0, e);
}

void tree_free(struct tree *t) {
    for (int64_t i = 0; i < t->count; i++) free(t->file[i].path);
    free(t->file);
    *t = (struct tree){ 0 };
}

static enum status remove_at(int at, const char *name, const char *shown, struct err *e) {
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT || errno == ENOTDIR) return OK;
    if (errno != EISDIR && errno != EPERM)
        return FAIL(e, ERR_IO, "remove %s: %s", shown, strerror(errno));
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return FAIL(e, ERR_IO, "remove %s: %s", shown, strerror(errno));
    }
    enum status st = OK;
    const struct dirent *entry;
    while (st == OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char below[PATH_CAP];
        st = path_join(below, shown, entry->d_name, e);
        if (st == OK) st = remove_at(fd, entry->d_name, below, e);
    }
    closedir(dir);
    if (st == OK && unlinkat(at, name, AT_REMOVEDIR) != 0)
        st = FAIL(e, ERR_IO, "remove %s: %s", shown, strerror(errno));
    return st;
}

enum status tree_remove(const char *path, struct err *e) {
    return remove_at(AT_FDCWD, path, path, e);
}
