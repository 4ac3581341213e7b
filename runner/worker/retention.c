#include "runner/worker/retention.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"
#include "runner/base/jsonl.h"
#include "runner/base/run_files.h"
#include "runner/record/documents.h"
#include "runner/record/streams.h"

static bool is_better(const struct retention *r, double value, int64_t step, double than) {
    if (!isfinite(value)) return false;
    return step == 0 || (r->scene.options.best_is_max ? value > than : value < than);
}

/* The checkpoint of the step is on disk: one that was due is now the best. */
static void written(struct retention *r, int64_t step) {
    if (step == 0 || step != r->due_step) return;
    r->scene.best_step = r->due_step;
    r->best_value = r->due_value;
    r->due_step = 0;
}

bool retention_evaluated(struct retention *r, int64_t step, double value) {
    if (is_better(r, value, r->evaluated_step, r->evaluated_value)) {
        r->evaluated_step = step;
        r->evaluated_value = value;
    }
    if (!is_better(r, value, r->scene.best_step, r->best_value)) return false;
    r->due_step = step;
    r->due_value = value;
    return r->scene.options.best;
}

/* An evaluation of an earlier process: its checkpoint is there, or was deleted or never written. */
static enum status take_record(struct retention *r, const char *parent, int64_t step, double value,
                               struct err *e) {
    char path[CHECKPOINT_PATH_CAP];
    (void)retention_evaluated(r, step, value);
    TRY(checkpoint_path(path, parent, step, e));
    if (path_is_directory(path)) written(r, step);
    return OK;
}

/* The step before the first: that of the run whose optimizer's state this one continues. */
static enum status find_begin(const char *run_path, const struct run_options *run, int64_t *begin,
                              struct err *e) {
    char path[PATH_CAP];
    json_t *record = NULL;
    *begin = 0;
    if (!run->init_optimizer || run->init_restart) return OK;
    TRY(path_join(path, run_path, DOCUMENT_init, e));
    if (!path_exists(path)) return OK; /* an extended run begins with its own checkpoint */
    TRY(json_file_read(path, &record, e));
    *begin = json_int(json_object_get(record, "optimizer"), "step");
    json_decref(record);
    return OK;
}

enum status retention_open(const char *run_path, const struct run_options *run, int64_t sequences,
                           struct retention *out, struct err *e) {
    *out = (struct retention){ .scene = { .options = run->checkpoint,
                                          .batch = run->train.global_batch,
                                          .sequences = sequences } };
    char path[PATH_CAP], parent[PATH_CAP];
    TRY(find_begin(run_path, run, &out->scene.begin, e));
    TRY(path_join(path, run_path, STREAMS[STREAM_EVAL].file, e));
    TRY(path_join(parent, run_path, RUN_PATH_checkpoints, e));
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    struct jsonl lines;
    jsonl_open(&lines, f, path);
    enum status st;
    json_t *record = NULL;
    while ((st = jsonl_next(&lines, &record, e)) == OK && record) {
        const json_t *value = json_object_get(record, run->checkpoint.best_metric);
        if (json_is_number(value))
            st = take_record(out, parent, json_int(record, "step"), json_number_value(value), e);
        json_decref(record);
        if (st != OK) break;
    }
    jsonl_close(&lines);
    fclose(f);
    return st;
}

static int by_step(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

enum status retention_list(const char *parent, int64_t **steps, int64_t *count, struct err *e) {
    int64_t capacity = 0;
    *steps = NULL;
    *count = 0;
    DIR *d = opendir(parent);
    if (!d) return FAIL(e, ERR_IO, "open %s: %s", parent, strerror(errno));
    enum status st = OK;
    for (struct dirent *entry; st == OK && (entry = readdir(d));) {
        int64_t step = 0;
        int end = 0;
        if (sscanf(entry->d_name, "step-%" SCNd64 "%n", &step, &end) != 1 || entry->d_name[end])
            continue;
        if (*count == capacity) {
            int64_t more = capacity ? 2 * capacity : 64;
            int64_t *grown = realloc(*steps, (size_t)more * sizeof *grown);
            if (!grown) {
                st = FAIL(e, ERR_MEMORY, "a list of %" PRId64 " checkpoints", more);
                break;
            }
            *steps = grown;
            capacity = more;
        }
        (*steps)[(*count)++] = step;
    }
    closedir(d);
    if (*count) qsort(*steps, (size_t)*count, sizeof **steps, by_step);
    return st;
}

enum status retention_prune(struct retention *r, const char *parent, int64_t saved,
                            struct err *e) {
    int64_t count = 0, ours, *steps = NULL;
    enum status st = retention_list(parent, &steps, &count, e);
    written(r, saved);
    for (ours = count; ours && steps[ours - 1] > saved;) ours--;
    for (int64_t i = 0; i < count && st == OK; i++) {
        char path[CHECKPOINT_PATH_CAP];
        if (i < ours && tiers_hold(&r->scene, steps[i], ours - 1 - i)) continue;
        st = checkpoint_path(path, parent, steps[i], e);
        if (st == OK) st = checkpoint_remove(path, e);
    }
    free(steps);
    return st;
}
