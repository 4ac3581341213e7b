/* Block-scaled FP8 products on Hopper: tiles of 192 x 128 outputs. Three warpgroups multiply 64
 * rows each; a fourth loads their operands.
 *
 * A block of threads stays on its multiprocessor and takes tile after tile. Its neighbour in the
 * cluster has the next 128 columns of the same rows. Each block requests half of the rows' codes,
 * and the copy engine delivers them to both. A warpgroup adds 128 of K on the tensor cores, which
 * keep 13 fractional bits. It then adds that chain, times its factors, to its f32 totals while the
 * other two multiply. (As in deepseek-ai/DeepGEMM, with other tiles and roles.)
 *
 * Factors are loaded a group of blocks at a time, directly from the quantiser's output. So a step
 * of the loops is a group. Blocks of the last group beyond K are skipped.
 *
 * Addends (a residual, or the gradient that a wgrad adds to) arrive while their tile is multiplied,
 * and BF16 outputs leave during the next one. Otherwise the tensor cores would wait for them.
 *
 * With a K of six blocks a tile is short, and moving codes from the L2 cache bounds it. There, for
 * 128x128 factors and BF16 outputs, the columns' codes stay in shared memory while the cluster goes
 * down the rows (`kept`). */
#include "kernels/cuda/gemm_hopper.cuh"

#include "kernels/cuda/gemm_hopper_load.cuh"
#include "kernels/cuda/gemm_hopper_store.cuh"
#include "kernels/cuda/wgmma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- multiplying ---- */

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
    bool ready; /* the next block's codes had arrived while this one was multiplied */
};

template <typename WAY> __device__ static struct worker worker_of(const struct places<WAY> &s) {
    int warpgroup = __shfl_sync(~0u, (int)threadIdx.x / WARPGROUP - 1, 0);
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
    struct worker w = {};
    w.row_factors = s.row_factors(0) + (warpgroup * 64 + warp * 16 + lane / 4) * 4;
    w.col_factors = s.col_factors(0) + lane % 4 * layout<WAY>::LANE_FACTORS;
    w.rows_at = (s.row_codes(0) + warpgroup * 64 * BLOCK) >> 4;
    w.cols_at = s.col_codes(0) >> 4;
    w.empty = cluster_address(s.empty(0), lane % CLUSTER);
    /* Opaque to the compiler, which would otherwise recompute them at each use. */
    asm("" : "+r"(w.row_factors), "+r"(w.col_factors), "+r"(w.empty));
    return w;
}

/* Block i of a group into the totals. Asks for the next block's codes while the tensor cores work,
 * since the answer takes some 70 clocks. (A short K has no registers for it.) */
template <typename WAY, bool BY_COLUMN, bool E5M2>
__device__ static inline void multiply_block(const struct places<WAY> &s, struct worker &w, int i,
                                             sums &total, sums &chain) {
    typedef layout<WAY> at;
    int stage = i % WAY::STAGES, next = (i + 1) % WAY::GROUP;
    int next_round = i + 1 < WAY::GROUP ? w.parity : next_parity<WAY>(w.parity);
    uint32_t factors = w.row_factors + w.slot * at::SLOT + i * at::ROW_FACTORS;
    float low = load_shared(factors), high = load_shared(factors + 32);
    uint64_t rows = rows_of(0) | (w.rows_at + stage * (at::STAGE >> 4));
    uint64_t cols = rows_of(0) | (w.cols_at + i * (at::NEXT_COLS >> 4));
    wgmma_hold(chain);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < BLOCK / 32; k++)
        wgmma_codes<E5M2>(chain, rows + k * 2, cols + k * 2, k != 0);
    wgmma_commit();
    w.ready = !WAY::KEPT && barrier_passed(s.full(next % WAY::STAGES),
                                           parity_of<WAY>(next_round, next));
    wgmma_wait<0>();
    wgmma_hold(chain);
    if (threadIdx.x % WARP < CLUSTER) barrier_arrive_far(w.empty + stage * 8);
    promote<BY_COLUMN>(total, chain, low, high,
                       w.col_factors + w.slot * at::SLOT + i * at::COL_FACTORS);
}

