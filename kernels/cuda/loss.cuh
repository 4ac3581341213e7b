/* Shared by the two implementations of cross-entropy; maxima also by softmax.cu. */
#ifndef FP8LAB_KERNELS_CUDA_LOSS_CUH
#define FP8LAB_KERNELS_CUDA_LOSS_CUH

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/exactmath_f32.h"

struct loss_args {
    float *loss, *right; /* right: NULL if it is not asked */
    bf16_bits *d_logits; /* NULL in evaluation */
    const bf16_bits *logits;
    const int32_t *targets;
    const float *grad_scale;
    int64_t rows, ld, width, vocab;
    uint32_t *amax;
};

/* Whether clusters of blocks can take rows of this width on this device; rows must allow 16-byte
 * accesses. */
bool loss_clusters_fit(struct backend *b, int64_t width);
NODISCARD enum status loss_by_clusters(struct backend *b, int lane, const struct loss_args *a,
                                       struct err *e);

#ifdef __CUDACC__

/* NaN never becomes the maximum, but reaches the sum. */
__device__ static inline float max_of(float a, float b) { return b > a ? b : a; }

/* The largest x of the block; `shared` holds a float for each warp. */
__device__ static inline float block_max(float x, float *shared) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) x = max_of(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    __syncthreads();
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    int warps = (int)blockDim.x / WARP;
    x = (int)(threadIdx.x % WARP) < warps ? shared[threadIdx.x % WARP] : -INFINITY;
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) x = max_of(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
    return x;
}

/* counts: the row has a target. */
struct row_result { float max, inverse, scale; int64_t target; bool counts; };

/* Turns the logits at columns at, at + 1, .. into their gradients. Vectors without the target and
 * without padding need no index tests. */
template <int N>
__device__ static inline void gradient_of(float (&v)[N], const struct loss_args &a,
                                          const struct row_result &r, int64_t at) {
    if (r.counts && at + N <= a.vocab && (uint64_t)(r.target - at) >= N) {
        float factor = r.inverse * r.scale;
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = fast_exp(v[i] - r.max) * factor;
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        float p = fast_exp(v[i] - r.max) * r.inverse;
        if (at + i == r.target) p -= 1.0f;
        v[i] = r.counts && at + i < a.vocab ? p * r.scale : 0.0f;
    }
}

/* The row's loss, from its target's logit, and whether that is the largest. NaN if the target is
 * not in the vocabulary. */
__device__ static inline void store_loss(const struct loss_args &a, int64_t row, bool counts,
                                         float max, float sum, float target_logit) {
    a.loss[row] = counts ? f32_canonical((max + exact_logf(sum)) - target_logit) : 0.0f;
    if (a.right) a.right[row] = counts && target_logit >= max ? 1.0f : 0.0f;
}

#endif
#endif
