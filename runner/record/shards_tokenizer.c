#include "runner/record/shards_tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "runner/base/run_files.h"

/* The first shard: of `path`, `paths` or `parts`. */
static const char *first_shard(const json_t *data) {
    const json_t *part = json_array_get(json_object_get(data, "parts"), 0);
    const json_t *of = part ? part : data;
    const char *path = json_text(of, "path", NULL);
    return path ? path : json_string_value(json_array_get(json_object_get(of, "paths"), 0));
}

static enum status name_description(const char *shard, const char *root, char out[PATH_CAP],
                                    struct err *e) {
    if (root) TRY(path_join(out, root, shard, e));
    else if (snprintf(out, PATH_CAP, "%s", shard) >= PATH_CAP)
        return FAIL(e, ERR_CONFIG, "%.200s...: too long a path", shard);
    size_t n = strlen(out);
    if (n > 4 && (!strcmp(out + n - 4, ".bin") || !strcmp(out + n - 4, ".idx"))) n -= 4;
    if (n + 6 > PATH_CAP) return FAIL(e, ERR_CONFIG, "%.200s...: too long a path", shard);
    strcpy(out + n, ".json");
    return OK;
}

enum status shards_tokenizer_find(const json_t *data, const char *root,
                                  struct shards_tokenizer *out, struct err *e) {
    const char *shard = first_shard(data);
    json_t *d = NULL;
    *out = (struct shards_tokenizer){ .end = -1 };
    if (!shard) return OK;
    TRY(name_description(shard, root, out->described, e));
    if (!path_exists(out->described)) return OK;
    TRY(json_file_read(out->described, &d, e));
    const json_t *tokenizer = json_object_get(d, "tokenizer");
    const json_t *shards = json_object_get(d, "shards"), *end = json_object_get(d,
                                                                              "end_of_document");
    if (!strcmp(json_text(d, "schema", ""), "fp8lab.tokens/1")) {
        snprintf(out->name, sizeof out->name, "%s", json_text(tokenizer, "path", ""));
        out->hash = tokenizer_hash_read(tokenizer);
        snprintf(out->shards, sizeof out->shards, "%s", json_text(shards, "sha256", ""));
        if (json_is_integer(end)) out->end = (int32_t)json_integer_value(end);
    }
    json_decref(d);
    return OK;
}

enum status shards_tokenizer_check(const struct shards_tokenizer *s,
                                   const struct tokenizer_choice *choice, struct err *e) {
    const struct tokenizer_hash given = tokenizer_hash_of(choice->tokenizer);
    if (!*s->hash.file || tokenizer_hash_equal(&s->hash, &given)) return OK;
    return FAIL(e, ERR_CONFIG, "%s: its SHA-256 is %.12s..., but by %s one with %.12s... made the "
                "tokens", choice->path, given.file, s->described, s->hash.file);
}
