/* Cross-entropy of rows that a cluster of blocks holds in registers. A row is read once;
 * distributed shared memory joins its maximum and sum; the gradient is made from the registers.
 * Cost: 4 bytes an element of memory traffic, and two exp, which take more than half as long. So a
 * cluster takes one row after the other, while the copy engine loads the next row into shared
 * memory. Two blocks run on a multiprocessor: one works while the other waits for its cluster.
 *
 * The parts of a row and their order are those of kernels/sum_order.h. EXACT: exp is that of
 * exactmath_fma.h, which the CPU has too.
 *
 * For compute capability 9 and 10; other devices use loss.cu. */
#include <cooperative_groups.h>
#include <cuda_bf16.h>

#include "kernels/cuda/hopper_copy.cuh"
#include "kernels/cuda/loss.cuh"
#include "kernels/sum_order.h"

enum { CLUSTER_WARPS = LOSS_THREADS / WARP }; /* of a block, which holds 32 registers a thread */

/* The number of pieces in which a block's share of a row arrives. After its last vector the last
 * piece has unused data: the next block's, or zeros after the row's end. */
HOST_DEVICE static inline int pieces_of(int vectors) {
    return (vectors * (int)sizeof(uint4) + PIECE_MAX - 1) / PIECE_MAX;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static const uint32_t NONE = 0xFF80FF80u; /* two logits of -infinity */

/* The largest of some logits, NaN ignored, and the sum of exp(x - max). If there are no logits, or
 * all are -infinity, the sum is that of exp(x). */
struct row_part { float max, sum; };

/* p's sum relative to `max`, which is at least p.max. */
template <bool EXACT> __device__ static float rescaled(struct row_part p, float max) {
    return p.max == -INFINITY ? p.sum : p.sum * exp_of<EXACT>(p.max - max);
}

template <bool EXACT> __device__ static struct row_part warp_join(struct row_part p) {
    float max = p.max;
#pragma unroll
    for (int step = WARP / 2; step; step /= 2)
        max = max_of(max, __shfl_xor_sync(0xFFFFFFFFu, max, step));
    return { max, warp_sum(rescaled<EXACT>(p, max)) };
}

__device__ static __nv_bfloat162 pair_of(uint32_t word) {
    union { uint32_t word; __nv_bfloat162 pair; } u = { word };
    return u.pair;
}

/* This thread's vectors. */
template <bool EXACT>
__device__ static struct row_part thread_part(const uint4 (&held)[LOSS_VECTORS]) {
    __nv_bfloat162 top = pair_of(NONE);
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++) {
        top = __hmax2(top, __hmax2(pair_of(held[i].x), pair_of(held[i].y)));
        top = __hmax2(top, __hmax2(pair_of(held[i].z), pair_of(held[i].w)));
    }
    struct row_part p = { max_of(__low2float(top), __high2float(top)), 0.0f };
    float shift = p.max == -INFINITY ? 0.0f : p.max;
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++) {
        float v[8];
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) p.sum += exp_of<EXACT>(v[j] - shift);
    }
    return p;
}

