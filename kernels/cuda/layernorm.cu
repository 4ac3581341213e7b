/* LayerNorm. Forward, per row: mean = sum(x) / C, variance = sum of the centred squares / C,
 * y = ((x - mean) * rstd) * gain + bias. Backward, with xh = (x - mean) * rstd and g = dy * gain:
 *   dx = rstd * ((g - sum(g)/C) - xh * (sum(g*xh) / C)) + residual,
 *   d_gain += sum over rows of dy * xh,   d_bias += sum over rows of dy.
 *
 * As rmsnorm.cu; bound by memory. */
#include "kernels/cuda/norm.cuh"

struct layernorm_row {
    bf16_bits *y;
    float *mean, *rstd;
    const bf16_bits *x, *gain, *bias; /* bias may be NULL */
    int64_t cols, ld;
    float eps;
    uint32_t *amax;
};

template <int N> __global__ void layernorm_fwd_kernel(struct layernorm_row a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *x = a.x + row * a.ld;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    float mean = block_sum(sum, shared) / (float)a.cols;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) squares += (v[i] - mean) * (v[i] - mean);
    }
    float r = 1.0f / sqrtf(block_sum(squares, shared) / (float)a.cols + a.eps);
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float v[N], g[N];
        load_bf16(v, x + c);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = ((v[i] - mean) * r) * g[i];
        if (a.bias) {
            load_bf16(g, a.bias + c);
#pragma unroll
            for (int i = 0; i < N; i++) v[i] += g[i];
        }
        top = max(top, store_bf16(a.y + row * a.cols + c, v));
    }
    warp_amax_into(a.amax, top);
    if (threadIdx.x) return;
    a.mean[row] = f32_canonical(mean);
    a.rstd[row] = f32_canonical(r);
}

template <int V>
__global__ void __launch_bounds__(NORM_WARPS *WARP)
    layernorm_fwd_warp_kernel(struct layernorm_row a, int64_t rows) {
    int64_t row = warp_row();
    uint4 held[V];
    uint32_t top = 0;
    if (row < rows) {
        float sum = 0.0f, squares = 0.0f;
        load_row(held, a.x + row * a.ld, a.cols);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float v[8];
            bf16x8_decode(v, held[i]);
#pragma unroll
            for (int j = 0; j < 8; j++) sum += v[j];
        }
        float mean = warp_sum(sum) / (float)a.cols;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= a.cols) continue;
            float v[8];
            bf16x8_decode(v, held[i]);
#pragma unroll
            for (int j = 0; j < 8; j++) squares += (v[j] - mean) * (v[j] - mean);
        }
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)a.cols + a.eps);
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= a.cols) continue;
            float v[8], g[8];
            bf16x8_decode(v, held[i]);
            load_bf16(g, a.gain + c);
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = ((v[j] - mean) * r) * g[j];
            if (a.bias) {
                load_bf16(g, a.bias + c);
#pragma unroll
                for (int j = 0; j < 8; j++) v[j] += g[j];
            }
            top = max(top, store_bf16(a.y + row * a.cols + c, v));
        }
        if (threadIdx.x % WARP == 0) {
            a.mean[row] = f32_canonical(mean);
            a.rstd[row] = f32_canonical(r);
        }
    }
    warp_amax_into(a.amax, top);
}

