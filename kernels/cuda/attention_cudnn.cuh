/* Attention by cuDNN where it is there: private to the attention files.
 *
 * Opened with dlopen, so that a machine without it runs on our own kernels. Both keep the same
 * log-sum-exp, so a forward by one may meet a backward by the other. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH

#include "kernels/choices.h"
#include "kernels/cuda/attention.cuh"

/* Addresses of one call; d_* and delta for backward only. */
struct attention_data {
    const bf16_bits *o_in, *d_o;
    bf16_bits *o, *d_qkv;
    float *lse, *delta;
};

/* Queues the call, or sets *done false where cuDNN is missing or has no deterministic plan for the
 * shape. A shape's first call builds its plan, which takes up to seconds. */
NODISCARD enum status cudnn_attention(struct cuda_backend *b, int lane, const struct attention *a,
                                      const struct attention_data *d, bool backward, bool *done,
                                      struct err *e);

/* cuDNN's version, 0 where it is missing: opens it. Its plans, for choices.cu: how many, all as
 * text, one of them back. */
int64_t cudnn_version(struct cuda_backend *b);
int64_t cudnn_choices(const struct cuda_backend *b);
void cudnn_choices_write(const struct cuda_backend *b, FILE *out);
NODISCARD enum status cudnn_choice_take(struct cuda_backend *b, const struct choice *c,
                                        struct err *e);
#endif
