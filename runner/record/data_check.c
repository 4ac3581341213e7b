#include "runner/record/data_check.h"

#include <inttypes.h>
#include <string.h>

#include "model/ground/sha256.h"
#include "runner/base/run_files.h"
#include "runner/record/documents.h"

static const char CHANGED[] = "the file changed, or this host has another one; restore the file, "
                              "or start a new run";

/* Hashing all data again would take minutes per rank. Appending changes a file's size. Writing a
 * file again, as on another host, changes bytes in most places. Lists of old versions have no
 * samples. */
static enum status check_sample(const json_t *then, const struct data *data, int64_t at,
                                struct err *e) {
    const char *sample = json_text(then, "sample_sha256", NULL);
    char hex[SHA256_HEX];
    if (!sample) return OK;
    TRY(data_sample_sha256(data, at, hex, e));
    if (strcmp(sample, hex) == 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: same size but other bytes than when the run began: %s",
                data_file_at(data, at).path, CHANGED);
}

static enum status check_files(const json_t *list, const struct data *data, struct err *e) {
    int64_t count = data_file_count(data);
    if ((int64_t)json_array_size(list) != count)
        return FAIL(e, ERR_CONFIG, "%" PRId64 " files of data, but %zu when the run began", count,
                    json_array_size(list));
    for (int64_t i = 0; i < count; i++) {
        struct data_file file = data_file_at(data, i);
        const json_t *then = json_array_get(list, (size_t)i);
        json_int_t bytes = json_integer_value(json_object_get(then, "bytes"));
        if (bytes != file.bytes)
            return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes, but %" JSON_INTEGER_FORMAT
                        " when the run began: %s", file.path, file.bytes, bytes, CHANGED);
        TRY(check_sample(then, data, i, e));
    }
    return OK;
}

enum status data_check(const char *run_path, const struct data *data, struct err *e) {
    char path[PATH_CAP];
    json_t *list = NULL;
    TRY(path_join(path, run_path, RUN_PATH_data_files, e));
    if (!path_exists(path)) return OK;
    TRY(json_file_read(path, &list, e));
    enum status st = check_files(list, data, e);
    json_decref(list);
    return st;
}