enum status cuda_layernorm_fwd(struct backend *b, int lane, const struct sink *y,
                               const struct tensor *mean, const struct tensor *rstd,
                               const struct tensor *x, const struct tensor *gain,
                               const struct tensor *bias, float eps, struct err *e) {
    TRY(cuda_check(x, "layernorm_fwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(gain, "layernorm_fwd: gain", IS_BF16, cols, 1, e));
    if (bias) TRY(cuda_check(bias, "layernorm_fwd: bias", IS_BF16, cols, 1, e));
    TRY(cuda_check(mean, "layernorm_fwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(rstd, "layernorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cuda_check_sink(y, "layernorm_fwd: y", rows, cols, e));
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && rows_are_vectors(gain->data, cols, cols) &&
                   (!bias || rows_are_vectors(bias->data, cols, cols)) &&
                   rows_are_vectors(y->value->data, cols, cols);
    struct layernorm_row a = { sink_value_of(y), (float *)mean->data, (float *)rstd->data,
                               (const bf16_bits *)x->data, (const bf16_bits *)gain->data,
                               bias ? (const bf16_bits *)bias->data : NULL, cols, x->stride[0], eps,
                               sink_amax(y) };
    cudaStream_t stream = cuda_lane(b, lane);
    if (vectors && fits_warp(cols)) {
        WITH_VECTORS(cols, V, (layernorm_fwd_warp_kernel<V>
                               <<<warp_blocks(rows), NORM_WARPS * WARP, 0, stream>>>(a, rows)));
    } else {
        auto kernel = vectors ? layernorm_fwd_kernel<8> : layernorm_fwd_kernel<1>;
        kernel<<<(unsigned)rows, norm_threads(cols), 0, stream>>>(a);
    }
    TRY(cuda_launched("layernorm_fwd", e));
    return cuda_sink_emit(b, lane, y, true, e);
}

struct layernorm_grad {
    bf16_bits *dx;
    const bf16_bits *dy, *x, *gain, *residual; /* residual may be NULL */
    const float *mean, *rstd;
    int64_t cols, ld_dy, ld_x, ld_residual;
    uint32_t *amax;
};

template <int N> __global__ void layernorm_bwd_kernel(struct layernorm_grad a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *dy = a.dy + row * a.ld_dy, *x = a.x + row * a.ld_x;
    float mean = a.mean[row], r = a.rstd[row], g_sum = 0.0f, gx_sum = 0.0f;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float d[N], v[N], g[N];
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            g_sum += d[i] * g[i];
            gx_sum += (d[i] * g[i]) * ((v[i] - mean) * r);
        }
    }
    float g_mean = block_sum(g_sum, shared) / (float)a.cols;
    float gx_mean = block_sum(gx_sum, shared) / (float)a.cols;
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float d[N], v[N], g[N];
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_bf16(g, a.gain + c);
#pragma unroll
        for (int i = 0; i < N; i++)
            d[i] = r * ((d[i] * g[i] - g_mean) - ((v[i] - mean) * r) * gx_mean);
        if (a.residual) {
            load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] += v[i];
        }
        top = max(top, store_bf16(a.dx + row * a.cols + c, d));
    }
    warp_amax_into(a.amax, top);
}

template <int V>
__global__ void __launch_bounds__(NORM_WARPS *WARP)
    layernorm_bwd_warp_kernel(struct layernorm_grad a, int64_t rows) {
    int64_t row = warp_row();
    uint4 held_dy[V], held_x[V];
    uint32_t top = 0;
    if (row < rows) {
        float mean = a.mean[row], r = a.rstd[row], g_sum = 0.0f, gx_sum = 0.0f;
        load_row(held_dy, a.dy + row * a.ld_dy, a.cols);
        load_row(held_x, a.x + row * a.ld_x, a.cols);
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= a.cols) continue;
            float d[8], v[8], g[8];
            bf16x8_decode(d, held_dy[i]);
            bf16x8_decode(v, held_x[i]);
            load_bf16(g, a.gain + c);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                g_sum += d[j] * g[j];
                gx_sum += (d[j] * g[j]) * ((v[j] - mean) * r);
            }
        }
        float g_mean = warp_sum(g_sum) / (float)a.cols, gx_mean = warp_sum(gx_sum) / (float)a.cols;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= a.cols) continue;
            float d[8], v[8], g[8];
            bf16x8_decode(d, held_dy[i]);
            bf16x8_decode(v, held_x[i]);
            load_bf16(g, a.gain + c);
#pragma unroll
            for (int j = 0; j < 8; j++)
                d[j] = r * ((d[j] * g[j] - g_mean) - ((v[j] - mean) * r) * gx_mean);
            if (a.residual) {
                load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
                for (int j = 0; j < 8; j++) d[j] += v[j];
            }
            top = max(top, store_bf16(a.dx + row * a.cols + c, d));
        }
    }
    warp_amax_into(a.amax, top);
}

