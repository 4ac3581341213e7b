/* RMSNorm and LayerNorm, which differ in whether a row is centred, have all but their names in
 * common. CENTRED: LayerNorm.
 *
 * A row of up to 4096 columns is one warp's (several warps' in backward), held in registers, so
 * that it is read once; longer or unaligned rows are a block's, read twice. Sums over rows for the
 * gradients of gain and bias are of fixed order: a group of warps adds up its rows, the sums of
 * all groups are joined by columns.cuh.
 *
 * Bound by memory: forward 4 bytes an element, backward 8; a third read in backward of long rows.
 * Into codes, forward reads its row once for the statistics (and the amax, where the scale rests on
 * it) and once more for the codes: 6 bytes an element instead of 8. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_CUH
#define FP8LAB_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/columns.cuh"

enum { NORM_WARPS = 4, NORM_COLUMNS = WARP * 8 /* of one vector a lane */ };

/* V vectors of eight a lane: vector i stands at column (32 i + lane) * 8. Columns beyond the row
 * are +0. */
template <int V>
__device__ static inline void load_row(uint4 (&v)[V], const bf16_bits *row, int64_t cols) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
        v[i] = c < cols ? *(const uint4 *)(row + c) : make_uint4(0, 0, 0, 0);
    }
}

/* Gain, bias and statistics are written by no kernel that reads them here: their loads may move. */
template <int N>
__device__ static inline void load_constant(float (&out)[N], const bf16_bits *x) {
    if constexpr (N == 8) bf16x8_decode(out, __ldg((const uint4 *)x));
    else
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = bf16_decode(__ldg(x + i));
}

static inline bool fits_warp(int64_t cols) { return cols <= 16 * NORM_COLUMNS; }
static inline int norm_threads(int64_t cols) {
    return (int)max_i64(WARP, min_i64(256, round_up(ceil_div(cols, 8), WARP)));
}

struct row_stats { float mean, r; }; /* mean is 0 where a row is not centred */

template <bool CENTRED> __device__ static inline float normal_of(float x, struct row_stats s) {
    return CENTRED ? (x - s.mean) * s.r : x * s.r;
}

/* ---- forward ---- */

struct norm_fwd {
    bf16_bits *y; /* NULL: not stored */
    float *mean, *rstd;
    const bf16_bits *x, *gain, *bias; /* bias may be NULL */
    int64_t rows, cols, ld;
    float eps;
    uint32_t *amax;
};

/* normal * gain + bias for N columns from c on. */
template <bool CENTRED, int N>
__device__ static inline void normalise(float (&v)[N], const bf16_bits *gain, const bf16_bits *bias,
                                        struct row_stats s) {
    float g[N];
    load_constant(g, gain);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = normal_of<CENTRED>(v[i], s) * g[i];
    if (!bias) return;
    load_constant(g, bias);
#pragma unroll
    for (int i = 0; i < N; i++) v[i] += g[i];
}

template <bool CENTRED>
__device__ static inline void store_stats(const struct norm_fwd &a, int64_t row,
                                          struct row_stats s) {
    if (CENTRED) a.mean[row] = f32_canonical(s.mean);
    a.rstd[row] = f32_canonical(s.r);
}

template <bool CENTRED, int N> __global__ void norm_fwd_kernel(struct norm_fwd a) {
    __shared__ float shared[WARP];
    int64_t row = blockIdx.x;
    const bf16_bits *x = a.x + row * a.ld;
    float sum = 0.0f, squares = 0.0f;
    struct row_stats s = { 0.0f, 0.0f };
    for (int64_t c = threadIdx.x * N; CENTRED && c < a.cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) sum += v[i];
    }
    if (CENTRED) s.mean = block_sum(sum, shared) / (float)a.cols;
    for (int64_t c = threadIdx.x * N; c < a.cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x + c);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float centred = CENTRED ? v[i] - s.mean : v[i];
            squares += centred * centred;
        }
    }
    s.r = 1.0f / sqrtf(block_sum(squares, shared) / (float)a.cols + a.eps);
    if (threadIdx.x == 0) store_stats<CENTRED>(a, row, s);
    uint32_t top = 0;
    for (int64_t c = threadIdx.x * N; (a.y || a.amax) && c < a.cols; c += blockDim.x * N) {
        float v[N];
        load_bf16(v, x + c);
        normalise<CENTRED>(v, a.gain + c, a.bias ? a.bias + c : NULL, s);
        top = max(top, put_bf16(a.y ? a.y + row * a.cols + c : NULL, v));
    }
    block_amax_into(a.amax, top);
}

