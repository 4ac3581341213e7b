/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh.
 *
 * Bound by memory: forward 4 bytes an
 * element, backward 8 and 4 more for d_gain. */
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
        store_bf16(y + row * cols + c, v);
        if (amax) top = amax_of(top, v);
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
            store_bf16(y + row * cols + c, v);
            if (amax) top = amax_of(top, v);
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
        store_bf16(a.dx + row * a.cols + c, d);
        if (a.amax) top = amax_of(top, d);
    }
    warp_amax_into(a.amax, top);
}

template <int V>
__global__ void __launch_bounds__(NORM_WARPS *WARP)
    rmsnorm_bwd_warp_kernel(struct rmsnorm_grad a, int64_t rows) {
    int64_t row = warp_row();
    uint4 held_dy[V], held_x[V];
    uint32_t top = 0;
    if (row < rows) {
        float r = a.rstd[row], sum = 0.0f;
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
            for (int j = 0; j < 8; j++) sum += (d[j] * g[j]) * (v[j] * r);
        }
        float mean = warp_sum(sum) / (float)a.cols;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (c >= a.cols) continue;
            float d[8], v[8], g[8];
            bf16x8_decode(d, held_dy[i]);
            bf16x8_decode(v, held_x[i]);
            load_bf16(g, a.gain + c);
#pragma unroll
            for (int j = 0; j < 8; j++) d[j] = r * (d[j] * g[j] - (v[j] * r) * mean);
            if (a.residual) {
                load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
                for (int j = 0; j < 8; j++) d[j] += v[j];
            }
            store_bf16(a.dx + row * a.cols + c, d);
            if (a.amax) top = amax_of(top, d);
        }
    }
    warp_amax_into(a.amax, top);
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
    /* Before dx, which may stand where dy does. */
    struct rmsnorm_gain_term term = { (const bf16_bits *)dy->data, (const bf16_bits *)x->data,
                                      (const float *)rstd->data, dy->stride[0], x->stride[0] };
    TRY(column_sums(b, lane, d_gain, term, rows, cols, vectors, "rmsnorm_bwd", e));
    struct rmsnorm_grad a = {
        sink_value_of(dx), term.dy, term.x, (const bf16_bits *)gain->data,
        residual ? (const bf16_bits *)residual->data : NULL, term.rstd, cols, term.ld_dy, term.ld_x,
        residual ? residual->stride[0] : 0, sink_amax(dx)
    };
    cudaStream_t stream = cuda_lane(b, lane);
    if (vectors && fits_warp(cols)) {
        WITH_VECTORS(cols, V, (rmsnorm_bwd_warp_kernel<V>
                               <<<warp_blocks(rows), NORM_WARPS * WARP, 0, stream>>>(a, rows)));
    } else {
        auto kernel = vectors ? rmsnorm_bwd_kernel<8> : rmsnorm_bwd_kernel<1>;
        kernel<<<(unsigned)rows, norm_threads(cols), 0, stream>>>(a);
    }
    TRY(cuda_launched("rmsnorm_bwd", e));
    return cuda_sink_emit(b, lane, dx, true, e);
}
