/* The end of a step: gradient norm, clipping, AdamW for every parameter, new FP8 weights. */
#include "model/trainer.h"

static enum status clip(struct trainer *t, struct err *e) {
    struct backend *b = t->backend;
    const struct backend_ops *ops = b->ops;
    struct scalars *s = &t->scalars;
    TRY(ops->sum_squares(b, LANE_COMPUTE, &t->squares, t->params.grads, t->params.count, e));
    TRY(ops->comm.all_reduce(b, LANE_COMPUTE, &t->squares, REDUCE_SUM, e)); /* of all shards */
    TRY(ops->flag_nonfinite(b, LANE_COMPUTE, &s->flag, &s->step, &t->squares, flag_squares(t), e));
    TRY(ops->clip_factor(b, LANE_COMPUTE, &s->norm, &s->clip, &t->squares,
                         (float)t->options.optimizer.clip, e));
    return ops->flag_nonfinite(b, LANE_COMPUTE, &s->flag, &s->step, &s->norm, flag_norm(t), e);
}

/* The gradient of the elements that this rank updates. */
static struct tensor own_gradient(const struct params *p, const struct param *x) {
    if (shard_divides(&p->options.shard))
        return param_span(p, x, &p->bucket[x->bucket].grad_shard, x->own);
    return tensor_1d(x->grad.data, x->grad.dtype, tensor_count(&x->grad));
}

/* Parameters in one adamw call: many are small, and a backend updates them together. */
enum { TOGETHER = 32 };

struct batch {
    struct sink weight[TOGETHER];
    struct tensor grad[TOGETHER];
    struct adamw_args args[TOGETHER];
    int count;
};

static void batch_add(struct batch *batch, struct trainer *t, int i) {
    const struct optimizer_options *o = &t->options.optimizer;
    struct scalars *s = &t->scalars;
    struct param *p = &t->params.param[i];
    if (p->own.count == 0 || p->frozen) return;
    struct sink *weight = &batch->weight[batch->count];
    struct tensor *grad = &batch->grad[batch->count];
    *weight = param_own_sink(&t->params, p, &t->slots);
    *grad = own_gradient(&t->params, p);
    batch->args[batch->count++] = (struct adamw_args){
        .weight = weight, .master = p->master.data ? &p->master : NULL, .m = &p->m, .v = &p->v,
        .grad = grad, .lr = &p->lr, .clip = &s->clip, .bias1 = &s->bias1, .bias2 = &s->bias2,
        .step = &s->step, .flag = &s->flag, .beta1 = (float)o->beta1, .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = p->cols ? (float)o->weight_decay : 0.0f, /* matrices only */
        .seed = t->options.seed, .tensor_id = (uint32_t)i, .element_base = p->own.first,
    };
}

static enum status update_params(struct trainer *t, struct err *e) {
    struct batch batch = { .count = 0 };
    for (int i = 0; i < t->params.count; i++) {
        batch_add(&batch, t, i);
        if (batch.count < TOGETHER && i + 1 < t->params.count) continue;
        if (batch.count > 0) /* a rank may hold a share of none of them */
            TRY(t->backend->ops->adamw(t->backend, LANE_COMPUTE, batch.args, batch.count, e));
        batch.count = 0;
    }
    return OK;
}

/* Flags non-finite weights in the step that made them. */
static enum status flag_weights(struct trainer *t, struct err *e) {
    struct tensor amax = t->slots.amax;
    amax.dim[0] = t->slots.first[SLOT_FORWARD];
    return t->backend->ops->flag_nonfinite(t->backend, LANE_COMPUTE, &t->scalars.flag,
                                           &t->scalars.step, &amax, 0, e);
}

enum status trainer_update(struct trainer *t, struct err *e) {
    TRY(clip(t, e));
    TRY(slots_roll_weights(&t->slots, t->backend, e));
    TRY(params_begin(&t->params, t->backend, &t->slots, false, e));
    TRY(update_params(t, e));
    TRY(params_finish(&t->params, t->backend, &t->slots, false, e));
    return flag_weights(t, e);
}

enum status trainer_requantise(struct trainer *t, struct err *e) {
    TRY(params_begin(&t->params, t->backend, &t->slots, true, e));
    t->exchange.pending = true;
    TRY(params_quantise(&t->params, t->backend, &t->slots, e));
    TRY(flag_weights(t, e));
    TRY(slots_gather_counts(&t->slots, t->backend, t->asks, e));
    struct record_head head;
    char tensor[128];
    TRY(trainer_read_record(t, &head, tensor, e));
    if (t->failure) return FAIL(e, ERR_NUMERIC, "%s is not finite", tensor);
    TRY(slots_remakes(&t->slots, t->backend, &t->remakes, e));
    return exchange_settle(&t->exchange, e);
}
