/* Block-scaled FP8 products on Hopper: tiles of 192 x 128 outputs. Three warpgroups multiply 64
 * rows each; a fourth loads their operands.
 *
 * A block of threads stays on its multiprocessor and takes tile after tile. Its neighbour in the
 * cluster has the next 128 columns of the same rows. Each block requests half of the rows' codes,
 * and the copy engine delivers them to both. A warpgroup adds 128 of K on the tensor cores, which
 * keep 13 fractional bits. It then adds that chain, times its factors, to its f32 totals while the
 * other two multiply. (As in deepseek-ai/DeepGEMM, with other tiles and roles.)
 *
 * A stage holds the codes of one block of K. Factors are loaded four blocks at a time directly from
 * the quantiser's output, since four of a row are 16 bytes. So a step of the loops is a group of
 * four blocks, each with its own stage. Blocks of the last group beyond K are skipped.
 *
 * Addends (a residual, or the gradient that a wgrad adds to) arrive while their tile is multiplied.
 * Otherwise the tensor cores would wait for them at its end. */
#include "kernels/cuda/gemm_hopper.cuh"

#include "kernels/cuda/hopper_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

enum {
    WARPGROUP = 128, WORKERS = 3, THREADS = (WORKERS + 1) * WARPGROUP,
    ROWS = WORKERS * 64, COLS = 128, BLOCK = 128, /* a tile, and a block of K in codes or bytes */
    GROUP = 4,                                    /* blocks of K, and stages */
    CLUSTER = 2, SHARED_ROWS = ROWS / CLUSTER,
    SLOTS = 2,                                    /* groups of factors */
    LOADERS = WARPGROUP - WARP,                  /* threads that load factors */
    SWEEP_ROWS = 8,                                     /* tiles of rows that are swept together */
    LINE = 128, LINES = 2, /* of a tile's row of addends, LINES lines of LINE bytes are staged */
};

/* Shared memory: offsets in bytes from a 1024-byte-aligned address. */
struct layout {
    static constexpr int ROW_CODES = ROWS * BLOCK, STAGE = ROW_CODES + COLS * BLOCK;
    static constexpr int ROW_FACTORS = ROWS * 4;
    /* The 32 columns of one lane of a quad are contiguous; the four lanes use different banks. */
    static constexpr int LANE_FACTORS = (COLS / 4 + 4) * 4, COL_FACTORS = 4 * LANE_FACTORS;
    static constexpr int SLOT = GROUP * (ROW_FACTORS + COL_FACTORS);
    static constexpr int ADDENDS = GROUP * STAGE, ADDEND_BOX = ROWS * LINE;
    static constexpr int FACTORS = ADDENDS + LINES * ADDEND_BOX, BARRIERS = FACTORS + SLOTS * SLOT;
    static constexpr int BYTES = BARRIERS + 2 * (GROUP + SLOTS + 1) * 8 + 1024;
};

/* Of the COLS / 8 groups of eight columns, those whose addends are staged; the others come from the
 * L2 cache. */
template <typename OUT> constexpr int staged_groups = LINES * LINE / 8 / (int)sizeof(OUT);

