/* RMSNorm and LayerNorm share all their code (norm_fwd.cuh, norm_bwd.cuh). Only LayerNorm centres
 * rows: CENTRED.
 *
 * One warp takes a row of up to 4096 columns (several warps in backward) and holds it in registers,
 * so that it is read once. A block takes longer or unaligned rows, and reads them twice, in
 * backward a third time. Bound by memory: forward 4 bytes an element, backward 8. */
#ifndef FP8LAB_KERNELS_CUDA_NORM_CUH
#define FP8LAB_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/sum_order.h"

enum { NORM_WARPS = NORM_BLOCK_WARPS, NORM_COLUMNS = NORM_WARP_COLUMNS };

/* V vectors of eight a lane: vector i is at column (32 i + lane) * 8. Columns beyond the row are
 * +0. */
template <int V>
__device__ static inline void load_row(uint4 (&v)[V], const bf16_bits *row, int64_t cols) {
#pragma unroll
    for (int i = 0; i < V; i++) {
        int64_t c = (i * WARP + threadIdx.x % WARP) * 8;
        v[i] = c < cols ? *(const uint4 *)(row + c) : make_uint4(0, 0, 0, 0);
    }
}

/* No kernel here writes the gain, bias and statistics that it reads, so the compiler may move their
 * loads. */
template <int N>
__device__ static inline void load_constant(float (&out)[N], const bf16_bits *x) {
    if constexpr (N == 8) bf16x8_decode(out, __ldg((const uint4 *)x));
    else
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = bf16_decode(__ldg(x + i));
}

static inline bool fits_warp(int64_t cols) { return cols <= NORM_ROW_MAX; }

struct row_stats { float mean, r; }; /* mean is 0 if rows are not centred */

template <bool CENTRED> __device__ static inline float normal_of(float x, struct row_stats s) {
    return CENTRED ? (x - s.mean) * s.r : x * s.r;
}

#endif
