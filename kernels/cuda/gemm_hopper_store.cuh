/* The end of a tile of gemm_hopper.cu: addends, bias, rounding, and the way to memory. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_HOPPER_STORE_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_HOPPER_STORE_CUH

#include "kernels/cuda/gemm_hopper_tile.cuh"

/* Of the COLS / 8 groups of eight columns, those whose addends are staged; the others come from the
 * L2 cache. */
template <typename OUT> constexpr int staged_groups = LINES * LINE / 8 / (int)sizeof(OUT);
/* Whether a whole tile of outputs is staged, for the copy engine. */
template <typename OUT> constexpr bool staged_out = staged_groups<OUT> == COLS / 8;

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A thread's outputs of a tile: of rows g and g + 8, columns 8 j + 2 (lane % 4) and the next. */
typedef float sums[COLS / 8][4];

struct pair { float low, high; };

__device__ static inline struct pair pair_at(const float *from) {
    float2 v = *(const float2 *)from;
    return { v.x, v.y };
}
__device__ static inline struct pair pair_at(const bf16_bits *from) {
    uint32_t v = *(const uint32_t *)from;
    return { bf16_low(v), bf16_high(v) };
}

/* Adds the bias from this thread's first column on; `left` columns exist. All of it is loaded
 * before the first use. */
template <typename BIAS>
__device__ static inline void add_bias(const BIAS *from, int left, sums &total) {
    struct pair bias[COLS / 8] = {};
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
        if (j * 8 < left) bias[j] = pair_at(from + j * 8);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
#pragma unroll
        for (int h = 0; h < 4; h += 2) {
            total[j][h] += bias[j].low;
            total[j][h + 1] += bias[j].high;
        }
}

/* Where a pair of group j is staged, in the swizzle of the copy; `line` is of the row's first box,
 * and row % 8 = lane / 4. */
template <int BOX> __device__ static inline uint32_t staged_at(uint32_t line, bf16_bits, int j) {
    int lane = threadIdx.x % WARP, chunk = j % 8 ^ lane / 4;
    return line + j / 8 * BOX + chunk * 16 + lane % 4 * 4;
}
template <int BOX> __device__ static inline uint32_t staged_at(uint32_t line, float, int j) {
    int lane = threadIdx.x % WARP, chunk = (j % 4 * 2 + lane % 4 / 2) ^ lane / 4;
    return line + j / 4 * BOX + chunk * 16 + lane % 2 * 8;
}
__device__ static inline struct pair staged_pair(uint32_t at, bf16_bits) {
    uint32_t v = __float_as_uint(load_shared(at));
    return { bf16_low(v), bf16_high(v) };
}
__device__ static inline struct pair staged_pair(uint32_t at, float) {
    float2 v = load_shared2(at);
    return { v.x, v.y };
}

/* Addends that are not staged, of rows g and g + 8; a group more, since no array is empty. */
template <typename OUT> struct rest { struct pair of[2][COLS / 8 - staged_groups<OUT> + 1]; };

template <typename OUT>
__device__ static inline void load_rest(const struct product &g, int64_t row, int col,
                                        struct rest<OUT> *rest) {
    constexpr int STAGED = staged_groups<OUT>;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = STAGED; j < COLS / 8; j++) {
            int64_t r = row + 8 * h;
            bool in = r < g.rows && col + j * 8 < g.cols;
            rest->of[h][j - STAGED] = {};
            if (in)
                rest->of[h][j - STAGED] = pair_at((const OUT *)g.addend + r * g.ld + col + j * 8);
        }
}

/* Adds the addends to this thread's totals, rows `row` and `row` + 8 from column `col` on. `line`
 * is of the first row's staged addends. */
