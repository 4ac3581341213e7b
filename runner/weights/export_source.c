#include "runner/weights/export_source.h"

#include <stdio.h>
#include <string.h>

#include "model/params.h"
#include "runner/base/run_files.h"

enum status export_source_open(const char *checkpoint, bool masters, struct export_source *out,
                               struct err *e) {
    char state[PATH_CAP];
    *out = (struct export_source){ .checkpoint = checkpoint };
    TRY(tensor_files_open(checkpoint, &out->weights, e));
    TRY(path_join(state, checkpoint, "state.safetensors", e));
    if (!masters || !path_exists(state)) return OK;
    TRY(tensor_files_open(state, &out->masters, e));
    for (int64_t i = 0; i < out->masters.count; i++) /* frozen parameters have none */
        out->has_masters |= strncmp(out->masters.entry[i].name, "master:", 7) == 0;
    return OK;
}

void export_source_close(struct export_source *s) {
    tensor_files_close(&s->weights);
    tensor_files_close(&s->masters);
}

enum status export_source_read(void *user, const struct param *p, int64_t first, int64_t count,
                               float *out, struct err *e) {
    struct export_source *s = user;
    char name[96];
    snprintf(name, sizeof name, "master:%s", p->name);
    const struct tensor_files *files = &s->masters;
    const struct tensor_entry *x = tensor_find(files, name);
    if (!x) x = tensor_find(files = &s->weights, p->name);
    if (!x || x->type == WEIGHT_OTHER || x->bytes < (first + count) * 2)
        return FAIL(e, ERR_FORMAT, "%s has no %s of the run's shape", s->checkpoint, p->name);
    return tensor_read(files, x, first, count, out, e);
}
