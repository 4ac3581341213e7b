/* The arguments of the operators that take many, each struct with its operator's contract. The list
 * of operators is operators.inc; the conventions of backend.h hold for all.
 *
 * A caller names the fields it sets. A field that the contract allows to be absent is then NULL. */
#ifndef FP8LAB_KERNELS_ARGUMENTS_H
#define FP8LAB_KERNELS_ARGUMENTS_H

#include "kernels/quant.h"

/* ---- GEMM, delayed scaling ---- */

/* matmul: out = round(A B^T * scales + bias + beta * out + residual), one rounding, in this
 * order; a device may add the bias last (cuBLASLt on Hopper does).
 *   a [M,K], b [N,K], out [M,N]. act/act, or FP8/FP8 with scales (not E5M2 with E5M2).
 *   a, b: one of the two strides is 1. FP8 operands are K-contiguous (stride[1] == 1), or
 *   untransposed twins (tensor.h); the product is the same.
 *   out act or grad; bias [N] act or F32 or NULL; residual [M,N] of out's dtype or NULL (may alias
 *   out when beta is 0). beta is 0 or 1; with beta 1, no residual and a BF16 out a device may round
 *   A B^T * scales + bias before it adds out (cuBLASLt in place does).
 *   Reference sum, for each output: acc = fma(a_k, b_k, acc) over k ascending from +0. Tensor and
 *   row scales: acc * (s_a * s_b) at the end. Block scales along K: that chain within each block
 *   where both factors are constant (128, or 32 for MXFP8), then total = fma(chain, s_a * s_b,
 *   total), blocks ascending. 128x128 by 128x128 is refused: no recipe and no library has it.
 *   NVFP4 (blocks of 16): the blocks' factors are the two E4M3 scales, and the total is multiplied
 *   by nvfp4_product_factor of the two tensors' amax. E2M1 is multiplied with E2M1 only.
 *   fast_accumulate: the device may keep fewer accumulator bits (cuBLASLt FAST_ACCUM); the
 *   reference has only one way to add and ignores it. */
enum gemm_direction { GEMM_FPROP, GEMM_DGRAD, GEMM_WGRAD };
struct matmul_args {
    const struct tensor *out, *a, *b, *bias, *residual;
    float beta;
    bool fast_accumulate;
    const char *name; /* of the weight, or NULL; the backend records its decision under it */
    enum gemm_direction direction;
};

/* delayed_update: the end of a forward or backward region under delayed scaling, S slots
 * (TransformerEngine delayed_scaling.cu; kernels/RECIPES.md). For each slot s, with a = amax[s]:
 * if a == 0 nothing changes, neither history nor scale. Otherwise amax_used = most_recent ? a :
 * max(a, older rows). The history rolls: the oldest row is dropped, a is appended last, row 0 is
 * cleared. If amax_used is finite and > 0, multiplier = code_max * 2^-margin / amax_used (FLT_MAX
 * if that is infinite); otherwise the multiplier is kept. factor = 1/multiplier. amax <- 0. With
 * H == 1 there are no older rows. */
struct delayed_args {
    struct tensor *history;    /* [H, S] f32; row 0 is cleared staging, rows 1.. oldest first */
    struct tensor *multiplier; /* [S] f32, starts at 1 */
    struct tensor *factor;     /* [S] f32 = 1/multiplier, read by the GEMM. A stride[0] of 4 or
                                  more aligns each factor to 16 bytes, as scales must be */
    struct tensor *amax;       /* [S] u32 bits of this region; cleared */
    const float *code_max;     /* [S] host memory: 448 or 57344 by the slot's format */
    int margin;                /* multiplier = code_max * 2^-margin / amax */
    bool most_recent;          /* else the maximum over the history */
};

/* ---- transformer ---- */

/* rmsnorm_fwd:   y = x / sqrt(mean(x^2 over C) + eps) * gain     arXiv:1910.07467, plus eps.
 * layernorm_fwd: y = (x - mean) * rstd * gain + bias             arXiv:1607.06450; the variance is
 *                of the centred values. */
struct norm_fwd_args {
    const struct sink *y;
    const struct tensor *mean; /* [R] f32, kept for backward; NULL in rmsnorm_fwd */
    const struct tensor *rstd; /* [R] f32, kept for backward */
    const struct tensor *x;    /* [R,C] act */
    const struct tensor *gain; /* [C] act */
    const struct tensor *bias; /* [C] act or NULL; NULL in rmsnorm_fwd */
    float eps;
};

