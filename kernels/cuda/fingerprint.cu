/* The 64-bit fingerprint of a tensor. Integer sums modulo 2^64 are the same in any order, so
 * atomics may be used. One read of x; for packed tensors a thread reads 16 bytes at a time. */
#include "kernels/cuda/strided.cuh"

__device__ static uint64_t term(uint64_t bits, int64_t i) {
    return (bits + 1u) * (2u * rng_mix((uint64_t)i) + 1u);
}

__device__ static uint64_t bits_at(const void *x, int bytes, int64_t i) {
    switch (bytes) {
    case 1: return ((const uint8_t *)x)[i];
    case 2: return ((const uint16_t *)x)[i];
    case 4: return ((const uint32_t *)x)[i];
    default: return ((const uint64_t *)x)[i];
    }
}

__device__ static void add_block(unsigned long long *out, uint64_t sum) {
    sum = warp_sum_u64(sum);
    if (threadIdx.x % WARP == 0) atomicAdd(out, (unsigned long long)sum);
}

__global__ void fingerprint_kernel(unsigned long long *out, struct strided_view x, int bytes,
                                   int64_t n) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    uint64_t sum = 0;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step)
        sum += term(bits_at(x.data, bytes, strided_at(x, i)), i);
    add_block(out, sum);
}

/* Packed and 16-byte aligned; BITS of 8, 16, 32 or 64. In the tail a thread takes one element. */
template <int BITS>
__global__ void fingerprint_packed_kernel(unsigned long long *out, const void *x, int64_t n) {
    constexpr int EACH = 128 / BITS;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t start = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    uint64_t sum = 0;
    for (int64_t i = start; i < n / EACH; i += step) {
        ulonglong2 v = ((const ulonglong2 *)x)[i];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            uint64_t word = j * BITS < 64 ? v.x : v.y;
            constexpr uint64_t mask = BITS == 64 ? ~0ull : (1ull << (BITS % 64)) - 1;
            sum += term(word >> (j * BITS % 64) & mask, i * EACH + j);
        }
    }
    int64_t tail = n / EACH * EACH + start;
    if (tail < n) sum += term(bits_at(x, BITS / 8, tail), tail);
    add_block(out, sum);
}

enum status cuda_fingerprint(struct backend *b, int lane, const struct tensor *out,
                             const struct tensor *x, struct err *e) {
    TRY(cuda_check(out, "fingerprint: out", IS_U64, 1, 1, e));
    if (!x || !x->data) return FAIL(e, ERR_ARG, "fingerprint: x is missing");
    cudaStream_t stream = cuda_lane(b, lane);
    unsigned long long *sum = (unsigned long long *)out->data;
    CUDA_TRY(e, cudaMemsetAsync(sum, 0, sizeof *sum, stream));
    int64_t n = tensor_count(x), bytes = dtype_bytes(x->dtype);
    if (cuda_is_packed(x) && (uintptr_t)x->data % 16 == 0) {
        auto kernel = bytes == 1   ? fingerprint_packed_kernel<8>
                      : bytes == 2 ? fingerprint_packed_kernel<16>
                      : bytes == 4 ? fingerprint_packed_kernel<32>
                                   : fingerprint_packed_kernel<64>;
        kernel<<<grid_for(b, n * bytes, 256 * 16), 256, 0, stream>>>(sum, x->data, n);
    } else {
        fingerprint_kernel<<<grid_for(b, n, 256), 256, 0, stream>>>(sum, strided_of(x), (int)bytes,
                                                                    n);
    }
    return cuda_launched("fingerprint", e);
}
