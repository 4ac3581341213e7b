/* Operators as functions of plain tensors, so that a test can loop over them. t: the tensors in the
 * order of the operator's arguments. Sinks are made from a value. Before including this, define
 * HEADS, KV and VOCAB, the numbers that operators take. */
#ifndef FP8LAB_TESTS_GPU_OPERATORS_H
#define FP8LAB_TESTS_GPU_OPERATORS_H

#include "kernels/backend.h"

typedef enum status (*operator_call)(struct backend *b, struct tensor **t, struct err *e);
#define SINK(i) (&(struct sink){ .value = t[i], .keep_value = true })
#define CALL(name, ...)                                                                   \
    static inline enum status name(struct backend *b, struct tensor **t, struct err *e) { \
        return b->ops->__VA_ARGS__;                                                       \
    }

CALL(matmul, matmul(b, 0, &(struct matmul_args){ .out = t[0], .a = t[1], .b = t[2], .bias = t[3],
                                                 .residual = t[4] }, e))
CALL(quantise, quantise(b, 0, SINK(0), t[1], e))
CALL(copy, copy(b, 0, t[0], t[1], e))
CALL(embedding_fwd, embedding_fwd(b, 0, t[0], t[1], t[2], t[3], t[4], e))
CALL(embedding_bwd, embedding_bwd(b, 0, t[0], t[1], t[2], t[3], t[4], e))
CALL(rmsnorm_fwd, rmsnorm_fwd(b, 0, &(struct norm_fwd_args){
        .y = SINK(0), .rstd = t[1], .x = t[2], .gain = t[3], .eps = 1e-5f }, e))
CALL(rmsnorm_bwd, rmsnorm_bwd(b, 0, &(struct norm_bwd_args){
        .dx = SINK(0), .d_gain = t[1], .dy = t[2], .x = t[3], .gain = t[4], .rstd = t[5],
        .residual = t[6] }, e))
CALL(layernorm_fwd, layernorm_fwd(b, 0, &(struct norm_fwd_args){
        .y = SINK(0), .mean = t[1], .rstd = t[2], .x = t[3], .gain = t[4], .bias = t[5],
        .eps = 1e-5f }, e))
CALL(layernorm_bwd, layernorm_bwd(b, 0, &(struct norm_bwd_args){
        .dx = SINK(0), .d_gain = t[1], .d_bias = t[2], .dy = t[3], .x = t[4], .gain = t[5],
        .mean = t[6], .rstd = t[7], .residual = t[8] }, e))
CALL(qk_fwd, qk_fwd(b, 0, &(struct qk_fwd_args){
        .out = t[0], .rstd = t[1], .in = t[2], .gain_q = t[3], .gain_k = t[4], .rope = t[5],
        .positions = t[6], .heads = HEADS, .kv_heads = KV, .eps = 1e-5f }, e))
CALL(qk_bwd, qk_bwd(b, 0, &(struct qk_bwd_args){
        .dx = SINK(0), .d_gain_q = t[1], .d_gain_k = t[2], .d_out = t[3], .in = t[4],
        .gain_q = t[5], .gain_k = t[6], .rstd = t[7], .rope = t[8], .positions = t[9],
        .heads = HEADS, .kv_heads = KV }, e))
CALL(attention_fwd, attention_fwd(b, 0, &(struct attention_fwd_args){
        .o = SINK(0), .lse = t[1], .qkv = t[2], .heads = HEADS, .kv_heads = KV }, e))
CALL(attention_bwd, attention_bwd(b, 0, &(struct attention_bwd_args){
        .d_qkv = SINK(0), .delta = t[1], .d_o = t[2], .o = t[3], .qkv = t[4], .lse = t[5],
        .heads = HEADS, .kv_heads = KV }, e))
CALL(softmax_fwd, softmax_fwd(b, 0, t[0], t[1], 0.125f, e))
CALL(softmax_bwd, softmax_bwd(b, 0, t[0], t[1], t[2], 0.125f, e))
CALL(swiglu_fwd, swiglu_fwd(b, 0, SINK(0), t[1], e))
CALL(swiglu_bwd, swiglu_bwd(b, 0, SINK(0), t[1], t[2], e))
CALL(gelu_fwd, gelu_fwd(b, 0, SINK(0), t[1], e))
CALL(gelu_bwd, gelu_bwd(b, 0, SINK(0), t[1], t[2], e))
CALL(cross_entropy, cross_entropy(b, 0, &(struct cross_entropy_args){
        .loss = t[0], .d_logits = SINK(1), .logits = t[2], .targets = t[3], .vocab = VOCAB,
        .grad_scale = t[4] }, e))
CALL(sum, sum(b, 0, t[0], t[1], 1, 0, e))
CALL(add, add(b, 0, t[0], t[1], e))
CALL(sum_squares, sum_squares(b, 0, t[0], t[1], 1, e))
CALL(clip_factor, clip_factor(b, 0, t[0], t[1], t[2], 1, e))
CALL(adamw, adamw(b, 0, &(struct adamw_args){ .weight = SINK(0), .m = t[1], .v = t[2], .grad = t[3],
                         .lr = t[4], .clip = t[5], .bias1 = t[6], .bias2 = t[7], .step = t[8],
                         .flag = t[9], .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f }, 1, e))
CALL(flag_nonfinite, flag_nonfinite(b, 0, t[0], t[1], t[2], 0, e))
CALL(fill, fill(b, 0, t[0], 1, e))
CALL(fill_normal, fill_normal(b, 0, t[0], 1, 1, 1, 0, e))
CALL(fingerprint, fingerprint(b, 0, t[0], t[1], e))
CALL(histogram, histogram(b, 0, t[0], t[1], e))

#undef CALL
#endif
