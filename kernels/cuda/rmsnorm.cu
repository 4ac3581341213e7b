/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh.
 *
 * Bound by memory: forward 4 bytes an element, backward 8; rows beyond 4096 columns or unaligned
 * are read twice, and a third time for d_gain. */
#include "kernels/cuda/norm.cuh"

template <int N>
__global__ void rmsnorm_fwd_kernel(bf16_bits *y, float *rstd, const bf16_bits *x, int64_t ld,
                                   const bf16_bits *gain, int64_t cols, float eps, uint32_t *amax) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *x_row = x + row * ld;
    float sum = 0.0f;
    for (int64_t c = threadIdx.x * N; c < cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x_row + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i] * v[i];
    }
    float r = 1.0f / sqrtf(block_sum(sum, shared) / (float)cols + eps);
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < cols; c += blockDim.x * N) {
        float v[N], g[N];
        load_bf16(v, x_row + c);
        load_bf16(g, gain + c);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = (v[i] * r) * g[i];
        top = max(top, store_bf16(y + row * cols + c, v));
    }
    warp_amax_into(amax, top);
    if (threadIdx.x == 0) rstd[row] = f32_canonical(r);
}

template <int V>
__global__ void __launch_bounds__(NORM_WARPS *WARP)
    rmsnorm_fwd_warp_kernel(bf16_bits *y, float *rstd, const bf16_bits *x, int64_t ld,
                            const bf16_bits *gain, int64_t rows, int64_t cols, float eps,
                            uint32_t *amax) {
    int64_t row = warp_row();
    uint4 held[V];
    float sum = 0.0f;
    uint32_t top = 0;
    if (row < rows) {
        load_row(held, x + row * ld, cols);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float v[8];
            bf16x8_decode(v, held[i]);
#pragma unroll
            for (int j = 0; j < 8; j++) sum += v[j] * v[j];
        }
        float r = 1.0f / sqrtf(warp_sum(sum) / (float)cols + eps);
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= cols) continue;
            float v[8], g[8];
            bf16x8_decode(v, held[i]);
            load_bf16(g, gain + c);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = (v[j] * r) * g[j];
            top = max(top, store_bf16(y + row * cols + c, v));
        }
        if (threadIdx.x % WARP == 0) rstd[row] = f32_canonical(r);
    }
    warp_amax_into(amax, top);
}

enum status cuda_rmsnorm_fwd(struct backend *b, int lane, const struct sink *y,
                             const struct tensor *rstd, const struct tensor *x,
                             const struct tensor *gain, float eps, struct err *e) {
    TRY(cuda_check(x, "rmsnorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(gain, "rmsnorm_fwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(rstd, "rmsnorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(y, "rmsnorm_fwd: y", rows, cols, e));
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && rows_are_vectors(gain->data, cols, cols) &&
                   rows_are_vectors(y->value->data, cols, cols);
    cudaStream_t stream = cuda_lane(b, lane);
    const bf16_bits *from = (const bf16_bits *)x->data, *scale = (const bf16_bits *)gain->data;
    if (vectors && fits_warp(cols)) {
        WITH_VECTORS(cols, V, (rmsnorm_fwd_warp_kernel<V>
                               <<<warp_blocks(rows), NORM_WARPS * WARP, 0, stream>>>(
                                   sink_value_of(y), (float *)rstd->data, from, x->stride[0], scale,
                                   rows, cols, eps, sink_amax(y))));
    } else {
        auto kernel = vectors ? rmsnorm_fwd_kernel<8> : rmsnorm_fwd_kernel<1>;
        kernel<<<(unsigned)rows, norm_threads(cols), 0, stream>>>(
            sink_value_of(y), (float *)rstd->data, from, x->stride[0], scale, cols, eps,
            sink_amax(y));
    }
    TRY(cuda_launched("rmsnorm_fwd", e));
    return cuda_sink_emit(b, lane, y, true, e);
}

struct rmsnorm_grad {
    bf16_bits *dx;
    const bf16_bits *dy, *x, *gain, *residual; /* residual may be NULL */
    const float *rstd;
    int64_t cols, ld_dy, ld_x, ld_residual;
    uint32_t *amax;
};

template <int N> __global__ void rmsnorm_bwd_kernel(struct rmsnorm_grad a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *dy = a.dy + row * a.ld_dy, *x = a.x + row * a.ld_x;
    float r = a.rstd[row], sum = 0.0f;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float d[N], v[N], g[N];
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum += (d[i] * g[i]) * (v[i] * r);
    }
    float mean = block_sum(sum, shared) / (float)a.cols;
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float d[N], v[N], g[N];
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int i = 0; i < N; i++) d[i] = r * (d[i] * g[i] - (v[i] * r) * mean);
        if (a.residual) {
            load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] += v[i];
        }
        top = max(top, store_bf16(a.dx + row * a.cols + c, d));
    }
    warp_amax_into(a.amax, top);
}

