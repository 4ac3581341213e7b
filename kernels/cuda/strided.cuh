/* The elements of a tensor of any strides, for kernels that visit each once in row-major order. */
#ifndef FP8LAB_KERNELS_CUDA_STRIDED_CUH
#define FP8LAB_KERNELS_CUDA_STRIDED_CUH

#include "kernels/cuda/cuda_common.cuh"

struct strided_view {
    const void *data;
    int64_t dim[4], stride[4];
};

static inline struct strided_view strided_of(const struct tensor *x) {
    struct strided_view view;
    view.data = x->data;
    for (int d = 0; d < 4; d++) {
        view.dim[d] = x->dim[d];
        view.stride[d] = x->stride[d];
    }
    return view;
}

#ifdef __CUDACC__
/* Where the i-th element lies, in elements. */
__device__ static inline int64_t strided_at(const struct strided_view &x, int64_t i) {
    int64_t at = 0;
#pragma unroll
    for (int d = 3; d >= 0; d--) {
        at += i % x.dim[d] * x.stride[d];
        i /= x.dim[d];
    }
    return at;
}
#endif

#endif
