/* How many elements of a tensor lie in each bucket: kernels/histogram.h. One read of x; a thread
 * reads 16 bytes at a time of a packed tensor. Each warp counts in its own shared memory, so that
 * only its own lanes wait for one another; counts are the same in any order. */
#include "kernels/cuda/strided.cuh"
#include "kernels/histogram.h"

enum { THREADS = 256, WARPS = THREADS / WARP };

struct block_counts { unsigned int of[WARPS][HISTOGRAM_COUNTS]; };

__device__ static void begin_counts(struct block_counts *c) {
    unsigned int *all = &c->of[0][0];
    for (int i = (int)threadIdx.x; i < WARPS * HISTOGRAM_COUNTS; i += THREADS) all[i] = 0;
    __syncthreads();
}

__device__ static void count_one(struct block_counts *c, uint32_t bits) {
    atomicAdd(&c->of[threadIdx.x / WARP][histogram_bucket(bits)], 1u);
}

__device__ static void add_counts(unsigned long long *out, const struct block_counts *c) {
    __syncthreads();
    int i = (int)threadIdx.x;
    unsigned long long sum = 0;
    if (i >= HISTOGRAM_COUNTS) return;
    for (int w = 0; w < WARPS; w++) sum += c->of[w][i];
    if (sum) atomicAdd(&out[i], sum);
}

__device__ static uint32_t bits_at(const void *x, bool bf16, int64_t i) {
    return bf16 ? (uint32_t)((const bf16_bits *)x)[i] << 16 : ((const uint32_t *)x)[i];
}

__global__ void histogram_kernel(unsigned long long *out, struct strided_view x, bool bf16,
                                 int64_t n) {
    __shared__ struct block_counts counts;
    int64_t step = (int64_t)gridDim.x * THREADS;
    begin_counts(&counts);
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < n; i += step)
        count_one(&counts, bits_at(x.data, bf16, strided_at(x, i)));
    add_counts(out, &counts);
}

/* Packed and 16-byte aligned. In the tail a thread takes one element. */
template <bool BF16>
__global__ void histogram_packed_kernel(unsigned long long *out, const void *x, int64_t n) {
    constexpr int EACH = BF16 ? 8 : 4;
    __shared__ struct block_counts counts;
    int64_t step = (int64_t)gridDim.x * THREADS;
    int64_t start = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    begin_counts(&counts);
    for (int64_t i = start; i < n / EACH; i += step) {
        uint4 v = ((const uint4 *)x)[i];
        const uint32_t word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (BF16) count_one(&counts, word[j] << 16);
            count_one(&counts, BF16 ? word[j] & 0xFFFF0000u : word[j]);
        }
    }
    int64_t tail = n / EACH * EACH + start;
    if (tail < n) count_one(&counts, bits_at(x, BF16, tail));
    add_counts(out, &counts);
}

enum status cuda_histogram(struct backend *b, int lane, const struct tensor *counts,
                           const struct tensor *x, struct err *e) {
    TRY(cuda_check_packed(counts, "histogram: counts", IS_U64, HISTOGRAM_COUNTS, 1, e));
    if (!x || !x->data) return FAIL(e, ERR_ARG, "histogram: x is missing");
    if (x->dtype != DTYPE_F32 && x->dtype != DTYPE_BF16)
        return FAIL(e, ERR_ARG, "histogram: x is %s", dtype_name(x->dtype));
    bool bf16 = x->dtype == DTYPE_BF16;
    cudaStream_t stream = cuda_lane(b, lane);
    unsigned long long *out = (unsigned long long *)counts->data;
    CUDA_TRY(e, cudaMemsetAsync(out, 0, HISTOGRAM_COUNTS * sizeof *out, stream));
    int64_t n = tensor_count(x);
    if (cuda_is_packed(x) && (uintptr_t)x->data % 16 == 0) {
        auto kernel = bf16 ? histogram_packed_kernel<true> : histogram_packed_kernel<false>;
        kernel<<<grid_for(b, n, THREADS * (bf16 ? 8 : 4) * 4), THREADS, 0, stream>>>(out, x->data,
                                                                                     n);
    } else {
        histogram_kernel<<<grid_for(b, n, THREADS), THREADS, 0, stream>>>(out, strided_of(x), bf16,
                                                                          n);
    }
    return cuda_launched("histogram", e);
}
