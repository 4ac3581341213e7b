#include "runner/base/run_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"

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

/* Replaces `name` in a directory. A file that already has the temporary name, perhaps a link or a
 * FIFO, is removed first. */
static enum status replace_at(int dir, const char *name, const char *root_name, const void *bytes,
                              size_t n, struct err *e) {
    char temporary[PATH_CAP];
    int length = snprintf(temporary, sizeof temporary, "%s.partial", name);
    if (length < 0 || length >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", name);
    (void)unlinkat(dir, temporary, 0);
    int fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return FAIL(e, ERR_IO, "create %s.partial: %s", root_name, strerror(errno));
    enum status st = write_all(fd, bytes, n, root_name, e);
    if (st == OK && fsync(fd) != 0)
        st = FAIL(e, ERR_IO, "fsync %s.partial: %s", root_name, strerror(errno));
    if (close(fd) != 0 && st == OK)
        st = FAIL(e, ERR_IO, "close %s.partial: %s", root_name, strerror(errno));
    if (st == OK && renameat(dir, temporary, dir, name) != 0)
        st = FAIL(e, ERR_IO, "rename %s.partial to it: %s", root_name, strerror(errno));
    if (st != OK) (void)unlinkat(dir, temporary, 0);
    return st;
}

enum status file_replace(const char *path, const void *bytes, size_t n, struct err *e) {
    return replace_at(AT_FDCWD, path, path, bytes, n, e);
}

enum status replace_beneath(int root, const char *path, const char *root_name, const void *bytes,
                            size_t n, struct err *e) {
    char whole[PATH_CAP], folder[PATH_CAP];
    const char *slash = strrchr(path, '/');
    TRY(path_join(whole, root_name, path, e));
    path_parent(folder, path);
    int parent = open_beneath(root, folder, O_RDONLY | O_DIRECTORY, 0, 0);
    if (parent < 0) return open_beneath_failed(root_name, folder, e);
    enum status st = replace_at(parent, slash ? slash + 1 : path, whole, bytes, n, e);
    close(parent);
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

static enum status make_directory(const char *path, struct err *e) {
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return OK;
    return FAIL(e, ERR_IO, "mkdir %s: %s", path, strerror(errno));
}

enum status directory_make(const char *path, struct err *e) {
    char prefix[PATH_CAP];
    for (size_t i = 1; path[i]; i++) {
        if (path[i] != '/') continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)i, path);
        TRY(make_directory(prefix, e));
    }
    return make_directory(path, e);
}

enum status directory_sync(const char *path, struct err *e) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    /* Some network file systems do not support fsync of a directory; their EINVAL is no failure. */
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

enum status json_read_beneath(int root, const char *path, const char *root_name, json_t **out,
                              struct err *e) {
    char whole[PATH_CAP], *text = NULL;
    size_t n = 0;
    int fd;
    TRY(path_join(whole, root_name, path, e));
    TRY(open_file_beneath(root, path, O_RDONLY, root_name, &fd, e));
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", whole, strerror(ENOENT));
    enum status st = file_read_open(fd, whole, JSON_FILE_LIMIT, &text, &n, e);
    close(fd);
    return st == OK ? parse_file(text, n, whole, out, e) : st;
}

/* The text that json_file_write() writes; owned by the caller. */
static enum status write_text(const json_t *value, const char *path, char **out, size_t *n,
                              struct err *e) {
    char *text = json_dump_text(value, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) return FAIL(e, ERR_MEMORY, "no memory for the text of %s", path);
    *n = strlen(text) + 1;
    text[*n - 1] = '\n'; /* replaces the NUL: the length is known */
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

enum status json_write_beneath(int root, const char *path, const char *root_name,
                               const json_t *value, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    TRY(write_text(value, path, &text, &n, e));
    enum status st = replace_beneath(root, path, root_name, text, n, e);
    free(text);
    return st;
}

const char *json_text(const json_t *object, const char *key, const char *otherwise) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

int64_t json_int(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}
