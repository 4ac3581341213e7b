/* The tiles of gemm_hopper.cu: where their parts are in shared memory, and which cluster takes
 * which. Private to gemm_hopper*. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_HOPPER_TILE_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_HOPPER_TILE_CUH

#include "kernels/cuda/hopper_copy.cuh"

enum {
    WARPGROUP = 128, WORKERS = 3, THREADS = (WORKERS + 1) * WARPGROUP,
    ROWS = WORKERS * 64, COLS = 128, BLOCK = 128, /* a tile, and a block of K in codes or bytes */
    CLUSTER = 2, SHARED_ROWS = ROWS / CLUSTER,
    SLOTS = 2,                   /* groups of factors */
    LOADERS = WARPGROUP - WARP,  /* threads that load factors */
    LINE = 128, LINES = 2,       /* of a tile's row, LINES lines of LINE bytes are staged */
    STORED_ROWS = 16,            /* rows that a warp stores at once */
    SWEEP = 8,                   /* tiles of rows that are swept together, if columns move */
};

/* How a tile takes its operands. K goes by groups of blocks. Each group has one slot of factors. A
 * stage holds the rows' codes of one block of K. */
/* Any K: a stage also holds the columns' codes. */
struct moving {
    static constexpr bool KEPT = false;
    static constexpr int GROUP = 4, STAGES = 4;
};
/* K of six blocks: the columns' codes stay in shared memory for a whole run of tiles. */
struct kept {
    static constexpr bool KEPT = true;
    static constexpr int GROUP = 6, STAGES = 3;
};

/* Shared memory: offsets in bytes from a 1024-byte-aligned address. */
template <typename WAY> struct layout {
    static constexpr int GROUP = WAY::GROUP, STAGES = WAY::STAGES;
    static constexpr int ROW_CODES = ROWS * BLOCK, COL_CODES = COLS * BLOCK;
    static constexpr int STAGE = ROW_CODES + (WAY::KEPT ? 0 : COL_CODES);
    static constexpr int FIRST_COLS = WAY::KEPT ? STAGES * STAGE : ROW_CODES;
    static constexpr int NEXT_COLS = WAY::KEPT ? COL_CODES : STAGE;
    static constexpr int ROW_FACTORS = ROWS * 4;
    /* The 32 columns of one lane of a quad are contiguous; the four lanes use different banks. */
    static constexpr int LANE_FACTORS = (COLS / 4 + 4) * 4;
    static constexpr int COL_FACTORS = WAY::KEPT ? 0 : 4 * LANE_FACTORS;
    static constexpr int SLOT = GROUP * (ROW_FACTORS + COL_FACTORS);
    static constexpr int STAGED = STAGES * STAGE + (WAY::KEPT ? GROUP * COL_CODES : 0);
    static constexpr int BOX = ROWS * LINE;
    static constexpr int FACTORS = STAGED + LINES * BOX, BARRIERS = FACTORS + SLOTS * SLOT;
    static constexpr int BYTES = BARRIERS + 2 * (STAGES + SLOTS + 1) * 8 + 1024;
};

struct product {
    const float *row_factors, *col_factors; /* [rows][blocks]; [cols or blocks of 128][blocks] */
    const void *bias, *addend;              /* NULL: none; addend [rows][cols] of out's type, ld */
    void *out;
    int rows, cols, blocks;
    int sweep; /* tiles of rows that are swept together */
    int64_t ld;
    bool bias_bf16;
};

