/* Backward of both norms; norm.cuh has the shared part. One or more warps take a row, held in
 * registers. Sums over rows have a fixed order (norm_bwd_rows_order): a group of warps adds its
 * rows, then columns.cuh joins the groups. They are sums for gain and bias, and of dx for the bias
 * of the GEMM that reads dx. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_BWD_CUH
#define FP8LAB_KERNELS_CUDA_NORM_BWD_CUH

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/norm.cuh"

struct norm_bwd {
    bf16_bits *dx;
    const bf16_bits *dy, *x, *gain, *residual; /* residual may be NULL */
    const float *mean, *rstd;
    int64_t rows, cols, ld_dy, ld_x, ld_residual;
    uint32_t *amax;
    float *d_gain, *d_bias, *sums; /* partial sums [blocks][cols]; the last two may be NULL */
};

template <bool CENTRED>
__device__ static inline struct row_stats stats_at(const struct norm_bwd &a, int64_t row) {
    struct row_stats s = { CENTRED ? a.mean[row] : 0.0f, a.rstd[row] };
    return s;
}

/* Sums over a row of g = dy * gain and of g * xh; later their means. */
struct row_grad { float g, gx; };

/* Adds the terms of N columns. */
template <bool CENTRED, int N>
__device__ static inline void add_sums(struct row_grad &sum, const float (&d)[N],
                                       const float (&v)[N], const float (&g)[N],
                                       struct row_stats s) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (CENTRED) sum.g += d[i] * g[i];
        sum.gx += (d[i] * g[i]) * normal_of<CENTRED>(v[i], s);
    }
}

/* Turns dy of N columns into dx without the residual. */
template <bool CENTRED, int N>
__device__ static inline void gradient_of(float (&d)[N], const float (&v)[N], const float (&g)[N],
                                          struct row_stats s, struct row_grad mean) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        float own = CENTRED ? d[i] * g[i] - mean.g : d[i] * g[i];
        d[i] = s.r * (own - normal_of<CENTRED>(v[i], s) * mean.gx);
    }
}

template <bool CENTRED, int N> __global__ void norm_bwd_kernel(struct norm_bwd a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *dy = a.dy + row * a.ld_dy, *x = a.x + row * a.ld_x;
    struct row_stats s = stats_at<CENTRED>(a, row);
    struct row_grad mean = { 0.0f, 0.0f };
    float d[N], v[N], g[N];
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_constant(g, a.gain + c);
        add_sums<CENTRED>(mean, d, v, g, s);
    }
    if (CENTRED) mean.g = block_sum(mean.g, shared) / (float)a.cols;
    mean.gx = block_sum(mean.gx, shared) / (float)a.cols;
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        load_bf16(d, dy + c);
        load_bf16(v, x + c);
        load_constant(g, a.gain + c);
        gradient_of<CENTRED>(d, v, g, s, mean);
        if (a.residual) {
            load_bf16(v, a.residual + row * a.ld_residual + c);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] += v[i];
        }
        top = max(top, store_bf16(a.dx + row * a.cols + c, d));
    }
    block_amax_into(a.amax, top);
}

/* Adds the sums of a block's groups: the block's row of the partial sums. */
template <int GROUPS, int WIDTH, int V>
__device__ static inline void put_column_sums(float *partial, const float (&sum)[V][8],
                                              float (*shared)[WIDTH], int group, int64_t col0,
                                              int64_t cols) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < V; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            shared[group][col0 + (i * WARP + threadIdx.x % WARP) * 8 + j] = sum[i][j];
    __syncthreads();
    for (int64_t c = threadIdx.x; c < cols; c += NORM_WARPS * WARP) {
        float total = shared[0][c];
#pragma unroll
        for (int i = 1; i < GROUPS; i++) total += shared[i][c];
        partial[blockIdx.x * cols + c] = total;
    }
}

/* dx and the partial sums of gain, bias and (SUMS) dx in one read. W warps share a row of up to W V
 * vectors of eight a lane; a group of W warps takes `group_rows` rows. */
