/* Sums over whole tensors and over columns, the sum of two tensors, clip factor, non-finite flag.
 *
 * A long vector is summed in two stages: blocks of fixed extent into f32 partial sums, then one
 * block sums these. Both trees depend on the length alone (kernels/sum_order.h). Bound by memory:
 * one read. */
#include "kernels/cuda/columns.cuh"

/* Grid: one block for SUM_EXTENT elements; a thread reads four at a time. */
__global__ void __launch_bounds__(SUM_THREADS)
    sum_partial_kernel(float *partial, const float *x, int64_t n) {
    __shared__ float shared[WARP];
    int64_t begin = (int64_t)blockIdx.x * SUM_EXTENT;
    int64_t end = begin + SUM_EXTENT < n ? begin + SUM_EXTENT : n;
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (int64_t i = begin + threadIdx.x * 4; i < end; i += SUM_THREADS * 4)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[j] += i + j < end ? x[i + j] : 0.0f;
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
                            const char *what, struct err *e) {
    int64_t n = tensor_count(x), blocks = max_i64(1, ceil_div(n, SUM_EXTENT));
    if (blocks > INT32_MAX) return FAIL(e, ERR_ARG, "%s: %lld elements", what, (long long)n);
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, blocks * 4, &partial, e));
    cudaStream_t stream = cuda_lane(b, lane);
    sum_partial_kernel<<<(unsigned)blocks, SUM_THREADS, 0, stream>>>((float *)partial,
                                                                     (const float *)x->data, n);
    TRY(cuda_launched(what, e));
    sum_join_kernel<<<1, SUM_THREADS, 0, stream>>>(join, (const float *)partial, blocks);
    return cuda_launched(what, e);
}

enum status cuda_sum(struct backend *b, int lane, const struct tensor *total,
                     const struct tensor *x, float factor, float beta, struct err *e) {
    TRY(cuda_check_packed(x, "sum: x", IS_F32, -1, -1, e));
    TRY(cuda_check(total, "sum: total", IS_F32, 1, 1, e));
    struct join join = { JOIN_SUM, (float *)total->data, NULL, factor, beta, 0.0f };
    return sum_into(b, lane, join, x, "sum", e);
}

/* ---- squares of many tensors: a model has hundreds, most of them small; they share launches
 * ---- */

enum { SQUARES_MAX = 128 }; /* tensors of one launch: their table is a kernel argument */

struct squares {
    const void *x[SQUARES_MAX];
    int64_t n[SQUARES_MAX];
    uint32_t first[SQUARES_MAX + 1]; /* first block of each tensor, ascending; then the end */
    int count;
};

__device__ static float square_of(const float *x, int64_t i) { return x[i] * x[i]; }
__device__ static float square_of(const bf16_bits *x, int64_t i) {
    return bf16_decode(x[i]) * bf16_decode(x[i]);
}

/* The squares of 16 bytes into four sums. */
__device__ static void add_squares(float (&sum)[4], const float *x) {
    float4 v = *(const float4 *)x;
    sum[0] += v.x * v.x;
    sum[1] += v.y * v.y;
    sum[2] += v.z * v.z;
    sum[3] += v.w * v.w;
}
__device__ static void add_squares(float (&sum)[4], const bf16_bits *x) {
    float v[8];
    load_bf16(v, x);
#pragma unroll
    for (int j = 0; j < 8; j++) sum[j % 4] += v[j] * v[j];
}

