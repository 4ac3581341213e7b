#include "runner/run/reopen.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/ground/json_safe.h"
#include "runner/bundle/bag.h"
#include "runner/bundle/bundle.h"
#include "runner/bundle/format.h"
#include "runner/record/data_other.h"
#include "runner/record/documents.h"
#include "runner/record/ingest_record.h"
#include "runner/record/inputs.h"
#include "runner/record/run_checkpoint.h"

/* ---- inputs -----------------------------------------------------------------------------------*/

/* A list of the directory. *out is NULL if it has none: older versions wrote none. */
static enum status read_list(const struct run_dir *dir, const char *document, json_t **out,
                             struct err *e) {
    char path[PATH_CAP];
    *out = NULL;
    TRY(path_join(path, dir->path, document, e));
    return path_exists(path) ? json_read_beneath(dir->root, document, dir->path, out, e) : OK;
}

/* Names the file of text that gave other tokens. */
static enum status check_text(const struct run_dir *dir, const json_t *now, struct err *e) {
    json_t *then = NULL;
    TRY(read_list(dir, DOCUMENT_ingest, &then, e));
    enum status st = ingest_sources_check(then, now, e);
    json_decref(then);
    return st;
}

/* Hashes the inputs. A file of data with another size is named before the data are read: it may
 * also be too short for them. */
static enum status hash_now(const struct run_dir *dir, const json_t *resolved,
                            const char *data_root, const struct cache_entry *tokens,
                            struct inputs *now, struct err *e) {
    const json_t *inputs = json_object_get(dir->run, "inputs");
    json_t *then = NULL, *files = NULL;
    TRY(read_list(dir, RUN_PATH_data_files, &then, e));
    enum status st = tokens->record ? OK : data_sizes_check(then, data_root, e);
    if (st == OK) st = inputs_hash(resolved, data_root, tokens->record, now, &files, e);
    if (st == OK && (strcmp(json_text(inputs, "data", ""), now->data) ||
                     !inputs_same_sets(now, inputs))) {
        st = tokens->record ? check_text(dir, tokens->record, e) : OK;
        if (st == OK) st = data_lists_check(then, files, e);
    }
    json_decref(then);
    json_decref(files);
    if (st != OK) err_prefix(e, "%s cannot be resumed as the same run", dir->id);
    return st;
}

enum status reopen_check(const struct run_dir *dir, const json_t *resolved, const char *data_root,
                         const struct cache_entry *tokens, struct err *e) {
    struct inputs now = { .known = NULL };
    const json_t *then = json_object_get(dir->run, "inputs");
    TRY(hash_now(dir, resolved, data_root, tokens, &now, e));
    const struct { const char *key, *value, *name; } parts[] = {
        { "config", now.config, "its configuration" },
        { "data", now.data, "the data" },
        { "code", now.code, "the program's sources" },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(json_text(then, parts[i].key, ""), parts[i].value) != 0)
            return FAIL(e, ERR_CONFIG, "%s cannot be resumed as the same run: %s changed since it "
                        "began (%.12s, now %.12s)", dir->id, parts[i].name,
                        json_text(then, parts[i].key, "?"), parts[i].value);
    if (inputs_same_sets(&now, then)) return OK;
    return FAIL(e, ERR_CONFIG, "%s cannot be resumed as the same run: the sets of eval.also "
                "changed since it began", dir->id);
}

/* ---- the rest ---------------------------------------------------------------------------------*/

static enum status remove_made(const struct run_dir *dir, struct err *e) {
    static const char *const MADE[] = {
        "bagit.txt", "bag-info.txt", "manifest-sha256.txt", "tagmanifest-sha256.txt",
        RUN_PATH_crate, DOCUMENT_summary,
    };
    char path[PATH_CAP];
    for (size_t i = 0; i < sizeof MADE / sizeof *MADE; i++) {
        TRY(path_join(path, dir->path, MADE[i], e));
        TRY(tree_remove(path, e));
    }
    char bundle[PATH_CAP + 16];
    snprintf(bundle, sizeof bundle, "%s.tar.zst", dir->path);
    return tree_remove(bundle, e);
}

/* Compares this part of the directory with its manifest. OK if the run has no bundle. */
static enum status part_unchanged(const char *run_dir, enum bag_part part, struct err *e) {
    char bundle[PATH_CAP + 16], manifest[PATH_CAP];
    TRY(path_join(manifest, run_dir, "manifest-sha256.txt", e));
    snprintf(bundle, sizeof bundle, "%s.tar.zst", run_dir);
    if (!path_exists(bundle) || !path_exists(manifest)) return OK;
    return bag_unchanged(run_dir, part, e);
}

static enum status refuse(const char *run_dir, const struct err *why, struct err *e) {
    return FAIL(e, why->code, "%s; its bundle %s.tar.zst is intact: move the directory away, then "
                "--resume %s.tar.zst unpacks the bundle and resumes", why->text, run_dir, run_dir);
}

enum status reopen_unchanged(const char *run_dir, struct err *e) {
    struct err why;
    return part_unchanged(run_dir, BAG_ALL, &why) == OK ? OK : refuse(run_dir, &why, e);
}

/* As reopen_unchanged(), but of the checkpoints one must be intact: the run resumes from it. */
static enum status check_resumable(const struct run_dir *dir, struct err *changed, struct err *e) {
    struct checkpoint_info from;
    struct err why = { 0 };
    *changed = why;
    if (part_unchanged(dir->path, BAG_OTHERS, &why) != OK) return refuse(dir->path, &why, e);
    enum status st = part_unchanged(dir->path, BAG_CHECKPOINTS, &why);
    if (st == OK) return OK;
    if (st != ERR_VERIFY) return refuse(dir->path, &why, e);
    TRY(run_checkpoint_latest(dir, &from, e));
    if (from.step == 0) return refuse(dir->path, &why, e); /* only the bundle has an intact one */
    if (*from.damage) return OK;                           /* the first attempt says it */
    (void)!FAIL(changed, st, "%s; the checkpoint of step %" PRId64 " is intact", why.text,
                from.step);
    return OK;
}

enum status reopen_run(struct run_dir *dir, struct err *changed, struct err *e) {
    TRY(check_resumable(dir, changed, e)); /* else deleting the bundle would lose data */
    TRY(bundle_checkpoints_back(dir->path, e));
    TRY(format_continue(dir->path, e));
    TRY(remove_made(dir, e));
    json_t *run = dir->run;
    bool bad = json_object_set_new(run, "status", json_string("running")) != 0 ||
               json_object_set_new(run, "exit_code", json_null()) != 0 ||
               json_object_set_new(run, "error", json_null()) != 0 ||
               json_object_set_new(run, "ended", json_null()) != 0 ||
               json_object_set_new(run, "results_sha256", json_null()) != 0;
    (void)json_object_del(run, "final_weights_sha256");
    if (bad) return FAIL(e, ERR_MEMORY, "run record");
    return run_dir_save(dir, e);
}
