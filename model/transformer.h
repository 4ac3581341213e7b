/* The transformer: its buffers, and forward and backward as sequences of operators.
 *
 * Legend: B sequences of a micro-batch, T tokens each, R = B*T rows, C width, H query heads, G
 * key/value heads, D head dim, W = (H+2G)*D, F ffn width, U = 2F (SwiGLU) or F (GELU), V
 * vocabulary, Vp padded, L layers. "act" is BF16, or F32 in the f32 recipe. dX is the gradient
 * of X.
 *
 *   x[0]  = embed[token] (+ position)                 x[l+1] = block l (x[l])
 *   block: qkv   = norm1(x) Wqkv^T                    x_mid = x + attention(qk(qkv)) Wo^T
 *          gu    = norm2(x_mid) Win^T                 out   = x_mid + act(gu) Wout^T
 *   loss  = cross entropy(final_norm(x[L]) Whead^T), a chunk of rows at a time */
#ifndef FP8LAB_MODEL_TRANSFORMER_H
#define FP8LAB_MODEL_TRANSFORMER_H

#include "model/exchange.h"
#include "model/params.h"
#include "model/train.h"

/* One linear layer: y = x W^T + bias. */
struct linear {
    struct gemm_spec spec;
    struct param *weight, *bias; /* bias NULL if the model has none */
    struct operand x, dy;
};

struct norm {
    struct param *gain, *bias; /* bias NULL if there is none */
    struct tensor mean, rstd;  /* [R] f32, kept for backward; mean for LayerNorm only */
};

/* FP8 attention of a layer; without it, only the spec is set. */
struct attention_state {
    struct attention_spec spec;
    struct operand qkv, d_o; /* their values are struct layer's qkv and struct transformer's d_o */
    int slot_p, slot_ds;
};

struct layer {
    struct norm norm1, norm2;
    struct attention_state attention;
    struct param *q_norm, *k_norm;         /* NULL without QK-norm */
    struct linear linear[GEMM_SITE_COUNT]; /* x of each: n1, o, n2, h */
    struct tensor qkv_raw, qkv; /* [R,W] act before and after qk; one buffer without QK-norm. With
                                   FP8 attention, qkv is valid until its codes are made */
    struct tensor rstd_qk;      /* [B,T,H+G] f32, QK-norm only */
    struct tensor lse;          /* [B,H,T] f32 */
    struct tensor x_mid;        /* [R,C] act */
    struct tensor gate_up;      /* [R,U] act */
};

struct head_chunk {
    int64_t first, rows;
    struct tensor normed, logits, d_normed; /* [rows,C] [rows,Vp] [rows,C] act */
    struct tensor losses, right, targets;   /* [rows] f32, f32, i32 */
    struct operand x, dy;
};

struct transformer {
    struct backend *b;    /* borrowed, as the next two; set before the first operator */
    struct slots *slots;
    struct exchange *exchange;
    struct model_config config;
    enum recompute_kind recompute; /* of a layer: transformer_recompute */
    int64_t recompute_layers;      /* the first that recompute; L: all */
    bool forward_only; /* no buffer of backward has memory */
    bool accuracy;     /* evaluations mark the rows whose target has the largest logit */
    struct document_options documents;
    enum dtype act;
    int64_t batch, rows;             /* B, R */
    int64_t chunk_rows, chunk_count; /* rows of logits in a chunk; chunks */
    struct param *embed, *position;               /* position NULL with RoPE */
    int64_t lowest;                               /* as in struct params */
    struct layer *layer;                          /* [L], owned */
    struct tensor *x;                             /* [L+1] of [R,C] act, owned array */
    struct norm final_norm;
    struct operand normed; /* [R,C] final_norm(x[L]) */
    struct linear head;    /* each chunk has its own operands */
    struct head_chunk *chunk; /* owned */
    struct tensor rope;       /* [T,D] f32, data NULL with learned positions */
    struct tensor first_key;  /* [B,T] i32, data NULL without a window or document masks */
    struct tensor positions;  /* [B,T] i32, data NULL if a token's position is its place */
    struct tensor tokens, targets, losses; /* [R] i32, i32, f32 */
    struct tensor right;      /* [R] f32, data NULL without `accuracy` */
    /* Stochastic rounding: [1] i32, the place of the micro-batch's first sequence in the global
     * batch (data NULL if no gradient is rounded so); the step, borrowed; the run's seed. */
    struct tensor sequence;
    const struct tensor *step;
    uint64_t seed;
    struct tensor grad_scale; /* [1] f32: 1 / tokens with loss of the global batch */
    struct tensor logits;     /* [chunk,Vp] act */
    /* Workspace of backward. */
    struct tensor d_x;               /* [R,C] act: gradient of the residual stream, in place */
    struct tensor d_h, d_normed;     /* [R,F], [R,C] act */
    struct tensor d_gate_up;         /* [R,U] act, GELU only: SwiGLU writes over gate_up */
    struct tensor d_o, d_qkv, delta; /* [R,HD], [R,W] act; [B,H,T] f32 */
    int slot_embed;                  /* amax of the embedding's output gradient */
};

/* What the backward of layer l recomputes. */
static inline enum recompute_kind transformer_recompute(const struct transformer *t, int64_t l) {
    return l < t->recompute_layers ? t->recompute : RECOMPUTE_NONE;
}

