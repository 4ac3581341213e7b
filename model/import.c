#include "model/import.h"

#include <stdlib.h>

#include "kernels/dtype.h"
#include "model/trainer.h"

enum { CHUNK = 1 << 20 }; /* elements read at a time */

enum status import_put(struct backend *b, const struct tensor *x, int64_t at, int64_t n,
                       float *values, struct err *e) {
    char *to = (char *)x->data + at * dtype_bytes(x->dtype);
    uint16_t *half = (uint16_t *)(void *)values;
    if (x->dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++) {
            float value;
            memcpy(&value, &values[i], sizeof value);
            uint16_t code = bf16_encode(value);
            memcpy(&half[i], &code, sizeof code);
        }
    return b->ops->upload(b, LANE_COMPUTE, to, values, n * dtype_bytes(x->dtype), e);
}

static enum status import_one(struct trainer *t, const struct param *p,
                              const struct weight_source *source, float *values, struct err *e) {
    int64_t left = param_count(p) - p->own.first; /* padding stays 0 */
    int64_t count = left < p->own.count ? left : p->own.count;
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        TRY(source->read(source->user, p, p->own.first + at, n, values, e));
        if (p->master.data) TRY(import_put(t->backend, &p->master, at, n, values, e));
        TRY(import_put(t->backend, &p->own_value, at, n, values, e));
    }
    return OK;
}

static enum status import_all(struct trainer *t, const struct weight_source *source,
                              struct err *e) {
    float *values = malloc(CHUNK * sizeof *values);
    enum status st = values ? OK : FAIL(e, ERR_MEMORY, "no host memory to read weights");
    for (int i = 0; st == OK && i < t->params.count; i++)
        st = import_one(t, &t->params.param[i], source, values, e);
    free(values);
    return st;
}

static const char IN_PART[] = "weights were read in part";

enum status trainer_import(struct trainer *t, const struct weight_source *source, struct err *e) {
    TRY(trainer_check_idle(t, e));
    if (t->step) return FAIL(e, ERR_STATE, "weights are read before the first step");
    if (t->failure == IN_PART) t->failure = NULL; /* a retry may succeed */
    enum status st = import_all(t, source, e);
    st = pieces_agree(&t->pieces, st, "reading weights", e);
    if (st == OK) st = slots_reset(&t->slots, t->backend, e); /* the scales were of other weights */
    if (st == OK) st = trainer_requantise(t, e);
    if (st != OK && !t->failure) t->failure = IN_PART;
    return st;
}
