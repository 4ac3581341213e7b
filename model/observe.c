/* What is read from a trainer: the record of a step, FP8 figures, fingerprints, histograms. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/histogram.h"
#include "model/trainer.h"

/* ---- the record of a step ---- */

/* The name of a flag's index: a slot, "loss", "grad:NAME" or "grad_norm". */
static void flagged_name(const struct trainer *t, int32_t index, char *out, size_t size) {
    if (index < flag_loss(t)) snprintf(out, size, "%s", t->slots.name[index]);
    else if (index < flag_squares(t)) snprintf(out, size, "loss");
    else if (index < flag_norm(t))
        snprintf(out, size, "grad:%s", t->params.param[index - flag_squares(t)].name);
    else snprintf(out, size, "grad_norm");
}

void record_check(struct trainer *t, struct record_head *head, char tensor[128]) {
    memcpy(head, t->seen, sizeof *head);
    tensor[0] = 0;
    if (head->flag[0] < 0) return;
    t->failure = "a value was not finite";
    flagged_name(t, head->flag[1], tensor, 128);
}

enum status trainer_read_record(struct trainer *t, struct record_head *head, char tensor[128],
                         struct err *e) {
    TRY(t->backend->ops->download(t->backend, LANE_COMPUTE, t->seen, t->record, t->record_bytes,
                                  e));
    record_check(t, head, tensor);
    return OK;
}

/* ---- FP8 figures ---- */

const char *const *trainer_slots(const struct trainer *t, int64_t *count) {
    *count = t->slots.count;
    return t->slots.name;
}

/* Counts of all ranks, or of this rank if ranks do not gather counts (struct slots). A weight that
 * every rank quantises whole counts once per rank. */
static void count(const struct trainer *t, int i, struct fp8_slot *out) {
    const struct slots *s = &t->slots;
    const struct slot *slot = &s->slot[i];
    const uint64_t *own = record_of(t, &s->stats);
    int ranks = s->gathers_counts ? t->world : 1;
    for (int r = 0; r < ranks; r++) {
        const uint64_t *of = s->gathers_counts ? gathered_from(t, r) + 2 : own;
        out->saturated += (int64_t)of[2 * i];
        out->underflow += (int64_t)of[2 * i + 1];
    }
    out->elements = slot->elements * ranks * (slot->region == SLOT_WEIGHT ? 1 : t->accumulation);
    if (slot->divided && s->gathers_counts) out->elements = slot->divided;
}

/* The measured error of a slot's codes; the sums are over all ranks. */
static void error_of(const struct trainer *t, int i, struct fp8_slot *out) {
    const struct slot *slot = &t->slots.slot[i];
    const float *sums = (const float *)record_of(t, &t->slots.errors) + 2 * (int64_t)i;
    double signal = (double)sums[0], noise = (double)sums[1];
    int64_t elements = slot->divided ? slot->divided : slot->elements * t->world;
    if (!t->has_errors || signal == 0) return;
    out->snr_db = noise > 0 ? 10 * log10(signal / noise) : noise == 0 ? (double)INFINITY
                                                                      : (double)NAN;
    out->rms = sqrt(signal / (double)elements);
}

static struct fp8_slot figures_of(const struct trainer *t, int i) {
    const struct slots *s = &t->slots;
    const struct slot *slot = &s->slot[i];
    bool weight = slot->region == SLOT_WEIGHT;
    const uint32_t *amax = record_of(t, weight ? &s->amax : &s->seen_amax);
    const float *multiplier = record_of(t, weight ? &s->multiplier : &s->seen_multiplier);
    struct fp8_slot out = { .amax_bits = amax[i], .scale = 1.0f, .snr_db = (double)NAN,
                            .rms = (double)NAN };
    if (!dtype_is_fp8(slot->code)) return out;
    float stored;
    if (slot->delayed) out.scale = multiplier[i];
    else out.scale = quant_multiplier(&slot->rule, slot->code, f32_from_bits(amax[i]), &stored);
    count(t, i, &out);
    error_of(t, i, &out);
    return out;
}

void trainer_read_fp8(const struct trainer *t, struct fp8_slot *out) {
    for (int i = 0; i < t->slots.count; i++) out[i] = figures_of(t, i);
}

/* ---- fingerprints, histograms ---- */

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

static enum status look_at(struct trainer *t, unsigned what, int64_t index, const struct tensor *x,
                           struct err *e) {
    const struct backend_ops *ops = t->backend->ops;
    struct tensor print = tensor_1d((char *)t->prints.data + 8 * index, DTYPE_U64, 1);
    if (what & OBSERVE_PRINTS) TRY(ops->fingerprint(t->backend, LANE_COMPUTE, &print, x, e));
    if (!(what & OBSERVE_HISTOGRAMS)) return OK;
    struct tensor counts = tensor_1d((char *)t->histograms.data + 8 * HISTOGRAM_COUNTS * index,
                                     DTYPE_U64, HISTOGRAM_COUNTS);
    return ops->histogram(t->backend, LANE_COMPUTE, &counts, x, e);
}

/* The canonical part of a parameter in the flat view of its bucket. */
static struct tensor in_bucket(const struct param *p, const struct tensor *bucket) {
    struct tensor x = tensor_span(bucket, p->offset, param_count_padded(p));
    return param_canonical(p, &x);
}

enum status observe_weights(struct trainer *t, unsigned what, struct err *e) {
    if (!what) return OK;
    for (int k = 0; k < t->params.bucket_count; k++) {
        struct tensor values;
        TRY(exchange_whole_value(&t->exchange, k, &values, e));
        for (int i = 0; i < t->params.count; i++) {
            const struct param *p = &t->params.param[i];
            if (p->bucket != k) continue;
            struct tensor x = in_bucket(p, &values);
            TRY(look_at(t, what, i, &x, e));
        }
    }
    return OK;
}

enum status observe_outputs(struct trainer *t, unsigned what, struct err *e) {
    for (int l = 0; what && l < outputs_count(t); l++)
        TRY(look_at(t, what, t->params.count + l, &t->transformer.x[l], e));
    return OK;
}

enum status observe_gradients(struct trainer *t, unsigned what, struct err *e) {
    if (!what) return OK;
    for (int k = 0; k < t->params.bucket_count; k++) {
        TRY(reduce_whole_gradients(&t->exchange, k, e));
        for (int i = 0; i < t->params.count; i++) {
            const struct param *p = &t->params.param[i];
            if (p->bucket != k || p->frozen) continue; /* its figures stay 0 */
            struct tensor x = in_bucket(p, &t->params.bucket[k].grad);
            TRY(look_at(t, what, t->traced_count - 1 - i, &x, e));
        }
    }
    return OK;
}

enum status trainer_trace(const struct trainer *t, uint64_t *out, struct err *e) {
    if (!t->has_trace) return FAIL(e, ERR_STATE, "the last step was not traced");
    memcpy(out, record_of(t, &t->prints), 8 * (size_t)t->traced_count);
    return OK;
}

void trainer_ask_histograms(struct trainer *t) { t->wants_histograms = true; }

enum status trainer_histograms(const struct trainer *t, int64_t *out, struct err *e) {
    if (t->pending > 0)
        return FAIL(e, ERR_STATE, "a queued step may count over the histograms: collect it first");
    if (!t->has_histograms) return FAIL(e, ERR_STATE, "the last step counted no histograms");
    return t->backend->ops->download(t->backend, LANE_COMPUTE, out, t->histograms.data,
                                     8 * tensor_count(&t->histograms), e);
}
