#include "runner/ingest/tokenizer_content.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/ingest/tokenizer_parts.h"

/* ---- the content --------------------------------------------------------------------------- */

/* A merge as "a b", its older form, if no space is in its tokens. */
static json_t *merge_text(const json_t *merge, bool *failed) {
    const char *a = json_string_value(json_array_get(merge, 0));
    const char *b = json_string_value(json_array_get(merge, 1));
    if (json_array_size(merge) != 2 || !a || !b || strchr(a, ' ') || strchr(b, ' '))
        return json_incref((json_t *)merge);
    json_t *text = json_sprintf("%s %s", a, b);
    if (!text) *failed = true;
    return text;
}

static json_t *merges_of(const json_t *merges, bool *failed) {
    json_t *out = json_array();
    const json_t *merge;
    size_t i;
    json_array_foreach(merges, i, merge) json_append(out, merge_text(merge, failed), failed);
    return out;
}

/* The object without the members that are null. */
static json_t *without_null(const json_t *object, bool *failed) {
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value)
        if (!json_is_null(value)) json_put(out, key, json_incref(value), failed);
    return out;
}

static json_t *model_of(const json_t *model, bool *failed) {
    const json_t *merges = json_object_get(model, "merges");
    json_t *out = without_null(model, failed);
    if (merges) json_put(out, "merges", merges_of(merges, failed), failed);
    return out;
}

enum status tokenizer_content(const json_t *file, char out[SHA256_HEX], struct err *e) {
    static const char *const PARTS[] = { "added_tokens", "normalizer", "pre_tokenizer",
                                         "post_processor" };
    bool failed = false;
    json_t *content = json_object();
    json_put(content, "model", model_of(json_object_get(file, "model"), &failed), &failed);
    for (size_t i = 0; i < sizeof PARTS / sizeof *PARTS; i++) {
        json_t *part = json_object_get(file, PARTS[i]);
        if (part && !json_is_null(part)) json_put(content, PARTS[i], json_incref(part), &failed);
    }
    content = json_whole(content, failed);
    if (!content) return FAIL(e, ERR_MEMORY, "the content of a tokenizer");
    enum status st = canonical_hash(content, out, e);
    json_decref(content);
    return st;
}

/* ---- of files and records ------------------------------------------------------------------ */

struct tokenizer_hash tokenizer_hash_of(const struct tokenizer *t) {
    struct tokenizer_hash out;
    memcpy(out.file, t->sha256, sizeof out.file);
    memcpy(out.content, *t->content ? t->content : t->sha256, sizeof out.content);
    return out;
}

/* Of a tokenizer.json; any other file is its own content. */
static enum status hash_text(const char *text, size_t n, struct tokenizer_hash *out,
                             struct err *e) {
    json_t *file = NULL;
    json_error_t why;
    TRY(sha256_bytes(text, n, out->file, e));
    enum status st = json_parse(&file, text, n, JSON_REJECT_DUPLICATES, &why);
    if (st == OK && json_object_get(file, "model")) st = tokenizer_content(file, out->content, e);
    else memcpy(out->content, out->file, sizeof out->content);
    json_decref(file);
    return st == ERR_FORMAT ? OK : st;
}

struct tokenizer_hash tokenizer_hash_file(const char *path) {
    struct tokenizer_hash out = { 0 };
    struct err ignored;
    char *text = NULL;
    size_t n = 0;
    enum status st = strcmp(path, "bytes") != 0
                         ? file_read(path, TOKENIZER_FILE_MAX, &text, &n, &ignored) : OK;
    if (st == OK) st = hash_text(text ? text : "", n, &out, &ignored);
    free(text);
    return st == OK ? out : (struct tokenizer_hash){ 0 };
}

struct tokenizer_hash tokenizer_hash_read(const json_t *record) {
    struct tokenizer_hash out;
    snprintf(out.file, sizeof out.file, "%s", json_text(record, "sha256", ""));
    snprintf(out.content, sizeof out.content, "%s", json_text(record, "content_sha256", ""));
    return out;
}

bool tokenizer_hash_known(const struct tokenizer_hash *a, const struct tokenizer_hash *b) {
    return *a->file && *b->file;
}

bool tokenizer_hash_equal(const struct tokenizer_hash *a, const struct tokenizer_hash *b) {
    return !strcmp(a->file, b->file) || (*a->content && !strcmp(a->content, b->content));
}
