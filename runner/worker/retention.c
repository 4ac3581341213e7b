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
#include "runner/record/streams.h"

enum { CHECKPOINTS_MAX = 4096 };

bool retention_evaluated(struct retention *r, int64_t step, double loss) {
    if (!isfinite(loss) || (r->best_step && loss >= r->best_loss)) return false;
    r->best_step = step;
    r->best_loss = loss;
    return r->keep_best;
}

enum status retention_open(const char *run_path, int64_t keep, bool keep_best, bool keep_init,
                           struct retention *out, struct err *e) {
    *out = (struct retention){ .keep = keep > 0 ? keep : 1, .keep_best = keep_best,
                               .keep_init = keep_init };
    char path[PATH_CAP];
    TRY(path_join(path, run_path, STREAMS[STREAM_EVAL].file, e));
    FILE *f = fopen(path, "re");
    if (!f) return errno == ENOENT ? OK : FAIL(e, ERR_IO, "open %s: %s", path, strerror(errno));
    struct jsonl lines;
    jsonl_open(&lines, f, path);
    enum status st;
    json_t *record = NULL;
    while ((st = jsonl_next(&lines, &record, e)) == OK && record) {
        const json_t *loss = json_object_get(record, "loss");
        if (json_is_number(loss))
            (void)retention_evaluated(out, json_integer_value(json_object_get(record, "step")),
                                      json_number_value(loss));
        json_decref(record);
    }
    jsonl_close(&lines);
    fclose(f);
    return st;
}

static int by_step(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The steps that have a checkpoint in `parent`, ascending. */
static enum status list_steps(const char *parent, int64_t *steps, int64_t *count, struct err *e) {
    *count = 0;
    DIR *d = opendir(parent);
    if (!d) return FAIL(e, ERR_IO, "open %s: %s", parent, strerror(errno));
    for (struct dirent *entry; (entry = readdir(d)) && *count < CHECKPOINTS_MAX;) {
        int64_t step = 0;
        int end = 0;
        if (sscanf(entry->d_name, "step-%" SCNd64 "%n", &step, &end) == 1 && !entry->d_name[end])
            steps[(*count)++] = step;
    }
    closedir(d);
    qsort(steps, (size_t)*count, sizeof *steps, by_step);
    return OK;
}

enum status retention_prune(const struct retention *r, const char *parent, int64_t saved,
                            struct err *e) {
    int64_t count = 0, ours, *steps = calloc(CHECKPOINTS_MAX, sizeof *steps);
    if (!steps) return FAIL(e, ERR_MEMORY, "list of checkpoints");
    enum status st = list_steps(parent, steps, &count, e);
    for (ours = count; ours && steps[ours - 1] > saved;) ours--;
    for (int64_t i = 0; i < count && st == OK; i++) {
        char path[CHECKPOINT_PATH_CAP];
        bool newest = i < ours && i + r->keep >= ours;
        if (newest || (r->keep_best && steps[i] == r->best_step)) continue;
        if (r->keep_init && steps[i] == 0) continue;
        st = checkpoint_path(path, parent, steps[i], e);
        if (st == OK) st = checkpoint_remove(path, e);
    }
    free(steps);
    return st;
}