struct product {
    const float *row_factors, *col_factors; /* [rows][blocks]; [cols or blocks of 128][blocks] */
    const void *bias, *addend;              /* NULL: none; addend [rows][cols] of out's type, ld */
    void *out;
    int rows, cols, blocks;
    int64_t ld;
    bool bias_bf16;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Addresses in shared memory. */
struct places {
    uint32_t base;
    __device__ uint32_t row_codes(int stage) const { return base + stage * layout::STAGE; }
    __device__ uint32_t col_codes(int stage) const { return row_codes(stage) + layout::ROW_CODES; }
    __device__ uint32_t row_factors(int slot) const {
        return base + layout::FACTORS + slot * layout::SLOT;
    }
    __device__ uint32_t col_factors(int slot) const {
        return row_factors(slot) + GROUP * layout::ROW_FACTORS;
    }
    __device__ uint32_t barrier(int i) const { return base + layout::BARRIERS + i * 8; }
    __device__ uint32_t full(int stage) const { return barrier(stage); }
    __device__ uint32_t empty(int stage) const { return barrier(GROUP + stage); }
    __device__ uint32_t slot_full(int slot) const { return barrier(2 * GROUP + slot); }
    __device__ uint32_t slot_empty(int slot) const { return barrier(2 * GROUP + SLOTS + slot); }
    __device__ uint32_t addends() const { return base + layout::ADDENDS; }
    __device__ uint32_t addends_full() const { return barrier(2 * (GROUP + SLOTS)); }
    __device__ uint32_t addends_empty() const { return barrier(2 * (GROUP + SLOTS) + 1); }
};

/* ---- which tile ---- */

/* The tiles of a cluster. SWEEP_ROWS tiles of rows are swept together, from column to column, so
 * that repeated reads hit the L2 cache. */
struct walk { int row_tiles, col_pairs, i; };

__device__ static inline struct walk walk_of(const struct product &g) {
    return { (g.rows + ROWS - 1) / ROWS, (g.cols + COLS * CLUSTER - 1) / (COLS * CLUSTER),
             (int)blockIdx.x / CLUSTER };
}
__device__ static inline bool walking(const struct walk &w) {
    return w.i < w.row_tiles * w.col_pairs;
}
__device__ static inline void step(struct walk *w) { w->i += gridDim.x / CLUSTER; }
/* The tile's first row and column. */
__device__ static inline void tile_of(const struct walk &w, int *row, int *col) {
    int sweep = SWEEP_ROWS * w.col_pairs, first = w.i / sweep * SWEEP_ROWS, rest = w.i % sweep;
    int rows_in_sweep = min(SWEEP_ROWS, w.row_tiles - first);
    *row = (first + rest % rows_in_sweep) * ROWS;
    *col = (rest / rows_in_sweep * CLUSTER + (int)cluster_rank()) * COLS;
}

/* ---- loading ---- */

struct maps { const CUtensorMap *rows, *cols, *addends; };

/* The staged addends of a tile. */
template <typename OUT>
__device__ static void request_addends(const struct maps &maps, const struct places &s, int row,
                                       int col, int parity) {
    barrier_wait(s.addends_empty(), parity);
    barrier_expect(s.addends_full(), LINES * layout::ADDEND_BOX);
#pragma unroll
    for (int i = 0; i < LINES; i++)
        copy_codes(s.addends() + i * layout::ADDEND_BOX, maps.addends, s.addends_full(),
                   col * (int)sizeof(OUT) + i * LINE, row);
}

/* One thread requests codes and addends. After a tile's second group of blocks nobody reads the
 * addends of the tile before, so that request does not delay codes. */
template <typename OUT>
__device__ static void request(const struct product &g, const struct maps &maps,
                               const struct places &s) {
    int parity = 1, addends_parity = 1, part = (int)cluster_rank() * SHARED_ROWS;
    int addends_after = g.blocks > GROUP ? GROUP : 0;
    for (struct walk w = walk_of(g); walking(w); step(&w), addends_parity ^= 1) {
        int row, col;
        tile_of(w, &row, &col);
        for (int k = 0; k < g.blocks; k += GROUP, parity ^= 1) {
            for (int i = 0; i < GROUP; i++) {
                barrier_wait(s.empty(i), parity);
                if (k + i >= g.blocks) {
                    barrier_arrive(s.full(i));
                    continue;
                }
                barrier_expect(s.full(i), layout::STAGE);
                copy_codes_to_all<CLUSTER>(s.row_codes(i) + part * BLOCK, maps.rows, s.full(i),
                                           (k + i) * BLOCK, row + part);
                copy_codes(s.col_codes(i), maps.cols, s.full(i), (k + i) * BLOCK, col);
            }
            if (g.addend && k == addends_after)
                request_addends<OUT>(maps, s, row, col, addends_parity);
        }
    }
}

/* Four blocks' factors of one row; 0 after the last block. */
__device__ static inline float4 load_factors(const float *row, int blocks, int k) {
    if (blocks % GROUP == 0) return *(const float4 *)(row + k);
    float4 v = { row[k], 0.0f, 0.0f, 0.0f };
    if (k + 1 < blocks) v.y = row[k + 1];
    if (k + 2 < blocks) v.z = row[k + 2];
    if (k + 3 < blocks) v.w = row[k + 3];
    return v;
}
/* Stores the factors of four blocks, `apart` bytes from one another. */
__device__ static inline void put_factors(uint32_t to, int apart, float4 v) {
    store_shared(to, v.x);
    store_shared(to + apart, v.y);
    store_shared(to + 2 * apart, v.z);
    store_shared(to + 3 * apart, v.w);
}

/* Prefetches the addends that are not staged into the L2 cache. */
template <typename OUT>
__device__ static void prefetch(const struct product &g, int id, int row, int col) {
    constexpr int WIDTH = LINE / (int)sizeof(OUT), REST = COLS / WIDTH - LINES;
    for (int i = id; i < ROWS * REST; i += LOADERS) {
        int r = row + i % ROWS, c = col + (LINES + i / ROWS) * WIDTH;
        if (r < g.rows && c < g.cols)
            asm volatile("prefetch.global.L2 [%0];" ::"l"((const OUT *)g.addend + r * g.ld + c));
    }
}

/* Three warps load factors. If all columns share one factor, it is multiplied into the rows'
 * here. */
template <bool BY_COLUMN, typename OUT>
__device__ static void load_factors(const struct product &g, const struct places &s) {
    constexpr int ROW_ROUNDS = ROWS / LOADERS, COL_ROUNDS = (COLS + LOADERS - 1) / LOADERS;
    int id = threadIdx.x - WARP, slot = 0, parity = 1;
    for (struct walk w = walk_of(g); walking(w); step(&w)) {
        int row, col;
        tile_of(w, &row, &col);
        if (g.addend) prefetch<OUT>(g, id, row, col);
        for (int k = 0; k < g.blocks; k += GROUP) {
            float4 r[ROW_ROUNDS] = {}, c[COL_ROUNDS] = {};
#pragma unroll
            for (int i = 0; i < ROW_ROUNDS; i++)
                if (row + i * LOADERS + id < g.rows)
                    r[i] = load_factors(g.row_factors + (int64_t)(row + i * LOADERS + id) *
                                        g.blocks, g.blocks, k);
#pragma unroll
            for (int i = 0; i < (BY_COLUMN ? COL_ROUNDS : 1); i++) {
                int at = BY_COLUMN ? col + i * LOADERS + id : col / BLOCK;
                if (BY_COLUMN ? at < min(g.cols, col + COLS) : col < g.cols)
                    c[i] = load_factors(g.col_factors + (int64_t)at * g.blocks, g.blocks, k);
            }
            barrier_wait(s.slot_empty(slot), parity);
#pragma unroll
            for (int i = 0; i < ROW_ROUNDS; i++) {
                float4 v = r[i];
                if (!BY_COLUMN) v = { v.x * c[0].x, v.y * c[0].y, v.z * c[0].z, v.w * c[0].w };
                put_factors(s.row_factors(slot) + (i * LOADERS + id) * 4, layout::ROW_FACTORS, v);
            }
#pragma unroll
            for (int i = 0; i < (BY_COLUMN ? COL_ROUNDS : 0); i++) {
                int at = i * LOADERS + id, place = at / 8 * 2 + at % 2;
                if (at < COLS)
                    put_factors(s.col_factors(slot) + at / 2 % 4 * layout::LANE_FACTORS + place * 4,
                                layout::COL_FACTORS, c[i]);
            }
            barrier_arrive(s.slot_full(slot));
            slot ^= 1;
            if (slot == 0) parity ^= 1;
        }
    }
}

/* ---- multiplying ---- */

typedef float sums[COLS / 8][4];

/* total += chain * factors. low, high: factors of the rows g and g + 8. With factors by column,
 * read from `cols`, the chain is multiplied by low and high first, as cuBLASLt does. */
template <bool BY_COLUMN>
__device__ static inline void promote(sums &total, const sums &chain, float low, float high,
                                      uint32_t cols) {
#pragma unroll
    for (int j = 0; j < COLS / 8; j += 2) {
        float4 f = { 1.0f, 1.0f, 1.0f, 1.0f };
        if (BY_COLUMN) f = load_shared4(cols + j * 8);
        const float factor[4] = { f.x, f.y, f.z, f.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float (&c)[4] = chain[j + i / 2];
            float (&t)[4] = total[j + i / 2];
            float x = c[i % 2], y = c[2 + i % 2];
            t[i % 2] = fmaf(BY_COLUMN ? x * low : x, BY_COLUMN ? factor[i] : low, t[i % 2]);
            t[2 + i % 2] = fmaf(BY_COLUMN ? y * high : y, BY_COLUMN ? factor[i] : high,
                                t[2 + i % 2]);
        }
    }
}

/* The state of a worker between tiles. */
struct worker {
    uint32_t row_factors, col_factors; /* of this thread's first row and columns, slot 0 */
    uint32_t rows_at, cols_at;         /* of the warpgroup's codes, in a descriptor's form */
    uint32_t empty;                    /* stage 0's barrier in the block that this lane signals */
    int parity, slot, slot_parity;
};

__device__ static struct worker worker_of(const struct places &s) {
    int warpgroup = __shfl_sync(~0u, (int)threadIdx.x / WARPGROUP - 1, 0);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
    struct worker w = {};
    w.row_factors = s.row_factors(0) + (warpgroup * 64 + warp * 16 + lane / 4) * 4;
    w.col_factors = s.col_factors(0) + lane % 4 * layout::LANE_FACTORS;
    w.rows_at = (s.row_codes(0) + warpgroup * 64 * BLOCK) >> 4;
    w.cols_at = s.col_codes(0) >> 4;
    w.empty = cluster_address(s.empty(0), lane % CLUSTER);
    /* Opaque to the compiler, which would otherwise recompute them at each use. */
    asm("" : "+r"(w.row_factors), "+r"(w.col_factors), "+r"(w.empty));
    return w;
}

/* One block of K, in stage i, into the totals. */
template <bool BY_COLUMN, bool E5M2>
__device__ static inline void multiply_block(const struct worker &w, int i, sums &total,
                                             sums &chain) {
    uint32_t at = w.row_factors + w.slot * layout::SLOT + i * layout::ROW_FACTORS;
    float low = load_shared(at), high = load_shared(at + 32);
    uint64_t rows = rows_of(0) | (w.rows_at + i * (layout::STAGE >> 4));
    uint64_t cols = rows_of(0) | (w.cols_at + i * (layout::STAGE >> 4));
    wgmma_hold(chain);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < BLOCK / 32; k++)
        wgmma_codes<E5M2>(chain, rows + k * 2, cols + k * 2, k != 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(chain);
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_far(w.empty + i * 8);
    promote<BY_COLUMN>(total, chain, low, high,
                       w.col_factors + w.slot * layout::SLOT + i * layout::COL_FACTORS);
}

/* ---- storing ---- */

struct pair { float low, high; };

__device__ static inline struct pair pair_at(const void *from, bool bf16, int64_t i) {
    if (!bf16) {
        float2 v = *(const float2 *)((const float *)from + i);
        return { v.x, v.y };
    }
    uint32_t v = *(const uint32_t *)((const bf16_bits *)from + i);
    return { bf16_low(v), bf16_high(v) };
}

/* Adds the bias to one row of totals; `first` is 0 or 2, of rows g or g + 8. */
__device__ static inline void add_bias(const struct product &g, sums &total, int first, int col) {
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
        if (col + j * 8 >= g.cols) continue;
        struct pair b = pair_at(g.bias, g.bias_bf16, col + j * 8);
        total[j][first] += b.low;
        total[j][first + 1] += b.high;
    }
}

