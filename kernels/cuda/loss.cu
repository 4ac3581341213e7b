/* Cross-entropy of logits, forward and backward:
 *   m = max, p_i = exp(x_i - m), l = sum(p), loss = (m + ln l) - x_target,
 *   d_logits_i = (p_i / l - onehot_i) * grad_scale.
 *
 * Here a block takes a row. The first read keeps a running maximum and a sum rescaled to it. The
 * second makes the gradient, in place if requested. One block runs on a multiprocessor, so its row
 * stays in L2 between the reads. The device's own exp (2 ulp) costs less than the 4 bytes an
 * element from memory. loss_cluster.cu takes rows that a cluster of blocks can hold. */
#include "kernels/cuda/loss.cuh"
#include "kernels/sum_order.h"

enum {
    ROW_THREADS = 1024,
    ROW_DEPTH = 4 /* vectors of a thread in flight */
};

/* Adds one vector to a running maximum and the sum of exp(x - maximum). Its first `room` elements
 * are in the vocabulary. */
template <int N>
__device__ static void running_sum(float (&v)[N], int64_t room, float *max, float *sum) {
    float top = *max;
    if (room < N) {
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = i < room ? v[i] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < N; i++) top = fmaxf(top, v[i]); /* fmaxf ignores NaN */
    if (top == -INFINITY) { /* the exponent would be -infinity + infinity */
#pragma unroll
        for (int i = 0; i < N; i++)
            if (v[i] != v[i]) *sum = v[i];
        return;
    }
    if (top > *max) {
        *sum *= fast_exp(*max - top);
        *max = top;
    }
#pragma unroll
    for (int i = 0; i < N; i++) *sum += fast_exp(v[i] - *max);
}

/* The row's maximum and the sum of exp(x - maximum). */
template <int N>
__device__ static void row_sums(const bf16_bits *x, int64_t vocab, float *shared, float *max_out,
                                float *sum_out) {
    float max = -INFINITY, sum = 0.0f;
    const int64_t stride = ROW_THREADS * N;
    for (int64_t c = threadIdx.x * N; c < vocab; c += stride * ROW_DEPTH) {
        float v[ROW_DEPTH][N];
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++)
            if (c + d * stride < vocab) load_bf16(v[d], x + c + d * stride);
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++)
            if (c + d * stride < vocab) running_sum(v[d], vocab - c - d * stride, &max, &sum);
    }
    float whole = block_max(max, shared);
    /* A thread without elements has sum 0 and maximum -infinity. */
    bool none = max == -INFINITY && sum == 0.0f;
    sum = block_sum(none ? 0.0f : sum * fast_exp(max - whole), shared);
    *sum_out = whole == -INFINITY ? f32_from_bits(0x7FC00000u) : sum;
    *max_out = whole;
}

/* The gradient of the row; returns the largest |bits| stored if amax is wanted. */
template <int N>
__device__ static uint32_t row_gradient(const struct loss_args &a, int64_t row,
                                        struct row_result r) {
    const int64_t stride = ROW_THREADS * N;
    const bf16_bits *x = a.logits + row * a.ld;
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.width; c += stride * ROW_DEPTH) {
        float v[ROW_DEPTH][N];
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++)
            if (c + d * stride < a.width) load_bf16(v[d], x + c + d * stride);
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++) {
            int64_t at = c + d * stride;
            if (at >= a.width) continue;
            gradient_of(v[d], a, r, at);
            top = max(top, store_bf16(a.d_logits + row * a.width + at, v[d]));
        }
    }
    return top;
}

__device__ static float load_target_logit(const struct loss_args &a, int64_t row, int64_t target) {
    if (target < 0 || target >= a.vocab) return f32_from_bits(0x7FC00000u);
    return bf16_decode(a.logits[row * a.ld + target]);
}

template <int N>
__global__ void __launch_bounds__(ROW_THREADS, 1) cross_entropy_kernel(struct loss_args a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x, target = a.targets[row];
    const bf16_bits *x = a.logits + row * a.ld;
    float max = 0.0f, sum = 1.0f, target_logit = load_target_logit(a, row, target);
    bool counts = target >= 0;
    if (counts) row_sums<N>(x, a.vocab, shared, &max, &sum);
    if (threadIdx.x == 0) store_loss(a, row, counts, max, sum, target_logit);
    if (!a.d_logits) return;
    __syncthreads(); /* x[target] has been read */
    struct row_result r = { max, 1.0f / sum, *a.grad_scale, target, counts };
    block_amax_into(a.amax, row_gradient<N>(a, row, r));
}

enum status cuda_cross_entropy(struct backend *b, int lane, const struct cross_entropy_args *args,
                               struct err *e) {
    const struct tensor *loss = args->loss, *logits = args->logits, *targets = args->targets;
    const struct tensor *grad_scale = args->grad_scale;
    const struct sink *d_logits = args->d_logits;
    int64_t vocab = args->vocab;
    TRY(cuda_check(logits, "cross_entropy: logits", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(logits), width = tensor_cols(logits);
    TRY(cuda_check(loss, "cross_entropy: loss", IS_F32, rows, 1, e));
    if (args->right) TRY(cuda_check(args->right, "cross_entropy: right", IS_F32, rows, 1, e));
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
    if (args->right) a.right = (float *)args->right->data;
    a.logits = (const bf16_bits *)logits->data;
    a.targets = (const int32_t *)targets->data;
    a.rows = rows;
    a.ld = logits->stride[0];
    a.width = width;
    a.vocab = vocab;
    if (d_logits) {
        a.d_logits = sink_value_of(d_logits);
        a.grad_scale = (const float *)grad_scale->data;
        a.amax = sink_amax(d_logits);
    }
    bool vectors = tensor_is_vectors(logits) && rows_are_vectors(a.d_logits, width, width);
    bool clusters = vectors && loss_clusters_fit(b, width);
    if (!clusters && cuda_of(b)->exact)
        return FAIL(e, ERR_UNSUPPORTED, "cross_entropy: rows of %lld logits have no exact form; "
                    "rows of a multiple of 8 and at most %d have one", (long long)width,
                    LOSS_BLOCKS_MAX * LOSS_COLUMNS);
    if (clusters) {
        TRY(loss_by_clusters(b, lane, &a, e));
    } else {
        auto kernel = vectors ? cross_entropy_kernel<8> : cross_entropy_kernel<1>;
        kernel<<<(unsigned)rows, ROW_THREADS, 0, cuda_lane(b, lane)>>>(a);
        TRY(cuda_launched("cross_entropy", e));
    }
    return d_logits ? cuda_sink_emit(b, lane, d_logits, true, e) : OK;
}
