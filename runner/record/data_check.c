#include "runner/record/data_check.h"

#include <inttypes.h>
#include <string.h>

#include "model/sha256.h"
#include "runner/base/run_files.h"

static const char CHANGED[] = "it was changed since, or is another one on this host, and the run "
                              "would not be what it says; restore it, or begin anew";

/* Hashing all of it again would take minutes a rank. A file that somebody appends to has another
 * size than what was hashed; one that was made anew, as on a host of its own, other bytes in most
 * places. Lists of before samples have none. */
static enum status check_sample(const json_t *then, const struct data *data, int64_t at,
                                struct err *e) {
    const char *sample = json_text(then, "sample_sha256", NULL);
    char hex[SHA256_HEX];
    if (!sample) return OK;
    TRY(data_sample_sha256(data, at, hex, e));
    if (strcmp(sample, hex) == 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s: other bytes, as many as when the run began: %s",
                data_file_at(data, at).path, CHANGED);
}

static enum status check_files(const json_t *list, const struct data *data, struct err *e) {
    int64_t count = data_file_count(data);
    if ((int64_t)json_array_size(list) != count)
        return FAIL(e, ERR_CONFIG, "%" PRId64 " files of data, and %zu when the run began", count,
                    json_array_size(list));
    for (int64_t i = 0; i < count; i++) {
        struct data_file file = data_file_at(data, i);
        const json_t *then = json_array_get(list, (size_t)i);
        json_int_t bytes = json_integer_value(json_object_get(then, "bytes"));
        if (bytes != file.bytes)
            return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes, and %" JSON_INTEGER_FORMAT
                        " when the run began: %s", file.path, file.bytes, bytes, CHANGED);
        TRY(check_sample(then, data, i, e));
    }
    return OK;
}

enum status data_check(const char *run_path, const struct data *data, struct err *e) {
    char path[PATH_CAP];
    json_t *list = NULL;
    TRY(path_join(path, run_path, "data/experiment/data.json", e));
    if (!path_exists(path)) return OK;
    TRY(json_file_read(path, &list, e));
    enum status st = check_files(list, data, e);
    json_decref(list);
    return st;
}