/* The statistics of a row in the registers of a warp. */
template <bool CENTRED, int V>
__device__ static inline struct row_stats stats_of(const uint4 (&held)[V], int64_t cols,
                                                   float eps) {
    struct row_stats s = { 0.0f, 0.0f };
    float sum = 0.0f, squares = 0.0f, v[8];
#pragma unroll
    for (int i = 0; i < V && CENTRED; i++) {
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) sum += v[j];
    }
    if (CENTRED) s.mean = warp_sum(sum) / (float)cols;
#pragma unroll
    for (int i = 0; i < V; i++) {
        if ((i * WARP + threadIdx.x % WARP) * 8 >= cols) continue;
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float centred = CENTRED ? v[j] - s.mean : v[j];
            squares += centred * centred;
        }
    }
    s.r = 1.0f / sqrtf(warp_sum(squares) / (float)cols + eps);
    return s;
}

/* A warp a row, and the row that it comes to next on its way while it works. */
template <bool CENTRED, int V, int BLOCKS>
__global__ void __launch_bounds__(NORM_WARPS *WARP, BLOCKS) norm_fwd_warp_kernel(struct norm_fwd a) {
    int64_t row = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / WARP;
    int64_t step = (int64_t)gridDim.x * NORM_WARPS;
    uint4 held[V], next[V];
    uint32_t top = 0;
    if (row < a.rows) load_row(next, a.x + row * a.ld, a.cols);
    for (; row < a.rows; row += step) {
#pragma unroll
        for (int i = 0; i < V; i++) held[i] = next[i];
        if (row + step < a.rows) load_row(next, a.x + (row + step) * a.ld, a.cols);
        struct row_stats s = stats_of<CENTRED>(held, a.cols, a.eps);
        if (threadIdx.x % WARP == 0) store_stats<CENTRED>(a, row, s);
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (!(a.y || a.amax) || c >= a.cols) continue;
            float v[8];
            bf16x8_decode(v, held[i]);
            normalise<CENTRED>(v, a.gain + c, a.bias ? a.bias + c : NULL, s);
            top = max(top, put_bf16(a.y ? a.y + row * a.cols + c : NULL, v));
        }
    }
    block_amax_into(a.amax, top);
}

/* y for the tiles of cast_tile_kernel, the statistics being known. */
template <bool CENTRED> struct norm_values {
    enum { TILES = 1, BLOCKS = 3 };
    struct raw { uint4 x; };
    struct norm_fwd a; /* y: NULL unless the value is kept */
    __device__ struct raw load(int64_t row, int64_t col) const {
        return { *(const uint4 *)(a.x + row * a.ld + col) };
    }
    __device__ void make(uint4 (&v)[1], struct raw r, int64_t row, int64_t col) const {
        struct row_stats s = { CENTRED ? __ldg(a.mean + row) : 0.0f, __ldg(a.rstd + row) };
        float y[8];
        bf16x8_decode(y, r.x);
        normalise<CENTRED>(y, a.gain + col, a.bias ? a.bias + col : NULL, s);
        v[0] = bf16x8_encode(y);
        if (a.y) *(uint4 *)(a.y + row * a.cols + col) = v[0];
    }
};

typedef void (*norm_fwd_function)(struct norm_fwd);

/* How many blocks a multiprocessor has at once: what its registers allow. */
struct norm_fwd_choice { norm_fwd_function kernel; int blocks; };