/* A pair of staged addends of group j, in the swizzle of the copy; `line` is of the row's first
 * box, and row % 8 = lane / 4. */
__device__ static inline struct pair staged_at(uint32_t line, bf16_bits, int j) {
    int lane = threadIdx.x % WARP, chunk = j % 8 ^ lane / 4;
    uint32_t v = __float_as_uint(load_shared(line + j / 8 * layout::ADDEND_BOX + chunk * 16 +
                                             lane % 4 * 4));
    return { bf16_low(v), bf16_high(v) };
}
__device__ static inline struct pair staged_at(uint32_t line, float, int j) {
    int lane = threadIdx.x % WARP, chunk = (j % 4 * 2 + lane % 4 / 2) ^ lane / 4;
    float2 v = load_shared2(line + j / 4 * layout::ADDEND_BOX + chunk * 16 + lane % 2 * 8);
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
            if (in) rest->of[h][j - STAGED] = pair_at(g.addend, sizeof(OUT) == 2,
                                                      r * g.ld + col + j * 8);
        }
}

/* Adds the addends to this thread's totals, rows `row` and `row` + 8 from column `col` on. `line`
 * is of the first row's staged addends. */
template <typename OUT>
__device__ static inline void add_addends(const struct product &g, const struct places &s,
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
            struct pair more = j < STAGED ? staged_at(line + h * 8 * LINE, OUT(), j)
                                          : rest.of[h][j < STAGED ? 0 : j - STAGED];
            total[j][2 * h] += more.low;
            total[j][2 * h + 1] += more.high;
        }
    __syncwarp();
    if (threadIdx.x % WARP == 0) barrier_arrive(s.addends_empty());
}

