#include "model/transformer.h"

enum status norm_bwd(struct transformer *t, const struct norm *n, const struct sink *dx,
                     const struct tensor *dy, const struct tensor *x,
                     const struct tensor *residual, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    bool rms = t->config.norm == NORM_RMS;
    struct norm_bwd_args args = {
        .dx = dx, .d_gain = &n->gain->grad, .d_bias = n->bias ? &n->bias->grad : NULL, .dy = dy,
        .x = x, .gain = &n->gain->weight.value, .mean = rms ? NULL : &n->mean, .rstd = &n->rstd,
        .residual = residual,
    };
    TRY(rms ? ops->rmsnorm_bwd(t->b, LANE_COMPUTE, &args, e)
            : ops->layernorm_bwd(t->b, LANE_COMPUTE, &args, e));
    return operand_finish(t->b, dx, e);
}

/* dx = dy W,  dW (+)= dy^T x. The producer of dy already added its column sums to dbias. */
static enum status linear_bwd(struct transformer *t, struct linear *l, const struct tensor *dx,
                              bool fresh, struct err *e) {
    const struct operand *w = l->spec.split_weight ? &l->weight->dgrad : &l->weight->weight;
    TRY(gemm_dgrad(t->b, &l->spec, dx, &l->dy, w, e));
    if (l->weight->frozen) return OK;
    return gemm_wgrad(t->b, &l->spec, &l->weight->grad, &l->dy, &l->x, fresh ? 0.0f : 1.0f, e);
}

/* The sink of the gradient of a linear layer's output, with the sums for its bias. */
static struct sink dy_sink(struct transformer *t, struct linear *l) {
    struct sink s = activation_sink(&l->dy, t->slots, PASS_TRAIN);
    if (l->bias) s.sums = &l->bias->grad;
    return s;
}

/* Recomputes what forward did not keep: the same operators, inputs and scales. */
static enum status recompute(struct transformer *t, int64_t l, struct err *e) {
    enum recompute_kind kind = transformer_recompute(t, l);
    if (kind == RECOMPUTE_NONE) return OK;
    if (kind == RECOMPUTE_BLOCK) TRY(layer_attention(t, l, PASS_RECOMPUTE, e));
    return layer_ffn_in(t, l, PASS_RECOMPUTE, e);
}

/* On entry d_x [R,C] is the gradient of the block's output; its codes are in ffn_out's dy.
 * On return d_x is the gradient of x_mid; its codes are in attn_out's dy. */
static enum status ffn_bwd(struct transformer *t, int64_t l, bool fresh, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    struct layer *layer = &t->layer[l];
    struct linear *in = &layer->linear[GEMM_FFN_IN], *out = &layer->linear[GEMM_FFN_OUT];

    TRY(linear_bwd(t, out, &t->d_h, fresh, e));                                   /* [R,F] */
    struct sink d_gate_up = dy_sink(t, in);                                       /* [R,U] */
    if (t->config.activation == ACTIVATION_SWIGLU)
        TRY(ops->swiglu_bwd(t->b, LANE_COMPUTE, &d_gate_up, &t->d_h, &layer->gate_up, e));
    else
        TRY(ops->gelu_bwd(t->b, LANE_COMPUTE, &d_gate_up, &t->d_h, &layer->gate_up, e));
    TRY(operand_finish(t->b, &d_gate_up, e));
    TRY(linear_bwd(t, in, &t->d_normed, fresh, e));                               /* [R,C] */
    struct sink d_mid = dy_sink(t, &layer->linear[GEMM_ATTN_OUT]);
    return norm_bwd(t, &layer->norm2, &d_mid, &t->d_normed, &layer->x_mid, &t->d_x, e);
}

/* Backward of queries_and_keys, in place, into the operand that the qkv GEMMs read. */
static enum status queries_and_keys_bwd(struct transformer *t, struct layer *layer,
                                        const struct sink *d_qkv, struct err *e) {
    const struct model_config *c = &t->config;
    struct tensor d_heads = heads_view(t, &t->d_qkv);
    struct tensor in = heads_view(t, c->qk_norm ? &layer->qkv_raw : &layer->qkv);
    struct tensor rstd = tensor_make(layer->rstd_qk.data, DTYPE_F32, t->batch, c->seq_len,
                                     c->heads + c->kv_heads, 1);
    struct qk_bwd_args args = {
        .dx = d_qkv, .d_out = &d_heads, .in = &in, .rope = t->rope.data ? &t->rope : NULL,
        .positions = positions_of(t), .heads = c->heads, .kv_heads = c->kv_heads,
    };
    if (c->qk_norm) {
        args.d_gain_q = &layer->q_norm->grad;
        args.d_gain_k = &layer->k_norm->grad;
        args.gain_q = &layer->q_norm->weight.value;
        args.gain_k = &layer->k_norm->weight.value;
        args.rstd = &rstd;
    }
    return t->b->ops->qk_bwd(t->b, LANE_COMPUTE, &args, e);
}