/* rmsnorm_bwd, layernorm_bwd: dx = residual + d(norm)/dx; d_gain and d_bias += their sums over R.
 * dx may alias residual or dy; the value in dx is rounded once. The amax of the sink is that of
 * dx. */
struct norm_bwd_args {
    const struct sink *dx;
    const struct tensor *d_gain;        /* [C] grad */
    const struct tensor *d_bias;        /* [C] grad or NULL; NULL in rmsnorm_bwd */
    const struct tensor *dy, *x, *gain; /* [R,C], [R,C], [C] act */
    const struct tensor *mean, *rstd;   /* from forward; mean is NULL in rmsnorm_bwd */
    const struct tensor *residual;      /* [R,C] act or NULL */
};

/* qk_fwd, between the qkv GEMM and attention: RMSNorm of each head of q and k (QK-norm,
 * arXiv:2010.04245 as Qwen3 and Gemma3 do it), then rotation; v is copied. The rotation takes the
 * pairs (i, i + D/2) as Llama in Hugging Face's layout: (x1,x2) -> (x1 c - x2 s, x2 c + x1 s). The
 * result of the norm stays f32 until it is rotated. */
struct qk_fwd_args {
    const struct tensor *out;             /* [B,T,H+2G,D] act, heads in the order q, k, v; may
                                             alias in when gain_q is NULL */
    const struct tensor *rstd;            /* [B,T,H+G] f32, kept for backward; only with gains */
    const struct tensor *in;              /* as out */
    const struct tensor *gain_q, *gain_k; /* [D] act, both or none */
    const struct tensor *rope;            /* [T,D] f32 (cos then sin, D/2 each) or NULL */
    const struct tensor *positions;       /* [B,T] i32 in [0,T): each token's row of rope; NULL: t.
                                             The CPU checks the values; a device may not */
    int64_t heads, kv_heads;              /* H, G */
    float eps;
};

/* qk_bwd: dx is the gradient of in. It is a sink because the backward of the qkv GEMM reads it as
 * [R,(H+2G)D]. dx->value may alias d_out. */
struct qk_bwd_args {
    const struct sink *dx;                    /* value [B,T,H+2G,D] act */
    const struct tensor *d_gain_q, *d_gain_k; /* [D] grad, added to; only with gains */
    const struct tensor *d_out;               /* [B,T,H+2G,D] act */
    const struct tensor *in, *gain_q, *gain_k, *rstd, *rope, *positions; /* as in forward */
    int64_t heads, kv_heads;
};

/* How FP8 attention rounds a matrix [B,H,T,T] that it never stores: code = sat(x * multiplier), and
 * the product that reads it is multiplied by the factor. Only pairs of a query and a key that it
 * sees count in amax and stats, which are raised and added to as a sink's. */
struct attention_cast {
    enum dtype code;                 /* DTYPE_E4M3 or DTYPE_E5M2 */
    const struct tensor *multiplier; /* [1] f32 */
    const struct tensor *factor;     /* [1] f32 */
    struct tensor *amax;             /* [1] u32 */
    struct tensor *stats;            /* [2] u64 or NULL */
};

/* attention_fwd: causal softmax attention with grouped key/value heads; head h reads key/value head
 * h*G/H, and H % G == 0.
 *   o = softmax(q k^T / sqrt(D)) v     arXiv:1706.03762, 2305.13245.  T x T is never stored.
 * Query t sees the keys first_key[t] .. t. Documents in one window: first_key is the start of the
 * query's document. A sliding window of W keys: max(t - W + 1, 0).
 * Reference: the scores of one row are fma chains over D, times the scale; the row maximum is
 * subtracted; probabilities stay f32; keys that the query does not see have probability +0.
 * FP8 (p is not NULL), as TransformerEngine's fp8_dpa: qkv is a view of E4M3 codes with one scale
 * factor f. Products are of codes; scores are the chains times (1/sqrt(D) * (f * f)). The
 * probabilities are divided by their sum first, exp(s - max) * (1/sum), then rounded to codes by p:
 *   o = (chain over keys of p code * v code) * (factor of p * f) + 0. */