/* The group's blocks, of which `left` are within K. */
template <typename WAY, bool BY_COLUMN, bool E5M2>
__device__ static inline void multiply_group(const struct product &g, const struct places<WAY> &s,
                                             struct worker *w, int left, sums &total) {
    sums chain;
    barrier_wait(s.slot_full(w->slot), w->slot_parity);
#pragma unroll
    for (int i = 0; i < WAY::GROUP; i++) {
        if (!w->ready) barrier_wait(s.full(i % WAY::STAGES), parity_of<WAY>(w->parity, i));
        w->ready = false;
        if (WAY::KEPT || i == 0 || i < left)
            multiply_block<WAY, BY_COLUMN, E5M2>(s, *w, i, total, chain);
        else if (threadIdx.x % WARP < CLUSTER)
            barrier_arrive_far(w->empty + i % WAY::STAGES * 8);
        if (i == 0 && left == g.blocks && g.addend) {
            __syncwarp(); /* all lanes have read the addends of the tile before */
            if (threadIdx.x % WARP == 0) {
                stores_read();
                barrier_arrive(s.addends_empty());
            }
        }
    }
    if (threadIdx.x % WARP == 0) barrier_arrive(s.slot_empty(w->slot));
    w->parity = next_parity<WAY>(w->parity);
    w->slot ^= 1;
    if (w->slot == 0) w->slot_parity ^= 1;
}

template <typename WAY, bool BY_COLUMN, bool E5M2, typename OUT>
__device__ static void multiply(const struct product &g, const struct maps &maps,
                                const struct places<WAY> &s) {
    struct worker w = worker_of(s);
    int addends_parity = 0;
    for (walk<WAY::KEPT> tiles(g); tiles.going(g); tiles.step(g), addends_parity ^= 1) {
        sums total = {};
        int left = g.blocks;
#pragma unroll 1
        do {
            multiply_group<WAY, BY_COLUMN, E5M2>(g, s, &w, left, total);
            left -= WAY::GROUP;
        } while (!WAY::KEPT && left > 0);
        store_tile<WAY, OUT>(g, maps, s, total, tiles.tile(g), addends_parity);
    }
    if (threadIdx.x % WARP == 0) stores_done();
}

