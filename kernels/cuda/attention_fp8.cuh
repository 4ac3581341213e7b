/* FP8 attention, emulated or by cuDNN: private to the attention files. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_FP8_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_FP8_CUH

#include "kernels/cuda/attention.cuh"

/* attention_fwd and attention_bwd whose args have the casts of FP8. Queued. */
NODISCARD enum status attention_fp8_fwd(struct cuda_backend *b, int lane,
                                        const struct attention_fwd_args *args, struct err *e);
NODISCARD enum status attention_fp8_bwd(struct cuda_backend *b, int lane,
                                        const struct attention_bwd_args *args, struct err *e);
NODISCARD enum status attention_fp8_open(struct err *e);

#endif
