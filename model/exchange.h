/* Exchange: which collectives move weights and gradients among ranks, and when.
 *
 * Forward reads buckets in their order, backward in the opposite one. gather.c brings weights that
 * are not whole here before their first reader and makes their codes; reduce.c sums gradients over
 * ranks when backward is done with them. Both queue on LANE_COMM and order it with LANE_COMPUTE by
 * events, so that they run beside a neighbour's arithmetic:
 *
 *   forward    use(bucket)    waits for it, starts what comes a few buckets later
 *   backward   back(bucket)   the same downwards, for weights that pass
 *              open(bucket)   waits until the memory of its gradients is free
 *              close(bucket)  they are complete: reduce them
 *
 * Weights that stay whole are gathered once a step, in its first forward; who looks at them between
 * steps calls exchange_settle. With one rank all of this is nothing.
 *
 * Same bits. A reduction is reduce_scatter over the bucket in every mode (train.shard "none" then
 * gathers the sums), so an element's sum is taken in the same order whatever is sharded. Modes in
 * which gradients pass sum over ranks in each micro-batch and then over micro-batches, the others
 * the other way round: with one micro-batch a step all four give the same bits, with several "none"
 * and "optimizer" do, and "gradients" and "parameters". */
#ifndef FP8LAB_MODEL_EXCHANGE_H
#define FP8LAB_MODEL_EXCHANGE_H

#include "model/params.h"

/* The model's events. Buckets that are gathered ahead use EVENT_GATHERED in turn. */
enum { GATHERED_EVENTS = 8 };
enum model_event {
    EVENT_GATHERED,                                  /* comm: a bucket's weights are there */
    EVENT_WEIGHTS = EVENT_GATHERED + GATHERED_EVENTS, /* compute: shards are up to date */
    EVENT_FREE,                                      /* compute: nobody reads that place any more */
    EVENT_GRADIENTS,                                 /* compute: a bucket's are complete */
    EVENT_REDUCED                                    /* comm: [2], by place of the ring */
};

struct exchange {
    struct backend *b;     /* borrowed, as the next two */
    struct params *params;
    struct slots *slots;
    bool first, last;      /* of the step's micro-batches, the one under way */
    bool pending;          /* an update's weights are not gathered yet */
    enum pass pass;        /* of the forward under way */
    int issued, ready;     /* forward: buckets below are on their way; are there */
    int held[2];           /* the bucket in each place of the ring, -1 none */
    bool waited[2];        /* and whether compute has waited for it and made its codes */
};

/* Whether each micro-batch's gradients are reduced, so that the next one's are written afresh. */
static inline bool exchange_reduces_always(const struct exchange *x) {
    const struct shard_place *s = &x->params->options.shard;
    return s->world > 1 && s->kind >= SHARD_GRADIENTS;
}

void exchange_init(struct exchange *x, struct backend *b, struct params *p, struct slots *s);

/* ---- gather.c ---- */

NODISCARD enum status gather_begin(struct exchange *x, enum pass pass, struct err *e);
NODISCARD enum status gather_use(struct exchange *x, int bucket, struct err *e);
NODISCARD enum status gather_back(struct exchange *x, int bucket, struct err *e);
/* Between steps: gathers what the last update changed and stays whole. */
NODISCARD enum status exchange_settle(struct exchange *x, struct err *e);
/* Between steps: *out is the whole value of a bucket, flat; until the next look or step. */
NODISCARD enum status exchange_look(struct exchange *x, int bucket, struct tensor *out,
                                    struct err *e);

/* ---- reduce.c ---- */

/* Before forward: clears gradients that operators add to. */
NODISCARD enum status reduce_begin(struct exchange *x, struct err *e);
NODISCARD enum status reduce_open(struct exchange *x, int bucket, struct err *e);
NODISCARD enum status reduce_close(struct exchange *x, int bucket, struct err *e);
/* After backward: compute waits for every reduction that was queued. */
NODISCARD enum status reduce_finish(struct exchange *x, struct err *e);
/* Between backward and update: the whole reduced gradients of a bucket are where backward wrote
 * them. */
NODISCARD enum status reduce_look(struct exchange *x, int bucket, struct err *e);

#endif
