/* Gathers weights ahead of their use, then makes FP8 codes. Codes that are not kept
 * (codes_transient) are made just before each use, whether the weights were gathered or not. */
#include "model/exchange.h"

/* Buckets gathered ahead. With value_transient there are two buffers, and one is being read. */
enum { AHEAD_WHOLE = 4, AHEAD_PASSING = 1 };

void exchange_init(struct exchange *x, struct backend *b, struct params *p, struct slots *s) {
    memset(x, 0, sizeof *x);
    x->b = b;
    x->params = p;
    x->slots = s;
}

static bool divides(const struct exchange *x) { return shard_divides(&x->params->options.shard); }

/* ---- codes ---- */

/* Gathered codes need only their twin. Evaluation has no backward and needs no twin. */
static enum status transpose_codes(struct exchange *x, struct param *p, struct err *e) {
    struct operand *w = &p->weight;
    if (x->pass == PASS_EVAL || !w->has_twin) return OK;
    struct tensor transposed = tensor_transposed(&w->codes);
    return x->b->ops->copy(x->b, LANE_COMPUTE, &w->twin, &transposed, e);
}

/* The update has made the amax of a weight, so current scaling only makes the codes. */
static enum status make_codes(struct exchange *x, struct operand *w, struct err *e) {
    struct sink s = operand_sink(w, x->slots, x->pass);
    struct slot *slot = &x->slots->slot[w->slot];
    s.amax = s.source == SCALE_SOURCE_AMAX ? &slot->amax : NULL;
    if (s.source != SCALE_SOURCE_AMAX)
        TRY(x->b->ops->quantise(x->b, LANE_COMPUTE, &s, &w->value, e));
    return operand_finish(x->b, &s, e);
}

/* The codes of a parameter whose value, or codes, have arrived. */
static enum status prepare_param(struct exchange *x, struct param *p, struct err *e) {
    if (!p->weight.fp8 || (x->pass == PASS_EVAL && !p->weight.has_codes)) return OK;
    if (x->params->bucket[p->bucket].gathers_codes) return transpose_codes(x, p, e);
    TRY(make_codes(x, &p->weight, e));
    return p->spec->split_weight && x->pass != PASS_EVAL ? make_codes(x, &p->dgrad, e) : OK;
}

/* Codes of settled parameters are made once (exchange_settle), but those that are not kept each
 * time. all: makes them too. */
static enum status prepare(struct exchange *x, int bucket, bool all, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    all = all || k->value_transient || k->codes_transient;
    if (!k->gathers_codes && x->pass == PASS_TRAIN)
        TRY(slots_clear_counts(x->slots, x->b, k->slots, all, e));
    for (int i = 0; i < x->params->count; i++) {
        struct param *p = &x->params->param[i];
        if (p->bucket != bucket || (p->settled && !all)) continue;
        TRY(prepare_param(x, p, e));
    }
    return OK;
}

/* The codes of a bucket that has codes_transient, if its memory holds those of another. */
static enum status make_in_use(struct exchange *x, int bucket, struct err *e) {
    if (!x->params->bucket[bucket].codes_transient || x->made == bucket) return OK;
    x->made = bucket;
    return prepare(x, bucket, true, e);
}

/* ---- gathering ---- */

static enum status gather(struct exchange *x, int bucket, int lane, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    return k->gathers_codes
        ? x->b->ops->comm.all_gather(x->b, lane, &k->codes, &k->codes_shard, e)
        : x->b->ops->comm.all_gather(x->b, lane, &k->value, &k->value_shard, e);
}

/* Weights with value_transient are gathered in every forward, others in the first forward after an
 * update. */
static bool gathers_now(const struct exchange *x, int bucket) {
    return x->params->bucket[bucket].value_transient || (x->pass == PASS_TRAIN && x->first);
}

static enum status issue(struct exchange *x, int bucket, struct err *e) {
    const struct backend_ops *ops = x->b->ops;
    const struct bucket *k = &x->params->bucket[bucket];
    if (k->stays) return OK;
    if (k->value_transient) { /* all readers of the buffer are queued */
        TRY(ops->signal(x->b, LANE_COMPUTE, EVENT_FREE, e));
        TRY(ops->wait(x->b, LANE_COMM, EVENT_FREE, e));
        x->held[k->ring] = bucket;
        x->waited[k->ring] = false;
    }
    TRY(gather(x, bucket, LANE_COMM, e));
    return ops->signal(x->b, LANE_COMM, EVENT_GATHERED + bucket % GATHERED_EVENTS, e);
}

static enum status arrive(struct exchange *x, int bucket, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    if (!k->stays)
        TRY(x->b->ops->wait(x->b, LANE_COMPUTE, EVENT_GATHERED + bucket % GATHERED_EVENTS, e));
    if (k->value_transient) x->waited[k->ring] = true;
    return k->codes_transient ? OK : prepare(x, bucket, false, e);
}

