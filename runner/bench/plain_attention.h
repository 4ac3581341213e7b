/* Attention as its formula says, for comparison: scores, softmax and products one after the other,
 * with T x T matrices in memory. One GEMM a head and product; operands lie by head. */
#ifndef FP8LAB_RUNNER_BENCH_PLAIN_ATTENTION_H
#define FP8LAB_RUNNER_BENCH_PLAIN_ATTENTION_H

#include "runner/bench/bench_measure.h"
#include "runner/bench/timed_backend.h"

struct plain_attention {
    struct backend *b;
    struct attention_shape shape; /* without a window */
    struct tensor q, k, v, o;             /* [B,H,T,D], k and v [B,G,T,D] */
    struct tensor d_q, d_k, d_v, d_o;     /* backward */
    struct tensor p, d_p;                 /* [B*H,T,T]: probabilities; their gradient (backward) */
};

/* A version of attention: this one, or the fused operators. */
struct attention_version {
    struct bench_time time;
    int64_t bytes; /* beside inputs, outputs and gradients; libraries may use more */
    char why[256]; /* why it was not measured; "" */
};

/* Measures forward, or backward alone. Not if it needs more than nine tenths of `have` bytes
 * (negative: not known), or if the backend refuses the shape: then why says so. */
NODISCARD enum status plain_attention_measure(struct backend *b, const struct attention_shape *s,
                                              const struct bench_effort *effort, int64_t have,
                                              struct attention_version *out, struct err *e);

/* Bytes beside inputs, outputs and their gradients: of this version, and of a fused operator. */
int64_t plain_attention_bytes(const struct attention_shape *s);
int64_t fused_attention_bytes(const struct attention_shape *s);
/* All bytes that plain_attention_make takes. */
int64_t plain_attention_all_bytes(const struct attention_shape *s);

/* Random operands; the shape is borrowed only during the call. Runs nothing. */
NODISCARD enum status plain_attention_make(struct bench_memory *m, const struct attention_shape *s,
                                           struct plain_attention *out, struct err *e);
/* For bench_measure. `context` is the struct. Backward reads p, which forward fills. */
NODISCARD enum status plain_attention_forward(void *context, struct err *e);
NODISCARD enum status plain_attention_backward(void *context, struct err *e);

#endif