/* Of codes, addends and out. */
struct maps { const CUtensorMap *rows, *cols, *addends, *out; };

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Addresses in shared memory. */
template <typename WAY> struct places {
    typedef layout<WAY> at;
    uint32_t base;
    __device__ uint32_t row_codes(int stage) const { return base + stage * at::STAGE; }
    /* Of block i of a group. */
    __device__ uint32_t col_codes(int i) const { return base + at::FIRST_COLS + i * at::NEXT_COLS; }
    /* What is staged of a tile: first addends, then outputs. */
    __device__ uint32_t staged() const { return base + at::STAGED; }
    __device__ uint32_t row_factors(int slot) const {
        return base + at::FACTORS + slot * at::SLOT;
    }
    __device__ uint32_t col_factors(int slot) const {
        return row_factors(slot) + at::GROUP * at::ROW_FACTORS;
    }
    __device__ uint32_t barrier(int i) const { return base + at::BARRIERS + i * 8; }
    __device__ uint32_t full(int stage) const { return barrier(stage); }
    __device__ uint32_t empty(int stage) const { return barrier(at::STAGES + stage); }
    __device__ uint32_t slot_full(int slot) const { return barrier(2 * at::STAGES + slot); }
    __device__ uint32_t slot_empty(int slot) const {
        return barrier(2 * at::STAGES + SLOTS + slot);
    }
    __device__ uint32_t addends_full() const { return barrier(2 * (at::STAGES + SLOTS)); }
    __device__ uint32_t addends_empty() const { return barrier(2 * (at::STAGES + SLOTS) + 1); }
};

/* The parity of block i's stage, where block 0 has `parity`; then that of the next group. */
template <typename WAY> __device__ static inline int parity_of(int parity, int i) {
    return parity ^ (i / WAY::STAGES & 1);
}
template <typename WAY> __device__ static inline int next_parity(int parity) {
    return parity ^ (WAY::GROUP / WAY::STAGES & 1);
}

/* ---- which tile ---- */

__device__ static inline int row_tiles_of(const struct product &g) {
    return (g.rows + ROWS - 1) / ROWS;
}
__device__ static inline int col_pairs_of(const struct product &g) {
    return (g.cols + COLS * CLUSTER - 1) / (COLS * CLUSTER);
}
struct tile { int row, col; }; /* its first */

/* The tiles of a cluster. g.sweep tiles of rows are swept together, from column to column, so that
 * repeated reads hit the L2 cache. */
template <bool KEPT> struct walk;

/* Clusters take the tiles of a sweep in turn. Divisions at the end of a tile would show. */
template <> struct walk<false> {
    int first, i; /* of the sweep; in the sweep */
    __device__ walk(const struct product &g) : first(0), i(blockIdx.x / CLUSTER) { settle(g); }
    __device__ int rows(const struct product &g) const {
        return min(g.sweep, row_tiles_of(g) - first);
    }
    __device__ bool going(const struct product &g) const { return first < row_tiles_of(g); }
    __device__ void step(const struct product &g) {
        i += gridDim.x / CLUSTER;
        settle(g);
    }
    __device__ void settle(const struct product &g) {
        for (int all; going(g) && i >= (all = rows(g) * col_pairs_of(g)); first += g.sweep)
            i -= all;
    }
    __device__ struct tile tile(const struct product &g) const {
        int count = rows(g), pair = count == SWEEP ? i / SWEEP : i / count;
        return { (first + i - pair * count) * ROWS, (pair * CLUSTER + (int)cluster_rank()) * COLS };
    }
};

/* Each cluster takes a run of tiles of the sweep, down the rows of one pair of columns as far as
 * possible. */
template <> struct walk<true> {
    int first, rows; /* of the sweep */
    int row, pair, left; /* in the sweep; of the cluster's run */
    __device__ walk(const struct product &g) : first(0) { start(g); }
    __device__ bool going(const struct product &g) const { return left > 0; }
    __device__ void step(const struct product &g) {
        if (++row == rows) row = 0, pair++;
        if (--left > 0) return;
        first += g.sweep;
        start(g);
    }
    __device__ struct tile tile(const struct product &g) const {
        return { (first + row) * ROWS, (pair * CLUSTER + (int)cluster_rank()) * COLS };
    }
    /* The run in this sweep, or in the next one that has tiles for this cluster. */
    __device__ void start(const struct product &g) {
        int64_t clusters = gridDim.x / CLUSTER, me = blockIdx.x / CLUSTER;
        for (left = 0; left == 0 && first < row_tiles_of(g); first += left ? 0 : g.sweep) {
            rows = min(g.sweep, row_tiles_of(g) - first);
            int64_t all = (int64_t)rows * col_pairs_of(g);
            int begin = (int)(all * me / clusters);
            row = begin % rows;
            pair = begin / rows;
            left = (int)(all * (me + 1) / clusters) - begin;
        }
    }
};

#endif

#endif
