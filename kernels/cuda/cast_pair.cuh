/* Two tiles of 128 x 128 values at a time into codes: for a producer whose inputs give a tile in
 * each half of the columns (SwiGLU's backward). cast_tile.cuh does the work for each tile.
 *
 * The inputs of both tiles fill the registers; the values of both, beside the codes of one, would
 * spill. So the second tile's values wait in shared memory, each where only its thread reads it. */
#ifndef FP8LAB_KERNELS_CUDA_CAST_PAIR_CUH
#define FP8LAB_KERNELS_CUDA_CAST_PAIR_CUH

#include "kernels/cuda/cast_tile.cuh"

struct pair_shared {
    struct tile_shared tile;
    uint4 second[PATCH][TILE_THREADS]; /* rows of a thread's patch */
};

/* Grid: one block a pair of tiles. A Source is one of cast_tile_kernel, but
 *   make(v, raw)           makes eight values of each tile, by bf16x8_pack
 *   keep(v, row, col)      has columns of the whole tensor */
template <class Source, bool E5M2, enum code_sides SIDES>
__global__ void __launch_bounds__(TILE_THREADS, Source::BLOCKS)
    cast_pair_kernel(struct tile_args a, Source from) {
    extern __shared__ uint4 memory[];
    struct pair_shared &s = *(struct pair_shared *)memory;
    struct tile_at at = tile_of(a, a.cols / 2);
    int64_t row0 = at.row0 + patch_row(), col0 = at.col0 + patch_col();
    typename Source::raw raw[PATCH];
    uint4 v[PATCH];
#pragma unroll
    for (int j = 0; j < PATCH; j++) raw[j] = from.load(row0 + j, col0);
    if (loaded_in_vain(a)) return;
    uint32_t seen = amax_seen(a.amax);
    float tensor_m = SIDES == SIDES_LINES ? 1.0f : tensor_multiplier<E5M2>(a);
#pragma unroll
    for (int j = 0; j < PATCH; j++) {
        uint4 made[2];
        from.make(made, raw[j]);
        v[j] = made[0];
        s.second[j][threadIdx.x] = made[1];
    }
    struct counts n = { 0, 0 };
    uint32_t top = 0;
#pragma unroll 1 /* one copy of the code: two would not fit into the instruction cache */
    for (int t = 0;; t++) {
        struct patch_range r = range_of_made(v);
        top = max(top, r.top);
#pragma unroll
        for (int j = 0; j < PATCH; j++) from.keep(v[j], row0 + j, at.col0 + patch_col());
        emit_tile<E5M2, SIDES, true>(a, at, v, r, s.tile, tensor_m, n);
        if (t == 1) break;
        if (SIDES != SIDES_LINES && !a.line_maxima && !a.square_maxima)
            __syncthreads(); /* all codes have been read */
        at.col0 += a.cols / 2;
#pragma unroll
        for (int j = 0; j < PATCH; j++) v[j] = s.second[j][threadIdx.x];
    }
    warp_amax_above(a.amax, seen, top << 16);
    if (a.stats) add_counts(a, n);
}

/* Codes of two halves of whole tiles each. */
template <class Source>
static enum status cast_pairs(struct backend *b, int lane, const struct sink *s,
                              const struct tile_args &a, const Source &from, struct err *e) {
    unsigned tiles;
    TRY(tile_count(s, &a, &tiles, e));
    if (tiles == 0) return OK;
    auto kernel = kernel_for(s, a, [](auto e5m2, auto sides) {
        return cast_pair_kernel<Source, e5m2, sides>;
    });
    const int bytes = sizeof(struct pair_shared);
    CUDA_TRY(e, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    kernel<<<tiles / 2, TILE_THREADS, bytes, cuda_lane(b, lane)>>>(a, from);
    return cuda_launched("quantise", e);
}

#endif
