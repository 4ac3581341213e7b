/* Forward of both norms; norm.cuh has the shared part. A warp takes a row, reads it once and holds
 * it. For codes the row is read twice: for the statistics (and the amax, if the scale needs it),
 * and for the codes. That moves 6 bytes an element, instead of 8 by storing the value first. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_FWD_CUH
#define FP8LAB_KERNELS_CUDA_NORM_FWD_CUH

#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/norm.cuh"

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
    if (!CENTRED || !bias) return; /* only LayerNorm has a bias */
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

/* One warp a row. The next row of a short one is in flight while the warp works; for long rows more
 * warps are faster. */
template <bool CENTRED, int V, int BLOCKS>
__global__ void __launch_bounds__(NORM_WARPS *WARP, BLOCKS)
norm_fwd_warp_kernel(struct norm_fwd a) {
    constexpr bool AHEAD = V <= 4;
    int64_t row = (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / WARP;
    int64_t step = (int64_t)gridDim.x * NORM_WARPS;
    uint4 held[V], next[V];
    uint32_t top = 0;
    if (AHEAD && row < a.rows) load_row(next, a.x + row * a.ld, a.cols);
    for (; row < a.rows; row += step) {
        if constexpr (AHEAD) {
#pragma unroll
            for (int i = 0; i < V; i++) held[i] = next[i];
            if (row + step < a.rows) load_row(next, a.x + (row + step) * a.ld, a.cols);
        } else {
            load_row(held, a.x + row * a.ld, a.cols);
        }
        struct row_stats s = stats_of<CENTRED>(held, a.cols, a.eps);
        if (threadIdx.x % WARP == 0) store_stats<CENTRED>(a, row, s);
#pragma unroll
        for (int i = 0; i < V; i++) {
            int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
            if (!(a.y || a.amax) || c >= a.cols) continue;
            float v[8];
            bf16x8_decode(v, held[i]);
            normalise<CENTRED>(v, a.gain + c, a.bias ? a.bias + c : NULL, s);
            uint4 y = a.y ? bf16x8_encode(v) : bf16x8_pack(v);
            if (a.y) store_words(a.y + row * a.cols + c, y);
            top = __vmaxu2(top, bf16x8_largest(y));
        }
    }
    top = max(top & 0xFFFFu, top >> 16);
    block_amax_into(a.amax, top > 0x7F80u ? 0x7FC00000u : top << 16); /* NaN is canonical */
}

/* y for the tiles of cast_tile_kernel, from known statistics. */
template <bool CENTRED> struct norm_values {
    enum { MADE = 1, BLOCKS = 3 };
    struct raw { uint4 x; };
    struct norm_fwd a; /* y: NULL unless the value is kept */
    __device__ struct raw load(int64_t row, int64_t col) const {
        return { *(const uint4 *)(a.x + row * a.ld + col) };
    }
    __device__ void make(uint4 (&v)[PATCH], const struct raw (&r)[PATCH], int64_t row,
                         int64_t col) const {
#pragma unroll
        for (int j = 0; j < PATCH; j++) {
            struct row_stats s = { CENTRED ? __ldg(a.mean + row + j) : 0.0f,
                                   __ldg(a.rstd + row + j) };
            float y[8];
            bf16x8_decode(y, r[j].x);
            normalise<CENTRED>(y, a.gain + col, a.bias ? a.bias + col : NULL, s);
            v[j] = bf16x8_pack(y);
        }
    }
    __device__ void keep(uint4 v, int64_t row, int64_t col) const {
        if (a.y) store_words(a.y + row * a.cols + col, v);
    }
};

typedef void (*norm_fwd_function)(struct norm_fwd);

/* Blocks per multiprocessor, limited by registers. */
struct norm_fwd_choice { norm_fwd_function kernel; int blocks; };

template <bool CENTRED, int V, int BLOCKS> static struct norm_fwd_choice norm_fwd_with() {
    return { norm_fwd_warp_kernel<CENTRED, V, BLOCKS>, BLOCKS };
}
template <bool CENTRED> static struct norm_fwd_choice choose_norm_fwd(int64_t cols) {
    if (cols <= 1 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 1, 12>();
    if (cols <= 3 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 3, 8>();
    if (cols <= 4 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 4, 8>();
    if (cols <= 8 * NORM_COLUMNS) return norm_fwd_with<CENTRED, 8, 8>();
    return norm_fwd_with<CENTRED, 16, 5>();
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
    kernel<<<(unsigned)a.rows, norm_block_lanes(a.cols), 0, stream>>>(a);
}

/* Called with checked arguments. mean and bias are NULL if rows are not centred. */
template <bool CENTRED>
static enum status norm_forward(struct backend *b, int lane, const struct norm_fwd_args *args,
                                const char *what, struct err *e) {
    const struct tensor *x = args->x, *gain = args->gain, *bias = args->bias, *mean = args->mean;
    const struct sink *y = args->y;
    int64_t rows = tensor_rows(x), cols = tensor_cols(x);
    if (rows == 0) return OK;
    bool vectors = tensor_is_vectors(x) && rows_are_vectors(gain->data, cols, cols) &&
                   (!bias || rows_are_vectors(bias->data, cols, cols)) &&
                   rows_are_vectors(y->value->data, cols, cols);
    bool fused = vectors && cast_fuses(y), repeated = vectors && cast_repeats(y);
    struct norm_values<CENTRED> from = { {
        y->keep_value ? sink_value_of(y) : NULL, mean ? (float *)mean->data : NULL,
        (float *)args->rstd->data, (const bf16_bits *)x->data, (const bf16_bits *)gain->data,
        bias ? (const bf16_bits *)bias->data : NULL, rows, cols, x->stride[0], args->eps, NULL
    } };
    struct norm_fwd first = from.a;
    first.y = fused || repeated ? NULL : sink_value_of(y);
    first.amax = fused ? NULL : sink_amax(y); /* if fused, the pass over tiles takes it */
    launch_norm_fwd<CENTRED>(b, lane, first, vectors);
    TRY(cuda_launched(what, e));
    if (!fused && !repeated) return cuda_sink_emit(b, lane, y, true, e);
    struct tile_args tiles = tile_args_of(y, fused ? sink_amax(y) : NULL);
    tiles.backwards = true; /* the last rows of x may still be in the L2 cache */
    return cast_tiles<true>(b, lane, y, tiles, from, e);
}

#endif
