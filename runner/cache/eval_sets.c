#include "runner/cache/eval_sets.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/ground/json_safe.h"
#include "runner/base/plain_text.h"
#include "runner/base/run_files.h"

bool eval_set_is_name(const char *text) {
    size_t n = strlen(text);
    bool first = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z');
    return first && n < EVAL_SET_NAME_CAP &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

json_t *eval_sets_of(const json_t *config) {
    json_t *also = json_object_get(json_object_get(config, "eval"), "also");
    return json_object_size(also) ? also : NULL;
}

/* ---- as options ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct data_set_options *)a)->name,
                  ((const struct data_set_options *)b)->name);
}

static enum status read_set(const char *name, const json_t *files, struct data_set_options *out,
                            struct err *e) {
    size_t n = json_array_size(files);
    const char **paths = calloc(n + 1, sizeof *paths);
    if (!paths) return FAIL(e, ERR_MEMORY, "%zu files of eval.also", n);
    *out = (struct data_set_options){ name, paths, (int64_t)n };
    bool texts = n > 0 && eval_set_is_name(name);
    for (size_t i = 0; i < n; i++) {
        paths[i] = json_string_value(json_array_get(files, i));
        texts = texts && paths[i];
    }
    return texts ? OK : FAIL(e, ERR_FORMAT, "resolved configuration: eval.also.%.80s must be a "
                             "list of files by a name", name);
}

enum status eval_sets_read(const json_t *config, struct data_options *out, struct err *e) {
    json_t *also = json_object_get(json_object_get(config, "eval"), "also"), *files;
    size_t n = json_object_size(also);
    const char *name;
    if (!also) return OK;
    if (n == 0 || n > EVAL_SETS_MAX)
        return FAIL(e, ERR_FORMAT, "resolved configuration: eval.also must be 1 to %d sets",
                    EVAL_SETS_MAX);
    struct data_set_options *sets = calloc(n, sizeof *sets);
    if (!sets) return FAIL(e, ERR_MEMORY, "%zu sets of eval.also", n);
    out->sets = sets;
    json_object_foreach(also, name, files)
        TRY(read_set(name, files, &sets[out->set_count++], e));
    qsort(sets, n, sizeof *sets, by_name);
    return OK;
}

void eval_sets_free(struct data_options *o) {
    for (int64_t i = 0; i < o->set_count; i++) free((void *)o->sets[i].paths);
    free((void *)o->sets);
    o->sets = NULL;
    o->set_count = 0;
}

/* ---- with shards ----------------------------------------------------------------------------- */

enum status eval_sets_with_shards(const json_t *config, const json_t *tokens, json_t **out,
                                  struct err *e) {
    const json_t *eval = json_object_get(config, "eval");
    const json_t *records = json_object_get(tokens, "also");
    json_t *sets = json_object(), *copy, *files;
    const char *name, *missing = NULL;
    bool failed = false;
    json_object_foreach(eval_sets_of(config), name, files) {
        const char *prefix = json_text(json_object_get(records, name), "prefix", NULL);
        if (!prefix) missing = name;
        else json_put(sets, name, json_pack("[o]", json_string_nocheck(prefix)), &failed);
    }
    copy = json_copied(eval, &failed);
    json_put(copy, "also", sets, &failed);
    *out = json_whole(copy, failed || missing);
    if (missing)
        return FAIL(e, ERR_CONFIG, "the record of the run's tokens (data/experiment/ingest.json) "
                    "has none of eval.also.%s", missing);
    return *out ? OK : FAIL(e, ERR_MEMORY, "the sets of eval.also");
}

/* ---- one file, one use ----------------------------------------------------------------------- */

struct uses {
    json_t *of;       /* {file: key}: its first use; owned */
    const char *root; /* borrowed, or NULL */
    bool here, failed;
};

/* Whether a file is here, or the .bin of Megatron's two. */
static bool find_file(const struct uses *u, const char *path, struct stat *info) {
    static const char *const ENDS[] = { "", ".bin" };
    for (int i = 0; u->here && i < 2; i++) {
        char full[PATH_CAP];
        int n = snprintf(full, sizeof full, "%s%s%s%s", u->root ? u->root : "", u->root ? "/" : "",
                         path, ENDS[i]);
        if (n < PATH_CAP && stat(full, info) == 0) return true;
    }
    return false;
}

/* A file that is here by its inode, so that links to it are the same. */
static void file_key(const struct uses *u, const char *path, char out[PATH_CAP]) {
    struct stat info;
    if (find_file(u, path, &info))
        snprintf(out, PATH_CAP, ":%llu:%llu", (unsigned long long)info.st_dev,
                 (unsigned long long)info.st_ino);
    else
        snprintf(out, PATH_CAP, "%s", path);
}

/* Notes a use; returns that of an earlier set or of the data, or NULL. */
static const char *use(struct uses *u, const json_t *path, const char *key) {
    char file[PATH_CAP];
    if (!json_is_string(path)) return NULL;
    file_key(u, json_string_value(path), file);
    const char *first = json_string_value(json_object_get(u->of, file));
    if (!first) json_put(u->of, file, json_string_nocheck(key), &u->failed);
    return first;
}

static void use_data(struct uses *u, const json_t *table) {
    static const char *const ONE[] = { "path", "eval_path" };
    const json_t *item;
    size_t i;
    for (i = 0; i < 2; i++) (void)use(u, json_object_get(table, ONE[i]), "data");
    json_array_foreach(json_object_get(table, "paths"), i, item) (void)use(u, item, "data");
    json_array_foreach(json_object_get(table, "parts"), i, item) use_data(u, item);
}

static enum status check_set(struct uses *u, const char *name, const json_t *files, size_t *count,
                             struct err *e) {
    const json_t *path;
    char key[EVAL_SET_NAME_CAP + 16];
    size_t i;
    snprintf(key, sizeof key, "eval.also.%.*s", EVAL_SET_NAME_CAP, name);
    json_array_foreach(files, i, path) {
        const char *first = use(u, path, key);
        if (first && !strcmp(first, "data"))
            return FAIL(e, ERR_CONFIG, "%s: %s is also among the run's own data: its loss would be "
                        "that of text that is trained on; take it out of one of the two", key,
                        PLAIN(json_string_value(path)));
        if (first)
            return FAIL(e, ERR_CONFIG, "%s: %s is named twice, first in %s; take it out of one of "
                        "the two", key, PLAIN(json_string_value(path)), first);
    }
    *count += i;
    return OK;
}

enum status eval_sets_check(const json_t *config, const char *root, bool here, struct err *e) {
    struct uses u = { json_object(), root, here, false };
    json_t *also = eval_sets_of(config), *files;
    enum status st = OK;
    const char *name;
    size_t count = 0;
    if (also) use_data(&u, json_object_get(config, "data"));
    json_object_foreach(also, name, files)
        if (st == OK) st = check_set(&u, name, files, &count, e);
    if (st == OK && count > EVAL_SET_FILES_MAX)
        st = FAIL(e, ERR_CONFIG, "eval.also: %zu files, at most %d are read", count,
                  EVAL_SET_FILES_MAX);
    if (st == OK && (u.failed || !u.of)) st = FAIL(e, ERR_MEMORY, "the files of eval.also");
    json_decref(u.of);
    return st;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool holds_text(const json_t *file) {
    const char *path = json_text(file, "path", ""), *dot = strrchr(path, '.');
    bool beside = dot && (!strcmp(dot, ".idx") || !strcmp(dot, ".loss")); /* may be equal */
    return json_int(file, "bytes") > 0 && !beside;
}

const json_t *eval_sets_find_copy(const json_t *files, bool across, const json_t **first) {
    json_t *seen = json_object(); /* file by digest */
    const json_t *file, *copy = NULL;
    size_t i;
    json_array_foreach((json_t *)files, i, file) {
        const char *digest = json_text(file, "sha256", "");
        if (!holds_text(file) || !*digest) continue;
        *first = json_object_get(seen, digest);
        if (*first && (!across || strcmp(json_text(*first, "set", ""), json_text(file, "set", ""))))
            copy = file;
        if (copy || json_object_set(seen, digest, (json_t *)file) != 0) break;
    }
    json_decref(seen); /* *first stays: the list owns it */
    return copy;
}

enum status eval_sets_check_copies(const json_t *files, struct err *e) {
    const json_t *first, *copy = eval_sets_find_copy(files, true, &first);
    if (!copy) return OK;
    const char *set = json_text(copy, "set", "?"), *other = json_text(first, "set", NULL);
    if (!other)
        return FAIL(e, ERR_CONFIG, "eval.also.%s: %s is a copy of %s, which is among the run's own "
                    "data: its loss would be that of text that is trained on; take it out of one "
                    "of the two", set, PLAIN(json_text(copy, "path", "?")),
                    PLAIN(json_text(first, "path", "?")));
    return FAIL(e, ERR_CONFIG, "eval.also.%s: %s is a copy of %s, which is in eval.also.%s; take "
                "it out of one of the two", set, PLAIN(json_text(copy, "path", "?")),
                PLAIN(json_text(first, "path", "?")), other);
}
