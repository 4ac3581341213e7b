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
#include "runner/record/shards_tokenizer.h"

enum { FILE_BYTES_MAX = 512 << 20 };

static enum status from_root(const char *root, const char *path, char out[PATH_CAP],
                             struct err *e) {
    if (root) return path_join(out, root, path, e);
    if (snprintf(out, PATH_CAP, "%s", path) < PATH_CAP) return OK;
    return FAIL(e, ERR_CONFIG, "%.200s...: too long a path", path);
}

static enum status find(const json_t *config, const char *root, const char *kept,
                        struct shards_tokenizer *f, struct err *e) {
    const json_t *data = json_object_get(config, "data");
    const char *word = json_text(json_object_get(config, "sample"), "tokenizer", NULL);
    *f = (struct shards_tokenizer){ .end = -1 };
    if (kept && cache_kept_tokenizer(kept, f->name)) return OK;
    if (word && !strcmp(word, "bytes")) return from_root(NULL, word, f->name, e);
    if (word) return from_root(root, word, f->name, e);
    bool tokens = !strcmp(json_text(data, "kind", ""), "tokens");
    return tokens ? shards_tokenizer_find(data, root, f, e) : OK;
}

static enum status need_none(const json_t *sample, const struct shards_tokenizer *f,
                             struct err *e) {
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
                        const struct shards_tokenizer *f, struct err *e) {
    const struct tokenizer_facts facts = tokenizer_facts(choice->tokenizer);
    const char *name = cache_kept_name(facts.kind);
    char to[PATH_CAP], *bytes = NULL;
    size_t n = 0;
    struct err why;
    if (shards_tokenizer_check(f, choice, &why) != OK)
        return FAIL(e, why.code, "%s; sample = { tokenizer = \"FILE\" } names another", why.text);
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
    struct shards_tokenizer f;
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
