/* Cross-entropy of logits, forward and backward:
 *   m = max, p_i = exp(x_i - m), l = sum(p), loss = (m + ln l) - x_target,
 *   d_logits_i = (p_i / l - onehot_i) * grad_scale.
 *
 * A block a row: one read keeps a running maximum and a sum rescaled to it, a second read makes
 * the gradient, in place if wanted. 6 bytes an element; the device's own exp (2 ulp) costs less
 * than that. */
#include "kernels/cuda/cuda_common.cuh"
#include "kernels/exactmath_f32.h"

enum { LOSS_THREADS = 512 };

struct loss_args {
    float *loss;
    bf16_bits *d_logits; /* NULL in evaluation */
    const bf16_bits *logits;
    const int32_t *targets;
    const float *grad_scale;
    int64_t ld, width, vocab;
    uint32_t *amax;
};

/* NaN is no maximum but reaches the sum. */
__device__ static float max_of(float a, float b) { return b > a ? b : a; }

__device__ static float block_max(float x, float *shared) {
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

/* The row's maximum and the sum of exp(x - maximum). */
template <int N>
__device__ static void row_sums(const bf16_bits *x, int64_t vocab, float *shared, float *max_out,
                                float *sum_out) {
    float max = -INFINITY, sum = 0.0f;
    for (int64_t c = threadIdx.x * N; c < vocab; c += LOSS_THREADS * N) {
        float v[N], top = max;
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (c + i >= vocab) v[i] = -INFINITY;
            top = max_of(top, v[i]);
        }
        if (top > max) {
            sum *= __expf(max - top);
            max = top;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (c + i < vocab) sum += __expf(v[i] - max);
    }
    float whole = block_max(max, shared);
    /* A thread that saw nothing has sum 0 and maximum -infinity. */
    bool none = max == -INFINITY && sum == 0.0f;
    *sum_out = block_sum(none ? 0.0f : sum * __expf(max - whole), shared);
    *max_out = whole;
}

template <int N>
__global__ void __launch_bounds__(LOSS_THREADS) cross_entropy_kernel(struct loss_args a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x, target = a.targets[row];
    const bf16_bits *x = a.logits + row * a.ld;
    float max = 0.0f, sum = 1.0f, picked = 0.0f;
    bool counts = target >= 0, valid = target < a.vocab;
    if (counts) {
        if (valid) picked = bf16_decode(x[target]);
        else picked = f32_from_bits(0x7FC00000u);
        row_sums<N>(x, a.vocab, shared, &max, &sum);
    }
    if (threadIdx.x == 0)
        a.loss[row] = counts ? f32_canonical((max + exact_logf(sum)) - picked) : 0.0f;
    if (!a.d_logits) return;
    __syncthreads(); /* x[target] has been read */
    float inverse = 1.0f / sum, scale = *a.grad_scale;
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.width; c += LOSS_THREADS * N) {
        float v[N];
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float p = __expf(v[i] - max) * inverse;
            if (c + i == target) p -= 1.0f;
            v[i] = counts && c + i < a.vocab ? p * scale : 0.0f;
        }
        store_bf16(a.d_logits + row * a.width + c, v);
        if (a.amax) top = amax_of(top, v);
    }
    warp_amax_into(a.amax, top);
}

enum status cuda_cross_entropy(struct backend *b, int lane, const struct tensor *loss,
                               const struct sink *d_logits, const struct tensor *logits,
                               const struct tensor *targets, int64_t vocab,
                               const struct tensor *grad_scale, struct err *e) {
    TRY(cuda_check(logits, "cross_entropy: logits", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(logits), width = tensor_cols(logits);
    TRY(cuda_check(loss, "cross_entropy: loss", IS_F32, rows, 1, e));
    TRY(cuda_check(targets, "cross_entropy: targets", IS_I32, rows, 1, e));
    if (d_logits) {
        TRY(cuda_check(grad_scale, "cross_entropy: grad_scale", IS_F32, 1, 1, e));
        TRY(cuda_check_sink(d_logits, "cross_entropy: d_logits", rows, width, e));
    }
    if (vocab < 1 || vocab > width)
        return FAIL(e, ERR_ARG, "cross_entropy: vocabulary %lld of %lld columns", (long long)vocab,
                    (long long)width);
    if (rows == 0) return OK;
    struct loss_args a = {};
    a.loss = (float *)loss->data;
    a.logits = (const bf16_bits *)logits->data;
    a.targets = (const int32_t *)targets->data;
    a.ld = logits->stride[0];
    a.width = width;
    a.vocab = vocab;
    if (d_logits) {
        a.d_logits = sink_value_of(d_logits);
        a.grad_scale = (const float *)grad_scale->data;
        a.amax = sink_amax(d_logits);
    }
    bool vectors = tensor_is_vectors(logits) && rows_are_vectors(a.d_logits, width, width);
    auto kernel = vectors ? cross_entropy_kernel<8> : cross_entropy_kernel<1>;
    kernel<<<(unsigned)rows, LOSS_THREADS, 0, cuda_lane(b, lane)>>>(a);
    TRY(cuda_launched("cross_entropy", e));
    return d_logits ? cuda_sink_emit(b, lane, d_logits, true, e) : OK;
}
