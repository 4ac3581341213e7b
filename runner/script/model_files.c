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
    if (st == OK)
        json_append(files, json_pack("{s:s,s:o,s:s,s:s%}", "name", name, "path",
                                     json_from_text(file), "sha256", sha256, "text", text, n),
                    &failed);
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the model of %s", path);
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