template <bool CENTRED, bool SUMS, int V, int W, int BLOCKS>
__global__ void __launch_bounds__(NORM_WARPS *WARP, BLOCKS)
    norm_bwd_warp_kernel(struct norm_bwd a, int group_rows) {
    constexpr int GROUPS = NORM_WARPS / W, WIDTH = W * V * NORM_COLUMNS;
    __shared__ struct row_grad row_sum[2][NORM_WARPS]; /* alternating: one barrier a row suffices */
    __shared__ float column_sum[GROUPS][WIDTH];
    int warp = threadIdx.x / WARP, group = warp / W;
    int64_t col0 = warp % W * (V * NORM_COLUMNS);
    uint4 held_d[V], held_x[V], held_r[V] = {};
    float gain_sum[V][8] = {}, bias_sum[CENTRED ? V : 1][8] = {};
    float dx_sum[SUMS ? V : 1][8] = {};
    uint32_t top = 0;
    for (int step = 0; step < group_rows; step++) {
        int64_t row = ((int64_t)blockIdx.x * group_rows + step) * GROUPS + group;
        struct row_grad mean = { 0.0f, 0.0f };
        struct row_stats s = { 0.0f, 0.0f };
        float d[8], v[8], g[8];
        if (row < a.rows) {
            s = stats_at<CENTRED>(a, row);
            load_row(held_d, a.dy + row * a.ld_dy + col0, a.cols - col0);
            load_row(held_x, a.x + row * a.ld_x + col0, a.cols - col0);
            if (a.residual)
                load_row(held_r, a.residual + row * a.ld_residual + col0, a.cols - col0);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = col0 + (i * WARP + threadIdx.x % WARP) * 8;
            if (row >= a.rows || c >= a.cols) continue;
            bf16x8_decode(d, held_d[i]);
            bf16x8_decode(v, held_x[i]);
            load_constant(g, a.gain + c);
            add_sums<CENTRED>(mean, d, v, g, s);
#pragma unroll
            for (int j = 0; j < 8; j++) {
                gain_sum[i][j] += d[j] * normal_of<CENTRED>(v[j], s);
                if constexpr (CENTRED) bias_sum[i][j] += d[j];
            }
        }
        if (CENTRED) mean.g = warp_sum(mean.g);
        mean.gx = warp_sum(mean.gx);
        if constexpr (W > 1) {
            if (threadIdx.x % WARP == 0) row_sum[step % 2][warp] = mean;
            __syncthreads();
            mean = row_sum[step % 2][group * W];
            for (int i = 1; i < W; i++) {
                mean.g += row_sum[step % 2][group * W + i].g;
                mean.gx += row_sum[step % 2][group * W + i].gx;
            }
        }
        mean.g = mean.g / (float)a.cols;
        mean.gx = mean.gx / (float)a.cols;
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = col0 + (i * WARP + threadIdx.x % WARP) * 8;
            if (row >= a.rows || c >= a.cols) continue;
            bf16x8_decode(d, held_d[i]);
            bf16x8_decode(v, held_x[i]);
            load_constant(g, a.gain + c);
            gradient_of<CENTRED>(d, v, g, s, mean);
            bf16x8_decode(v, held_r[i]);
#pragma unroll
            for (int j = 0; j < 8 && a.residual; j++) d[j] += v[j];
            uint4 out = bf16x8_encode(d);
            store_words(a.dx + row * a.cols + c, out);
            top = __vmaxu2(top, bf16x8_largest(out));
            if constexpr (SUMS) {
                bf16x8_decode(d, out);
#pragma unroll
                for (int j = 0; j < 8; j++) dx_sum[i][j] += d[j];
            }
        }
    }
    block_amax_into(a.amax, max(top << 16, top & 0xFFFF0000u));
    put_column_sums<GROUPS, WIDTH>(a.d_gain, gain_sum, column_sum, group, col0, a.cols);
    if constexpr (SUMS)
        put_column_sums<GROUPS, WIDTH>(a.sums, dx_sum, column_sum, group, col0, a.cols);
    if constexpr (CENTRED)
        if (a.d_bias)
            put_column_sums<GROUPS, WIDTH>(a.d_bias, bias_sum, column_sum, group, col0, a.cols);
}

typedef void (*norm_bwd_function)(struct norm_bwd, int);

/* The kernel of V vectors a lane for rows of up to `COLS`. */
template <bool CENTRED, bool SUMS, int V, int COLS> static norm_bwd_function norm_bwd_with() {
    constexpr int W = norm_bwd_warps(COLS);
    static_assert(COLS == V * W * NORM_COLUMNS, "the warps of a row hold it");
    return norm_bwd_warp_kernel<CENTRED, SUMS, V, W, norm_bwd_resident(COLS, CENTRED, SUMS)>;
}
template <bool CENTRED, bool SUMS> static norm_bwd_function choose_norm_bwd(int64_t cols) {
    if (cols <= 1 * NORM_COLUMNS) return norm_bwd_with<CENTRED, SUMS, 1, 1 * NORM_COLUMNS>();
    if (cols <= 3 * NORM_COLUMNS) return norm_bwd_with<CENTRED, SUMS, 3, 3 * NORM_COLUMNS>();
    if (cols <= 4 * NORM_COLUMNS) return norm_bwd_with<CENTRED, SUMS, 4, 4 * NORM_COLUMNS>();
    if (cols <= 8 * NORM_COLUMNS) return norm_bwd_with<CENTRED, SUMS, 4, 8 * NORM_COLUMNS>();
    return norm_bwd_with<CENTRED, SUMS, 4, NORM_ROW_MAX>();
}

