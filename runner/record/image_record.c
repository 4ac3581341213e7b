#include "runner/record/image_record.h"

#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

bool image_inside(void) { return access(IMAGE_RECORD_PATH, F_OK) == 0; }

json_t *image_record(const char *path) {
    static const char SCHEMA[] = "fp8lab.image/1";
    json_t *record = NULL;
    struct err why = { 0 };
    if (!path_exists(path)) return json_pack("{s:s,s:b}", "schema", SCHEMA, "inside", false);
    if (json_file_read(path, &record, &why) != OK || !json_is_object(record)) {
        json_decref(record);
        return json_pack("{s:s,s:b,s:s}", "schema", SCHEMA, "inside", true, "problem",
                         *why.text ? why.text : "not a JSON object");
    }
    bool failed = false;
    json_put(record, "inside", json_true(), &failed);
    return json_whole(record, failed);
}
