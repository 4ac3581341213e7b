/* Exchange: which collectives move weights and gradients between ranks, and when.
 *
 * Forward reads buckets in ascending order, backward in descending order. gather.c gathers sharded
 * weights before their first use and makes their codes. reduce.c sums gradients over ranks after
 * backward wrote them. Both queue on LANE_COMM. Events order LANE_COMM with LANE_COMPUTE, so
 * collectives of one bucket overlap with arithmetic of another:
 *
 *   forward    use(bucket)    waits for its weights, starts to gather a bucket ahead
 *   backward   back(bucket)   the same in descending order, for weights with value_transient
 *              open(bucket)   waits until the memory of its gradients is free
 *              close(bucket)  its gradients are complete: reduces them
 *
 * Weights that stay whole are gathered once a step, in its first forward; buckets that are frozen
 * only by exchange_settle. To read weights between steps, call exchange_gather_all first. With one
 * rank this only makes codes that are not kept (train.weight_codes): at use, and again at back.
 *
 * Same bits. Every mode reduces a bucket with reduce_scatter, so the order of a sum does not depend
 * on the mode (train.shard "none" then gathers the sums). "gradients" and "parameters" sum over
 * ranks in each micro-batch, then over micro-batches; "none" and "optimizer" sum over micro-batches
 * first. With one micro-batch a step all four give the same bits; with several, each pair does. */
#ifndef FP8LAB_MODEL_EXCHANGE_H
#define FP8LAB_MODEL_EXCHANGE_H

#include "model/params.h"

/* The model's events. Buckets that are gathered ahead use EVENT_GATHERED in turn. */
enum { GATHERED_EVENTS = 8 };
enum model_event {
    EVENT_GATHERED,                                  /* comm: a bucket's weights have arrived */
    EVENT_WEIGHTS = EVENT_GATHERED + GATHERED_EVENTS, /* compute: shards are up to date */
    EVENT_FREE,                                      /* compute: the buffer has no reader left */
    EVENT_GRADIENTS,                                 /* compute: gradients are complete */
    EVENT_REDUCED                                    /* comm: [2], one for each ring buffer */
};

struct exchange {
    struct backend *b;     /* borrowed, as the next two */
    struct params *params;
    struct slots *slots;
    bool first, last;      /* the current micro-batch is the step's first, last */
    bool pending;          /* the updated weights are not gathered yet */
    enum pass pass;        /* of the current forward */
    int issued, ready;     /* forward: buckets below are being gathered; are gathered */
    int held[2];           /* the bucket in each ring buffer; -1: none */
    bool waited[2];        /* compute has waited for that bucket and made its codes */
    int made;              /* the bucket whose codes the shared memory holds; -1: none */
};

/* Whether every micro-batch reduces its gradients, so that the next one overwrites them. */
static inline bool exchange_reduces_always(const struct exchange *x) {
    const struct shard_place *s = &x->params->options.shard;
    return s->world > 1 && s->kind >= SHARD_GRADIENTS;
}

void exchange_init(struct exchange *x, struct backend *b, struct params *p, struct slots *s);

/* ---- gather.c ---- */

NODISCARD enum status gather_begin(struct exchange *x, enum pass pass, struct err *e);
NODISCARD enum status gather_use(struct exchange *x, int bucket, struct err *e);
NODISCARD enum status gather_back(struct exchange *x, int bucket, struct err *e);
/* Between steps: gathers the updated weights that stay whole. */
NODISCARD enum status exchange_gather_all(struct exchange *x, struct err *e);
/* After params_quantise: gathers what no step gathers again, and makes the codes of settled
 * parameters. */
NODISCARD enum status exchange_settle(struct exchange *x, struct err *e);
/* After an update whose record is queued: makes the codes of frozen weights again, whose delayed
 * scale may have changed. Their counts belong to the next record. */
NODISCARD enum status exchange_remake(struct exchange *x, struct err *e);
/* Between steps: *out is the whole flat value of a bucket, valid until the next call or step. */
NODISCARD enum status exchange_whole_value(struct exchange *x, int bucket, struct tensor *out,
                                    struct err *e);

/* ---- reduce.c ---- */

/* Before forward: clears gradients that operators add to. */
NODISCARD enum status reduce_begin(struct exchange *x, struct err *e);
NODISCARD enum status reduce_open(struct exchange *x, int bucket, struct err *e);
NODISCARD enum status reduce_close(struct exchange *x, int bucket, struct err *e);
/* After backward: compute waits for every reduction that was queued. */
NODISCARD enum status reduce_finish(struct exchange *x, struct err *e);
/* Between backward and update: restores the whole reduced gradients of a bucket where backward
 * wrote them. */
NODISCARD enum status reduce_whole_gradients(struct exchange *x, int bucket, struct err *e);

#endif
