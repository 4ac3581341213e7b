#include "model/transformer.h"

enum status norm_fwd(struct transformer *t, const struct norm *n, const struct sink *y,
                     const struct tensor *x, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    bool rms = t->config.norm == NORM_RMS;
    struct norm_fwd_args args = {
        .y = y, .mean = rms ? NULL : &n->mean, .rstd = &n->rstd, .x = x,
        .gain = &n->gain->weight.value, .bias = n->bias ? &n->bias->weight.value : NULL,
        .eps = (float)t->config.norm_eps,
    };
    TRY(rms ? ops->rmsnorm_fwd(t->b, LANE_COMPUTE, &args, e)
            : ops->layernorm_fwd(t->b, LANE_COMPUTE, &args, e));
    return operand_finish(t->b, y, e);
}

enum status quantise_into(struct transformer *t, struct operand *o, const struct tensor *x,
                          enum pass pass, struct err *e) {
    struct sink s = activation_sink(o, t->slots, pass);
    TRY(t->b->ops->quantise(t->b, LANE_COMPUTE, &s, x, e));
    return operand_finish(t->b, &s, e);
}

/* QK-norm and rotation of qkv [R,W]; in place without QK-norm. No effect for GPT-2. */
static enum status queries_and_keys(struct transformer *t, struct layer *layer, struct err *e) {
    const struct model_config *c = &t->config;
    if (!c->qk_norm && !t->rope.data) return OK;
    struct tensor out = heads_view(t, &layer->qkv);
    struct tensor in = heads_view(t, c->qk_norm ? &layer->qkv_raw : &layer->qkv);
    struct tensor rstd = tensor_make(layer->rstd_qk.data, DTYPE_F32, t->batch, c->seq_len,
                                     c->heads + c->kv_heads, 1);
    struct qk_fwd_args args = {
        .out = &out, .in = &in, .rope = t->rope.data ? &t->rope : NULL,
        .positions = positions_of(t), .heads = c->heads, .kv_heads = c->kv_heads,
        .eps = (float)c->norm_eps,
    };
    if (c->qk_norm) {
        args.rstd = &rstd;
        args.gain_q = &layer->q_norm->weight.value;
        args.gain_k = &layer->k_norm->weight.value;
    }
    return t->b->ops->qk_fwd(t->b, LANE_COMPUTE, &args, e);
}

/* x_mid = x + attention(qk(norm1(x) Wqkv^T)) Wo^T */
enum status layer_attention(struct transformer *t, int64_t l, enum pass pass, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    const struct model_config *c = &t->config;
    struct layer *layer = &t->layer[l];
    struct linear *qkv = &layer->linear[GEMM_QKV], *out = &layer->linear[GEMM_ATTN_OUT];

    struct sink n1 = activation_sink(&qkv->x, t->slots, pass);                    /* [R,C] */
    TRY(norm_fwd(t, &layer->norm1, &n1, &t->x[l], e));
    TRY(gemm_fprop(t->b, &qkv->spec, c->qk_norm ? &layer->qkv_raw : &layer->qkv,  /* [R,W] */
                   &qkv->x, &qkv->weight->weight, bias_value(qkv), NULL, e));
    TRY(queries_and_keys(t, layer, e));

    struct sink o = activation_sink(&out->x, t->slots, pass);                     /* [R,HD] */
    struct attention_state *fp8 = layer->attention.spec.fp8 ? &layer->attention : NULL;
    struct tensor heads = heads_view(t, &layer->qkv), factor;
    struct attention_cast p;
    if (fp8) {
        TRY(quantise_into(t, &fp8->qkv, &layer->qkv, pass, e));
        heads = heads_codes(t, &fp8->qkv.codes);
        p = attention_cast_of(t->slots, fp8->slot_p, pass, &factor);
    }
    struct tensor lse = tensor_make(layer->lse.data, DTYPE_F32, t->batch, c->heads, c->seq_len, 1);
    struct attention_fwd_args attention = {
        .o = &o, .lse = &lse, .qkv = &heads, .first_key = first_key_of(t), .heads = c->heads,
        .kv_heads = c->kv_heads, .p = fp8 ? &p : NULL,
    };
    TRY(ops->attention_fwd(t->b, LANE_COMPUTE, &attention, e));
    TRY(operand_finish(t->b, &o, e));
    return gemm_fprop(t->b, &out->spec, &layer->x_mid, &out->x, &out->weight->weight,
                      bias_value(out), &t->x[l], e);
}

/* h = act(norm2(x_mid) Win^T) */
enum status layer_ffn_in(struct transformer *t, int64_t l, enum pass pass, struct err *e) {
    const struct backend_ops *ops = t->b->ops;
    struct layer *layer = &t->layer[l];
    struct linear *in = &layer->linear[GEMM_FFN_IN], *out = &layer->linear[GEMM_FFN_OUT];

    struct sink n2 = activation_sink(&in->x, t->slots, pass);                     /* [R,C] */
    TRY(norm_fwd(t, &layer->norm2, &n2, &layer->x_mid, e));
    TRY(gemm_fprop(t->b, &in->spec, &layer->gate_up, &in->x, &in->weight->weight, /* [R,U] */
                   bias_value(in), NULL, e));
    struct sink h = activation_sink(&out->x, t->slots, pass);                     /* [R,F] */
    if (t->config.activation == ACTIVATION_SWIGLU)
        TRY(ops->swiglu_fwd(t->b, LANE_COMPUTE, &h, &layer->gate_up, e));
    else
        TRY(ops->gelu_fwd(t->b, LANE_COMPUTE, &h, &layer->gate_up, e));
    return operand_finish(t->b, &h, e);
}

static enum status layer_forward(struct transformer *t, int64_t l, enum pass pass, struct err *e) {
    struct layer *layer = &t->layer[l];
    struct linear *out = &layer->linear[GEMM_FFN_OUT];
    scope_enter(t->b, SCOPE_LAYER, l);
    TRY(gather_use(t->exchange, BUCKET_LAYER + (int)l, e));
    TRY(layer_attention(t, l, pass, e));
    TRY(layer_ffn_in(t, l, pass, e));
    TRY(gemm_fprop(t->b, &out->spec, &t->x[l + 1], &out->x, &out->weight->weight,
                   bias_value(out), &layer->x_mid, e));
    scope_leave(t->b);
    return OK;
}

enum status transformer_forward(struct transformer *t, enum pass pass, struct err *e) {
    int64_t L = t->config.layers;
    TRY(gather_begin(t->exchange, pass, e));
    scope_enter(t->b, SCOPE_EMBEDDING, 0);
    TRY(gather_use(t->exchange, BUCKET_EMBEDDING, e));
    TRY(t->b->ops->embedding_fwd(t->b, LANE_COMPUTE, &t->x[0], &t->tokens, &t->embed->weight.value,
                                 t->position ? &t->position->weight.value : NULL, positions_of(t),
                                 e));
    scope_leave(t->b);
    for (int64_t l = 0; l < L; l++) TRY(layer_forward(t, l, pass, e));
    struct sink normed = activation_sink(&t->normed, t->slots, pass);             /* [R,C] */
    return norm_fwd(t, &t->final_norm, &normed, &t->x[L], e);
}