/* Rows of one group of warps, one after another: with them 373 blocks for 16384 rows, which an
 * H200 has room for at once. Fixed, so that the order of sums depends on the shape alone. */
enum { BWD_ROWS = 11 };

/* A warp's part of a row's gradient, and of d_gain so far. */
template <int V> struct rmsnorm_part {
    uint4 dy[V], x[V];
    float gain_sum[V][8];
};

/* sum(g * xh) over the part; adds dy * xh to the gain's sums. */
template <int V>
__device__ static float part_sums(struct rmsnorm_part<V> &p, const struct rmsnorm_grad &a,
                                  int64_t col0, float r) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = col0 + (i * WARP + threadIdx.x % WARP) * 8;
        if (c >= a.cols) continue;
        float d[8], v[8], g[8];
        bf16x8_decode(d, p.dy[i]);
        bf16x8_decode(v, p.x[i]);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float xh = v[j] * r;
            sum += (d[j] * g[j]) * xh;
            p.gain_sum[i][j] += d[j] * xh;
        }
    }
    return sum;
}

/* Stores dx of the part; returns the largest |bits|. */
template <int V>
__device__ static uint32_t part_gradient(const struct rmsnorm_part<V> &p,
                                         const struct rmsnorm_grad &a, int64_t row, int64_t col0,
                                         float r, float mean) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = col0 + (i * WARP + threadIdx.x % WARP) * 8;
        if (c >= a.cols) continue;
        float d[8], v[8], g[8];
        bf16x8_decode(d, p.dy[i]);
        bf16x8_decode(v, p.x[i]);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int j = 0; j < 8; j++) d[j] = r * (d[j] * g[j] - (v[j] * r) * mean);
        if (a.residual) {
            load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
            for (int j = 0; j < 8; j++) d[j] += v[j];
        }
        top = max(top, store_bf16(a.dx + row * a.cols + c, d));
    }
    return top;
}

/* dx and the gain's partial sums in one read. W warps share a row of up to W V vectors of eight a
 * lane. */
template <int V, int W>
__global__ void __launch_bounds__(NORM_WARPS *WARP, 3)
    rmsnorm_bwd_warp_kernel(struct rmsnorm_grad a, int64_t rows, float *partial) {
    constexpr int GROUPS = NORM_WARPS / W;
    __shared__ float row_sum[2][NORM_WARPS]; /* in turns: one meeting a row is enough */
    __shared__ float gain_sum[GROUPS][W * V * NORM_COLUMNS];
    int warp = threadIdx.x / WARP, group = warp / W;
    int64_t col0 = warp % W * (V * NORM_COLUMNS);
    struct rmsnorm_part<V> p = {};
    uint32_t top = 0;
    for (int turn = 0; turn < BWD_ROWS; turn++) {
        int64_t row = ((int64_t)blockIdx.x * BWD_ROWS + turn) * GROUPS + group;
        float r = 0.0f, sum = 0.0f;
        if (row < rows) {
            r = a.rstd[row];
            load_row(p.dy, a.dy + row * a.ld_dy + col0, a.cols - col0);
            load_row(p.x, a.x + row * a.ld_x + col0, a.cols - col0);
            sum = part_sums(p, a, col0, r);
        }
        sum = warp_sum(sum);
        if constexpr (W > 1) {
            if (threadIdx.x % WARP == 0) row_sum[turn % 2][warp] = sum;
            __syncthreads();
            sum = row_sum[turn % 2][group * W];
            for (int i = 1; i < W; i++) sum += row_sum[turn % 2][group * W + i];
        }
        if (row < rows)
            top = max(top, part_gradient(p, a, row, col0, r, sum / (float)a.cols));
    }
    warp_amax_into(a.amax, top);
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            gain_sum[group][col0 + (i * WARP + threadIdx.x % WARP) * 8 + j] = p.gain_sum[i][j];
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.cols; c += NORM_WARPS * WARP) {
        float total = gain_sum[0][c];
        for (int i = 1; i < GROUPS; i++) total += gain_sum[i][c];
        partial[blockIdx.x * a.cols + c] = total;
    }
}

