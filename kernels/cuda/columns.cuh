/* Sums over the rows of a matrix, for gain and bias gradients, in two stages, in the order of
 * kernels/sum_order.h. First blocks of rows give f32 partial sums, then these are added. No
 * atomics, so the bits depend on the shape alone.
 *
 * Bytes moved: one read of the term's inputs. */
#ifndef FP8LAB_KERNELS_CUDA_COLUMNS_CUH
#define FP8LAB_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/sum_order.h"

enum {
    COLUMN_LANES = 32, /* threads along the columns, N columns each */
    ROW_LANES = COLUMN_GROUPS, /* threads along the rows */
    ROW_DEPTH = 4,     /* rows of a thread in flight */
    COLUMN_BLOCKS = 4  /* at least, per multiprocessor. Without this bound the compiler saves
                          registers for eight, and has one row in flight instead of ROW_DEPTH */
};

/* Adds a row's term; returns the larger of `top` and its |bits|. */
template <int N>
__device__ static inline uint32_t add_term(float (&sum)[N], const float (&x)[N], uint32_t top) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        sum[i] += x[i];
        top = max(top, __float_as_uint(x[i]) & 0x7FFFFFFFu);
    }
    return top;
}

/* Grid: x over groups of 32 N columns, y over blocks of rows. term(row, col, out[N]) is called once
 * for each place, so it may also store its result. amax: of the terms, as a sink's, or NULL. */
template <int N, class Term>
__global__ void __launch_bounds__(COLUMN_LANES *ROW_LANES, COLUMN_BLOCKS)
    column_partial_kernel(Term term, float *partial, int64_t rows, int64_t cols, uint32_t *amax) {
    __shared__ float shared[ROW_LANES][COLUMN_LANES * N];
    int64_t col = ((int64_t)blockIdx.x * COLUMN_LANES + threadIdx.x) * N;
    int64_t row0 = (int64_t)blockIdx.y * COLUMN_ROWS;
    int64_t end = row0 + COLUMN_ROWS < rows ? row0 + COLUMN_ROWS : rows;
    float sum[N];
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = 0.0f;
    int64_t row = col < cols ? row0 + threadIdx.y : end;
    for (; row + (ROW_DEPTH - 1) * ROW_LANES < end; row += ROW_DEPTH * ROW_LANES) {
        float x[ROW_DEPTH][N];
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++) term(row + d * ROW_LANES, col, x[d]);
#pragma unroll
        for (int d = 0; d < ROW_DEPTH; d++) top = add_term(sum, x[d], top);
    }
    for (; row < end; row += ROW_LANES) {
        float x[N];
        term(row, col, x);
        top = add_term(sum, x, top);
    }
    block_amax_into(amax, top);
#pragma unroll
    for (int i = 0; i < N; i++) shared[threadIdx.y][threadIdx.x * N + i] = sum[i];
    __syncthreads();
    int flat = threadIdx.y * COLUMN_LANES + threadIdx.x;
    for (int i = flat; i < COLUMN_LANES * N; i += ROW_LANES * COLUMN_LANES) {
        int64_t at = (int64_t)blockIdx.x * COLUMN_LANES * N + i;
        if (at >= cols) continue;
        float total = 0.0f;
#pragma unroll
        for (int r = 0; r < ROW_LANES; r++) total += shared[r][i];
        partial[(int64_t)blockIdx.y * cols + at] = total;
    }
}

/* out[c] += sum of partial[.][c], for up to three vectors, whose partial sums follow one another.
 * 32 threads share a column, each with every 32nd row; their sums are added in ascending order.
 * Grid: x over columns, y over vectors; block 32 x 32. A template, so that several files can
 * include it. */
struct column_join {
    struct grad_view out[3];
    const float *partial; /* [vectors][blocks][cols] */
    int64_t blocks, cols;
};

template <int UNUSED> __global__ void column_join_kernel(struct column_join j) {
    __shared__ float shared[WARP][WARP];
    const float *partial = j.partial + blockIdx.y * j.blocks * j.cols;
    int64_t col = (int64_t)blockIdx.x * WARP + threadIdx.x;
    float total = 0.0f;
    if (col < j.cols)
        for (int64_t i = threadIdx.y; i < j.blocks; i += WARP) total += partial[i * j.cols + col];
    shared[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y || col >= j.cols) return;
    for (int i = 1; i < WARP; i++) total += shared[i][threadIdx.x];
    const struct grad_view out = blockIdx.y == 0   ? j.out[0]
                                 : blockIdx.y == 1 ? j.out[1]
                                                   : j.out[2];
    grad_store(out, col, grad_load(out, col) + total);
}

static inline void launch_column_join(const struct column_join &j, unsigned vectors,
                                      cudaStream_t stream) {
    dim3 grid((unsigned)ceil_div(j.cols, WARP), vectors), threads(WARP, WARP);
    column_join_kernel<0><<<grid, threads, 0, stream>>>(j);
}

/* A term: the values themselves. */
struct value_term {
    const bf16_bits *x;
    int64_t ld;
    template <int N> __device__ void operator()(int64_t row, int64_t col, float (&out)[N]) const {
        load_bf16(out, x + row * ld + col);
    }
};

/* out [cols] += column sums of term over rows. `vectors`: the term can be read 8 columns at a
 * time. amax: of the terms, or NULL. */
template <class Term>
static enum status column_sums(struct backend *b, int lane, const struct tensor *out, Term term,
                               int64_t rows, int64_t cols, bool vectors, uint32_t *amax,
                               const char *what, struct err *e) {
    if (rows == 0 || cols == 0) return OK;
    int64_t blocks = ceil_div(rows, COLUMN_ROWS);
    if (blocks > 65535) return FAIL(e, ERR_ARG, "%s: %lld rows", what, (long long)rows);
    void *partial;
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, blocks * cols * 4, &partial, e));
    dim3 threads(COLUMN_LANES, ROW_LANES);
    if (vectors) {
        dim3 grid((unsigned)ceil_div(cols, COLUMN_LANES * 8), (unsigned)blocks);
        column_partial_kernel<8><<<grid, threads, 0, cuda_lane(b, lane)>>>(
            term, (float *)partial, rows, cols, amax);
    } else {
        dim3 grid((unsigned)ceil_div(cols, COLUMN_LANES), (unsigned)blocks);
        column_partial_kernel<1><<<grid, threads, 0, cuda_lane(b, lane)>>>(
            term, (float *)partial, rows, cols, amax);
    }
    TRY(cuda_launched(what, e));
    struct column_join join = { { grad_of(out) }, (const float *)partial, blocks, cols };
    launch_column_join(join, 1, cuda_lane(b, lane));
    return cuda_launched(what, e);
}

#endif
