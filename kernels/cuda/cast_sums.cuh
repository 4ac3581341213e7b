/* Values that were just computed into codes and column sums, in one pass: for the gradient of a
 * GEMM with a bias. The sums are those that columns.cuh takes from the stored value, to the bit.
 *
 * In that order (column_order of sum_order.h) a group of rows r % 8 spans 256 rows, two tiles. So a
 * block takes two tiles, one below the other, and its threads keep their sums from one to the next.
 * A tile's values reach the threads that add them through shared memory. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_SUMS_CUH
#define FP8LAB_KERNELS_CUDA_CAST_SUMS_CUH

#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/columns.cuh"

enum { SUMMED = TILE / WARP /* columns that a thread adds; a warp is a group of rows */ };
static_assert((int)COLUMN_GROUPS == (int)TILE_WARPS, "a warp adds each eighth row");
static_assert((int)COLUMN_ROWS == 2 * (int)TILE, "a block adds two tiles");

struct sums_shared {
    struct tile_shared tile;
    uint4 value[TILE][PATCHES];
};

/* Adds this warp's rows of a tile: those with row % 8 == warp, ascending. Before it all threads
 * pass a barrier behind their last call. */
__device__ static inline void add_tile(float (&sum)[SUMMED], const uint4 (&v)[PATCH],
                                       uint4 (&value)[TILE][PATCHES]) {
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (int j = 0; j < PATCH; j++) value[patch_row() + j][patch_col() / PATCH] = v[j];
    __syncthreads();
#pragma unroll
    for (int row = 0; row < TILE; row += COLUMN_GROUPS) {
        uint2 four = ((const uint2 *)value[row + warp])[lane];
        sum[0] += f32_from_bits(four.x << 16);
        sum[1] += f32_from_bits(four.x & 0xFFFF0000u);
        sum[2] += f32_from_bits(four.y << 16);
        sum[3] += f32_from_bits(four.y & 0xFFFF0000u);
    }
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
template <class Source, bool E5M2, enum code_sides SIDES>
__global__ void __launch_bounds__(TILE_THREADS, Source::BLOCKS)
    cast_sums_kernel(struct tile_args a, Source from, float *partial) {
    extern __shared__ uint4 memory[];
    struct sums_shared &s = *(struct sums_shared *)memory;
    uint32_t across = (uint32_t)(a.cols / TILE), down = blockIdx.x / across;
    struct tile_at at = { down * (int64_t)COLUMN_ROWS, blockIdx.x % across * (int64_t)TILE };
    int64_t end = min(at.row0 + COLUMN_ROWS, a.rows), col0 = at.col0 + patch_col();
    uint32_t seen = amax_seen(a.amax);
    float tensor_m = SIDES == SIDES_LINES ? 1.0f : tensor_multiplier<E5M2>(a), sum[SUMMED] = {};
    struct counts n = { 0, 0 };
    uint32_t top = 0;
#pragma unroll 1
    for (int64_t first = at.row0; at.row0 < end; at.row0 += TILE) {
        int64_t row0 = at.row0 + patch_row();
        typename Source::raw raw[PATCH];
        uint4 v[PATCH];
#pragma unroll
        for (int j = 0; j < PATCH; j++) raw[j] = from.load(row0 + j, col0);
        if (loaded_in_vain(a)) return;
        from.make(v, raw, row0, col0);
        struct patch_range r = range_of_made(v);
        top = max(top, r.top);
#pragma unroll
        for (int j = 0; j < PATCH; j++) from.keep(v[j], row0 + j, col0);
        if (at.row0 != first) __syncthreads();
        add_tile(sum, v, s.value);
        emit_tile<E5M2, SIDES, true>(a, at, v, r, s.tile, tensor_m, n);
    }
    join_groups(partial + down * a.cols + at.col0, sum, s.tile);
    warp_amax_above(a.amax, seen, top << 16);
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
    auto kernel = kernel_for(s, a, [](auto e5m2, auto sides) {
        return cast_sums_kernel<Source, e5m2, sides>;
    });
    cudaStream_t stream = cuda_lane(b, lane);
    const int bytes = sizeof(struct sums_shared);
    CUDA_TRY(e, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<(unsigned)(blocks * (a.cols / TILE)), TILE_THREADS, bytes, stream>>>(
        a, from, (float *)partial);
    TRY(cuda_launched(what, e));
    struct column_join join = { { grad_of(s->sums) }, (const float *)partial, blocks, a.cols };
    launch_column_join(join, 1, stream);
    return cuda_launched(what, e);
}

#endif
