#include "runner/record/ingest_record.h"

#include <stdlib.h>
#include <string.h>

#include "runner/cache/cache_key.h"
#include "runner/plan/options.h"
#include "runner/record/data_other.h"
#include "runner/record/documents.h"

enum { KEPT_BYTES_MAX = 512 << 20 };

enum status ingest_record_write(const struct run_dir *dir, const struct cache_entry *x,
                                struct err *e) {
    const char *name;
    json_t *path;
    TRY(run_dir_put(dir, DOCUMENT_ingest, x->record, e));
    json_object_foreach(x->kept, name, path) {
        char to[PATH_CAP], *bytes = NULL;
        size_t n = 0;
        TRY(path_join(to, INGEST_FOLDER, name, e));
        TRY(file_read(json_string_value(path), KEPT_BYTES_MAX, &bytes, &n, e));
        enum status st = replace_beneath(dir->root, to, dir->path, bytes, n, e);
        free(bytes);
        TRY(st);
    }
    return OK;
}

enum status ingest_sources_check(const json_t *then, const json_t *now, struct err *e) {
    json_t *before = cache_record_sources(then), *after = cache_record_sources(now);
    enum status st = before && after ? data_lists_check(before, after, e)
                                     : FAIL(e, ERR_MEMORY, "the files of a text");
    json_decref(before);
    json_decref(after);
    return st;
}

enum status ingest_record_apply(const char *run_path, json_t *resolved, json_t **out,
                                struct err *e) {
    char path[PATH_CAP];
    json_t *record = NULL;
    *out = NULL;
    if (!cache_is_needed(resolved)) {
        *out = json_incref(resolved);
        return OK;
    }
    TRY(path_join(path, run_path, DOCUMENT_ingest, e));
    TRY(json_file_read(path, &record, e));
    const char *prefix = json_text(record, "prefix", NULL);
    enum status st = prefix ? options_with_shards(resolved, record, out, e)
                            : FAIL(e, ERR_CONFIG, "%s names no tokens", path);
    json_decref(record);
    return st;
}