/* The first n of eight logits; the rest become -infinity. */
__device__ static uint4 keep_logits(uint4 v, int n) {
    uint32_t word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (n <= 2 * i) word[i] = NONE;
        else if (n == 2 * i + 1) word[i] = (word[i] & 0xFFFFu) | (NONE & 0xFFFF0000u);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* A barrier of all threads of the cluster. All threads then see what thread 0 of a block wrote
 * before. Other threads publish nothing, so they need not wait for their gradients' stores. */
__device__ static void cluster_barrier() {
    if (threadIdx.x == 0) asm volatile("fence.acq_rel.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

/* Joins the parts of all threads of the cluster; every thread has the same bits. */
template <bool EXACT>
__device__ static struct row_part cluster_join(struct row_part p,
                                               cooperative_groups::cluster_group cluster,
                                               struct row_part *warp_part,
                                               struct row_part *block_part) {
    p = warp_join<EXACT>(p);
    if (threadIdx.x % WARP == 0) warp_part[threadIdx.x / WARP] = p;
    __syncthreads();
    if (threadIdx.x < WARP) {
        p = { -INFINITY, 0.0f };
        if (threadIdx.x < CLUSTER_WARPS) p = warp_part[threadIdx.x];
        p = warp_join<EXACT>(p);
        if (threadIdx.x == 0) *block_part = p;
    }
    cluster_barrier();
    p = { -INFINITY, 0.0f };
    if (threadIdx.x % WARP < cluster.num_blocks())
        p = *cluster.map_shared_rank(block_part, threadIdx.x % WARP);
    p = warp_join<EXACT>(p);
    if (p.max == -INFINITY) p.sum = f32_from_bits(0x7FC00000u);
    return p;
}

/* A block's vectors of a row: from `first` on, before `end`. Thread t has the t-th and every 512th
 * after it. */
struct share { int first, end; };

__device__ static int place_of(const struct share &s, int i) {
    return s.first + (int)threadIdx.x + i * LOSS_THREADS;
}

/* Loads the block's share of a row into shared memory; a barrier signals its arrival. Called by the
 * leader's warp; the leader is its first lane. */
__device__ static void request_pieces(const CUtensorMap *logits, int row, const struct share &s,
                                      const uint4 *to, uint32_t full) {
    int pieces = pieces_of(s.end - s.first), word = s.first * (int)sizeof(uint4) / PIECE_WORD;
    int lane = threadIdx.x % WARP;
    if (lane == 0) barrier_expect(full, pieces * PIECE_MAX);
    __syncwarp();
    for (int i = lane; i < pieces; i += WARP)
        copy_piece(shared_address(to) + i * PIECE_MAX, logits, full,
                   word + i * (PIECE_MAX / PIECE_WORD), row);
}

/* Reads this thread's vectors from the arrived data. */
__device__ static void take(uint4 (&held)[LOSS_VECTORS], const uint4 *arrived,
                            const struct share &s, int vocab) {
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++) {
        int at = place_of(s, i);
        held[i] = make_uint4(NONE, NONE, NONE, NONE);
        if (at < s.end) held[i] = arrived[at - s.first];
    }
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++) {
        int at = place_of(s, i);
        if (at >= vocab / 8) held[i] = keep_logits(held[i], vocab - at * 8);
    }
}

/* Forces decoding again for the gradient: 32-bit logits kept by the compiler would not fit. */
__device__ static void decode_again(uint4 (&held)[LOSS_VECTORS]) {
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++)
        asm volatile("" : "+r"(held[i].x), "+r"(held[i].y), "+r"(held[i].z), "+r"(held[i].w));
}

/* Whether the block writes the row's loss: the block with the target's logit; without a target, the
 * first block. */
__device__ static bool writes_loss(const struct share &s, int target, int vocab) {
    if (target < 0 || target >= vocab) return s.first == 0;
    return target / 8 >= s.first && target / 8 < s.end;
}
/* The target's logit; called in the block that writes the loss. */
__device__ static float target_logit_of(const uint4 *arrived, const struct share &s, int target,
                                        int vocab) {
    if (target < 0 || target >= vocab) return f32_from_bits(0x7FC00000u);
    return bf16_decode(((const bf16_bits *)arrived)[target - s.first * 8]);
}

/* Stores the gradient of this thread's vectors; returns the largest |bits|, as two 16-bit
 * maxima. */
template <bool EXACT>
__device__ static uint32_t store_gradient(const struct loss_args &a, int64_t row,
                                          const uint4 (&held)[LOSS_VECTORS],
                                          const struct share &s, struct row_part p, float scale,
                                          int target) {
    int vocab = (int)a.vocab;
    float factor = scale / p.sum;
    uint4 *d = (uint4 *)(a.d_logits + row * a.width);
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < LOSS_VECTORS; i++) {
        int at = place_of(s, i);
        if (at >= s.end) continue;
        float v[8];
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = exp_of<EXACT>(v[j] - p.max) * factor;
        if (at == target / 8)
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] -= j == target % 8 ? scale : 0.0f;
        if (at >= vocab / 8 || target < 0)
#pragma unroll
            for (int j = 0; j < 8; j++) v[j] = at * 8 + j < vocab && target >= 0 ? v[j] : 0.0f;
        uint4 out = bf16x8_encode(v);
        d[at] = out;
        top = __vmaxu2(top, bf16x8_largest(out));
    }
    return top;
}

/* Grid: as many clusters as run at once. Each block has `each` consecutive vectors of a row. No
 * block is without vectors: a row that needs several blocks has more than half of their capacity.
 * Columns are counted in vectors of eight, in 32 bits.
 *
 * The leader, a thread of the warp with least work, writes the rows' loss. Its warp requests the
 * next row once all threads have read theirs. In place this is safe: only a row's own cluster
 * writes it, after it has arrived.
 *
 * A block's part of the sums has two places, for even and odd rounds. Before it overwrites a place,
 * the barrier of the round between has passed, so all readers are done. */
