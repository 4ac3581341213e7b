/* What the two norms share. A row of up to 4096 columns is one warp's, held in its registers, so
 * that it is read once; longer or unaligned rows are a block's, read twice. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_CUH
#define FP8LAB_KERNELS_CUDA_NORM_CUH

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
/* The row of this warp. */
__device__ static inline int64_t warp_row() {
    return (int64_t)blockIdx.x * NORM_WARPS + threadIdx.x / WARP;
}

/* Runs `launch` with V the fewest vectors that hold a row that fits_warp. */
#define WITH_VECTORS(cols, V, launch)                                         \
    do {                                                                      \
        if ((cols) <= 1 * NORM_COLUMNS) { constexpr int V = 1; launch; }      \
        else if ((cols) <= 2 * NORM_COLUMNS) { constexpr int V = 2; launch; } \
        else if ((cols) <= 4 * NORM_COLUMNS) { constexpr int V = 4; launch; } \
        else if ((cols) <= 8 * NORM_COLUMNS) { constexpr int V = 8; launch; } \
        else { constexpr int V = 16; launch; }                                \
    } while (0)

static inline bool fits_warp(int64_t cols) { return cols <= 16 * NORM_COLUMNS; }
static inline unsigned warp_blocks(int64_t rows) { return (unsigned)ceil_div(rows, NORM_WARPS); }
static inline int norm_threads(int64_t cols) {
    return (int)max_i64(WARP, min_i64(256, round_up(ceil_div(cols, 8), WARP)));
}

#endif
