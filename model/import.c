#include "model/import.h"

#include <stdlib.h>

#include "kernels/dtype.h"
#include "model/ground/parallel.h"
#include "model/trainer.h"

enum { CHUNK = 1 << 20, CHUNKS = 8 }; /* elements that a thread reads; such chunks at a time */

/* To BF16, in place: a value takes half of its memory. */
static void import_round(float *values, int64_t n) {
    unsigned char *half = (unsigned char *)values;
    for (int64_t i = 0; i < n; i++) {
        uint16_t code = bf16_encode(values[i]);
        memcpy(half + 2 * i, &code, sizeof code);
    }
}

enum status import_put(struct backend *b, const struct tensor *x, int64_t at, int64_t n,
                       float *values, struct err *e) {
    int64_t bytes = dtype_bytes(x->dtype);
    if (x->dtype == DTYPE_BF16) import_round(values, n);
    return b->ops->upload(b, LANE_COMPUTE, (char *)x->data + at * bytes, values, n * bytes, e);
}

/* Neighbouring chunks of a parameter, each read by one thread. */
struct reading {
    const struct weight_source *source;
    const struct param *param;
    int64_t first, count; /* elements of the parameter */
    float *values;        /* [count] */
};

static int64_t chunk_of(const struct reading *r, int64_t i) {
    int64_t left = r->count - i * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

static enum status read_chunk(void *user, int64_t i, struct err *e) {
    const struct reading *r = user;
    return r->source->read(r->source->user, r->param, r->first + i * CHUNK, chunk_of(r, i),
                           r->values + i * CHUNK, e);
}

/* Each chunk by itself, because its first half becomes BF16. */
static enum status round_chunk(void *user, int64_t i, struct err *e) {
    const struct reading *r = user;
    (void)e;
    import_round(r->values + i * CHUNK, chunk_of(r, i));
    return OK;
}

static enum status import_chunks(struct trainer *t, struct reading *r, struct err *e) {
    struct backend *b = t->backend;
    const struct param *p = r->param;
    const struct tensor *value = &p->own_value;
    int64_t chunks = ceil_div(r->count, CHUNK), at = r->first - p->own.first;
    int64_t bytes = dtype_bytes(value->dtype);
    int threads = parallel_processors() / t->world;
    TRY(parallel_each(chunks, threads, read_chunk, r, e));
    if (p->master.data)
        TRY(b->ops->upload(b, LANE_COMPUTE, (float *)p->master.data + at, r->values, 4 * r->count,
                           e));
    if (value->dtype == DTYPE_BF16) TRY(parallel_each(chunks, threads, round_chunk, r, e));
    for (int64_t i = 0; i < chunks; i++)
        TRY(b->ops->upload(b, LANE_COMPUTE, (char *)value->data + (at + i * CHUNK) * bytes,
                           r->values + i * CHUNK, chunk_of(r, i) * bytes, e));
    return OK;
}

static enum status import_one(struct trainer *t, const struct param *p,
                              const struct weight_source *source, float *values, struct err *e) {
    int64_t left = param_count(p) - p->own.first; /* padding stays 0 */
    int64_t count = left < p->own.count ? left : p->own.count;
    if (count > 0 && source->prepare) TRY(source->prepare(source->user, p, e));
    for (int64_t at = 0; at < count; at += CHUNKS * CHUNK) {
        int64_t n = count - at < CHUNKS * CHUNK ? count - at : CHUNKS * CHUNK;
        struct reading r = { source, p, p->own.first + at, n, values };
        TRY(import_chunks(t, &r, e));
    }
    return OK;
}

static enum status import_all(struct trainer *t, const struct weight_source *source,
                              struct err *e) {
    float *values = malloc(CHUNKS * CHUNK * sizeof *values);
    enum status st = values ? OK : FAIL(e, ERR_MEMORY, "no host memory to read weights");
    for (int i = 0; st == OK && i < t->params.count; i++)
        st = import_one(t, &t->params.param[i], source, values, e);
    free(values);
    return st;
}

const char IMPORT_IN_PART[] = "weights were read in part";

enum status trainer_import(struct trainer *t, const struct weight_source *source, struct err *e) {
    TRY(trainer_check_idle(t, e));
    if (t->step) return FAIL(e, ERR_STATE, "weights are read before the first step");
    if (t->failure == IMPORT_IN_PART) t->failure = NULL; /* a retry may succeed */
    enum status st = import_all(t, source, e);
    st = pieces_agree(&t->pieces, st, "reading weights", e);
    if (st == OK) st = slots_reset(&t->slots, t->backend, e); /* the scales were of other weights */
    if (st == OK) st = trainer_requantise(t, e);
    if (st != OK && !t->failure) t->failure = IMPORT_IN_PART;
    return st;
}
