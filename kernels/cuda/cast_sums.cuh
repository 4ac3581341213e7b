/* Values that were just computed into codes and column sums, in one pass: for the gradient of a
 * GEMM with a bias. The sums are those that columns.cuh takes from the stored value, to the bit.
 *
 * In that order (column_order of sum_order.h) a group of rows r % 8 spans 256 rows, two tiles. So a
 * block takes two tiles, one below the other, and its threads keep their sums from one to the next.
 * A tile's values reach the threads that add them through the memory of the transposed codes, which
 * is free until the tile's end. It holds half of a tile. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_SUMS_CUH
#define FP8LAB_KERNELS_CUDA_CAST_SUMS_CUH

#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/columns.cuh"

enum {
    SUMMED = TILE / WARP,    /* columns that a thread adds; a warp is a group of rows */
    STAGED = TILE / 2        /* rows of a tile at a time */
};
static_assert((int)COLUMN_GROUPS == (int)TILE_WARPS, "a warp adds each eighth row");
static_assert((int)COLUMN_ROWS == 2 * (int)TILE, "a block adds two tiles");

/* Adds this warp's rows of a tile: those with row % 8 == warp, ascending. */
__device__ static inline void add_tile(float (&sum)[SUMMED], const uint4 (&v)[PATCH],
                                       struct tile_shared &s) {
    static_assert(sizeof s.code == STAGED * TILE * sizeof(bf16_bits), "half of a tile fits");
    bf16_bits (*staged)[TILE] = (bf16_bits (*)[TILE])s.code;
    int warp = threadIdx.x / WARP, col = threadIdx.x % WARP * SUMMED;
#pragma unroll
    for (int row0 = 0; row0 < TILE; row0 += STAGED) {
        __syncthreads(); /* the last read of s.code */
        if (patch_row() / STAGED * STAGED == row0)
#pragma unroll
            for (int j = 0; j < PATCH; j++)
                *(uint4 *)&staged[patch_row() - row0 + j][patch_col()] = v[j];
        __syncthreads();
#pragma unroll
        for (int row = 0; row < STAGED; row += COLUMN_GROUPS) {
            uint2 four = *(const uint2 *)&staged[row + warp][col];
            sum[0] += f32_from_bits(four.x << 16);
            sum[1] += f32_from_bits(four.x & 0xFFFF0000u);
            sum[2] += f32_from_bits(four.y << 16);
            sum[3] += f32_from_bits(four.y & 0xFFFF0000u);
        }
    }
    __syncthreads(); /* the codes come next */
}

/* Adds the groups of rows, ascending: this block's part of its 128 columns. */
__device__ static inline void join_groups(float *partial, const float (&sum)[SUMMED],
                                          struct tile_shared &s) {
    float (*group)[TILE] = (float (*)[TILE])s.code;
    __syncthreads();
    *(float4 *)&group[threadIdx.x / WARP][threadIdx.x % WARP * SUMMED] =
        make_float4(sum[0], sum[1], sum[2], sum[3]);
    __syncthreads();
    if (threadIdx.x >= TILE) return;
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < COLUMN_GROUPS; i++) total += group[i][threadIdx.x];
    partial[threadIdx.x] = total;
}

/* Grid: one block for each two tiles of a column of tiles; the last may have one. A Source is one
 * of cast_tile_kernel with MADE. partial: [blocks of rows][cols]. */
template <class Source, bool E5M2, bool SAME>
__global__ void __launch_bounds__(TILE_THREADS, Source::BLOCKS)
    cast_sums_kernel(struct tile_args a, Source from, float *partial) {
    __shared__ struct tile_shared s;
    uint32_t across = (uint32_t)(a.cols / TILE), down = blockIdx.x / across;
    struct tile_at at = { down * (int64_t)COLUMN_ROWS, blockIdx.x % across * (int64_t)TILE };
    int64_t end = min(at.row0 + COLUMN_ROWS, a.rows), col0 = at.col0 + patch_col();
    float tensor_m = tensor_multiplier<E5M2>(a), sum[SUMMED] = {};
    struct counts n = { 0, 0 };
    uint32_t top = 0;
#pragma unroll 1
    for (; at.row0 < end; at.row0 += TILE) {
        int64_t row0 = at.row0 + patch_row();
        typename Source::raw raw[PATCH];
        uint4 v[PATCH];
#pragma unroll
        for (int j = 0; j < PATCH; j++) raw[j] = from.load(row0 + j, col0);
#pragma unroll
        for (int j = 0; j < PATCH; j++) v[j] = from.make(raw[j], row0 + j, col0);
        struct patch_range r = range_of_made(v);
        top = max(top, r.top);
#pragma unroll
        for (int j = 0; j < PATCH; j++) from.keep(v[j], row0 + j, col0);
        add_tile(sum, v, s);
        emit_tile<E5M2, SAME, true>(a, at, v, r, s, tensor_m, n);
    }
    join_groups(partial + down * a.cols + at.col0, sum, s);
    warp_amax_into(a.amax, top << 16);
    if (a.stats) add_counts(a, n);
}

/* Codes of whole tiles, and s->sums. */
template <class Source>
static enum status cast_tiles_summed(struct backend *b, int lane, const struct sink *s,
                                     const struct tile_args &a, const Source &from,
                                     const char *what, struct err *e) {
    unsigned tiles;
    void *partial;
    TRY(tile_count(s, &a, &tiles, e));
    if (tiles == 0) return OK;
    int64_t blocks = ceil_div(a.rows, COLUMN_ROWS);
    TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, blocks * a.cols * 4, &partial, e));
    bool e5m2 = codes_made(s)->dtype == DTYPE_E5M2, same = codes_are_same(s, a);
    auto kernel = same ? cast_sums_kernel<Source, false, true>
                       : cast_sums_kernel<Source, false, false>;
    if (e5m2)
        kernel = same ? cast_sums_kernel<Source, true, true>
                      : cast_sums_kernel<Source, true, false>;
    cudaStream_t stream = cuda_lane(b, lane);
    kernel<<<(unsigned)(blocks * (a.cols / TILE)), TILE_THREADS, 0, stream>>>(a, from,
                                                                             (float *)partial);
    TRY(cuda_launched(what, e));
    struct column_join join = { { grad_of(s->sums) }, (const float *)partial, blocks, a.cols };
    launch_column_join(join, 1, stream);
    return cuda_launched(what, e);
}

#endif
