#include "runner/record/ingest_record.h"

#include <stdlib.h>
#include <string.h>

#include "runner/cache/cache_key.h"
#include "runner/plan/options.h"
#include "runner/record/documents.h"

enum { TOKENIZER_BYTES_MAX = 512 << 20 };

/* The name in the run of the tokenizer's file; NULL: bytes have no file. */
static const char *tokenizer_file(const json_t *record) {
    const char *kind = json_text(json_object_get(record, "tokenizer"), "kind", "");
    return !strcmp(kind, "tokenizer.json") ? "data/experiment/tokenizer.json"
           : !strcmp(kind, "tiktoken")     ? "data/experiment/tokenizer.tiktoken"
                                           : NULL;
}

enum status ingest_record_write(const struct run_dir *dir, const json_t *record,
                                const char *tokenizer, struct err *e) {
    const char *file = tokenizer_file(record);
    char *bytes = NULL;
    size_t n = 0;
    TRY(run_dir_put(dir, DOCUMENT_ingest, record, e));
    if (!file) return OK;
    TRY(file_read(tokenizer, TOKENIZER_BYTES_MAX, &bytes, &n, e));
    enum status st = replace_beneath(dir->root, file, dir->path, bytes, n, e);
    free(bytes);
    return st;
}

enum status ingest_record_tokenizer(const char *path, const json_t *record, char out[PATH_CAP],
                                    struct err *e) {
    const char *file = tokenizer_file(record);
    *out = '\0';
    return file ? path_join(out, path, file, e) : OK;
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
    enum status st = prefix ? options_with_shards(resolved, prefix, out, e)
                            : FAIL(e, ERR_CONFIG, "%s names no tokens", path);
    json_decref(record);
    return st;
}
