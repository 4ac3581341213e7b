/* Cross-entropy of rows that a cluster of blocks holds in its registers: a row is read once, its
 * maximum and sum are joined through distributed shared memory, and the gradient is made from what
 * was read. 4 bytes an element, from memory alone; two blocks a multiprocessor, so that one waits
 * for its row while the other works.
 *
 * Devices of compute capability 9 and 10; others take loss.cu's way. */
#include <cooperative_groups.h>
#include <cuda_bf16.h>

#include "kernels/cuda/loss.cuh"

enum {
    CLUSTER_THREADS = 512,
    CLUSTER_WARPS = CLUSTER_THREADS / WARP,
    CLUSTER_VECTORS = 8, /* of a thread: 32 registers */
    CLUSTER_COLUMNS = CLUSTER_THREADS * CLUSTER_VECTORS * 8, /* of a block */
    CLUSTER_MAX = 8      /* blocks of a portable cluster */
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* The largest of some logits, NaN left out, and the sum of exp(x - max). Of logits that are all
 * -infinity, or of none, the sum is that of exp(x). */
struct row_part { float max, sum; };

/* sum as it counts towards a maximum that is at least as large. */
__device__ static float rescaled(struct row_part p, float max) {
    return p.max == -INFINITY ? p.sum : p.sum * fast_exp(p.max - max);
}

__device__ static struct row_part warp_join(struct row_part p) {
    float max = p.max;
#pragma unroll
    for (int step = WARP / 2; step; step /= 2)
        max = max_of(max, __shfl_xor_sync(0xFFFFFFFFu, max, step));
    return { max, warp_sum(rescaled(p, max)) };
}

/* This thread's vectors. */
__device__ static struct row_part thread_part(const uint4 (&held)[CLUSTER_VECTORS]) {
    const uint32_t none = 0xFF80FF80u; /* -infinity, twice */
    __nv_bfloat162 top = *(const __nv_bfloat162 *)&none;
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        const __nv_bfloat162 *pair = (const __nv_bfloat162 *)&held[i];
        top = __hmax2(top, __hmax2(__hmax2(pair[0], pair[1]), __hmax2(pair[2], pair[3])));
    }
    struct row_part p = { max_of(__low2float(top), __high2float(top)), 0.0f };
    float shift = p.max == -INFINITY ? 0.0f : p.max;
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        float v[8];
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) p.sum += fast_exp(v[j] - shift);
    }
    return p;
}

/* The first n of eight logits, -infinity behind them. */
__device__ static uint4 keep_logits(uint4 v, int64_t n) {
    uint32_t word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (n <= 2 * i) word[i] = 0xFF80FF80u;
        else if (n == 2 * i + 1) word[i] = (word[i] & 0xFFFFu) | 0xFF800000u;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Grid: a cluster a row, of which each block has `each` vectors, one after another. */
__global__ void __launch_bounds__(CLUSTER_THREADS, 2)
    cross_entropy_cluster_kernel(struct loss_args a, int64_t each) {
    __shared__ struct row_part warp_part[CLUSTER_WARPS], block_part;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    int blocks = (int)cluster.num_blocks(), rank = (int)cluster.block_rank();
    int64_t row = blockIdx.x / (unsigned)blocks;
    int64_t first = rank * each, end = min(first + each, a.width / 8);
    const bf16_bits *x = a.logits + row * a.ld;
    uint4 held[CLUSTER_VECTORS];
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        int64_t at = first + threadIdx.x + i * CLUSTER_THREADS;
        held[i] = make_uint4(0xFF80FF80u, 0xFF80FF80u, 0xFF80FF80u, 0xFF80FF80u);
        if (at < end) held[i] = *(const uint4 *)(x + at * 8);
        if (at * 8 + 8 > a.vocab) held[i] = keep_logits(held[i], a.vocab - at * 8);
    }
    float picked = picked_logit(a, row);
    struct row_part p = warp_join(thread_part(held));
    if (threadIdx.x % WARP == 0) warp_part[threadIdx.x / WARP] = p;
    __syncthreads();
    if (threadIdx.x < WARP) {
        p = { -INFINITY, 0.0f };
        if (threadIdx.x < CLUSTER_WARPS) p = warp_part[threadIdx.x];
        p = warp_join(p);
        if (threadIdx.x == 0) block_part = p;
    }
    cluster.sync(); /* every block has read its logits, too */
    p = { -INFINITY, 0.0f };
    if ((int)(threadIdx.x % WARP) < blocks)
        p = *cluster.map_shared_rank(&block_part, threadIdx.x % WARP);
    p = warp_join(p);
    if (p.max == -INFINITY) p.sum = f32_from_bits(0x7FC00000u);
    cluster.barrier_arrive(); /* block_part has been read: see the end */
    if (rank == 0 && threadIdx.x == 0) store_loss(a, row, p.max, p.sum, picked);
    int64_t target = a.targets[row];
    struct row_result r = { p.max, 1.0f / p.sum, a.d_logits ? *a.grad_scale : 0.0f, target,
                            target >= 0 };
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        int64_t at = first + threadIdx.x + i * CLUSTER_THREADS;
        if (!a.d_logits || at >= end) continue;
        float v[8];
        bf16x8_decode(v, held[i]);
        gradient_of(v, a, r, at * 8);
        top = max(top, store_bf16(a.d_logits + row * a.width + at * 8, v));
    }
    block_amax_into(a.amax, top);
    cluster.barrier_wait(); /* no block leaves while another may read its block_part */
}

#else
__global__ void cross_entropy_cluster_kernel(struct loss_args, int64_t) {}
#endif

bool loss_clusters_fit(struct backend *b, int64_t width) {
    int cc = cuda_of(b)->cc;
    return cc >= 90 && cc < 120 && width <= (int64_t)CLUSTER_MAX * CLUSTER_COLUMNS;
}

enum status loss_by_clusters(struct backend *b, int lane, const struct loss_args *a,
                             struct err *e) {
    unsigned blocks = 1;
    while ((int64_t)blocks * CLUSTER_COLUMNS < a->width) blocks *= 2;
    if (a->rows * blocks > INT32_MAX)
        return FAIL(e, ERR_ARG, "cross_entropy: %lld rows", (long long)a->rows);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3((unsigned)a->rows * blocks);
    launch.blockDim = dim3(CLUSTER_THREADS);
    launch.stream = cuda_lane(b, lane);
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    int64_t each = ceil_div(a->width / 8, blocks);
    CUDA_TRY(e, cudaLaunchKernelEx(&launch, cross_entropy_cluster_kernel, *a, each));
    return cuda_launched("cross_entropy", e);
}