/* Each lane of a quad has a pair of each of four groups of eight columns; it gets one whole
 * group. */
__device__ static inline uint4 transpose_quad(uint32_t (&p)[4]) {
    bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
    uint32_t x = __shfl_xor_sync(~0u, odd ? p[0] : p[1], 1);
    uint32_t y = __shfl_xor_sync(~0u, odd ? p[2] : p[3], 1);
    if (odd) p[0] = x, p[2] = y;
    else p[1] = x, p[3] = y;
    x = __shfl_xor_sync(~0u, upper ? p[0] : p[2], 2);
    y = __shfl_xor_sync(~0u, upper ? p[1] : p[3], 2);
    return upper ? make_uint4(x, y, p[2], p[3]) : make_uint4(p[0], p[1], x, y);
}

__device__ static inline void put_row(float *out, const sums &total, int first, int cols, bool in) {
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++)
        if (in && j * 8 < cols)
            *(float2 *)(out + j * 8 + lane * 2) = make_float2(f32_canonical(total[j][first]),
                                                              f32_canonical(total[j][first + 1]));
}
__device__ static inline void put_row(bf16_bits *out, const sums &total, int first, int cols,
                                      bool in) {
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < COLS / 8; j += 4) {
        uint32_t p[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[i] = bf16x2_encode(total[j + i][first], total[j + i][first + 1]);
        uint4 eight = transpose_quad(p);
        if (in && (j + lane) * 8 < cols) *(uint4 *)(out + (j + lane) * 8) = eight;
    }
}

