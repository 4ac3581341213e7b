#include "runner/cache/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/run_files.h"
#include "runner/cache/cache_key.h"
#include "runner/cache/eval_sets.h"

static json_t *sets_of(const json_t *record) { return json_object_get(record, "also"); }

/* ---- taking ---------------------------------------------------------------------------------- */

/* The configuration of a set: the run's, with the files of the set in the place of its text. */
static json_t *config_of(const json_t *config, const char *name, json_t *files) {
    bool failed = false;
    json_t *data = json_copied(json_object_get(config, "data"), &failed);
    json_t *copy = json_copied(config, &failed);
    json_put(data, "paths", json_incref(files), &failed);
    json_put(data, CACHE_OF_KEY, json_sprintf("eval.also.%s", name), &failed);
    json_put(copy, "data", data, &failed);
    return json_whole(copy, failed);
}

static enum status take_set(const struct cache_request *q, const char *name, json_t *files,
                            json_t *records, struct err *e) {
    struct cache_request set = *q;
    struct cache_entry entry = { 0 };
    bool failed = false;
    json_t *config = config_of(q->config, name, files);
    set.config = config;
    enum status st = config ? cache_take_one(&set, &entry, e)
                            : FAIL(e, ERR_MEMORY, "the configuration of eval.also.%s", name);
    if (st != OK && !strstr(e->text, "eval.also.")) err_prefix(e, "eval.also.%s", name);
    if (st == OK) json_put(records, name, json_incref(entry.record), &failed);
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the record of eval.also.%s", name);
    cache_entry_free(&entry);
    json_decref(config);
    return st;
}

/* Adds the records of the sets to the entry of the text. Takes ownership of `records`. */
static enum status add_records(struct cache_entry *out, json_t *records, struct err *e) {
    bool failed = false;
    json_put(out->record, "also", records, &failed);
    return failed ? FAIL(e, ERR_MEMORY, "the records of eval.also") : OK;
}

static enum status check_copies(const json_t *record, struct err *e) {
    json_t *sources = cache_record_sources(record);
    enum status st = sources ? eval_sets_check_copies(sources, e)
                             : FAIL(e, ERR_MEMORY, "the files of eval.also");
    json_decref(sources);
    return st;
}

enum status cache_take(const struct cache_request *q, struct cache_entry *out, struct err *e) {
    json_t *also = eval_sets_of(q->config), *files;
    const char *name;
    TRY(cache_take_one(q, out, e));
    if (!also) return OK;
    json_t *records = json_object();
    enum status st = records ? OK : FAIL(e, ERR_MEMORY, "the records of eval.also");
    json_object_foreach(also, name, files)
        if (st == OK) st = take_set(q, name, files, records, e);
    if (st == OK) st = add_records(out, json_incref(records), e);
    if (st == OK) st = check_copies(out->record, e);
    json_decref(records);
    if (st != OK) cache_entry_free(out);
    return st;
}

/* ---- of a record ----------------------------------------------------------------------------- */

enum status cache_find_recorded(const struct cli *cli, const json_t *record, const char *folder,
                                const char *own, struct cache_entry *out, struct err *e) {
    const char *name;
    json_t *then;
    TRY(cache_find_one(cli, record, folder, own, out, e));
    if (!out->record || !sets_of(record)) return OK;
    json_t *records = json_object();
    bool failed = !records, found = true;
    enum status st = OK;
    json_object_foreach(sets_of(record), name, then) {
        struct cache_entry set = { 0 };
        if (st == OK && found) st = cache_find_one(cli, then, folder, own, &set, e);
        found = found && set.record;
        if (set.record) json_put(records, name, json_incref(set.record), &failed);
        cache_entry_free(&set);
    }
    if (st == OK && failed) st = FAIL(e, ERR_MEMORY, "the records of eval.also");
    if (st == OK && found) st = add_records(out, json_incref(records), e);
    json_decref(records);
    if (st != OK || !found) cache_entry_free(out);
    return st;
}

enum status cache_check(const struct cli *cli, const struct cache_entry *x, const json_t *files,
                        bool *intact, struct err *e) {
    const char *name;
    json_t *record;
    TRY(cache_check_one(cli, x->record, files, intact, e));
    json_object_foreach(sets_of(x->record), name, record) {
        bool whole = true;
        TRY(cache_check_one(cli, record, files, &whole, e));
        *intact = *intact && whole;
    }
    return OK;
}

/* ---- all of a record ------------------------------------------------------------------------- */

json_t *cache_record_sources(const json_t *record) {
    const char *name;
    json_t *set, *all = json_array(), *own = json_object_get(record, "sources"), *source;
    bool failed = !all || (own && json_array_extend(all, own) != 0);
    size_t i;
    json_object_foreach(sets_of(record), name, set)
        json_array_foreach(json_object_get(set, "sources"), i, source) {
            json_t *copy = json_copied(source, &failed);
            json_put(copy, "set", json_string(name), &failed);
            json_append(all, copy, &failed);
        }
    return json_whole(all, failed);
}

/* A copy of the record with its prefix counted from the folder. */
static json_t *moved(const json_t *record, const char *root, bool *failed) {
    char path[PATH_CAP];
    json_t *copy = json_copied(record, failed);
    *failed = path_join(path, root, json_text(record, "prefix", ""), NULL) != OK || *failed;
    json_put(copy, "prefix", json_string_nocheck(path), failed); /* a path may be any bytes */
    return copy;
}

json_t *cache_record_moved(const json_t *record, const char *root) {
    bool failed = false;
    const char *name;
    json_t *copy = moved(record, root, &failed), *sets = json_object(), *set;
    json_object_foreach(sets_of(record), name, set)
        json_put(sets, name, moved(set, root, &failed), &failed);
    if (sets_of(record)) json_put(copy, "also", json_incref(sets), &failed);
    json_decref(sets);
    return json_whole(copy, failed);
}
