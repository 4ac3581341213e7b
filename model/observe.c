/* Looking at a trainer without changing it: slots and fingerprints. */
#include <stdio.h>
#include <stdlib.h>

#include "model/trainer.h"

/* ---- FP8 figures ---- */

const char *const *trainer_slots(const struct trainer *t, int64_t *count) {
    *count = t->slots.count;
    return t->slots.name;
}

struct slot_figures {
    uint32_t *amax, *seen_amax;
    float *multiplier, *seen_multiplier;
    uint64_t *stats;
};

static enum status download_figures(struct trainer *t, struct slot_figures *f, void *host,
                                    struct err *e) {
    struct slots *s = &t->slots;
    int64_t n = s->count;
    f->stats = host;
    f->amax = (uint32_t *)(f->stats + 2 * n);
    f->seen_amax = f->amax + n;
    f->multiplier = (float *)(f->seen_amax + n);
    f->seen_multiplier = f->multiplier + n;
    const struct { void *to; const struct tensor *from; int64_t bytes; } part[] = {
        { f->stats, &s->stats, 16 * n },         { f->amax, &s->amax, 4 * n },
        { f->seen_amax, &s->seen_amax, 4 * n },  { f->multiplier, &s->multiplier, 4 * n },
        { f->seen_multiplier, &s->seen_multiplier, 4 * n },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        TRY(t->backend->ops->download(t->backend, LANE_COMPUTE, part[i].to, part[i].from->data,
                                      part[i].bytes, e));
    return OK;
}

static struct fp8_slot figures_of(const struct trainer *t, const struct slot_figures *f, int i) {
    const struct slot *slot = &t->slots.slot[i];
    bool weight = slot->region == SLOT_WEIGHT;
    struct fp8_slot out = { .amax_bits = weight ? f->amax[i] : f->seen_amax[i], .scale = 1.0f };
    if (!slot->elements) return out;
    float stored, amax = f32_from_bits(out.amax_bits);
    if (slot->delayed) out.scale = weight ? f->multiplier[i] : f->seen_multiplier[i];
    else out.scale = quant_multiplier(&slot->rule, slot->code, amax, &stored);
    out.saturated = (int64_t)f->stats[2 * i];
    out.underflow = (int64_t)f->stats[2 * i + 1];
    out.elements = slot->elements * (weight ? 1 : t->accumulation);
    return out;
}

enum status trainer_read_fp8(struct trainer *t, struct fp8_slot *out, struct err *e) {
    void *host = malloc((size_t)t->slots.count * 32);
    if (!host) return FAIL(e, ERR_MEMORY, "no host memory for %d amax slots", t->slots.count);
    struct slot_figures f;
    enum status st = download_figures(t, &f, host, e);
    for (int i = 0; st == OK && i < t->slots.count; i++) out[i] = figures_of(t, &f, i);
    free(host);
    return st;
}

/* ---- fingerprints ---- */

enum { TRACED_NAME = 80 };

static int outputs_count(const struct trainer *t) { return (int)t->model.layers + 1; }

enum status trace_init(struct trainer *t, struct err *e) {
    int params = t->params.count, outputs = outputs_count(t);
    t->traced_count = 2 * params + outputs;
    t->traced = calloc((size_t)t->traced_count, sizeof *t->traced);
    t->traced_text = calloc((size_t)t->traced_count, TRACED_NAME);
    if (!t->traced || !t->traced_text)
        return FAIL(e, ERR_MEMORY, "no host memory for %d names", t->traced_count);
    for (int i = 0; i < t->traced_count; i++) {
        char *name = t->traced_text + (size_t)i * TRACED_NAME;
        if (i < params) snprintf(name, TRACED_NAME, "%s", t->params.param[i].name);
        else if (i == params) snprintf(name, TRACED_NAME, "out:embed");
        else if (i < params + outputs)
            snprintf(name, TRACED_NAME, "out:layers.%d", i - params - 1);
        else
            snprintf(name, TRACED_NAME, "grad:%s",
                     t->params.param[t->traced_count - 1 - i].name); /* backward order */
        t->traced[i] = name;
    }
    return OK;
}

const char *const *trainer_trace_tensors(const struct trainer *t, int64_t *count) {
    *count = t->traced_count;
    return t->traced;
}

static enum status print(struct trainer *t, int index, const struct tensor *x, struct err *e) {
    struct tensor out = tensor_1d((char *)t->prints.data + 8 * (int64_t)index, DTYPE_U64, 1);
    return t->backend->ops->fingerprint(t->backend, LANE_COMPUTE, &out, x, e);
}

enum status trace_weights(struct trainer *t, struct err *e) {
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        struct tensor x = param_canonical(p, &p->weight.value);
        TRY(print(t, i, &x, e));
    }
    return OK;
}

enum status trace_outputs(struct trainer *t, struct err *e) {
    for (int l = 0; l < outputs_count(t); l++)
        TRY(print(t, t->params.count + l, &t->transformer.x[l], e));
    return OK;
}

enum status trace_gradients(struct trainer *t, struct err *e) {
    for (int i = 0; i < t->params.count; i++) {
        const struct param *p = &t->params.param[i];
        struct tensor x = param_canonical(p, &p->grad);
        TRY(print(t, t->traced_count - 1 - i, &x, e));
    }
    return OK;
}

enum status trainer_trace(struct trainer *t, uint64_t *out, struct err *e) {
    if (!t->has_trace) return FAIL(e, ERR_STATE, "the last step was not traced");
    return t->backend->ops->download(t->backend, LANE_COMPUTE, out, t->prints.data,
                                     8 * (int64_t)t->traced_count, e);
}