template <bool EXACT>
__global__ void __launch_bounds__(LOSS_THREADS, 2)
    cross_entropy_cluster_kernel(struct loss_args a, int each,
                                 const __grid_constant__ CUtensorMap logits) {
    extern __shared__ __align__(128) uint4 arrived[];
    __shared__ struct row_part warp_part[CLUSTER_WARPS], block_part[2];
    __shared__ float target_logit; /* only the leader uses it; registers are scarce */
    __shared__ uint64_t full_barrier;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    unsigned row = blockIdx.x / cluster.num_blocks(), step = gridDim.x / cluster.num_blocks();
    int first = (int)cluster.block_rank() * each, vocab = (int)a.vocab, target = a.targets[row];
    struct share s = { first, min(first + each, (int)(a.width / 8)) };
    uint32_t full = shared_address(&full_barrier), top = 0;
    bool requests = threadIdx.x >= LOSS_THREADS - WARP, more = true;
    bool leader = threadIdx.x == LOSS_THREADS - WARP;
    float scale = a.d_logits ? *a.grad_scale : 0.0f;
    if (leader) barrier_init(full, 1);
    barriers_ready();
    if (requests) request_pieces(&logits, (int)row, s, arrived, full);
    for (int odd = 0; more; odd ^= 1) {
        uint4 held[LOSS_VECTORS];
        barrier_wait(full, odd);
        take(held, arrived, s, vocab);
        if (leader && writes_loss(s, target, vocab))
            target_logit = target_logit_of(arrived, s, target, vocab);
        __syncthreads();
        unsigned next = row + step;
        more = next < (unsigned)a.rows;
        if (requests && more) request_pieces(&logits, (int)next, s, arrived, full);
        int next_target = more ? a.targets[next] : -1;
        struct row_part p =
            cluster_join<EXACT>(thread_part<EXACT>(held), cluster, warp_part, block_part + odd);
        decode_again(held);
        if (leader && writes_loss(s, target, vocab))
            store_loss(a, row, target >= 0, p.max, p.sum, target_logit);
        if (a.d_logits)
            top = __vmaxu2(top, store_gradient<EXACT>(a, row, held, s, p, scale, target));
        row = next;
        target = next_target;
    }
    block_amax_into(a.amax, max(top << 16, top & 0xFFFF0000u));
    cluster.sync(); /* no block exits while another may read its block_part */
}

#else
template <bool EXACT>
__global__ void cross_entropy_cluster_kernel(struct loss_args, int,
                                             const __grid_constant__ CUtensorMap) {}
#endif

bool loss_clusters_fit(struct backend *b, int64_t width) {
    int cc = cuda_of(b)->cc;
    return cc >= 90 && cc < 120 && loss_divides(width, true);
}

enum status loss_by_clusters(struct backend *b, int lane, const struct loss_args *a,
                             struct err *e) {
    if (a->rows > INT32_MAX)
        return FAIL(e, ERR_ARG, "cross_entropy: %lld rows", (long long)a->rows);
    unsigned blocks = (unsigned)loss_blocks(a->width);
    int each = loss_each(a->width), fit = 0;
    CUtensorMap logits;
    TRY(hopper_rows_map(&logits, a->logits, a->rows, a->width * 2, a->ld * 2, PIECE_MAX, e));
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(blocks);
    launch.blockDim = dim3(LOSS_THREADS);
    launch.dynamicSmemBytes = (size_t)pieces_of(each) * PIECE_MAX;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    auto kernel = cuda_of(b)->exact ? cross_entropy_cluster_kernel<true>
                                    : cross_entropy_cluster_kernel<false>;
    CUDA_TRY(e, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     LOSS_COLUMNS * 2));
    CUDA_TRY(e, cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared));
    CUDA_TRY(e, cudaOccupancyMaxActiveClusters(&fit, kernel, &launch));
    /* As many as run at once: one more would start only after all others. */
    launch.gridDim = dim3(blocks * (unsigned)min_i64(a->rows, fit));
    launch.stream = cuda_lane(b, lane);
    CUDA_TRY(e, cudaLaunchKernelEx(&launch, kernel, *a, each, logits));
    return cuda_launched("cross_entropy", e);
}
