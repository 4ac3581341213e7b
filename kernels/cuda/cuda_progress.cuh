/* The position of the device, also after it failed. A fault (an invalid address, an assertion) ends
 * the context without naming its operator, above all in a graph. A hung kernel reports nothing. So
 * operators set marks when they end, in host memory, which survives the context. */
#ifndef FP8LAB_KERNELS_CUDA_PROGRESS_CUH
#define FP8LAB_KERNELS_CUDA_PROGRESS_CUH

#include "kernels/cuda/cuda_common.cuh"

NODISCARD enum status cuda_progress_open(struct cuda_backend *b, struct err *e);
void cuda_progress_close(struct cuda_backend *b);

/* Fills the operators and other slots of the table with wrappers: operators record themselves, and
 * an error names the running operators. */
void cuda_progress_wrap(struct backend_ops *t);

/* in_progress of the table. */
bool cuda_in_progress(struct backend *b, char *out, size_t size);

/* Around a capture of `key`: begin after the lanes have joined it, end before they leave it. */
NODISCARD enum status cuda_progress_begin(struct cuda_backend *b, enum graph_key key,
                                          struct err *e);
NODISCARD enum status cuda_progress_end(struct cuda_backend *b, struct err *e);
/* Called instead of cuda_progress_end when a capture is abandoned. */
void cuda_progress_abandon(struct cuda_backend *b);

#endif