/* Grid: a block for each SUM_EXTENT elements of each tensor; a thread reads 16 bytes at a time. */
template <class T>
__global__ void __launch_bounds__(SUM_THREADS)
    squares_kernel(const __grid_constant__ struct squares s, float *partial) {
    enum { EACH = 16 / sizeof(T) };
    __shared__ float shared[WARP];
    int at = 0;
    for (int high = s.count; high - at > 1;) {
        int middle = (at + high) / 2;
        if (s.first[middle] <= blockIdx.x) at = middle;
        else high = middle;
    }
    const T *x = (const T *)s.x[at];
    int64_t begin = (int64_t)(blockIdx.x - s.first[at]) * SUM_EXTENT;
    int64_t end = begin + SUM_EXTENT < s.n[at] ? begin + SUM_EXTENT : s.n[at];
    int64_t whole = begin + (end - begin) / EACH * EACH;
    float sum[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    if ((uintptr_t)x % 16 == 0) {
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x * EACH; i < whole; i += SUM_THREADS * EACH)
            add_squares(sum, x + i);
    } else { /* in the same order */
        for (int64_t i = begin + threadIdx.x * EACH; i < whole; i += SUM_THREADS * EACH)
            for (int j = 0; j < EACH; j++) sum[j % 4] += square_of(x, i + j);
    }
    for (int64_t i = whole + threadIdx.x; i < end; i += SUM_THREADS) sum[0] += square_of(x, i);
    float total = block_sum((sum[0] + sum[1]) + (sum[2] + sum[3]), shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

/* Grid: a block for each tensor. */
__global__ void __launch_bounds__(SUM_THREADS)
    squares_join_kernel(const __grid_constant__ struct squares s, float *out,
                        const float *partial) {
    __shared__ float shared[WARP];
    float sum = 0.0f;
    for (uint32_t i = s.first[blockIdx.x] + threadIdx.x; i < s.first[blockIdx.x + 1];
         i += SUM_THREADS)
        sum += partial[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) out[blockIdx.x] = f32_canonical(sum);
}

static enum status launch_squares(struct backend *b, int lane, const struct squares *s,
                                  enum dtype dtype, float *out, struct err *e) {
    void *partial;
    unsigned blocks = s->first[s->count];
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, (int64_t)blocks * 4, &partial, e));
    cudaStream_t stream = cuda_lane(b, lane);
    auto kernel = dtype == DTYPE_BF16 ? squares_kernel<bf16_bits> : squares_kernel<float>;
    kernel<<<blocks, SUM_THREADS, 0, stream>>>(*s, (float *)partial);
    TRY(cuda_launched("sum_squares", e));
    squares_join_kernel<<<s->count, SUM_THREADS, 0, stream>>>(*s, out, (const float *)partial);
    return cuda_launched("sum_squares", e);
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
                             const struct tensor *x, int64_t n, struct err *e) {
    TRY(cuda_check_packed(out, "sum_squares: out", IS_F32, n, 1, e));
    struct squares s;
    for (int64_t i = 0; i < n; i += s.count) {
        int64_t blocks = 0;
        for (s.count = 0; s.count < SQUARES_MAX && i + s.count < n; s.count++) {
            const struct tensor *t = &x[i + s.count];
            TRY(cuda_check_packed(t, "sum_squares: x", IS_GRAD, -1, -1, e));
            if (t->dtype != x->dtype)
                return FAIL(e, ERR_ARG, "sum_squares: x is %s, then %s", dtype_name(x->dtype),
                            dtype_name(t->dtype));
            s.x[s.count] = t->data;
            s.n[s.count] = tensor_count(t);
            s.first[s.count] = (uint32_t)blocks;
            blocks += max_i64(1, ceil_div(s.n[s.count], SUM_EXTENT));
            if (blocks > INT32_MAX)
                return FAIL(e, ERR_ARG, "sum_squares: %lld blocks", (long long)blocks);
        }
        s.first[s.count] = (uint32_t)blocks;
        TRY(launch_squares(b, lane, &s, x->dtype, (float *)out->data + i, e));
    }
    return OK;
}

enum status cuda_clip_factor(struct backend *b, int lane, const struct tensor *norm,
                             const struct tensor *clip, const struct tensor *squares,
                             float max_norm, struct err *e) {
    TRY(cuda_check_packed(squares, "clip_factor: squares", IS_F32, -1, -1, e));
    TRY(cuda_check(norm, "clip_factor: norm", IS_F32, 1, 1, e));
    TRY(cuda_check(clip, "clip_factor: clip", IS_F32, 1, 1, e));
    struct join join = { JOIN_CLIP, (float *)norm->data, (float *)clip->data, 1.0f, 0.0f,
                         max_norm };
    return sum_into(b, lane, join, squares, "clip_factor", e);
}

/* One block: x has one element for each slot, some hundreds. */
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
