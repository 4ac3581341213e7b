/* Attention's forward by cuDNN where it is there: private to the attention files.
 *
 * Opened with dlopen, so that a machine without it runs on our own kernels. All keep the same
 * log-sum-exp, so that a forward by any may meet a backward by any. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CUDNN_CUH

#include "kernels/choices.h"
#include "kernels/cuda/attention.cuh"

/* Queues the call, or sets *done false where cuDNN is missing or has no deterministic plan for the
 * shape. A shape's first call builds its plan, which takes up to seconds. */
NODISCARD enum status cudnn_attention_fwd(struct cuda_backend *b, int lane, const struct forward *f,
                                          bool *done, struct err *e);

/* cuDNN's version, 0 where it is missing: opens it. Its plans, for choices.cu: how many, all as
 * text, one of them back. */
int64_t cudnn_version(struct cuda_backend *b);
int64_t cudnn_choices(const struct cuda_backend *b);
void cudnn_choices_write(const struct cuda_backend *b, FILE *out);
NODISCARD enum status cudnn_choice_take(struct cuda_backend *b, const struct choice *c,
                                        struct err *e);
#endif