template <bool CENTRED, int V, int BLOCKS> static struct norm_fwd_choice norm_fwd_with() {
    return { norm_fwd_warp_kernel<CENTRED, V, BLOCKS>, BLOCKS };
}
template <bool CENTRED> static struct norm_fwd_choice choose_norm_fwd(int64_t cols) {
    if (cols <= 1 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 1, 12>();
    if (cols <= 3 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 3, 8>();
    if (cols <= 4 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 4, 8>();
    if (cols <= 8 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 8, 5>();
    return norm_fwd_with<CENTRED, 16, 3>();
}

template <bool CENTRED>
static void launch_norm_fwd(struct backend *b, int lane, const struct norm_fwd &a, bool vectors) {
    cudaStream_t stream = cuda_lane(b, lane);
    if (vectors && fits_warp(a.cols)) {
        struct norm_fwd_choice choice = choose_norm_fwd<CENTRED>(a.cols);
        int64_t room = (int64_t)cuda_of(b)->sm_count * choice.blocks;
        unsigned blocks = (unsigned)min_i64(ceil_div(a.rows, NORM_WARPS), room);
        choice.kernel<<<blocks, NORM_WARPS * WARP, 0, stream>>>(a);
        return;
    }
    auto kernel = vectors ? norm_fwd_kernel<CENTRED, 8> : norm_fwd_kernel<CENTRED, 1>;
    kernel<<<(unsigned)a.rows, norm_threads(a.cols), 0, stream>>>(a);
}

/* After the arguments are checked. mean and bias are NULL where rows are not centred. */
template <bool CENTRED>
static enum status norm_forward(struct backend *b, int lane, const struct sink *y,
                                const struct tensor *mean, const struct tensor *rstd,
                                const struct tensor *x, const struct tensor *gain,
                                const struct tensor *bias, float eps, const char *what,
                                struct err *e) {
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && rows_are_vectors(gain->data, cols, cols) &&
                   (!bias || rows_are_vectors(bias->data, cols, cols)) &&
                   rows_are_vectors(y->value->data, cols, cols);
    bool fused = vectors && cast_fuses(y), repeated = vectors && cast_repeats(y);
    struct norm_values<CENTRED> from = { {
        y->keep_value ? sink_value_of(y) : NULL, mean ? (float *)mean->data : NULL,
        (float *)rstd->data, (const bf16_bits *)x->data, (const bf16_bits *)gain->data,
        bias ? (const bf16_bits *)bias->data : NULL, rows, cols, x->stride[0], eps, NULL
    } };
    struct norm_fwd first = from.a;
    first.y = fused || repeated ? NULL : sink_value_of(y);
    first.amax = fused ? NULL : sink_amax(y); /* of tiles, if they are made in one pass */
    launch_norm_fwd<CENTRED>(b, lane, first, vectors);
    TRY(cuda_launched(what, e));
    if (!fused && !repeated) return cuda_sink_emit(b, lane, y, true, e);
    return cast_tiles<true>(b, lane, y, tile_args_of(y, fused ? sink_amax(y) : NULL), from, e);
}

/* ---- backward ---- */

struct norm_bwd {
    bf16_bits *dx;
    const bf16_bits *dy, *x, *gain, *residual; /* residual may be NULL */
    const float *mean, *rstd;
    int64_t rows, cols, ld_dy, ld_x, ld_residual;
    uint32_t *amax;
    float *d_gain, *d_bias; /* partial sums [blocks][cols]; d_bias may be NULL */
};

template <bool CENTRED>
__device__ static inline struct row_stats stats_at(const struct norm_bwd &a, int64_t row) {
    struct row_stats s = { CENTRED ? a.mean[row] : 0.0f, a.rstd[row] };
    return s;
}

/* Over a row: of g = dy * gain, and of g * xh. First sums, then means. */
struct row_grad { float g, gx; };

/* N columns' part. */
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

/* dy of N columns becomes dx, but for the residual. */
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

/* The groups' sums of a block, added, are its row of the partial sums. */
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

/* dx and the partial sums of gain and bias in one read. W warps share a row of up to W V vectors
 * of eight a lane; a group of them takes `turns` rows. */
template <bool CENTRED, int V, int W, int BLOCKS>
__global__ void __launch_bounds__(NORM_WARPS *WARP, BLOCKS)
    norm_bwd_warp_kernel(struct norm_bwd a, int turns) {
    constexpr int GROUPS = NORM_WARPS / W, WIDTH = W * V * NORM_COLUMNS;
    __shared__ struct row_grad row_sum[2][NORM_WARPS]; /* in turns: one meeting a row is enough */
    __shared__ float column_sum[GROUPS][WIDTH];
    int warp = threadIdx.x / WARP, group = warp / W;
    int64_t col0 = warp % W * (V * NORM_COLUMNS);
    uint4 held_d[V], held_x[V], held_r[V] = {};
    float gain_sum[V][8] = {}, bias_sum[CENTRED ? V : 1][8] = {};
    uint32_t top = 0;
    for (int turn = 0; turn < turns; turn++) {
        int64_t row = ((int64_t)blockIdx.x * turns + turn) * GROUPS + group;
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
            if (threadIdx.x % WARP == 0) row_sum[turn % 2][warp] = mean;
            __syncthreads();
            mean = row_sum[turn % 2][group * W];
            for (int i = 1; i < W; i++) {
                mean.g += row_sum[turn % 2][group * W + i].g;
                mean.gx += row_sum[turn % 2][group * W + i].gx;
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
            top = max(top, store_bf16(a.dx + row * a.cols + c, d));
        }
    }
    block_amax_into(a.amax, top);
    put_column_sums<GROUPS, WIDTH>(a.d_gain, gain_sum, column_sum, group, col0, a.cols);
    if constexpr (CENTRED)
        if (a.d_bias)
            put_column_sums<GROUPS, WIDTH>(a.d_bias, bias_sum, column_sum, group, col0, a.cols);
}

typedef void (*norm_bwd_function)(struct norm_bwd, int);

/* The kernel for rows of `cols`, how many groups of warps a block of it has, and how many blocks
 * an H200 has room for at once: fixed, so that the order of sums depends on the shape alone. */
struct norm_bwd_choice { norm_bwd_function kernel; int groups, blocks; };

template <bool CENTRED, int V, int W, int BLOCKS> static struct norm_bwd_choice norm_bwd_with() {
    return { norm_bwd_warp_kernel<CENTRED, V, W, BLOCKS>, NORM_WARPS / W, 128 * BLOCKS };
}
template <bool CENTRED> static struct norm_bwd_choice choose_norm_bwd(int64_t cols) {
    constexpr int BLOCKS = CENTRED ? 3 : 4; /* two sums instead of one beside four vectors */
    if (cols <= 1 * NORM_COLUMNS) return norm_bwd_with<CENTRED, 1, 1, 6>();
    if (cols <= 3 * NORM_COLUMNS) return norm_bwd_with<CENTRED, 3, 1, 4>();
    if (cols <= 4 * NORM_COLUMNS) return norm_bwd_with<CENTRED, 4, 1, BLOCKS>();
    if (cols <= 8 * NORM_COLUMNS) return norm_bwd_with<CENTRED, 4, 2, BLOCKS>();
    return norm_bwd_with<CENTRED, 4, 4, BLOCKS>();
}

template <bool CENTRED>
static enum status launch_norm_bwd_warps(struct backend *b, int lane, struct norm_bwd a,
                                         const struct tensor *d_gain, const struct tensor *d_bias,
                                         struct err *e) {
    struct norm_bwd_choice choice = choose_norm_bwd<CENTRED>(a.cols);
    int64_t turns = ceil_div(a.rows, (int64_t)choice.groups * choice.blocks);
    int64_t blocks = ceil_div(a.rows, turns * choice.groups);
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, 2 * blocks * a.cols * 4, &partial, e));
    a.d_gain = (float *)partial;
    a.d_bias = d_bias ? a.d_gain + blocks * a.cols : NULL;
    cudaStream_t stream = cuda_lane(b, lane);
    choice.kernel<<<(unsigned)blocks, NORM_WARPS * WARP, 0, stream>>>(a, (int)turns);
    struct column_join join = { { grad_of(d_gain), grad_of(d_bias) }, a.d_gain, blocks, a.cols };
    launch_column_join(join, d_bias ? 2 : 1, stream);
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

/* Rows that no warp can hold. The sums come before dx, which may stand where dy does. */
template <bool CENTRED>
static enum status launch_norm_bwd_blocks(struct backend *b, int lane, const struct norm_bwd &a,
                                          const struct tensor *d_gain, const struct tensor *d_bias,
                                          bool vectors, const char *what, struct err *e) {
    struct norm_gain_term<CENTRED> gain = { a };
    struct value_term bias = { a.dy, a.ld_dy };
    TRY(column_sums(b, lane, d_gain, gain, a.rows, a.cols, vectors, what, e));
    if (d_bias) TRY(column_sums(b, lane, d_bias, bias, a.rows, a.cols, vectors, what, e));
    auto kernel = vectors ? norm_bwd_kernel<CENTRED, 8> : norm_bwd_kernel<CENTRED, 1>;
    kernel<<<(unsigned)a.rows, norm_threads(a.cols), 0, cuda_lane(b, lane)>>>(a);
    return OK;
}

/* As norm_forward. */
template <bool CENTRED>
static enum status norm_backward(struct backend *b, int lane, const struct sink *dx,
                                 const struct tensor *d_gain, const struct tensor *d_bias,
                                 const struct tensor *dy, const struct tensor *x,
                                 const struct tensor *gain, const struct tensor *mean,
                                 const struct tensor *rstd, const struct tensor *residual,
                                 const char *what, struct err *e) {
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
                          (const float *)rstd->data,
                          rows,
                          cols,
                          dy->stride[0],
                          x->stride[0],
                          residual ? residual->stride[0] : 0,
                          sink_amax(dx),
                          NULL,
                          NULL };
    if (vectors && fits_warp(cols))
        TRY(launch_norm_bwd_warps<CENTRED>(b, lane, a, d_gain, d_bias, e));
    else
        TRY(launch_norm_bwd_blocks<CENTRED>(b, lane, a, d_gain, d_bias, vectors, what, e));
    TRY(cuda_launched(what, e));
    return cuda_sink_emit(b, lane, dx, true, e);
}

#endif
