/* Attention on Hopper's wgmma: private to the attention files. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "kernels/cuda/attention.cuh"

NODISCARD enum status hopper_attention_fwd_open(struct err *e);
NODISCARD enum status hopper_attention_bwd_open(struct err *e);

/* Whether this device has wgmma and there is a kernel for the shape. */
static inline bool hopper_attention_serves(const struct cuda_backend *b,
                                           const struct attention *a) {
    return b->cc == 90 && attention_has_wgmma(b->caps, a->head_dim) &&
           !cuda_is_forbidden(b, "attention", "wgmma");
}

/* Computes outputs and log-sum-exp; raises f->amax. Queued. */
NODISCARD enum status hopper_attention_fwd(const struct forward *f, cudaStream_t stream,
                                           struct err *e);
/* Gradients of keys, values and queries; raises f->amax; sums, unless NULL, += their column sums.
 * Does not use f->delta. Queued on the lane. */
NODISCARD enum status hopper_attention_bwd(struct cuda_backend *b, int lane,
                                           const struct backward *f, const struct tensor *sums,
                                           struct err *e);

#endif
