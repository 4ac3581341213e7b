#include "runner/record/data_check.h"

#include <inttypes.h>

#include "runner/base/run_files.h"

/* Hashing again would take minutes a rank. A file that somebody appends to, or writes anew, has
 * another size than what was hashed. */
static enum status check_files(const json_t *list, const struct data *data, struct err *e) {
    int64_t count = data_file_count(data);
    if ((int64_t)json_array_size(list) != count)
        return FAIL(e, ERR_CONFIG, "%" PRId64 " files of data, and %zu when the run began", count,
                    json_array_size(list));
    for (int64_t i = 0; i < count; i++) {
        struct data_file file = data_file_at(data, i);
        const json_t *then = json_object_get(json_array_get(list, (size_t)i), "bytes");
        if (json_integer_value(then) == file.bytes) continue;
        return FAIL(e, ERR_CONFIG, "%s: %" PRId64 " bytes, and %" JSON_INTEGER_FORMAT
                    " when the run began: it was changed since, and the run would not be what it "
                    "says; restore it, or begin anew", file.path, file.bytes,
                    json_integer_value(then));
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