/* sums: where the sums of dx go, or NULL. */
template <bool CENTRED>
static enum status launch_norm_bwd_warps(struct backend *b, int lane, struct norm_bwd a,
                                         const struct tensor *d_gain, const struct tensor *d_bias,
                                         const struct tensor *sums, struct err *e) {
    norm_bwd_function kernel = sums ? choose_norm_bwd<CENTRED, true>(a.cols)
                                    : choose_norm_bwd<CENTRED, false>(a.cols);
    struct rows_order order = norm_bwd_rows_order(a.rows, a.cols, CENTRED, sums != NULL);
    int64_t blocks = ceil_div(a.rows, order.group_rows * order.groups);
    struct column_join join = { {}, NULL, blocks, a.cols };
    const struct tensor *out[] = { d_gain, d_bias, sums };
    float **part[] = { &a.d_gain, &a.d_bias, &a.sums };
    unsigned vectors = 0;
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, 3 * blocks * a.cols * 4, &partial, e));
    join.partial = (const float *)partial;
    for (int i = 0; i < 3; i++)
        if (out[i]) {
            *part[i] = (float *)partial + vectors * blocks * a.cols;
            join.out[vectors++] = grad_of(out[i]);
        }
    cudaStream_t stream = cuda_lane(b, lane);
    kernel<<<(unsigned)blocks, NORM_WARPS * WARP, 0, stream>>>(a, (int)order.group_rows);
    TRY(cuda_launched("the backward of a norm", e));
    launch_column_join(join, vectors, stream);
    return OK;
}

/* dy * xh */
template <bool CENTRED> struct norm_gain_term {
    struct norm_bwd a;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        float v[N];
        struct row_stats s = stats_at<CENTRED>(a, row);
        load_bf16(out, a.dy + row * a.ld_dy + col);
        load_bf16(v, a.x + row * a.ld_x + col);
#pragma unroll
        for (int i = 0; i < N; i++) out[i] *= normal_of<CENTRED>(v[i], s);
    }
};

/* For rows that no warp can hold. The sums come before dx, since dx may alias dy. */
template <bool CENTRED>
static enum status launch_norm_bwd_blocks(struct backend *b, int lane, const struct norm_bwd &a,
                                          const struct tensor *d_gain, const struct tensor *d_bias,
                                          bool vectors, const char *what, struct err *e) {
    struct norm_gain_term<CENTRED> gain = { a };
    struct value_term bias = { a.dy, a.ld_dy };
    TRY(column_sums(b, lane, d_gain, gain, a.rows, a.cols, vectors, NULL, what, e));
    if (d_bias) TRY(column_sums(b, lane, d_bias, bias, a.rows, a.cols, vectors, NULL, what, e));
    auto kernel = vectors ? norm_bwd_kernel<CENTRED, 8> : norm_bwd_kernel<CENTRED, 1>;
    kernel<<<(unsigned)a.rows, norm_block_lanes(a.cols), 0, cuda_lane(b, lane)>>>(a);
    return OK;
}

/* Arguments as for norm_forward. */
template <bool CENTRED>
static enum status norm_backward(struct backend *b, int lane, const struct norm_bwd_args *args,
                                 const char *what, struct err *e) {
    const struct tensor *dy = args->dy, *x = args->x, *gain = args->gain, *mean = args->mean;
    const struct tensor *d_gain = args->d_gain, *d_bias = args->d_bias, *residual = args->residual;
    const struct sink *dx = args->dx;
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && tensor_is_vectors(dy) &&
                   (!residual || tensor_is_vectors(residual)) &&
                   rows_are_vectors(gain->data, cols, cols) &&
                   rows_are_vectors(dx->value->data, cols, cols);
    struct norm_bwd a = { sink_value_of(dx),
                          (const bf16_bits *)dy->data,
                          (const bf16_bits *)x->data,
                          (const bf16_bits *)gain->data,
                          residual ? (const bf16_bits *)residual->data : NULL,
                          mean ? (const float *)mean->data : NULL,
                          (const float *)args->rstd->data,
                          rows,
                          cols,
                          dy->stride[0],
                          x->stride[0],
                          residual ? residual->stride[0] : 0,
                          sink_amax(dx),
                          NULL,
                          NULL,
                          NULL };
    struct sink rest = *dx;
    if (vectors && fits_warp(cols)) {
        rest.sums = NULL;
        TRY(launch_norm_bwd_warps<CENTRED>(b, lane, a, d_gain, d_bias, dx->sums, e));
    } else {
        TRY(launch_norm_bwd_blocks<CENTRED>(b, lane, a, d_gain, d_bias, vectors, what, e));
    }
    TRY(cuda_launched(what, e));
    return cuda_sink_emit(b, lane, &rest, true, e);
}

#endif
