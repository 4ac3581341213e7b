#include "runner/script/model_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "model/ground/sha256.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/weights/hf_config.h"

/* Where a bundle has the config.json of a path: the folder's name need not be one here. */
static enum status stored_name(const char *path, char name[80], struct err *e) {
    char hex[SHA256_HEX];
    TRY(sha256_bytes(path, strlen(path), hex, e));
    snprintf(name, 80, "hf/%.12s.json", hex);
    return OK;
}

/* The file to read: below PATH, or what a bundle stored beside its script. */
static enum status find(const struct model_source *source, const char *path, const char *name,
                        char file[PATH_CAP], struct err *e) {
    char folder[PATH_CAP], stored[PATH_CAP];
    const char *root = source->root;
    int n = snprintf(file, PATH_CAP, "%s%s%s/config.json", root ? root : "", root ? "/" : "", path);
    if (n < 0 || n >= PATH_CAP) return FAIL(e, ERR_ARG, "path too long: %.200s…", path);
    path_parent(folder, source->script);
    TRY(path_join(stored, folder, name, e));
    if (source->stored || (!path_exists(file) && path_exists(stored)))
        memcpy(file, stored, sizeof stored);
    if (path_exists(file)) return OK;
    return FAIL(e, ERR_CONFIG, "%s does not exist; name the folder of a Hugging Face model (in its "
                "cache the one below snapshots/)", file);
}

static void add_file(json_t *files, const char *name, const char *path, const char *sha256,
                     const char *text, size_t n, bool *failed) {
    json_append(files, json_pack("{s:s,s:o,s:s,s:s%}", "name", name, "path", json_from_text(path),
                                 "sha256", sha256, "text", text, n), failed);
}

/* The generation_config.json beside the config.json, if there is one, for an export. */
static enum status read_generation(const char *config, const char *name, json_t *files,
                                   struct err *e) {
    char folder[PATH_CAP], file[PATH_CAP], generation[96], sha256[SHA256_HEX], *text = NULL;
    bool failed = false;
    json_error_t why;
    json_t *root = NULL;
    size_t n = 0, stem = strlen(name) - strlen(".json");
    snprintf(generation, sizeof generation, "%.*s" HF_GENERATION_SUFFIX, (int)stem, name);
    path_parent(folder, config);
    path_base(file, config);
    bool stored = !strcmp(file, strrchr(name, '/') + 1);
    TRY(path_join(file, folder, stored ? strrchr(generation, '/') + 1 : "generation_config.json",
                  e));
    if (!path_exists(file)) return OK;
    TRY(file_read(file, HF_CONFIG_MAX, &text, &n, e));
    enum status st = json_parse(&root, text, n, JSON_REJECT_DUPLICATES, &why);
    if (st == ERR_FORMAT || (st == OK && !json_is_object(root)))
        st = FAIL(e, ERR_CONFIG, "%s: line %d: %s", file, st == OK ? 1 : why.line,
                  st == OK ? "expected an object" : why.text);
    else if (st != OK) st = FAIL(e, st, "%s: %s", file, why.text);
    if (st == OK) st = sha256_bytes(text, n, sha256, e);
    if (st == OK) add_file(files, generation, file, sha256, text, n, &failed);
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the text of %s", file);
    json_decref(root);
    free(text);
    return st;
}

static enum status read_one(const struct model_source *source, const char *path, json_t *models,
                            json_t *files, struct err *e) {
    char file[PATH_CAP], name[80], sha256[SHA256_HEX], *text = NULL;
    json_t *model = NULL;
    size_t n = 0;
    bool failed = false;
    TRY(stored_name(path, name, e));
    TRY(find(source, path, name, file, e));
    TRY(file_read(file, HF_CONFIG_MAX, &text, &n, e));
    enum status st = hf_config_read(text, n, file, &model, e);
    if (st == OK) st = sha256_bytes(text, n, sha256, e);
    if (st == OK) json_put(models, path, json_incref(model), &failed);
    if (st == OK) add_file(files, name, file, sha256, text, n, &failed);
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the model of %s", path);
    if (st == OK) st = read_generation(file, name, files, e);
    json_decref(model);
    free(text);
    return st;
}

enum status model_files_read(const struct model_source *source, const json_t *wanted,
                             json_t *models, json_t *files, struct err *e) {
    const json_t *row;
    size_t i;
    json_array_foreach(wanted, i, row) {
        const char *path = json_text(row, "path", "");
        if (json_object_get(models, path)) continue;
        enum status st = read_one(source, path, models, files, e);
        if (st == OK) continue;
        err_prefix(e, "%s:%d: model = hf \"%.200s\"", json_text(row, "file", source->script),
                   (int)json_int(row, "line"), path);
        return st;
    }
    return OK;
}
