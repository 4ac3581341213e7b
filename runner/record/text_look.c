#include "runner/record/text_look.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/ingest/source_kind.h"

/* `tokenised`: ingestion reads the file, and unpacks some kinds. */
static enum status check_kind(const char *path, struct source_kind kind, bool tokenised,
                              struct err *e) {
    if (!kind.name || (tokenised && kind.opened)) return OK;
    const char *unpack = kind.opened ? "unpack it, or name the tokenizer \"bytes\", which does"
                                     : "unpack it";
    return FAIL(e, ERR_CONFIG, "%s is %s, which is not read as text; %s", path, kind.name,
                kind.instead ? kind.instead : unpack);
}

/* *zeros: the file is of no known format, and its head has bytes of zero. */
static enum status look_at(const char *path, bool tokenised, bool *zeros, struct err *e) {
    struct input_file f;
    struct err ignored;
    char head[TEXT_LOOK_HEAD];
    *zeros = false;
    if (input_open(&f, path, &ignored) != OK) return OK;
    int64_t n = f.bytes < TEXT_LOOK_HEAD ? f.bytes : TEXT_LOOK_HEAD;
    bool read = input_read(&f, 0, n, head, &ignored) == OK;
    input_close(&f);
    if (!read) return OK;
    const struct source_kind kind = source_kind(head, (size_t)n);
    *zeros = !kind.name && memchr(head, 0, (size_t)n);
    return check_kind(path, kind, tokenised, e);
}

enum status text_look(const json_t *config, const char *root, char warning[TEXT_LOOK_CAP],
                      struct err *e) {
    const json_t *data = json_object_get(config, "data"), *value;
    const char *kind = json_text(data, "kind", "");
    const json_t *paths = json_object_get(data, "paths");
    bool text = !strcmp(kind, "text"), tokenised = cache_is_needed(config);
    char path[PATH_CAP], first[PATH_CAP] = "", others[64] = "";
    int64_t count = 0;
    size_t i;
    warning[0] = '\0';
    if (!text && strcmp(kind, "chats") != 0) return OK;
    json_array_foreach(paths, i, value) {
        bool zeros;
        const char *name = json_string_value(value);
        if (root) TRY(path_join(path, root, name, e));
        else snprintf(path, sizeof path, "%s", name);
        TRY(look_at(path, tokenised, &zeros, e));
        if (!zeros || !text) continue; /* JSON lines with such a byte are an error anyway */
        if (!count++) snprintf(first, sizeof first, "%s", path);
    }
    if (!count) return OK;
    if (count > 1)
        snprintf(others, sizeof others, ", and %" PRId64 " more of %zu files", count - 1,
                 json_array_size(paths));
    snprintf(warning, TEXT_LOOK_CAP, "%.256s%s: bytes of zero in the first 64 KiB, so it may be no "
             "text; all of it is read as text", first, others);
    return OK;
}