template <typename WAY, typename OUT>
__device__ static inline void add_addends(const struct product &g, const struct places<WAY> &s,
                                          sums &total, int64_t row, int col, uint32_t line,
                                          int parity) {
    constexpr int STAGED = staged_groups<OUT>;
    struct rest<OUT> rest;
    load_rest<OUT>(g, row, col, &rest); /* these take longer */
    barrier_wait(s.addends_full(), parity);
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            uint32_t at = staged_at<layout<WAY>::BOX>(line + h * 8 * LINE, OUT(), j);
            struct pair more = j < STAGED ? staged_pair(at, OUT())
                                          : rest.of[h][j < STAGED ? 0 : j - STAGED];
            total[j][2 * h] += more.low;
            total[j][2 * h + 1] += more.high;
        }
}

/* One row of f32 outputs, to memory. */
__device__ static inline void put_row(float *out, const sums &total, int first, int cols, bool in) {
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
        if (in && j * 8 < cols)
            *(float2 *)(out + j * 8 + lane * 2) = make_float2(f32_canonical(total[j][first]),
                                                              f32_canonical(total[j][first + 1]));
}

/* One row of BF16 outputs, in pairs. The conversion makes any NaN 0x7FFF, the largest signed half;
 * so one maximum tells whether some have to become 0x7FC0. */
__device__ static inline void pack_row(uint32_t (&out)[COLS / 8], const sums &total, int first) {
    uint32_t most = 0x80008000u;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(out[j]) : "f"(total[j][first + 1]), "f"(total[j][first]));
        most = __vmaxs2(most, out[j]);
    }
    if ((most & 0xFFFFu) != 0x7FFFu && most >> 16 != 0x7FFFu) return;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
        out[j] = bf16x2_encode(total[j][first], total[j][first + 1]);
}

/* A warp stages its 16 rows of BF16 outputs, and the copy engine stores them while the next tile is
 * multiplied. Nobody else reads or writes this place. */
template <typename WAY>
__device__ static inline void send_rows(const struct product &g, const struct maps &maps,
                                        const sums &total, struct tile t, int warp_row,
                                        uint32_t line) {
    constexpr int BOX = layout<WAY>::BOX;
    int lane = threadIdx.x % WARP;
    if (!g.addend) { /* else the addends came here after the copies had read this place */
        if (lane == 0) stores_read();
        __syncwarp();
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t row[COLS / 8];
        pack_row(row, total, 2 * h);
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
            store_shared(staged_at<BOX>(line + h * 8 * LINE, bf16_bits(), j),
                         __uint_as_float(row[j]));
    }
    stores_ready();
    __syncwarp();
    if (lane != 0) return;
#pragma unroll
    for (int i = 0; i < LINES; i++)
        store_codes<WAY::KEPT>(maps.out, line + i * BOX, t.col * 2 + i * LINE, t.row + warp_row);
    stores_commit();
}

template <typename WAY, typename OUT>
__device__ static inline void store_tile(const struct product &g, const struct maps &maps,
                                         const struct places<WAY> &s, sums &total, struct tile t,
                                         int parity) {
    int lane = threadIdx.x % WARP;
    int warp_row = (threadIdx.x / WARPGROUP - 1) * 64 + threadIdx.x / WARP % 4 * STORED_ROWS;
    int row = t.row + warp_row + lane / 4, col = t.col + lane % 4 * 2;
    uint32_t line = s.staged() + (warp_row + lane / 4) * LINE;
    if (g.addend) add_addends<WAY, OUT>(g, s, total, row, col, line, parity);
    if (g.bias && g.bias_bf16) add_bias((const bf16_bits *)g.bias + col, g.cols - col, total);
    else if (g.bias) add_bias((const float *)g.bias + col, g.cols - col, total);
    if constexpr (staged_out<OUT>) {
        send_rows<WAY>(g, maps, total, t, warp_row, line);
    } else {
#pragma unroll
        for (int h = 0; h < 2; h++)
            put_row((OUT *)g.out + (int64_t)(row + 8 * h) * g.ld + t.col, total, 2 * h,
                    g.cols - t.col, row + 8 * h < g.rows);
    }
}

#endif

#endif
