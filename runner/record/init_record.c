#include "runner/record/init_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint_adopt.h"
#include "model/checkpoint_files.h"
#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/record/documents.h"
#include "runner/weights/export_source.h"
#include "runner/weights/state_source.h"
#include "runner/weights/weights.h"

/* ---- the files that a worker reads ------------------------------------------------------------*/

struct sources {
    struct weights weights;
    struct export_source checkpoint; /* with the optimizer's state: weights, masters, moments */
    bool optimizer;
};

static enum status sources_open(const char *path, const struct model_config *model, bool optimizer,
                                struct sources *s, struct err *e) {
    *s = (struct sources){ .optimizer = optimizer };
    TRY(weights_open(path, model, &s->weights, e));
    if (!optimizer) return OK;
    if (s->weights.kind != WEIGHTS_CHECKPOINT)
        return FAIL(e, ERR_CONFIG, "%s has weights alone; optimizer = true needs a run or its "
                    "checkpoint", path);
    TRY(export_source_open(path, true, &s->checkpoint, e));
    if (s->checkpoint.masters.file_count > 0) return OK;
    return FAIL(e, ERR_CONFIG, "%s has no " CHECKPOINT_STATE "; optimizer = true needs a "
                "checkpoint that is kept beside the bundle, or archive = \"full\"", path);
}

static void sources_close(struct sources *s) {
    export_source_close(&s->checkpoint);
    weights_close(&s->weights);
}

static int64_t sources_count(const struct sources *s) {
    return s->weights.files.file_count + s->optimizer;
}

/* The optimizer's state comes last. */
static const struct input_file *source_at(const struct sources *s, int64_t i) {
    int64_t n = s->weights.files.file_count;
    return i < n ? &s->weights.files.file[i] : &s->checkpoint.masters.file[0];
}

static enum status list_files(const struct sources *s, json_t **out, struct err *e) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < sources_count(s); i++) {
        const struct input_file *f = source_at(s, i);
        char sample[SHA256_HEX];
        enum status st = input_sample_sha256(f, sample, e);
        if (st != OK) {
            json_decref(list);
            return st;
        }
        json_append(list, json_pack("{s:o,s:I,s:s}", "path", json_from_text(f->path), "bytes",
                                    (json_int_t)f->bytes, "sample_sha256", sample), &failed);
    }
    *out = json_whole(list, failed);
    return *out ? OK : FAIL(e, ERR_MEMORY, "files of weights");
}

/* ---- making -----------------------------------------------------------------------------------*/

/* Verifies the checkpoint. *out describes the optimizer's state; `hash`, of the weights, becomes
 * the hash of both. */
static enum status describe_state(const char *path, char hash[SHA256_HEX], json_t **out,
                                  struct err *e) {
    struct checkpoint_info info;
    json_t *root = NULL;
    char text[256];
    enum status st = checkpoint_read(path, &root, &info, e);
    if (st != OK) {
        json_decref(root);
        return st;
    }
    const json_t *state = json_object_get(json_object_get(root, "files"), CHECKPOINT_STATE);
    const json_t *meaning = json_object_get(root, "meaning");
    const char *sha256 = json_text(state, "tree_sha256", json_text(state, "sha256", "?"));
    *out = json_pack("{s:s,s:s,s:s,s:I,s:I}", "sha256", sha256, "weights_sha256", hash,
                     "recipe_sha256", json_text(meaning, "recipe_sha256", "?"), "step",
                     (json_int_t)info.step, "updates",
                     (json_int_t)(info.step + info.updates_before));
    int n = snprintf(text, sizeof text, "weights %s\noptimizer %.64s\n", hash, sha256);
    json_decref(root);
    return *out ? sha256_bytes(text, (size_t)n, hash, e)
                : FAIL(e, ERR_MEMORY, "record of the optimizer's state");
}

enum status init_record_make(const struct init_origin *origin, const struct model_config *model,
                             json_t **record, struct err *e) {
    struct sources s;
    char sha256[SHA256_HEX];
    json_t *files = NULL, *optimizer = NULL;
    *record = NULL;
    enum status st = sources_open(origin->path, model, origin->optimizer, &s, e);
    if (st == OK) st = weights_hash(&s.weights, sha256, e);
    if (st == OK && origin->optimizer) st = describe_state(origin->path, sha256, &optimizer, e);
    if (st == OK) st = list_files(&s, &files, e);
    if (st == OK)
        *record = json_pack("{s:o,s:o,s:s,s:s,s:s?,s:o,s:O,s:O*}", "from",
                            json_from_text(origin->from), "path", json_from_text(origin->path),
                            "kind", WEIGHTS_KIND_NAMES[s.weights.kind], "sha256", sha256, "run",
                            origin->run,
                            "step", origin->run ? json_integer(origin->step) : json_null(), "files",
                            files, "optimizer", optimizer);
    json_decref(files);
    json_decref(optimizer);
    sources_close(&s);
    if (st == OK && !*record) st = FAIL(e, ERR_MEMORY, "record of weights");
    return st;
}

/* ---- a worker ---------------------------------------------------------------------------------*/

/* Hashing all weights again would take minutes per rank; see data_check.c. */
static enum status check_files(const json_t *record, const struct sources *s, struct err *e) {
    const json_t *list = json_object_get(record, "files");
    for (int64_t i = 0; i < sources_count(s); i++) {
        const struct input_file *f = source_at(s, i);
        const json_t *then = json_array_get(list, (size_t)i);
        char sample[SHA256_HEX];
        TRY(input_sample_sha256(f, sample, e));
        if (json_int(then, "bytes") != f->bytes ||
            strcmp(json_text(then, "sample_sha256", ""), sample) != 0)
            return FAIL(e, ERR_CONFIG, "%s: other bytes than when the run began: the file changed, "
                        "or this host has another one; restore the file, or start a new run",
                        f->path);
    }
    return OK;
}

static enum status import(const json_t *record, const struct init_import *q, struct sources *s,
                          struct err *e) {
    const json_t *optimizer = json_object_get(record, "optimizer");
    struct weight_source weights = weights_source(&s->weights);
    if (!optimizer) return trainer_import(q->trainer, &weights, e);
    struct state_source state = state_source_of(&s->checkpoint.masters);
    state.recipe_sha256 = json_text(optimizer, "recipe_sha256", "?");
    state.step = json_int(optimizer, "step");
    state.updates = json_int(optimizer, "updates");
    state.restart = q->restart;
    weights = (struct weight_source){ .read = export_source_read, .user = &s->checkpoint };
    TRY(trainer_import(q->trainer, &weights, e));
    return checkpoint_adopt(q->trainer, &state, e);
}

enum status init_record_import(const struct init_import *q, struct init_imported *out,
                               struct err *e) {
    char path[PATH_CAP];
    json_t *record = NULL;
    struct sources s;
    int64_t begin_us = clock_us();
    *out = (struct init_imported){ 0 };
    TRY(path_join(path, q->run_path, DOCUMENT_init, e));
    if (!path_exists(path)) return OK;
    TRY(json_file_read(path, &record, e));
    bool optimizer = json_object_get(record, "optimizer");
    enum status st = sources_open(json_text(record, "path", ""), q->model, optimizer, &s, e);
    if (st == OK) st = check_files(record, &s, e);
    if (st == OK) st = import(record, q, &s, e);
    for (int64_t i = 0; st == OK && i < sources_count(&s); i++)
        out->bytes += source_at(&s, i)->bytes;
    out->us = clock_us() - begin_us;
    sources_close(&s);
    json_decref(record);
    return st;
}
