#include "runner/record/init_record.h"

#include <inttypes.h>
#include <string.h>

#include "model/ground/json_safe.h"
#include "runner/base/canonical.h"
#include "runner/base/run_files.h"
#include "runner/record/documents.h"
#include "runner/weights/weights.h"

static enum status list_files(const struct weights *w, json_t **out, struct err *e) {
    json_t *list = json_array();
    bool failed = false;
    for (int64_t i = 0; i < w->files.file_count; i++) {
        const struct input_file *f = &w->files.file[i];
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

enum status init_record_make(const struct init_origin *origin, const struct model_config *model,
                             json_t **record, struct err *e) {
    struct weights w;
    char sha256[SHA256_HEX];
    json_t *files = NULL;
    *record = NULL;
    enum status st = weights_open(origin->path, model, &w, e);
    if (st == OK) st = weights_hash(&w, sha256, e);
    if (st == OK) st = list_files(&w, &files, e);
    if (st == OK)
        *record = json_pack("{s:o,s:o,s:s,s:s,s:s?,s:o,s:O}", "from", json_from_text(origin->from),
                            "path", json_from_text(origin->path), "kind",
                            WEIGHTS_KIND_NAMES[w.kind], "sha256", sha256, "run", origin->run,
                            "step", origin->run ? json_integer(origin->step) : json_null(), "files",
                            files);
    json_decref(files);
    weights_close(&w);
    if (st == OK && !*record) st = FAIL(e, ERR_MEMORY, "record of weights");
    return st;
}

/* Hashing all weights again would take minutes per rank; see data_check.c. */
static enum status check_files(const json_t *record, const struct weights *w, struct err *e) {
    const json_t *list = json_object_get(record, "files");
    for (int64_t i = 0; i < w->files.file_count; i++) {
        const struct input_file *f = &w->files.file[i];
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

enum status init_record_import(const char *run_path, const struct model_config *model,
                               struct trainer *trainer, struct err *e) {
    char path[PATH_CAP];
    json_t *record = NULL;
    struct weights w;
    TRY(path_join(path, run_path, DOCUMENT_init, e));
    if (!path_exists(path)) return OK;
    TRY(json_file_read(path, &record, e));
    enum status st = weights_open(json_text(record, "path", ""), model, &w, e);
    if (st == OK) st = check_files(record, &w, e);
    const struct weight_source source = weights_source(&w);
    if (st == OK) st = trainer_import(trainer, &source, e);
    weights_close(&w);
    json_decref(record);
    return st;
}