/* d_x: the gradient of x_mid on entry, of the block's input on return, written by `dx`. */
static enum status attention_bwd(struct transformer *t, int64_t l, const struct sink *dx,
                                 bool fresh, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    const struct model_config *c = &t->config;
    struct layer *layer = &t->layer[l];
    struct linear *qkv = &layer->linear[GEMM_QKV], *out = &layer->linear[GEMM_ATTN_OUT];

    TRY(linear_bwd(t, out, &t->d_o, fresh, e));                                   /* [R,HD] */
    struct attention_state *fp8 = layer->attention.spec.fp8 ? &layer->attention : NULL;
    struct tensor heads = heads_view(t, &layer->qkv), factor[2];
    struct attention_cast p, ds;
    if (fp8) {
        TRY(quantise_into(t, &fp8->d_o, &t->d_o, PASS_TRAIN, e));
        heads = heads_codes(t, &fp8->qkv.codes);
        p = attention_cast_of(t->slots, fp8->slot_p, PASS_TRAIN, &factor[0]);
        ds = attention_cast_of(t->slots, fp8->slot_ds, PASS_TRAIN, &factor[1]);
    }
    struct tensor lse = tensor_make(layer->lse.data, DTYPE_F32, t->batch, c->heads, c->seq_len, 1);
    struct tensor delta = tensor_make(t->delta.data, DTYPE_F32, t->batch, c->heads, c->seq_len, 1);
    bool between = c->qk_norm || t->rope.data; /* if not (GPT-2), attention writes it */
    struct sink d_qkv = dy_sink(t, qkv);                                          /* [R,W] */
    struct sink d_heads = between ? sink_value(&t->d_qkv, NULL) : d_qkv;
    struct attention_bwd_args attention = {
        .d_qkv = &d_heads, .delta = &delta, .d_o = fp8 ? &fp8->d_o.codes : &t->d_o,
        .o = layer->attention.spec.o_codes ? &out->x.codes : &out->x.value, .qkv = &heads,
        .lse = &lse, .first_key = first_key_of(t), .heads = c->heads, .kv_heads = c->kv_heads,
        .p = fp8 ? &p : NULL, .ds = fp8 ? &ds : NULL,
    };
    TRY(ops->attention_bwd(t->b, LANE_COMPUTE, &attention, e));
    if (between) TRY(queries_and_keys_bwd(t, layer, &d_qkv, e));
    TRY(operand_finish(t->b, &d_qkv, e));
    TRY(linear_bwd(t, qkv, &t->d_normed, fresh, e));                              /* [R,C] */
    return norm_bwd(t, &layer->norm1, dx, &t->d_normed, &t->x[l], &t->d_x, e);
}

/* The sink of the gradient of x[l]: dy of ffn_out in the block below, or the embedding. */
static struct sink d_stream_sink(struct transformer *t, int64_t l) {
    if (l > 0) return dy_sink(t, &t->layer[l - 1].linear[GEMM_FFN_OUT]);
    return sink_value(&t->d_x, &t->slots->slot[t->slot_embed].amax);
}

static enum status layer_backward(struct transformer *t, int64_t l, bool fresh, struct err *e) {
    struct sink dx = d_stream_sink(t, l);
    scope_enter(t->b, SCOPE_LAYER, l);
    TRY(gather_back(t->exchange, BUCKET_LAYER + (int)l, e));
    TRY(reduce_open(t->exchange, BUCKET_LAYER + (int)l, e));
    TRY(recompute(t, l, e));
    TRY(ffn_bwd(t, l, fresh, e));
    TRY(attention_bwd(t, l, &dx, fresh, e));
    TRY(reduce_close(t->exchange, BUCKET_LAYER + (int)l, e));
    scope_leave(t->b);
    return OK;
}

static enum status embedding_backward(struct transformer *t, struct err *e) {
    const struct tensor *d_position = t->position ? &t->position->grad : NULL;
    scope_enter(t->b, SCOPE_EMBEDDING, 0);
    TRY(reduce_open(t->exchange, BUCKET_EMBEDDING, e));
    TRY(t->b->ops->embedding_bwd(t->b, LANE_COMPUTE, &t->embed->grad, d_position, &t->d_x,
                                 &t->tokens, positions_of(t), e));
    TRY(reduce_close(t->exchange, BUCKET_EMBEDDING, e));
    scope_leave(t->b);
    return OK;
}

enum status transformer_backward(struct transformer *t, bool fresh, struct err *e) {
    int64_t L = t->config.layers;
    struct sink top = d_stream_sink(t, L);                                        /* [R,C] */
    TRY(norm_bwd(t, &t->final_norm, &top, &t->d_normed, &t->x[L], NULL, e));
    int64_t lowest = t->exchange->params->lowest; /* layers below it are frozen */
    for (int64_t l = L; l-- > (lowest > 0 ? lowest : 0);) TRY(layer_backward(t, l, fresh, e));
    if (lowest == LOWEST_EMBEDDING) TRY(embedding_backward(t, e));
    return reduce_close(t->exchange, BUCKET_VECTORS, e);
}
