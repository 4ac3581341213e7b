#include "runner/base/output_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/base/run_files.h"

enum { OUTPUT_MAX = 256 << 20 }; /* bytes; far above any page */

static enum status refuse(const char *flag, const char *path, const char *what,
                          const struct output_kind *kind, struct err *e) {
    return FAIL(e, ERR_ARG, "--%s %s: %s, and stays as it is; name a new file or an earlier %s",
                flag, path, what, kind->name);
}

static enum status check_folder(const char *flag, const char *path, struct err *e) {
    char folder[PATH_CAP];
    path_parent(folder, path);
    if (access(folder, W_OK | X_OK) == 0) return OK;
    if (errno == ENOENT)
        return FAIL(e, ERR_ARG, "--%s %s: there is no folder %s; make it, or name a file in "
                    "another folder", flag, path, folder);
    return FAIL(e, ERR_ARG, "--%s %s: no file can be written in %s: %s; name a file in another "
                "folder", flag, path, folder, strerror(errno));
}

static enum status check_new(const char *flag, const char *path, const struct output_kind *kind,
                             struct err *e) {
    static const char BUNDLE[] = ".tar.zst";
    size_t length = strlen(path), end = sizeof BUNDLE - 1;
    if (length && path[length - 1] == '/')
        return FAIL(e, ERR_ARG, "--%s %s: it is a folder; name a file", flag, path);
    if (length <= end || strcmp(path + length - end, BUNDLE) != 0) return OK;
    /* A page with a bundle's name among the runs would be read as one. */
    return FAIL(e, ERR_ARG, "--%s %s: such names are for bundles; name a new file or an earlier %s",
                flag, path, kind->name);
}

/* Whether the file begins as its kind does. */
static enum status read_head(const char *path, const struct output_kind *kind, bool *begins,
                             struct err *e) {
    char head[64] = "";
    FILE *f = fopen(path, "rbe");
    if (!f) return FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    *begins = n > 0 && !strncmp(head, kind->begins, strlen(kind->begins));
    return OK;
}

static enum status check_old(const char *flag, const char *path, const struct stat *info,
                             const struct output_kind *kind, struct err *e) {
    static const char OTHER[] = "the file holds other data";
    char *bytes = NULL;
    size_t n = 0;
    if (!S_ISREG(info->st_mode)) return refuse(flag, path, "it is not a regular file", kind, e);
    if (info->st_size == 0) return OK;
    if (!kind->mark) {
        bool begins = false;
        TRY(read_head(path, kind, &begins, e));
        return begins ? OK : refuse(flag, path, OTHER, kind, e);
    }
    if (info->st_size > OUTPUT_MAX) return refuse(flag, path, OTHER, kind, e);
    TRY(file_read(path, OUTPUT_MAX, &bytes, &n, e));
    bool ours = !strncmp(bytes, kind->begins, strlen(kind->begins)) &&
                memmem(bytes, n, kind->mark, strlen(kind->mark));
    free(bytes);
    return ours ? OK : refuse(flag, path, OTHER, kind, e);
}

enum status output_may_replace(const char *flag, const char *path, const struct output_kind *kind,
                               struct err *e) {
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR)
        return FAIL(e, ERR_IO, "stat %s: %s", path, strerror(errno));
    TRY(there ? check_old(flag, path, &info, kind, e) : check_new(flag, path, kind, e));
    return check_folder(flag, path, e);
}