/* dx and d_gain of rows that fits_warp. */
static enum status launch_bwd_warps(struct backend *b, int lane, const struct tensor *d_gain,
                                    const struct rmsnorm_grad &a, int64_t rows, struct err *e) {
    cudaStream_t stream = cuda_lane(b, lane);
    bool two = a.cols > 8 * NORM_COLUMNS; /* warps to a row */
    int64_t blocks = ceil_div(rows, BWD_ROWS * NORM_WARPS / (two ? 2 : 1));
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, blocks * a.cols * 4, &partial, e));
    auto kernel = rmsnorm_bwd_warp_kernel<8, 2>;
    if (a.cols <= 8 * NORM_COLUMNS) kernel = rmsnorm_bwd_warp_kernel<8, 1>;
    if (a.cols <= 4 * NORM_COLUMNS) kernel = rmsnorm_bwd_warp_kernel<4, 1>;
    if (a.cols <= 2 * NORM_COLUMNS) kernel = rmsnorm_bwd_warp_kernel<2, 1>;
    kernel<<<(unsigned)blocks, NORM_WARPS * WARP, 0, stream>>>(a, rows, (float *)partial);
    dim3 join(WARP, WARP);
    column_join_many_kernel<0><<<(unsigned)ceil_div(a.cols, WARP), join, 0, stream>>>(
        grad_of(d_gain), (const float *)partial, blocks, a.cols);
    return cuda_launched("rmsnorm_bwd", e);
}

/* dy * xh */
struct rmsnorm_gain_term {
    const bf16_bits *dy, *x;
    const float *rstd;
    int64_t ld_dy, ld_x;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        float v[N], r = rstd[row];
        load_bf16(out, dy + row * ld_dy + col);
        load_bf16(v, x + row * ld_x + col);
#pragma unroll
        for (int i = 0; i < N; i++) out[i] *= v[i] * r;
    }
};

enum status cuda_rmsnorm_bwd(struct backend *b, int lane, const struct sink *dx,
                             const struct tensor *d_gain, const struct tensor *dy,
                             const struct tensor *x, const struct tensor *gain,
                             const struct tensor *rstd, const struct tensor *residual,
                             struct err *e) {
    TRY(cuda_check(x, "rmsnorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(dy, "rmsnorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(gain, "rmsnorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(d_gain, "rmsnorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    TRY(cuda_check(rstd, "rmsnorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cuda_check(residual, "rmsnorm_bwd: residual", IS_BF16, rows, cols, e));
    TRY(cuda_check_sink(dx, "rmsnorm_bwd: dx", rows, cols, e));
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && tensor_is_vectors(dy) &&
                   (!residual || tensor_is_vectors(residual)) &&
                   rows_are_vectors(gain->data, cols, cols) &&
                   rows_are_vectors(dx->value->data, cols, cols);
    struct rmsnorm_grad a = {
        sink_value_of(dx), (const bf16_bits *)dy->data, (const bf16_bits *)x->data,
        (const bf16_bits *)gain->data, residual ? (const bf16_bits *)residual->data : NULL,
        (const float *)rstd->data, cols, dy->stride[0], x->stride[0],
        residual ? residual->stride[0] : 0, sink_amax(dx)
    };
    if (vectors && fits_warp(cols)) {
        TRY(launch_bwd_warps(b, lane, d_gain, a, rows, e));
        return cuda_sink_emit(b, lane, dx, true, e);
    }
    /* Before dx, which may stand where dy does. */
    struct rmsnorm_gain_term term = { a.dy, a.x, a.rstd, a.ld_dy, a.ld_x };
    TRY(column_sums(b, lane, d_gain, term, rows, cols, vectors, "rmsnorm_bwd", e));
    auto kernel = vectors ? rmsnorm_bwd_kernel<8> : rmsnorm_bwd_kernel<1>;
    kernel<<<(unsigned)rows, norm_threads(cols), 0, cuda_lane(b, lane)>>>(a);
    TRY(cuda_launched("rmsnorm_bwd", e));
    return cuda_sink_emit(b, lane, dx, true, e);
}
