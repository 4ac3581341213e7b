#include "runner/base/file_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/paths.h"

enum { TREE_DEPTH = 64 };

struct walk {
    const char *root;
    int64_t limit, capacity;
    struct tree *out; /* NULL: check only */
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
        return errno == ENOENT ? OK /* a temporary file of a live run, renamed meanwhile */
                               : FAIL(e, ERR_IO, "stat %s/%s: %s", w->root, path,
                                      strerror(errno));
    if (S_ISREG(info.st_mode)) return tree_add(w, path, info.st_size, e);
    if (!S_ISDIR(info.st_mode))
        return FAIL(e, ERR_FORMAT, "%s/%s is %s; a run holds files and directories only", w->root,
                    path, S_ISLNK(info.st_mode) ? "a symbolic link" : "not a regular file");
    if (depth >= TREE_DEPTH)
        return FAIL(e, ERR_FORMAT, "%s/%s is nested deeper than %d", w->root, path, TREE_DEPTH);
    int below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0 && errno == ENOENT) return OK; /* as above */
    if (below < 0) return FAIL(e, ERR_IO, "open %s/%s: %s", w->root, path, strerror(errno));
    return tree_walk(w, below, path, depth + 1, e);
}

/* Closes fd in every case. */
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

enum status tree_check(int root, const char *root_name, struct err *e) {
    struct walk w = { .root = root_name };
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL(e, ERR_IO, "open %s: %s", root_name, strerror(errno));
    return tree_walk(&w, fd, "", 0, e);
}

void tree_free(struct tree *t) {
    for (int64_t i = 0; i < t->count; i++) free(t->file[i].path);
    free(t->file);
    *t = (struct tree){ 0 };
}

int64_t tree_bytes(const char *root) {
    struct tree files;
    int64_t bytes = 0;
    if (tree_list(root, INT64_MAX, &files, NULL) != OK) return 0;
    for (int64_t i = 0; i < files.count; i++) bytes += files.file[i].size;
    tree_free(&files);
    return bytes;
}

static enum status remove_at(int at, const char *name, const char *root_name, struct err *e) {
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT || errno == ENOTDIR) return OK;
    if (errno != EISDIR && errno != EPERM)
        return FAIL(e, ERR_IO, "remove %s: %s", root_name, strerror(errno));
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0) close(fd);
        return FAIL(e, ERR_IO, "remove %s: %s", root_name, strerror(errno));
    }
    enum status st = OK;
    const struct dirent *entry;
    while (st == OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char below[PATH_CAP];
        st = path_join(below, root_name, entry->d_name, e);
        if (st == OK) st = remove_at(fd, entry->d_name, below, e);
    }
    closedir(dir);
    if (st == OK && unlinkat(at, name, AT_REMOVEDIR) != 0)
        st = FAIL(e, ERR_IO, "remove %s: %s", root_name, strerror(errno));
    return st;
}

enum status tree_remove(const char *path, struct err *e) {
    return remove_at(AT_FDCWD, path, path, e);
}
