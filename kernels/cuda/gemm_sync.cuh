/* Our own product on mma.sync: private to gemm.cu. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_SYNC_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_SYNC_CUH

#include "kernels/cuda/gemm.cuh"

/* Whether gemm_sync_run supports this product. FP8 (not E5M2 by E5M2) with tensor, row, 1x128 or
 * 128x128 factors: only under the capabilities of sm_89, sm_120 and sm_121, whose tensor cores have
 * the instruction. BF16 with K contiguous in both operands, rows of 16 bytes: on every device. Any
 * m, n, k; bias and C of any kind that a problem has. Reads no memory, only alignments. */
bool gemm_sync_serves(const struct cuda_backend *b, const struct gemm_problem *p);

/* Queues the product, with the order of additions in gemm_sync_body.h. p->a.factors and
 * p->b.factors are read, the scales are not. D may be C. */
NODISCARD enum status gemm_sync_run(const struct cuda_backend *b, const struct gemm_problem *p,
                                    cudaStream_t stream, struct err *e);

/* Prepares the kernels, once for a device. */
NODISCARD enum status gemm_sync_open(const struct cuda_backend *b, struct err *e);

#endif