struct transformer_options {
    enum dtype act;
    int64_t batch, head_chunk; /* B; rows, or 0 */
    enum recompute_kind recompute;
    int64_t recompute_layers; /* as in struct train_options */
    bool forward_only, accuracy;
    struct document_options documents;
};

/* Resolves the recipe and points parameters at their GEMM specs; host memory only. */
NODISCARD enum status transformer_init(struct transformer *t, const struct model_config *c,
                                       const struct recipe *r, const struct transformer_options *o,
                                       struct params *p, struct err *e);
/* An upper bound of amax slots for a model of these sizes. */
int transformer_slots_max(const struct transformer *t, const struct params *p);
/* Plans every buffer and adds the forward and backward slots. Call params_layout before. */
void transformer_layout(struct transformer *t, struct memory *m, struct slots *slots);
/* After allocation and slots_start: sets addresses of views, fills the RoPE table and first_key.
 * The caller sets t->step and t->seed before. */
NODISCARD enum status transformer_start(struct transformer *t, struct backend *b,
                                        struct slots *slots, struct exchange *exchange,
                                        struct err *e);
/* Sets how each layer multiplies forward in `step` (forward_bf16_after). True if one changed. */
bool transformer_set_forward(struct transformer *t, int64_t step);
void transformer_destroy(struct transformer *t);

/* ---- operators in order ---- all queued on the compute lane */

/* tokens -> x[0..L] and final_norm(x[L]). */
NODISCARD enum status transformer_forward(struct transformer *t, enum pass pass, struct err *e);
/* Logits and losses, one chunk at a time. In training also dlogits, the head's gradients and
 * d_normed. fresh: overwrites the head's gradient; otherwise adds to it. */
NODISCARD enum status transformer_head(struct transformer *t, enum pass pass, bool fresh,
                                       struct err *e);
/* The logits of one chunk, after the head's weight was gathered: t->chunk[i].logits, until the next
 * chunk's. */
NODISCARD enum status transformer_logits(struct transformer *t, int64_t i, enum pass pass,
                                         struct err *e);
/* Backward from final_norm to the embedding. fresh: overwrites gradients of GEMM weights. */
NODISCARD enum status transformer_backward(struct transformer *t, bool fresh, struct err *e);

/* The parts of a layer's forward that recomputation repeats. */
NODISCARD enum status layer_attention(struct transformer *t, int64_t l, enum pass pass,
                                      struct err *e);
NODISCARD enum status layer_ffn_in(struct transformer *t, int64_t l, enum pass pass, struct err *e);

/* Makes the codes of an operand of FP8 attention, whose value is x. */
NODISCARD enum status quantise_into(struct transformer *t, struct operand *o,
                                    const struct tensor *x, enum pass pass, struct err *e);
/* y <- norm(x) through the sink, for both kinds of norm; and its backward. */
NODISCARD enum status norm_fwd(struct transformer *t, const struct norm *n, const struct sink *y,
                               const struct tensor *x, struct err *e);
NODISCARD enum status norm_bwd(struct transformer *t, const struct norm *n, const struct sink *dx,
                               const struct tensor *dy, const struct tensor *x,
                               const struct tensor *residual, struct err *e);

static inline const struct tensor *bias_value(const struct linear *l) {
    return l->bias ? &l->bias->weight.value : NULL;
}
/* What attention takes as first_key. */
static inline const struct tensor *first_key_of(const struct transformer *t) {
    return t->first_key.data ? &t->first_key : NULL;
}
/* What the embedding and the rotation take as positions. */
static inline const struct tensor *positions_of(const struct transformer *t) {
    return t->positions.data ? &t->positions : NULL;
}
/* How FP8 attention rounds p or ds in a pass, with the slot's scale; `factor` is its room. */
static inline struct attention_cast attention_cast_of(const struct slots *slots, int slot,
                                                      enum pass pass, struct tensor *factor) {
    struct slot *s = &slots->slot[slot];
    *factor = tensor_1d(s->factor, DTYPE_F32, 1);
    return (struct attention_cast){ .code = s->code, .multiplier = &s->multiplier,
                                    .factor = factor,
                                    .amax = pass == PASS_EVAL ? &s->amax_eval : &s->amax,
                                    .stats = pass == PASS_TRAIN ? &s->stats : NULL };
}
/* The codes of qkv as that view; their rows may be padded. */
static inline struct tensor heads_codes(const struct transformer *t, const struct tensor *codes) {
    const struct model_config *c = &t->config;
    struct tensor x = tensor_make(codes->data, codes->dtype, t->batch, c->seq_len,
                                  c->heads + 2 * c->kv_heads, c->head_dim);
    x.stride[1] = codes->stride[0];
    x.stride[0] = c->seq_len * codes->stride[0];
    x.scale = codes->scale;
    return x;
}
/* [R, (H+2G)D] as the 4-D view that attention reads. */
static inline struct tensor heads_view(const struct transformer *t, const struct tensor *qkv) {
    const struct model_config *c = &t->config;
    return tensor_make(qkv->data, qkv->dtype, t->batch, c->seq_len, c->heads + 2 * c->kv_heads,
                       c->head_dim);
}

#endif
