/* The head and the loss, one chunk of rows at a time; memory holds the logits [rows,Vp] of one
 * chunk. An FP8 head quantises each chunk; with current scaling each chunk has its own scale. */
#include "model/transformer.h"

/* Quantises the chunk of final_norm's output. No effect if the head is not FP8. */
static enum status chunk_input(struct transformer *t, struct head_chunk *k, enum pass pass,
                               struct err *e) {
    if (!k->x.fp8 || (pass == PASS_EVAL && !k->x.has_codes)) return OK;
    struct sink x = activation_sink(&k->x, t->slots, pass);
    TRY(t->b->ops->quantise(t->b, LANE_COMPUTE, &x, &k->normed, e));
    return operand_finish(t->b, &x, e);
}

/* d_normed = dlogits Whead,  dWhead (+)= dlogits^T normed */
static enum status chunk_backward(struct transformer *t, struct head_chunk *k, bool fresh,
                                  struct err *e) {
    struct linear *head = &t->head;
    const struct operand *twin = head->spec.split_weight ? &head->weight->dgrad
                                                         : &head->weight->weight;
    scope_enter(t->b, SCOPE_BACKWARD, 0);
    TRY(gemm_dgrad(t->b, &head->spec, &k->d_normed, &k->dy, twin, e));
    if (!head->weight->frozen)
        TRY(gemm_wgrad(t->b, &head->spec, &head->weight->grad, &k->dy, &k->x,
                       fresh && k->first == 0 ? 0.0f : 1.0f, e));
    scope_leave(t->b);
    return OK;
}

enum status transformer_logits(struct transformer *t, int64_t i, enum pass pass, struct err *e) {
    struct head_chunk *k = &t->chunk[i];
    TRY(chunk_input(t, k, pass, e));
    return gemm_fprop(t->b, &t->head.spec, &k->logits, &k->x, &t->head.weight->weight, NULL, NULL,
                      e);
}

/* The chunk's loss; in training also its share of the gradients. */
static enum status head_chunk(struct transformer *t, int64_t i, enum pass pass, bool fresh,
                              struct err *e) {
    struct head_chunk *k = &t->chunk[i];
    scope_enter(t->b, SCOPE_HEAD, i);
    TRY(transformer_logits(t, i, pass, e));
    struct sink dy = activation_sink(&k->dy, t->slots, pass);                     /* [rows,Vp] */
    struct cross_entropy_args loss = {
        .loss = &k->losses, .d_logits = pass == PASS_TRAIN ? &dy : NULL, .logits = &k->logits,
        .right = pass == PASS_EVAL && t->accuracy ? &k->right : NULL,
        .targets = &k->targets, .grad_scale = &t->grad_scale, .vocab = t->config.vocab,
    };
    TRY(t->b->ops->cross_entropy(t->b, LANE_COMPUTE, &loss, e));
    if (pass == PASS_TRAIN) {
        TRY(operand_finish(t->b, &dy, e));
        TRY(chunk_backward(t, k, fresh, e));
    }
    scope_leave(t->b);
    return OK;
}

enum status transformer_head(struct transformer *t, enum pass pass, bool fresh, struct err *e) {
    struct linear *head = &t->head;
    TRY(gather_use(t->exchange, head->weight->bucket, e));
    if (pass == PASS_TRAIN) TRY(reduce_open(t->exchange, head->weight->bucket, e));
    for (int64_t i = 0; i < t->chunk_count; i++) TRY(head_chunk(t, i, pass, fresh, e));
    /* A tied weight's gradient is complete after the embedding has added to it. */
    if (pass != PASS_TRAIN || t->config.tied) return OK;
    return reduce_close(t->exchange, head->weight->bucket, e);
}
