#include "runner/base/output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/base/run_files.h"

enum { OUTPUT_MAX = 256 << 20 }; /* bytes; far above any page */

static enum status refuse(const char *flag, const char *path, const char *what, const char *kind,
                          struct err *e) {
    return FAIL(e, ERR_ARG, "--%s %s: %s, and stays as it is; name a new file or an earlier %s",
                flag, path, what, kind);
}

enum status output_may_replace(const char *flag, const char *path, const char *mark,
                               const char *kind, struct err *e) {
    static const char BUNDLE[] = ".tar.zst";
    struct stat info;
    char *bytes = NULL;
    size_t n = 0, length = strlen(path), end = sizeof BUNDLE - 1;
    if (stat(path, &info) != 0) {
        /* A page with a bundle's name among the runs would be read as one. */
        if (errno == ENOENT && length > end && !strcmp(path + length - end, BUNDLE))
            return FAIL(e, ERR_ARG, "--%s %s: bundles are called so; name a new file or an "
                        "earlier %s", flag, path, kind);
        if (errno == ENOENT) return OK;
        return FAIL(e, ERR_IO, "stat %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) return refuse(flag, path, "it is no regular file", kind, e);
    if (info.st_size == 0) return OK;
    if (info.st_size > OUTPUT_MAX) return refuse(flag, path, "the file holds other data", kind, e);
    TRY(file_read(path, OUTPUT_MAX, &bytes, &n, e));
    bool ours = memmem(bytes, n, mark, strlen(mark)) != NULL;
    free(bytes);
    return ours ? OK : refuse(flag, path, "the file holds other data", kind, e);
}
