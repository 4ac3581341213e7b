/* Attention on Hopper's own products: private to the attention files. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention.cuh"

NODISCARD enum status hopper_attention_fwd_open(struct err *e);
NODISCARD enum status hopper_attention_bwd_open(struct err *e);

/* Whether this device has them and there is one for the shape. Rows of log-sum-exp are copied by 16
 * bytes, so that the length is a multiple of 4. */
static inline bool hopper_attention_serves(const struct cuda_backend *b,
                                           const struct attention *a) {
    return b->cc == 90 && b->caps == 90 && (a->head_dim == 64 || a->head_dim == 128) &&
           a->length % 4 == 0;
}

/* Outputs and log-sum-exp; maximises f->amax. Queued. */
NODISCARD enum status hopper_attention_fwd(const struct forward *f, cudaStream_t stream,
                                           struct err *e);
/* Gradients of keys, values and queries; delta has been made. Queued. */
NODISCARD enum status hopper_attention_bwd(const struct backward *f, cudaStream_t stream,
                                           struct err *e);

#endif
