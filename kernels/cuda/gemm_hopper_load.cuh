/* What the loading warps of gemm_hopper.cu do. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_HOPPER_LOAD_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_HOPPER_LOAD_CUH

#include "kernels/cuda/gemm_hopper_tile.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The staged addends of a tile. */
template <typename WAY, typename OUT>
__device__ static void request_addends(const struct maps &maps, const struct places<WAY> &s,
                                       struct tile t, int parity) {
    barrier_wait(s.addends_empty(), parity);
    barrier_expect(s.addends_full(), LINES * layout<WAY>::BOX);
#pragma unroll
    for (int i = 0; i < LINES; i++)
        copy_codes(s.staged() + i * layout<WAY>::BOX, maps.addends, s.addends_full(),
                   t.col * (int)sizeof(OUT) + i * LINE, t.row);
}

/* One thread requests codes and addends. Addends wait until the tile before is stored, which the
 * workers say after their first block. They are requested behind so many blocks that codes do not
 * wait meanwhile. */
template <typename WAY, typename OUT>
__device__ static void request(const struct product &g, const struct maps &maps,
                               const struct places<WAY> &s) {
    typedef layout<WAY> at;
    int parity = 1, addends_parity = 0, part = (int)cluster_rank() * SHARED_ROWS, cols = -1;
    int addends_behind = min(WAY::KEPT ? WAY::STAGES : 2 * WAY::STAGES - 1, g.blocks - 1);
    for (walk<WAY::KEPT> w(g); w.going(g); w.step(g), addends_parity ^= 1) {
        struct tile t = w.tile(g);
        for (int k = 0; k < g.blocks; k += WAY::GROUP, parity = next_parity<WAY>(parity)) {
#pragma unroll
            for (int i = 0; i < WAY::GROUP; i++) {
                uint32_t full = s.full(i % WAY::STAGES);
                barrier_wait(s.empty(i % WAY::STAGES), parity_of<WAY>(parity, i));
                if (!WAY::KEPT && k + i >= g.blocks) {
                    barrier_arrive(full);
                    continue;
                }
                /* Who has freed this stage no longer reads this block of the columns before. */
                bool new_cols = !WAY::KEPT || t.col != cols;
                barrier_expect(full, at::ROW_CODES + (new_cols ? at::COL_CODES : 0));
                copy_codes_to_all<CLUSTER>(s.row_codes(i % WAY::STAGES) + part * BLOCK, maps.rows,
                                           full, (k + i) * BLOCK, t.row + part);
                if (new_cols)
                    copy_codes(s.col_codes(i), maps.cols, full, (k + i) * BLOCK, t.col);
                if (g.addend && k + i == addends_behind)
                    request_addends<WAY, OUT>(maps, s, t, addends_parity);
            }
        }
        cols = t.col;
    }
}

/* A group's factors of one row, from block k on; 0 after the last block. */
template <int GROUP> struct group_factors { float of[GROUP]; };

template <int GROUP>
__device__ static inline struct group_factors<GROUP> load_row(const float *row, int blocks, int k) {
    struct group_factors<GROUP> v;
    if (GROUP == 4 && blocks % 4 == 0) {
        float4 four = *(const float4 *)(row + k);
        v.of[0] = four.x, v.of[1] = four.y, v.of[2] = four.z, v.of[3] = four.w;
        return v;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) v.of[i] = k + i < blocks ? row[k + i] : 0.0f;
    return v;
}
/* Stores them, `apart` bytes from one another. */
template <int GROUP>
__device__ static inline void put_factors(uint32_t to, int apart,
                                          const struct group_factors<GROUP> &v) {
#pragma unroll
    for (int i = 0; i < GROUP; i++) store_shared(to + i * apart, v.of[i]);
}

/* Prefetches the addends that are not staged into the L2 cache. */
template <typename OUT>
__device__ static void prefetch(const struct product &g, int id, struct tile t) {
    constexpr int WIDTH = LINE / (int)sizeof(OUT), REST = COLS / WIDTH - LINES;
    for (int i = id; i < ROWS * REST; i += LOADERS) {
        int r = t.row + i % ROWS, c = t.col + (LINES + i / ROWS) * WIDTH;
        if (r < g.rows && c < g.cols)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const OUT *)g.addend + r * g.ld + c));
    }
}

/* Three warps load factors. If all columns share one factor, it is multiplied into the rows'
 * here. */
template <typename WAY, bool BY_COLUMN, typename OUT>
__device__ static void load_factors(const struct product &g, const struct places<WAY> &s) {
    typedef layout<WAY> at;
    constexpr int GROUP = WAY::GROUP, ROW_ROUNDS = ROWS / LOADERS;
    constexpr int COL_ROUNDS = BY_COLUMN ? (COLS + LOADERS - 1) / LOADERS : 0;
    int id = threadIdx.x - WARP, slot = 0, parity = 1;
    for (walk<WAY::KEPT> w(g); w.going(g); w.step(g)) {
        struct tile t = w.tile(g);
        if (g.addend) prefetch<OUT>(g, id, t);
        for (int k = 0; k < g.blocks; k += GROUP) {
            struct group_factors<GROUP> r[ROW_ROUNDS] = {}, c[COL_ROUNDS + 1] = {};
#pragma unroll
            for (int i = 0; i < ROW_ROUNDS; i++) {
                int row = t.row + i * LOADERS + id;
                if (row < g.rows)
                    r[i] = load_row<GROUP>(g.row_factors + (int64_t)row * g.blocks, g.blocks, k);
            }
#pragma unroll
            for (int i = 0; i < COL_ROUNDS; i++) {
                int col = t.col + i * LOADERS + id;
                if (col < min(g.cols, t.col + COLS))
                    c[i] = load_row<GROUP>(g.col_factors + (int64_t)col * g.blocks, g.blocks, k);
            }
            if (!BY_COLUMN && t.col < g.cols)
                c[0] = load_row<GROUP>(g.col_factors + (int64_t)(t.col / BLOCK) * g.blocks,
                                       g.blocks, k);
            barrier_wait(s.slot_empty(slot), parity);
#pragma unroll
            for (int i = 0; i < ROW_ROUNDS; i++) {
#pragma unroll
                for (int j = 0; j < (BY_COLUMN ? 0 : GROUP); j++) r[i].of[j] *= c[0].of[j];
                put_factors(s.row_factors(slot) + (i * LOADERS + id) * 4, at::ROW_FACTORS, r[i]);
            }
#pragma unroll
            for (int i = 0; i < COL_ROUNDS; i++) {
                int col = i * LOADERS + id, place = col / 8 * 2 + col % 2;
                if (col < COLS)
                    put_factors(s.col_factors(slot) + col / 2 % 4 * at::LANE_FACTORS + place * 4,
                                at::COL_FACTORS, c[i]);
            }
            barrier_arrive(s.slot_full(slot));
            slot ^= 1;
            if (slot == 0) parity ^= 1;
        }
    }
}

#endif

#endif