struct attention_fwd_args {
    const struct sink *o;     /* value [B*T, H*D] act, kept for backward */
    const struct tensor *lse; /* [B,H,T] f32, kept for backward */
    const struct tensor *qkv; /* [B,T,H+2G,D] act */
    const struct tensor *first_key; /* [B,T] i32 or NULL: 0 everywhere. Of each sequence
                                       non-decreasing along T, 0 <= first_key[t] <= t. The CPU
                                       checks the values; a device may not, and may then hang */
    int64_t heads, kv_heads;  /* H, G */
    const struct attention_cast *p; /* FP8 only, else NULL */
};

/* attention_bwd: the gradients of keys and values are summed over their query heads in head
 * order.
 * FP8 (p and ds are not NULL): d_o has codes [B*T, H*D] with one scale, and o act or such codes.
 * With f the factor of qkv, g that of d_o, and h that of o (1 if it is act):
 *   P = exp(s - lse), rounded to codes by p (forward has recorded its amax and stats)
 *   dP = (chain of d_o and v codes) * (g * f)
 *   delta = sum16(d_o code * o) * (g * h);     dS = (P * (dP - delta)) * (1/sqrt(D)), with P before
 *                                              it is rounded; then rounded to codes by ds
 *   dv = (chain of P and d_o codes) * (factor of p * g)
 *   dq, dk = (chain of dS codes and k, q codes) * (factor of ds * f) */
struct attention_bwd_args {
    const struct sink *d_qkv;       /* value [B*T, (H+2G)*D] act, packed as qkv */
    const struct tensor *delta;     /* [B,H,T] f32, scratch */
    const struct tensor *d_o, *o;   /* [B*T, H*D] act */
    const struct tensor *qkv, *lse, *first_key; /* as in forward */
    int64_t heads, kv_heads;
    const struct attention_cast *p, *ds; /* FP8 only, else NULL */
};

/* ---- loss ---- */

/* cross_entropy of the rows of logits [n,Vp]. Columns from vocab on are padding: masked, with
 * gradient 0.
 *   loss[i] = logsumexp(row) - row[target], in nats;  d_logits = (softmax - onehot) * *grad_scale.
 *   right[i] = 1 if no logit of the row is larger than row[target], else 0; ties are right.
 * target < 0: loss, gradient and right are 0. A NaN in the row is larger than nothing, and a target
 * that is NaN is not right. */
struct cross_entropy_args {
    const struct tensor *loss;       /* [n] f32 */
    const struct tensor *right;      /* [n] f32; NULL: not asked */
    const struct sink *d_logits;     /* value [n,Vp], may alias logits; NULL in evaluation */
    const struct tensor *logits;     /* [n,Vp] act */
    const struct tensor *targets;    /* [n] i32 */
    const struct tensor *grad_scale; /* [1] f32; read only if d_logits is set */
    int64_t vocab;
};

/* ---- update ---- */

/* adamw: one parameter's update (Loshchilov & Hutter, arXiv:1711.05101), n elements:
 *   g = grad * clip;  m = m + (1-beta1)(g-m);  v = v + (1-beta2)(g*g-v)
 *   w = w - lr * (m*bias1 / (sqrt(v*bias2) + eps) + weight_decay * w)
 * where bias1 = 1/(1-beta1^t), bias2 = 1/(1-beta2^t). Nothing at all is written when flag[0] >= 0.
 *   weight  value [n] or [rows,K]: BF16 or F32, in place; codes (and amax) are made from the new
 *           value as for any producer: call quantise_finish.
 *   master  [n] f32 or NULL. With it, w above is the master and value = round(master). Without it,
 *           w is the stored value and BF16 is stored with stochastic rounding.
 *   m, v    [n] F32; or BF16; or E4M3 with SCALE_1X128 over [1, n], where v holds sqrt(v). The
 *           narrow dtypes are rounded stochastically: otherwise a moving average with beta near 1
 *           would never change. A positive v never becomes 0. Both have one dtype.
 *   Draws: rng_bits(rng_key(seed, RNG_ROUND, *step, tensor_id), element_base + i); each rounding
 *   uses its own bits of a draw (rng_round.h). */
struct adamw_args {
    struct sink *weight;
    struct tensor *master, *m, *v;
    const struct tensor *grad;                             /* F32 or BF16 */
    const struct tensor *lr, *clip, *bias1, *bias2;        /* [1] f32 */
    const struct tensor *step;                             /* [1] i32 */
    const struct tensor *flag;                             /* [2] i32 */
    float beta1, beta2, eps, weight_decay;
    uint64_t seed;
    uint32_t tensor_id;
    int64_t element_base; /* of this shard in the whole tensor */
};

#endif
