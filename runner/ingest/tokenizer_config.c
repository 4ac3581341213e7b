#include "runner/ingest/tokenizer_config.h"

#include <stdlib.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"

/* Hugging Face writes 1e30 as an integer of 31 digits into model_max_length. */
enum status tokenizer_config_read(const char *path, json_t **out, struct err *e) {
    char *bytes;
    size_t n;
    json_error_t why;
    TRY(file_read(path, JSON_FILE_LIMIT, &bytes, &n, e));
    enum status st = json_parse(out, bytes, n, JSON_DECODE_INT_AS_REAL, &why);
    free(bytes);
    if (st != OK) return FAIL(e, st, "%s:%d: %s", path, why.line, why.text);
    if (json_is_object(*out)) return OK;
    json_decref(*out);
    *out = NULL;
    return FAIL(e, ERR_FORMAT, "%s: expected an object", path);
}

bool tokenizer_config_has_template(const char *path) {
    json_t *config = NULL;
    struct err ignored;
    if (!path_exists(path) || tokenizer_config_read(path, &config, &ignored) != OK) return false;
    const json_t *template = json_object_get(config, "chat_template");
    bool has = template && !json_is_null(template);
    json_decref(config);
    return has;
}
