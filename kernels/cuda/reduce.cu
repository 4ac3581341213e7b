/* Sums over whole tensors, over columns and of two, and what follows: clip factor, non-finite flag.
 *
 * A long vector is summed in two stages: blocks of fixed extent into f32 partial sums, then one
 * block over those. Both trees depend on the length alone. Bound by memory: one read. */
#include "kernels/cuda/columns.cuh"

enum { SUM_THREADS = 512, SUM_EXTENT = 1 << 16 /* elements of one block */ };

__device__ static float element(const float *x, int64_t i) { return x[i]; }
__device__ static float element(const bf16_bits *x, int64_t i) { return bf16_decode(x[i]); }

/* Grid: one block for SUM_EXTENT elements; four a thread and step. */
template <class T>
__global__ void __launch_bounds__(SUM_THREADS)
    sum_partial_kernel(float *partial, const T *x, int64_t n, bool squared) {
    __shared__ float shared[WARP];
    int64_t begin = (int64_t)blockIdx.x * SUM_EXTENT;
    int64_t end = begin + SUM_EXTENT < n ? begin + SUM_EXTENT : n;
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (int64_t i = begin + threadIdx.x * 4; i < end; i += SUM_THREADS * 4)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float v = i + j < end ? element(x, i + j) : 0.0f;
            sum[j] += squared ? v * v : v;
        }
    float total = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

enum join_kind { JOIN_SUM, JOIN_CLIP };
struct join {
    enum join_kind kind;
    float *out, *clip;
    float factor, beta, max_norm;
};

__global__ void __launch_bounds__(SUM_THREADS)
    sum_join_kernel(struct join j, const float *partial, int64_t n) {
    __shared__ float shared[WARP];
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += SUM_THREADS) sum += partial[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x) return;
    if (j.kind == JOIN_SUM) {
        *j.out = f32_canonical(j.beta == 0.0f ? j.factor * sum : j.beta * *j.out + j.factor * sum);
        return;
    }
    float norm = sqrtf(sum);
    *j.out = f32_canonical(norm);
    *j.clip = j.max_norm > 0.0f && norm > j.max_norm ? j.max_norm / norm : 1.0f;
}

static enum status sum_into(struct backend *b, int lane, struct join join, const struct tensor *x,
                            bool squared, const char *what, struct err *e) {
    int64_t n = tensor_count(x), blocks = max_i64(1, ceil_div(n, SUM_EXTENT));
    if (blocks > INT32_MAX) return FAIL(e, ERR_ARG, "%s: %lld elements", what, (long long)n);
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, blocks * 4, &partial, e));
    cudaStream_t stream = cuda_lane(b, lane);
    if (x->dtype == DTYPE_BF16)
        sum_partial_kernel<<<(unsigned)blocks, SUM_THREADS, 0, stream>>>(
            (float *)partial, (const bf16_bits *)x->data, n, squared);
    else
        sum_partial_kernel<<<(unsigned)blocks, SUM_THREADS, 0, stream>>>(
            (float *)partial, (const float *)x->data, n, squared);
    sum_join_kernel<<<1, SUM_THREADS, 0, stream>>>(join, (const float *)partial, blocks);
    return cuda_launched(what, e);
}

enum status cuda_sum(struct backend *b, int lane, const struct tensor *total,
                     const struct tensor *x, float factor, float beta, struct err *e) {
    TRY(cuda_check_packed(x, "sum: x", IS_F32, -1, -1, e));
    TRY(cuda_check(total, "sum: total", IS_F32, 1, 1, e));
    struct join join = { JOIN_SUM, (float *)total->data, NULL, factor, beta, 0.0f };
    return sum_into(b, lane, join, x, false, "sum", e);
}

__global__ void add_kernel(struct grad_view out, struct grad_view x, int64_t n) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step)
        grad_store(out, i, grad_load(out, i) + grad_load(x, i));
}