template <typename OUT>
__device__ static inline void store_tile(const struct product &g, const struct places &s,
                                         sums &total, int row, int col, int parity) {
    int lane = threadIdx.x % WARP;
    int at = (threadIdx.x / WARPGROUP - 1) * 64 + threadIdx.x / WARP % 4 * 16 + lane / 4;
    row += at;
    if (g.bias)
        for (int h = 0; h < 2; h++) add_bias(g, total, 2 * h, col + lane % 4 * 2);
    if (g.addend)
        add_addends<OUT>(g, s, total, row, col + lane % 4 * 2, s.addends() + at * LINE, parity);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t r = row + 8 * h;
        put_row((OUT *)g.out + r * g.ld + col, total, 2 * h, g.cols - col, r < g.rows);
    }
}

template <bool BY_COLUMN, bool E5M2, typename OUT>
__device__ static void multiply(const struct product &g, const struct places &s) {
    struct worker w = worker_of(s);
    int addends_parity = 0;
    for (struct walk tiles = walk_of(g); walking(tiles); step(&tiles), addends_parity ^= 1) {
        sums total = {}, chain;
#pragma unroll 1
        for (int left = g.blocks; left > 0; left -= GROUP, w.parity ^= 1) {
            barrier_wait(s.slot_full(w.slot), w.slot_parity);
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                barrier_wait(s.full(i), w.parity);
                if (i < left) multiply_block<BY_COLUMN, E5M2>(w, i, total, chain);
                else if (threadIdx.x % WARP < CLUSTER) barrier_arrive_far(w.empty + i * 8);
            }
            if (threadIdx.x % WARP == 0) barrier_arrive(s.slot_empty(w.slot));
            w.slot ^= 1;
            if (w.slot == 0) w.slot_parity ^= 1;
        }
        int row, col;
        tile_of(tiles, &row, &col);
        store_tile<OUT>(g, s, total, row, col, addends_parity);
    }
}

/* A block waits at its end for its neighbour, which may still send data to it. */
template <bool BY_COLUMN, bool E5M2, typename OUT>
__global__ void __launch_bounds__(THREADS, 1)
    gemm_hopper_kernel(const __grid_constant__ struct product g,
                       const __grid_constant__ CUtensorMap row_map,
                       const __grid_constant__ CUtensorMap col_map,
                       const __grid_constant__ CUtensorMap addend_map) {
    extern __shared__ char memory[];
    struct places s = { (shared_address(memory) + 1023) & ~1023u };
    if (threadIdx.x == 0) {
        for (int i = 0; i < GROUP; i++) {
            barrier_init(s.full(i), 1);
            barrier_init(s.empty(i), WORKERS * 4 * CLUSTER);
            if (i >= SLOTS) continue;
            barrier_init(s.slot_full(i), LOADERS);
            barrier_init(s.slot_empty(i), WORKERS * 4);
        }
        barrier_init(s.addends_full(), 1);
        barrier_init(s.addends_empty(), WORKERS * 4);
    }
    barriers_ready();
    cluster_sync();
    if (threadIdx.x < WARPGROUP) {
        registers_down<56>();
        if (threadIdx.x >= WARP) load_factors<BY_COLUMN, OUT>(g, s);
        else if (threadIdx.x == 0) request<OUT>(g, { &row_map, &col_map, &addend_map }, s);
        __syncwarp(); /* waiting lanes would slow down the requesting one */
    } else {
        registers_up<152>();
        multiply<BY_COLUMN, E5M2, OUT>(g, s);
    }
    cluster_sync();
}

