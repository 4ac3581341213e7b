#include "runner/record/text_look.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "model/ground/input_file.h"
#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/cache/eval_sets.h"
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

/* How a file is read. */
enum reader { AS_BYTES, BY_BYTES, BY_TOKENIZER }; /* BY_BYTES: the tokenizer is "bytes" */

/* *head: of a file of no known format; zeroed for another. */
static enum status look_at(const char *path, enum reader reader, bool lines,
                           struct text_head *head, struct err *e) {
    struct input_file f;
    struct err ignored;
    char bytes[TEXT_HEAD];
    *head = (struct text_head){ 0 };
    if (input_open(&f, path, &ignored) != OK) return OK;
    int64_t n = f.bytes < TEXT_HEAD ? f.bytes : TEXT_HEAD;
    bool read = input_read(&f, 0, n, bytes, &ignored) == OK;
    input_close(&f);
    if (!read) return OK;
    const struct source_kind kind = source_kind(bytes, (size_t)n);
    TRY(check_kind(path, kind, reader != AS_BYTES, e));
    if (!kind.name) text_head_add(head, bytes, (size_t)n);
    if (reader != BY_TOKENIZER && !lines) return OK;
    return text_head_check(head, path, lines, e) == OK ? OK : (e->code = ERR_CONFIG);
}

/* Shards have no mark of their own; their index does. */
static enum status check_shard(const char *path, struct err *e) {
    static const char BIN[] = ".bin";
    char index[PATH_CAP], bytes[16];
    struct input_file f;
    struct err ignored;
    size_t n = strlen(path), stem = n - (sizeof BIN - 1);
    if (n < sizeof BIN || strcmp(path + stem, BIN) != 0) return OK;
    snprintf(index, sizeof index, "%.*s.idx", (int)stem, path);
    if (input_open(&f, index, &ignored) != OK) return OK;
    bool shard = f.bytes >= (int64_t)sizeof bytes &&
                 input_read(&f, 0, sizeof bytes, bytes, &ignored) == OK &&
                 source_kind(bytes, sizeof bytes).name;
    input_close(&f);
    if (!shard) return OK;
    return FAIL(e, ERR_CONFIG, "%s is a token shard, with the index %s; data = tokens { path = "
                "\"%s\" } reads it", path, index, path);
}

/* `name`: as the configuration has it. */
static enum status check_folder(const char *path, const char *name, bool lines, struct err *e) {
    size_t n = strlen(name);
    if (!path_is_directory(path)) return OK;
    while (n > 1 && name[n - 1] == '/') n--;
    return FAIL(e, ERR_CONFIG, "%s is a folder; name the files in it, all at once by a pattern "
                "such as \"%.*s/*.%s\"", path, (int)n, name, lines ? "jsonl" : "txt");
}

static enum status look_at_files(const json_t *paths, const char *root, enum reader reader,
                                 bool lines, struct text_doubts *doubts, struct err *e) {
    const json_t *value;
    char path[PATH_CAP];
    size_t i;
    json_array_foreach(paths, i, value) {
        struct text_head head;
        const char *name = json_string_value(value);
        if (root) TRY(path_join(path, root, name, e));
        else snprintf(path, sizeof path, "%s", name);
        TRY(check_folder(path, name, lines, e));
        TRY(check_shard(path, e));
        TRY(look_at(path, reader, lines, &head, e));
        text_doubts_add(doubts, &head, path);
    }
    return OK;
}

enum status text_look(const json_t *config, const char *root, char warning[TEXT_HEAD_CAP],
                      struct err *e) {
    const json_t *data = json_object_get(config, "data");
    const char *kind = json_text(data, "kind", "");
    bool text = !strcmp(kind, "text"), lines = !strcmp(kind, "chats");
    bool bytes = !strcmp(json_text(data, "tokenizer", ""), "bytes");
    enum reader reader = !cache_is_needed(config) ? AS_BYTES : bytes ? BY_BYTES : BY_TOKENIZER;
    struct text_doubts doubts = { 0 };
    const char *name;
    json_t *files;
    warning[0] = '\0';
    if (!text && !lines) return OK;
    TRY(look_at_files(json_object_get(data, "paths"), root, reader, lines, &doubts, e));
    json_object_foreach(eval_sets_of(config), name, files) {
        enum status st = look_at_files(files, root, reader, lines, &doubts, e);
        if (st != OK) return err_prefix(e, "eval.also.%s", name), st;
    }
    if (text) /* JSON lines with such a byte are an error anyway */
        text_doubts_warning(warning, &doubts);
    return OK;
}