enum status gather_begin(struct exchange *x, enum pass pass, struct err *e) {
    x->pass = pass;
    x->made = -1;
    if (!divides(x)) return OK;
    x->issued = x->ready = 0;
    x->held[0] = x->held[1] = -1;
    TRY(x->b->ops->signal(x->b, LANE_COMPUTE, EVENT_WEIGHTS, e));
    return x->b->ops->wait(x->b, LANE_COMM, EVENT_WEIGHTS, e);
}

static enum status gather_up_to(struct exchange *x, int bucket, struct err *e) {
    bool passing = x->params->options.shard.kind == SHARD_PARAMETERS;
    int ahead = passing ? AHEAD_PASSING : AHEAD_WHOLE;
    for (; x->ready <= bucket; x->ready++) {
        for (; x->issued <= x->ready + ahead && x->issued < x->params->bucket_count; x->issued++)
            if (gathers_now(x, x->issued)) TRY(issue(x, x->issued, e));
        if (gathers_now(x, x->ready)) TRY(arrive(x, x->ready, e));
    }
    return OK;
}

enum status gather_use(struct exchange *x, int bucket, struct err *e) {
    if (divides(x)) TRY(gather_up_to(x, bucket, e));
    return make_in_use(x, bucket, e);
}

static bool is_held(const struct exchange *x, int bucket) {
    return x->held[x->params->bucket[bucket].ring] == bucket;
}

enum status gather_back(struct exchange *x, int bucket, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    if (x->pass == PASS_TRAIN) x->pass = PASS_RECOMPUTE; /* forward has counted saturation */
    if (!k->value_transient) return make_in_use(x, bucket, e);
    if (!is_held(x, bucket)) TRY(issue(x, bucket, e));
    int next = bucket - 1;
    int64_t lowest = x->params->lowest > 0 ? x->params->lowest : 0;
    if (next >= BUCKET_LAYER + lowest && !is_held(x, next)) TRY(issue(x, next, e));
    return x->waited[k->ring] ? OK : arrive(x, bucket, e);
}

/* ---- between steps ---- */

enum status exchange_gather_all(struct exchange *x, struct err *e) {
    if (!divides(x) || !x->pending) return OK;
    x->pass = PASS_TRAIN;
    for (int k = 0; k < x->params->bucket_count; k++) {
        if (x->params->bucket[k].value_transient) continue;
        if (!x->params->bucket[k].stays) TRY(gather(x, k, LANE_COMPUTE, e));
        if (!x->params->bucket[k].codes_transient) TRY(prepare(x, k, false, e));
    }
    x->pending = false;
    return OK;
}

static bool has_settled(const struct params *p, int bucket) {
    for (int i = 0; i < p->count; i++)
        if (p->param[i].bucket == bucket && p->param[i].settled) return true;
    return false;
}

enum status exchange_settle(struct exchange *x, struct err *e) {
    if (!divides(x)) return OK;
    x->pass = PASS_TRAIN;
    for (int k = 0; k < x->params->bucket_count; k++) {
        const struct bucket *b = &x->params->bucket[k];
        if (b->value_transient || !(b->stays || has_settled(x->params, k))) continue;
        TRY(gather(x, k, LANE_COMPUTE, e));
        if (!b->codes_transient) TRY(prepare(x, k, true, e));
    }
    return OK;
}

static bool has_following(const struct params *p, int bucket) {
    for (int i = 0; i < p->count; i++)
        if (p->param[i].bucket == bucket && p->param[i].follows) return true;
    return false;
}

enum status exchange_remake(struct exchange *x, struct err *e) {
    if (!divides(x)) return OK;
    x->pass = PASS_TRAIN;
    for (int k = 0; k < x->params->bucket_count; k++) { /* those not kept are made each time */
        const struct bucket *b = &x->params->bucket[k];
        if (b->value_transient || b->codes_transient || !has_following(x->params, k)) continue;
        if (b->gathers_codes) TRY(gather(x, k, LANE_COMPUTE, e));
        for (int i = 0; i < x->params->count; i++) {
            struct param *p = &x->params->param[i];
            if (p->bucket != k || !p->follows) continue;
            if (!b->gathers_codes) TRY(params_clear_counts(p, x->b, x->slots, e));
            TRY(prepare_param(x, p, e));
        }
    }
    return OK;
}

/* A bucket with gathers_codes has no whole value. Its value is gathered into the memory of
 * gradients, which is unused between an update and the next backward and is at least as large. */
enum status exchange_whole_value(struct exchange *x, int bucket, struct tensor *out,
                                 struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    *out = k->value;
    if (!divides(x)) return OK;
    if (!k->value_transient && !k->gathers_codes) return exchange_gather_all(x, e);
    if (k->gathers_codes) out->data = k->grad.data;
    return x->b->ops->comm.all_gather(x->b, LANE_COMPUTE, out, &k->value_shard, e);
}
