/* NCCL, if it is installed, moves bytes between the GPUs of a group. It reduces unsigned maxima
 * only, so no result depends on its algorithms, channels or version. Private to the collectives. */
#ifndef FP8LAB_KERNELS_CUDA_NCCL_CUH
#define FP8LAB_KERNELS_CUDA_NCCL_CUH

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/link.h"

struct nccl; /* nccl.cu */

/* Opens the library and joins the communicator. All ranks call it; their links carry the identifier
 * that NCCL needs. ERR_DEVICE without a usable NCCL, ERR_UNSUPPORTED if this was built without
 * nccl.h. */
NODISCARD enum status nccl_open(struct nccl **out, struct links *links, int rank, int world,
                                struct err *e);
void nccl_close(struct nccl *n); /* NULL is fine */

/* ERR_PEER with NCCL's message if the communicator has failed. From any thread. */
NODISCARD enum status nccl_poll(struct nccl *n, struct err *e);
/* Ends the running collectives on the device; later calls queue nothing. From any thread, but not
 * while another thread calls nccl_poll: the communicator is freed. */
void nccl_abort(struct nccl *n);

/* ---- queued on `stream`; sizes in bytes ---- */

/* out [world][bytes] <- every rank's x; x may be this rank's part of out. */
NODISCARD enum status nccl_all_gather(struct nccl *n, void *out, const void *x, int64_t bytes,
                                      cudaStream_t stream, struct err *e);
NODISCARD enum status nccl_broadcast(struct nccl *n, void *x, int64_t bytes, int root,
                                     cudaStream_t stream, struct err *e);
/* x <- the largest of every rank's x, in place. */
NODISCARD enum status nccl_max_u32(struct nccl *n, uint32_t *x, int64_t count, cudaStream_t stream,
                                   struct err *e);
/* To each other rank r: `bytes` bytes from out + r * out_stride. From each: as many bytes to in + r
 * * in_stride. */
NODISCARD enum status nccl_swap(struct nccl *n, void *in, int64_t in_stride, const void *out,
                                int64_t out_stride, int64_t bytes, cudaStream_t stream,
                                struct err *e);

#endif
