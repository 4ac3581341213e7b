#include "runner/run/removal_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/record/documents.h"
#include "runner/record/run_lock.h"

void removal_free(struct removal *r) {
    free(r->item);
    json_decref(r->spared);
    *r = (struct removal){ 0 };
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Bytes of a file, or of all regular files below a directory. */
static int64_t bytes_of(const char *path) {
    struct stat info;
    struct tree files;
    int64_t bytes = 0;
    if (lstat(path, &info) != 0) return 0;
    if (!S_ISDIR(info.st_mode)) return (int64_t)info.st_size;
    if (tree_list(path, INT64_MAX, &files, NULL) != OK) return 0;
    for (int64_t i = 0; i < files.count; i++) bytes += files.file[i].size;
    tree_free(&files);
    return bytes;
}

enum status removal_add(struct removal *r, const char *path, const char *why, struct err *e) {
    struct stat info;
    if (lstat(path, &info) != 0) return OK; /* the run has no such part */
    for (int64_t i = 0; i < r->count; i++)
        if (!strcmp(r->item[i].path, path)) return OK;
    struct removal_item *item = realloc(r->item, (size_t)(r->count + 1) * sizeof *item);
    if (!item) return FAIL(e, ERR_MEMORY, "a list of %lld things to remove",
                           (long long)r->count + 1);
    r->item = item;
    item += r->count++;
    *item = (struct removal_item){ .bytes = bytes_of(path) };
    snprintf(item->path, sizeof item->path, "%s", path);
    snprintf(item->why, sizeof item->why, "%s", why);
    r->bytes += item->bytes;
    return OK;
}

enum status removal_spare(struct removal *r, const char *path, const char *why, struct err *e) {
    bool failed = false;
    if (!r->spared) r->spared = json_array();
    json_append(r->spared, json_pack("{s:o, s:o}", "path", json_from_text(path), "why",
                                     json_from_text(why)), &failed);
    return failed ? FAIL(e, ERR_MEMORY, "a list of what stays") : OK;
}

enum status removal_part(char out[PATH_CAP], const char *stem, const char *suffix,
                         struct err *e) {
    int n = snprintf(out, PATH_CAP, "%s%s", stem, suffix);
    return n > 0 && n < PATH_CAP ? OK : FAIL(e, ERR_ARG, "path too long: %.200s…", stem);
}

/* ---- removal --------------------------------------------------------------------------------- */

/* Takes the lock of a run. A full disk may have no room for it; then it must be enough that nobody
 * has it. */
static enum status take_lock(const char *path, int *fd, struct err *e) {
    struct run_writer writer;
    enum status st = run_lock_take(path, false, fd, e);
    return st == ERR_IO && run_lock_look(path, &writer) == RUN_LIFE_NONE ? OK : st;
}

/* A directory leaves its name at once: runs/X -> runs/.X.removed. `gc` removes what an interrupted
 * removal left. */
static enum status remove_directory(const char *path, struct err *e) {
    char parent[PATH_CAP], base[PATH_CAP], hidden[PATH_CAP], inner[PATH_CAP];
    int fd = -1;
    path_parent(parent, path);
    path_base(base, path);
    int n = snprintf(hidden, sizeof hidden, "%s/%s%s%s", parent, *base == '.' ? "" : ".", base,
                     *base == '.' ? "" : REMOVAL_SUFFIX);
    if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", path);
    TRY(path_join(inner, path, DOCUMENT_run, e));
    if (path_exists(inner)) TRY(take_lock(path, &fd, e));
    enum status st = strcmp(path, hidden) ? tree_remove(hidden, e) : OK;
    if (st == OK && rename(path, hidden) != 0)
        st = FAIL(e, ERR_IO, "rename %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st == OK ? tree_remove(hidden, e) : st;
}

enum status removal_do(const struct removal *r, struct err *e) {
    for (int64_t i = 0; i < r->count; i++) {
        const char *path = r->item[i].path;
        struct stat info;
        if (lstat(path, &info) != 0 && errno == ENOENT) continue; /* another process was faster */
        if (S_ISDIR(info.st_mode)) TRY(remove_directory(path, e));
        else if (unlink(path) != 0 && errno != ENOENT)
            return FAIL(e, ERR_IO, "remove %s: %s", path, strerror(errno));
    }
    return OK;
}