/* A block waits at its end for its neighbour, which may still send data to it. */
template <typename WAY, bool BY_COLUMN, bool E5M2, typename OUT>
__global__ void __launch_bounds__(THREADS, 1)
    gemm_hopper_kernel(const __grid_constant__ struct product g,
                       const __grid_constant__ CUtensorMap row_map,
                       const __grid_constant__ CUtensorMap col_map,
                       const __grid_constant__ CUtensorMap addend_map,
                       const __grid_constant__ CUtensorMap out_map) {
    extern __shared__ char memory[];
    struct places<WAY> s = { (shared_address(memory) + 1023) & ~1023u };
    struct maps maps = { &row_map, &col_map, &addend_map, &out_map };
    if (threadIdx.x == 0) {
        for (int i = 0; i < WAY::STAGES; i++) {
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
        if (threadIdx.x >= WARP) load_factors<WAY, BY_COLUMN, OUT>(g, s);
        else if (threadIdx.x == 0) request<WAY, OUT>(g, maps, s);
        __syncwarp(); /* waiting lanes would slow down the requesting one */
    } else {
        registers_up<152>();
        multiply<WAY, BY_COLUMN, E5M2, OUT>(g, maps, s);
    }
    cluster_sync();
}

#else

template <typename WAY, bool BY_COLUMN, bool E5M2, typename OUT> __global__ void
gemm_hopper_kernel(const __grid_constant__ struct product g,
                   const __grid_constant__ CUtensorMap row_map,
                   const __grid_constant__ CUtensorMap col_map,
                   const __grid_constant__ CUtensorMap addend_map,
                   const __grid_constant__ CUtensorMap out_map) {}

#endif

/* ---- host side ---- */

typedef void (*kernel)(struct product, CUtensorMap, CUtensorMap, CUtensorMap, CUtensorMap);

template <bool BY_COLUMN, bool E5M2> static kernel kernel_into(bool f32) {
    return f32 ? gemm_hopper_kernel<moving, BY_COLUMN, E5M2, float>
               : gemm_hopper_kernel<moving, BY_COLUMN, E5M2, bf16_bits>;
}
static kernel moving_kernel(bool by_column, bool e5m2, bool f32) {
    if (e5m2) return by_column ? kernel_into<true, true>(f32) : kernel_into<false, true>(f32);
    return by_column ? kernel_into<true, false>(f32) : kernel_into<false, false>(f32);
}
static kernel kept_kernel(bool e5m2) {
    return e5m2 ? gemm_hopper_kernel<kept, false, true, bf16_bits>
                : gemm_hopper_kernel<kept, false, false, bf16_bits>;
}

enum status gemm_hopper_open(struct err *e) {
    for (int i = 0; i < 8; i++)
        CUDA_TRY(e, cudaFuncSetAttribute(moving_kernel(i & 1, i & 2, i & 4),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         layout<moving>::BYTES));
    for (int i = 0; i < 2; i++)
        CUDA_TRY(e, cudaFuncSetAttribute(kept_kernel(i),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         layout<kept>::BYTES));
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
           p->m * bytes <= most && p->n <= most && p->k <= most;
}

/* Tiles of rows that are swept together. With kept columns: as few as give each cluster equal runs
 * of at least RUN tiles, so that clusters work on few rows at a time and seldom change columns. */
static int sweep_of(const struct product *g, bool kept, int clusters) {
    enum { RUN = 8 };
    if (!kept) return SWEEP;
    int64_t pairs = ceil_div(g->cols, COLS * CLUSTER), same = clusters, rest = pairs;
    while (rest) { /* Euclid: `same` becomes what divides both */
        int64_t next = same % rest;
        same = rest;
        rest = next;
    }
    return (int)(clusters / same * ceil_div(RUN, pairs / same));
}

enum status gemm_hopper_run(const struct cuda_backend *b, const struct gemm_problem *p,
                            cudaStream_t stream, struct err *e) {
    bool f32 = p->type == CUDA_R_32F, e5m2 = p->b.type == CUDA_R_8F_E5M2;
    int clusters = b->sm_count / CLUSTER;
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
    bool keep = g.blocks == kept::GROUP && !by_column(p) && !f32;
    g.sweep = sweep_of(&g, keep, clusters);
    int64_t bytes = f32 ? 4 : 2;
    CUtensorMap rows, cols, addends = {}, out = {};
    TRY(hopper_codes_map(&rows, p->b.data, p->n, p->k, p->b.ld, SHARED_ROWS, e));
    TRY(hopper_codes_map(&cols, p->a.data, p->m, p->k, p->a.ld, COLS, e));
    if (g.addend)
        TRY(hopper_codes_map(&addends, g.addend, p->n, p->m * bytes, p->ld * bytes, ROWS, e));
    if (!f32) TRY(hopper_codes_map(&out, g.out, p->n, p->m * bytes, p->ld * bytes, STORED_ROWS, e));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = { CLUSTER, 1, 1 };
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3((unsigned)(clusters * CLUSTER));
    launch.blockDim = dim3(THREADS);
    launch.dynamicSmemBytes = keep ? layout<kept>::BYTES : layout<moving>::BYTES;
    launch.stream = stream;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    kernel run = keep ? kept_kernel(e5m2) : moving_kernel(by_column(p), e5m2, f32);
    CUDA_TRY(e, cudaLaunchKernelEx(&launch, run, g, rows, cols, addends, out));
    return OK;
}
