#include "runner/record/data_other.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"

static const char MEND[] = "put the run's file back, or --data-root DIR counts paths from a folder "
                           "that has it";

void data_other_words(char out[DATA_OTHER_CAP], const char *path, int64_t bytes,
                      const char *sha256) {
    char hash[40] = "";
    if (*sha256) snprintf(hash, sizeof hash, ", sha256 %.12s", sha256);
    snprintf(out, DATA_OTHER_CAP, "%.512s is here, but with other content: %" PRId64 " bytes%s",
             path, bytes, hash);
}

static enum status fail_other(const json_t *then, int64_t bytes, const char *sha256,
                              struct err *e) {
    char words[DATA_OTHER_CAP];
    data_other_words(words, PLAIN(json_text(then, "path", "")), bytes, sha256);
    return FAIL(e, ERR_CONFIG, "%s; the run's had %" PRId64 " bytes, sha256 %.12s; %s", words,
                json_int(then, "bytes"), json_text(then, "sha256", "?"), MEND);
}

enum status data_sizes_check(const json_t *then, const char *root, struct err *e) {
    size_t i;
    const json_t *row;
    json_array_foreach(then, i, row) {
        const char *name = json_text(row, "path", "");
        char path[PATH_CAP];
        struct stat info;
        if (root) TRY(path_join(path, root, name, e));
        else snprintf(path, sizeof path, "%s", name);
        if (stat(path, &info) != 0)
            return FAIL(e, ERR_IO, "%.512s: %s; it had %" PRId64 " bytes, sha256 %.12s; %s",
                        PLAIN(path), strerror(errno), json_int(row, "bytes"),
                        json_text(row, "sha256", "?"), MEND);
        if (S_ISREG(info.st_mode) && info.st_size != json_int(row, "bytes"))
            return fail_other(row, info.st_size, "", e);
    }
    return OK;
}

enum status data_lists_check(const json_t *then, const json_t *now, struct err *e) {
    size_t i;
    const json_t *row;
    if (json_array_size(then) != json_array_size(now)) return OK;
    json_array_foreach(then, i, row) {
        const json_t *other = json_array_get(now, i);
        const char *sha256 = json_text(other, "sha256", "");
        if (strcmp(json_text(row, "path", ""), json_text(other, "path", ""))) return OK;
        if (strcmp(json_text(row, "sha256", ""), sha256))
            return fail_other(row, json_int(other, "bytes"), sha256, e);
    }
    return OK;
}