enum status cuda_add(struct backend *b, int lane, const struct tensor *out, const struct tensor *x,
                     struct err *e) {
    TRY(cuda_check_packed(out, "add: out", IS_GRAD, -1, -1, e));
    TRY(cuda_check_packed(x, "add: x", IS_GRAD, -1, -1, e));
    int64_t n = tensor_count(out);
    if (tensor_count(x) != n)
        return FAIL(e, ERR_ARG, "add: %lld elements to %lld", (long long)tensor_count(x),
                    (long long)n);
    add_kernel<<<grid_for(b, n, 512), 256, 0, cuda_lane(b, lane)>>>(grad_of(out), grad_of(x), n);
    return cuda_launched("add", e);
}

enum status cuda_sum_squares(struct backend *b, int lane, const struct tensor *out,
                             const struct tensor *x, struct err *e) {
    TRY(cuda_check_packed(x, "sum_squares: x", IS_GRAD, -1, -1, e));
    TRY(cuda_check(out, "sum_squares: out", IS_F32, 1, 1, e));
    struct join join = { JOIN_SUM, (float *)out->data, NULL, 1.0f, 0.0f, 0.0f };
    return sum_into(b, lane, join, x, true, "sum_squares", e);
}

enum status cuda_clip_factor(struct backend *b, int lane, const struct tensor *norm,
                             const struct tensor *clip, const struct tensor *squares,
                             float max_norm, struct err *e) {
    TRY(cuda_check_packed(squares, "clip_factor: squares", IS_F32, -1, -1, e));
    TRY(cuda_check(norm, "clip_factor: norm", IS_F32, 1, 1, e));
    TRY(cuda_check(clip, "clip_factor: clip", IS_F32, 1, 1, e));
    struct join join = { JOIN_CLIP, (float *)norm->data, (float *)clip->data, 1.0f, 0.0f,
                         max_norm };
    return sum_into(b, lane, join, squares, false, "clip_factor", e);
}

/* One block: x has one element a slot, some hundreds. */
__global__ void flag_nonfinite_kernel(int32_t *flag, const int32_t *step, const uint32_t *x,
                                      int64_t n, int32_t base) {
    __shared__ unsigned long long first;
    if (flag[0] >= 0) return;
    if (threadIdx.x == 0) first = (unsigned long long)n;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        if ((x[i] & 0x7F800000u) == 0x7F800000u) atomicMin(&first, (unsigned long long)i);
    __syncthreads();
    if (threadIdx.x || first == (unsigned long long)n) return;
    flag[0] = *step;
    flag[1] = base + (int32_t)first;
}

enum status cuda_flag_nonfinite(struct backend *b, int lane, const struct tensor *flag,
                                const struct tensor *step, const struct tensor *x, int32_t base,
                                struct err *e) {
    TRY(cuda_check_packed(x, "flag_nonfinite: x", IS_F32 | IS_U32, -1, -1, e));
    TRY(cuda_check(flag, "flag_nonfinite: flag", IS_I32, 2, 1, e));
    TRY(cuda_check(step, "flag_nonfinite: step", IS_I32, 1, 1, e));
    flag_nonfinite_kernel<<<1, 256, 0, cuda_lane(b, lane)>>>(
        (int32_t *)flag->data, (const int32_t *)step->data, (const uint32_t *)x->data,
        tensor_count(x), base);
    return cuda_launched("flag_nonfinite", e);
}

struct bias_term {
    const bf16_bits *dy;
    int64_t ld;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        load_bf16(out, dy + row * ld + col);
    }
};

enum status cuda_bias_bwd(struct backend *b, int lane, const struct tensor *d_bias,
                          const struct tensor *dy, struct err *e) {
    TRY(cuda_check(dy, "bias_bwd: dy", IS_BF16, -1, -1, e));
    TRY(cuda_check(d_bias, "bias_bwd: d_bias", IS_GRAD, tensor_cols(dy), 1, e));
    struct bias_term term = { (const bf16_bits *)dy->data, dy->stride[0] };
    return column_sums(b, lane, d_bias, term, tensor_rows(dy), tensor_cols(dy),
                       tensor_is_vectors(dy), "bias_bwd", e);
}
