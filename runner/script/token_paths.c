#include "runner/script/token_paths.h"

#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/eval_sets.h"

/* The length without ".bin" or ".idx". */
static size_t stem_length(const char *path, size_t n) {
    bool ends = n > 4 && (!strncmp(path + n - 4, ".bin", 4) || !strncmp(path + n - 4, ".idx", 4));
    return ends && path[n - 5] != '/' ? n - 4 : n;
}

/* The path, cut. "x.bin.bin" stays, since "x.bin" would mean another file. */
static json_t *cut_path(const json_t *path) {
    const char *text = json_string_value(path);
    size_t n = text ? json_string_length(path) : 0, stem = stem_length(text, n);
    if (stem == n || stem_length(text, stem) != stem) return json_incref((json_t *)path);
    return json_stringn_nocheck(text, stem);
}

static void cut_member(json_t *table, const char *key, bool *failed) {
    const json_t *path = json_object_get(table, key);
    if (json_is_string(path)) json_put(table, key, cut_path(path), failed);
}

/* A copy of `data` or of a part. */
static json_t *cut_table(const json_t *table, bool *failed) {
    const json_t *paths = json_object_get(table, "paths"), *path;
    json_t *copy = json_copied(table, failed), *list;
    size_t i;
    cut_member(copy, "path", failed);
    cut_member(copy, "eval_path", failed);
    if (!json_is_array(paths)) return copy;
    list = json_array();
    json_array_foreach(paths, i, path) json_append(list, cut_path(path), failed);
    json_put(copy, "paths", list, failed);
    return copy;
}

static json_t *cut_data(const json_t *data, bool *failed) {
    const json_t *parts = json_object_get(data, "parts"), *part;
    json_t *copy = cut_table(data, failed), *list;
    size_t i;
    if (!json_is_array(parts)) return copy;
    list = json_array();
    json_array_foreach(parts, i, part) json_append(list, cut_table(part, failed), failed);
    json_put(copy, "parts", list, failed);
    return copy;
}

/* A copy of the section eval. */
static json_t *cut_eval(const json_t *eval, bool *failed) {
    json_t *copy = json_copied(eval, failed), *sets = json_object(), *files, *path;
    const char *name;
    size_t i;
    json_object_foreach(json_object_get(eval, "also"), name, files) {
        json_t *list = json_array();
        json_array_foreach(files, i, path) json_append(list, cut_path(path), failed);
        json_put(sets, name, list, failed);
    }
    json_put(copy, "also", sets, failed);
    return copy;
}

enum status token_paths_cut(const json_t *config, json_t **out, struct err *e) {
    const json_t *data = json_object_get(config, "data");
    bool failed = false;
    json_t *copy = json_copied(config, &failed);
    bool megatron = !strcmp(json_text(data, "kind", ""), "tokens") &&
                    !strcmp(json_text(data, "format", ""), "megatron");
    if (megatron) json_put(copy, "data", cut_data(data, &failed), &failed);
    if (megatron && eval_sets_of(config))
        json_put(copy, "eval", cut_eval(json_object_get(config, "eval"), &failed), &failed);
    *out = json_whole(copy, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "a copy of the configuration");
}
