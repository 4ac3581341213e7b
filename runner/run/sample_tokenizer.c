#include "runner/run/sample_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/ingest/tokenizer_choice.h"
#include "runner/record/ingest_record.h"

enum { FILE_BYTES_MAX = 512 << 20 };

struct found {
    char name[PATH_CAP];       /* as tokenizer_choose() takes it; "": none */
    char described[PATH_CAP];  /* the description of the shards that names it; "": another source */
    char sha256[SHA256_HEX];   /* of the file, as described */
};

static enum status from_root(const char *root, const char *path, char out[PATH_CAP],
                             struct err *e) {
    if (root) return path_join(out, root, path, e);
    if (snprintf(out, PATH_CAP, "%s", path) < PATH_CAP) return OK;
    return FAIL(e, ERR_CONFIG, "%.200s...: too long a path", path);
}

/* The first shard: of `path`, `paths` or `parts`. */
static const char *first_shard(const json_t *data) {
    const json_t *part = json_array_get(json_object_get(data, "parts"), 0);
    const json_t *of = part ? part : data;
    const char *path = json_text(of, "path", NULL);
    return path ? path : json_string_value(json_array_get(json_object_get(of, "paths"), 0));
}

/* PREFIX.json of `data tokenise`. Another program's file says nothing. */
static enum status from_description(const json_t *data, const char *root, struct found *f,
                                    struct err *e) {
    const char *shard = first_shard(data);
    json_t *root_of = NULL;
    if (!shard) return OK;
    TRY(from_root(root, shard, f->described, e));
    size_t n = strlen(f->described);
    if (n > 4 && f->described[n - 4] == '.') n -= 4; /* .bin */
    if (n + 6 > PATH_CAP) return FAIL(e, ERR_CONFIG, "%.200s...: too long a path", shard);
    strcpy(f->described + n, ".json");
    if (!path_exists(f->described)) return OK;
    TRY(json_file_read(f->described, &root_of, e));
    const json_t *tokenizer = json_object_get(root_of, "tokenizer");
    const char *path = json_text(tokenizer, "path", "");
    bool ours = !strcmp(json_text(root_of, "schema", ""), "fp8lab.tokens/1");
    if (ours) snprintf(f->sha256, sizeof f->sha256, "%s", json_text(tokenizer, "sha256", ""));
    if (ours) snprintf(f->name, sizeof f->name, "%s", path);
    json_decref(root_of);
    return OK;
}

static enum status find(const json_t *config, const char *root, const char *kept, struct found *f,
                        struct err *e) {
    const json_t *data = json_object_get(config, "data");
    const char *word = json_text(json_object_get(config, "sample"), "tokenizer", NULL);
    *f = (struct found){ 0 };
    if (kept && cache_kept_tokenizer(kept, f->name)) return OK;
    if (word && !strcmp(word, "bytes")) return from_root(NULL, word, f->name, e);
    if (word) return from_root(root, word, f->name, e);
    return strcmp(json_text(data, "kind", ""), "tokens") ? OK : from_description(data, root, f, e);
}

static enum status need_none(const json_t *sample, const struct found *f, struct err *e) {
    const json_t *prompt;
    size_t i;
    json_array_foreach(json_object_get(sample, "prompts"), i, prompt)
        if (json_is_string(prompt))
            return FAIL(e, ERR_CONFIG, "sample.prompts[%zu] is text, and %s names no tokenizer; "
                        "write sample = { tokenizer = \"FILE\" }, or prompts of token ids", i + 1,
                        *f->described ? f->described : "nothing");
    return OK;
}

static enum status copy(const struct run_dir *dir, const struct tokenizer_choice *choice,
                        const struct found *f, struct err *e) {
    const struct tokenizer_facts facts = tokenizer_facts(choice->tokenizer);
    const char *name = cache_kept_name(facts.kind);
    char to[PATH_CAP], *bytes = NULL;
    size_t n = 0;
    if (*f->sha256 && strcmp(f->sha256, facts.sha256) != 0)
        return FAIL(e, ERR_CONFIG, "%s: its SHA-256 is %.12s..., but by %s one with %.12s... "
                    "made the tokens; sample = { tokenizer = \"FILE\" } names another",
                    choice->path, facts.sha256, f->described, f->sha256);
    if (!name) return OK; /* bytes */
    TRY(path_join(to, INGEST_FOLDER, name, e));
    TRY(file_read(choice->path, FILE_BYTES_MAX, &bytes, &n, e));
    enum status st = replace_beneath(dir->root, to, dir->path, bytes, n, e);
    free(bytes);
    return st;
}

enum status sample_tokenizer_keep(const struct run_dir *dir, const json_t *config,
                                  const char *root, const char *kept, struct err *e) {
    const json_t *sample = json_object_get(config, "sample");
    const char *kind = json_text(json_object_get(config, "data"), "kind", "");
    const struct tokenizer_options how = { 0 };
    struct tokenizer_choice choice = { 0 };
    struct found f;
    if (!json_is_object(sample) || !strcmp(kind, "text") || !strcmp(kind, "chats")) return OK;
    TRY(find(config, root, kept, &f, e));
    if (!*f.name) return need_none(sample, &f, e);
    enum status st = tokenizer_choose(&choice, f.name, &how, NULL, "", e);
    if (st != OK) err_prefix(e, "the tokenizer of sample%s%s", *f.described ? ", named by " : "",
                             f.described);
    if (st == OK) st = copy(dir, &choice, &f, e);
    tokenizer_choice_free(&choice);
    return st == ERR_ARG || st == ERR_IO ? (e->code = ERR_CONFIG) : st;
}