#else

template <bool BY_COLUMN, bool E5M2, typename OUT> __global__ void
gemm_hopper_kernel(const __grid_constant__ struct product g,
                   const __grid_constant__ CUtensorMap row_map,
                   const __grid_constant__ CUtensorMap col_map,
                   const __grid_constant__ CUtensorMap addend_map) {}

#endif

/* ---- host side ---- */

typedef void (*kernel)(struct product, CUtensorMap, CUtensorMap, CUtensorMap);

template <bool BY_COLUMN, bool E5M2> static kernel kernel_into(bool f32) {
    return f32 ? gemm_hopper_kernel<BY_COLUMN, E5M2, float>
               : gemm_hopper_kernel<BY_COLUMN, E5M2, bf16_bits>;
}
static kernel kernel_of(bool by_column, bool e5m2, bool f32) {
    if (e5m2) return by_column ? kernel_into<true, true>(f32) : kernel_into<false, true>(f32);
    return by_column ? kernel_into<true, false>(f32) : kernel_into<false, false>(f32);
}

enum status gemm_hopper_open(struct err *e) {
    for (int i = 0; i < 8; i++)
        CUDA_TRY(e, cudaFuncSetAttribute(kernel_of(i & 1, i & 2, i & 4),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         layout::BYTES));
    return OK;
}

static bool by_column(const struct gemm_problem *p) {
    return p->a.scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
}

bool gemm_hopper_serves(const struct cuda_backend *b, const struct gemm_problem *p) {
    const int64_t most = INT32_MAX - 2 * ROWS;
    int bytes = p->type == CUDA_R_32F ? 4 : 2;
    uintptr_t places = (uintptr_t)p->d | (uintptr_t)p->c | (uintptr_t)p->bias;
    return b->cc == 90 && b->caps == 90 && p->a.scale && p->b.scale &&
           p->a.type == CUDA_R_8F_E4M3 &&
           (p->b.type == CUDA_R_8F_E4M3 || p->b.type == CUDA_R_8F_E5M2) &&
           p->b.scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
           (by_column(p) || p->a.scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) &&
           p->m % 8 == 0 && p->n % 8 == 0 && p->ld * bytes % 16 == 0 && places % 16 == 0 &&
           p->m <= most && p->n <= most && p->k <= most;
}

bool gemm_hopper_competes(const struct gemm_problem *p) { return !by_column(p); }

enum status gemm_hopper_run(const struct cuda_backend *b, const struct gemm_problem *p,
                            cudaStream_t stream, struct err *e) {
    struct product g = {};
    g.row_factors = p->b.factors;
    g.col_factors = p->a.factors;
    g.bias = p->bias;
    g.bias_bf16 = p->bias_type == CUDA_R_16BF;
    g.addend = p->beta != 0.0f ? p->c : NULL;
    g.out = p->d;
    g.rows = (int)p->n;
    g.cols = (int)p->m;
    g.blocks = (int)ceil_div(p->k, BLOCK);
    g.ld = p->ld;
    int64_t bytes = p->type == CUDA_R_32F ? 4 : 2;
    CUtensorMap rows, cols, addends = {};
    TRY(hopper_codes_map(&rows, p->b.data, p->n, p->k, p->b.ld, SHARED_ROWS, e));
    TRY(hopper_codes_map(&cols, p->a.data, p->m, p->k, p->a.ld, COLS, e));
    if (g.addend)
        TRY(hopper_codes_map(&addends, g.addend, p->n, p->m * bytes, p->ld * bytes, ROWS, e));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = { CLUSTER, 1, 1 };
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3((unsigned)(b->sm_count / CLUSTER * CLUSTER));
    launch.blockDim = dim3(THREADS);
    launch.dynamicSmemBytes = layout::BYTES;
    launch.stream = stream;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    kernel run = kernel_of(by_column(p), p->b.type == CUDA_R_8F_E5M2, p->type == CUDA_R_32F);
    CUDA_TRY(e, cudaLaunchKernelEx(&launch, run, g, rows, cols, addends));
    return OK;
}
