/* Our own product of FP8 codes with block factors, for Hopper: private to gemm.cu. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_HOPPER_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_HOPPER_CUH

#include "kernels/cuda/gemm.cuh"

/* Whether gemm_hopper_run supports this product: p->b of E4M3 or E5M2 with 1x128 factors, p->a of
 * E4M3 with 1x128 or 128x128 ones; m and n multiples of 8; rows of D 16-byte aligned. Bias and C
 * may be of any kind that a problem has. Reads no memory, only alignments. */
bool gemm_hopper_serves(const struct cuda_backend *b, const struct gemm_problem *p);

/* Queues the product; p->a.factors and p->b.factors are read, the scales are not. D may be C.
 *
 * For each output, blocks of 128 along K ascending, from +0. With r the factor of p->b, c that of
 * p->a: total = fma(chain, r * c, total) for 128x128 factors, total = fma(chain * r, c, total) for
 * 1x128 by 1x128. Inner products are rounded to f32. A chain is four tensor-core instructions of 32
 * codes, from 0. Then C, then the bias are added in f32; one rounding to D. Neither tiles nor the
 * number of multiprocessors change a bit. ERR_DEVICE: the driver refuses. */
NODISCARD enum status gemm_hopper_run(const struct cuda_backend *b, const struct gemm_problem *p,
                                      cudaStream_t stream, struct err *e);

/* Prepares the kernels on a device of compute capability 9.0, once. */
NODISCARD enum status gemm_hopper_open(struct err *e);

#endif
