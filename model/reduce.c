/* Sums gradients over ranks, bucket by bucket, while backward continues. */
#include "model/exchange.h"

static int world(const struct exchange *x) { return x->params->options.shard.world; }

/* Without tying, its ring buffer has other users during backward, so it is cleared later. */
static bool ring_has_other_users(const struct bucket *k) {
    return k->grad_transient && k->added == k->elements;
}

static enum status clear(struct exchange *x, const struct bucket *k, struct err *e) {
    struct tensor added = tensor_span(&k->grad, 0, k->added);
    return k->added ? x->b->ops->zero(x->b, LANE_COMPUTE, &added, e) : OK;
}

enum status reduce_begin(struct exchange *x, struct err *e) {
    for (int i = 0; i < x->params->bucket_count; i++) {
        const struct bucket *k = &x->params->bucket[i];
        if (k->frozen || ring_has_other_users(k) || !(x->first || k->grad_transient)) continue;
        if (k->grad_transient) TRY(reduce_open(x, i, e));
        TRY(clear(x, k, e));
    }
    return OK;
}

enum status reduce_open(struct exchange *x, int bucket, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    if (!k->grad_transient || k->frozen) return OK;
    TRY(x->b->ops->wait(x->b, LANE_COMPUTE, EVENT_REDUCED + k->ring, e));
    return ring_has_other_users(k) ? clear(x, k, e) : OK;
}

/* Sums over ranks into this rank's shard. Later micro-batches add to it. */
static enum status reduce(struct exchange *x, const struct bucket *k, struct err *e) {
    const struct backend_ops *ops = x->b->ops;
    bool adds = k->grad_transient && !x->first;
    const struct tensor *out = adds ? &k->grad_part : &k->grad_shard;
    if (x->params->options.grad_codes)
        TRY(ops->comm.reduce_scatter_codes(x->b, LANE_COMM, out, &k->grad, e));
    else TRY(ops->comm.reduce_scatter(x->b, LANE_COMM, out, &k->grad, e));
    if (adds) return ops->add(x->b, LANE_COMM, &k->grad_shard, &k->grad_part, e);
    if (x->params->options.shard.kind != SHARD_NONE) return OK;
    return ops->comm.all_gather(x->b, LANE_COMM, &k->grad, &k->grad_shard, e);
}

enum status reduce_close(struct exchange *x, int bucket, struct err *e) {
    const struct backend_ops *ops = x->b->ops;
    const struct bucket *k = &x->params->bucket[bucket];
    if (world(x) == 1 || k->frozen || (!k->grad_transient && !x->last)) return OK;
    TRY(ops->signal(x->b, LANE_COMPUTE, EVENT_GRADIENTS, e));
    TRY(ops->wait(x->b, LANE_COMM, EVENT_GRADIENTS, e));
    TRY(reduce(x, k, e));
    return ops->signal(x->b, LANE_COMM, EVENT_REDUCED + k->ring, e);
}

enum status reduce_finish(struct exchange *x, struct err *e) {
    if (world(x) == 1 || !x->last) return OK;
    TRY(x->b->ops->wait(x->b, LANE_COMPUTE, EVENT_REDUCED, e));
    return x->b->ops->wait(x->b, LANE_COMPUTE, EVENT_REDUCED + 1, e);
}

enum status reduce_whole_gradients(struct exchange *x, int bucket, struct err *e) {
    const struct bucket *k = &x->params->bucket[bucket];
    if (k->frozen || !shard_divides(&x->params->options.shard)) return OK;
    return x->b->ops->comm.all_gather(x->b, LANE_COMPUTE, &k->grad, &k->grad_shard, e);
}
