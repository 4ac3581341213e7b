/* MXFP8 and NVFP4 operands for cuBLASLt: scales in the library's order, NVFP4's codes packed two a
 * byte, its tensors' factor. */
#ifndef FP8LAB_KERNELS_CUDA_BYTE_SCALES_CUH
#define FP8LAB_KERNELS_CUDA_BYTE_SCALES_CUH

#include "kernels/cuda/gemm.cuh"

/* Fills p->a and p->b, of t->b and t->a, and for NVFP4 p->alpha. Queues the kernels that make what
 * they point to, in scratch of the lane. For shapes that gemm_refusal() accepts. */
NODISCARD enum status byte_scales_operands(struct backend *b, int lane,
                                           const struct matmul_args *t, struct gemm_problem *p,
                                           struct err *e);

/* The same without data: for gemm_found(), which reads no address. */
void byte_scales_describe(const struct matmul_args *t, struct gemm_problem *p);

#endif