/* dy * xh */
struct layernorm_gain_term {
    const bf16_bits *dy, *x;
    const float *mean, *rstd;
    int64_t ld_dy, ld_x;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        float v[N], m = mean[row], r = rstd[row];
        load_bf16(out, dy + row * ld_dy + col);
        load_bf16(v, x + row * ld_x + col);
#pragma unroll
        for (int i = 0; i < N; i++) out[i] *= (v[i] - m) * r;
    }
};

struct layernorm_bias_term {
    const bf16_bits *dy;
    int64_t ld;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        load_bf16(out, dy + row * ld + col);
    }
};

static enum status check_bwd(const struct sink *dx, const struct tensor *d_gain,
                             const struct tensor *d_bias, const struct tensor *dy,
                             const struct tensor *x, const struct tensor *gain,
                             const struct tensor *mean, const struct tensor *rstd,
                             const struct tensor *residual, struct err *e) {
    TRY(cuda_check(x, "layernorm_bwd: x", IS_BF16, -1, -1, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    TRY(cuda_check(dy, "layernorm_bwd: dy", IS_BF16, rows, cols, e));
    TRY(cuda_check(gain, "layernorm_bwd: gain", IS_BF16, cols, 1, e));
    TRY(cuda_check(d_gain, "layernorm_bwd: d_gain", IS_GRAD, cols, 1, e));
    if (d_bias) TRY(cuda_check(d_bias, "layernorm_bwd: d_bias", IS_GRAD, cols, 1, e));
    TRY(cuda_check(mean, "layernorm_bwd: mean", IS_F32, rows, 1, e));
    TRY(cuda_check(rstd, "layernorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cuda_check(residual, "layernorm_bwd: residual", IS_BF16, rows, cols, e));
    return cuda_check_sink(dx, "layernorm_bwd: dx", rows, cols, e);
}

enum status cuda_layernorm_bwd(struct backend *b, int lane, const struct sink *dx,
                               const struct tensor *d_gain, const struct tensor *d_bias,
                               const struct tensor *dy, const struct tensor *x,
                               const struct tensor *gain, const struct tensor *mean,
                               const struct tensor *rstd, const struct tensor *residual,
                               struct err *e) {
    TRY(check_bwd(dx, d_gain, d_bias, dy, x, gain, mean, rstd, residual, e));
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && tensor_is_vectors(dy) &&
                   (!residual || tensor_is_vectors(residual)) &&
                   rows_are_vectors(gain->data, cols, cols) &&
                   rows_are_vectors(dx->value->data, cols, cols);
    /* Before dx, which may stand where dy does. */
    struct layernorm_gain_term term = { (const bf16_bits *)dy->data, (const bf16_bits *)x->data,
                                        (const float *)mean->data, (const float *)rstd->data,
                                        dy->stride[0], x->stride[0] };
    struct layernorm_bias_term bias_term = { term.dy, term.ld_dy };
    TRY(column_sums(b, lane, d_gain, term, rows, cols, vectors, "layernorm_bwd", e));
    if (d_bias)
        TRY(column_sums(b, lane, d_bias, bias_term, rows, cols, vectors, "layernorm_bwd", e));
    struct layernorm_grad a = {
        sink_value_of(dx), term.dy, term.x, (const bf16_bits *)gain->data,
        residual ? (const bf16_bits *)residual->data : NULL, term.mean, term.rstd, cols, term.ld_dy,
        term.ld_x, residual ? residual->stride[0] : 0, sink_amax(dx)
    };
    cudaStream_t stream = cuda_lane(b, lane);
    if (vectors && fits_warp(cols)) {
        WITH_VECTORS(cols, V, (layernorm_bwd_warp_kernel<V>
                               <<<warp_blocks(rows), NORM_WARPS * WARP, 0, stream>>>(a, rows)));
    } else {
        auto kernel = vectors ? layernorm_bwd_kernel<8> : layernorm_bwd_kernel<1>;
        kernel<<<(unsigned)rows, norm_threads(cols), 0, stream>>>(a);
    }
    TRY(cuda_launched("layernorm_bwd", e));
    return cuda_sink_emit(b, lane, dx, true, e);
}
