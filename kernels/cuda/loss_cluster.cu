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

static const uint32_t NONE = 0xFF80FF80u; /* two logits of -infinity */

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

__device__ static __nv_bfloat162 pair_of(uint32_t word) {
    union { uint32_t word; __nv_bfloat162 pair; } u = { word };
    return u.pair;
}

/* This thread's vectors. */
__device__ static struct row_part thread_part(const uint4 (&held)[CLUSTER_VECTORS]) {
    __nv_bfloat162 top = pair_of(NONE);
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        top = __hmax2(top, __hmax2(pair_of(held[i].x), pair_of(held[i].y)));
        top = __hmax2(top, __hmax2(pair_of(held[i].z), pair_of(held[i].w)));
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
__device__ static uint4 keep_logits(uint4 v, int n) {
    uint32_t word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (n <= 2 * i) word[i] = NONE;
        else if (n == 2 * i + 1) word[i] = (word[i] & 0xFFFFu) | (NONE & 0xFFFF0000u);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Joins the parts of all threads of the cluster; every thread has the same bits. */
__device__ static struct row_part cluster_join(struct row_part p,
                                               cooperative_groups::cluster_group cluster,
                                               struct row_part *warp_part,
                                               struct row_part *block_part) {
    p = warp_join(p);
    if (threadIdx.x % WARP == 0) warp_part[threadIdx.x / WARP] = p;
    __syncthreads();
    if (threadIdx.x < WARP) {
        p = { -INFINITY, 0.0f };
        if (threadIdx.x < CLUSTER_WARPS) p = warp_part[threadIdx.x];
        p = warp_join(p);
        if (threadIdx.x == 0) *block_part = p;
    }
    cluster.sync();
    p = { -INFINITY, 0.0f };
    if (threadIdx.x % WARP < cluster.num_blocks())
        p = *cluster.map_shared_rank(block_part, threadIdx.x % WARP);
    p = warp_join(p);
    if (p.max == -INFINITY) p.sum = f32_from_bits(0x7FC00000u);
    return p;
}

/* Grid: a cluster a row, of which each block has `each` vectors, one after another. Columns are
 * counted in vectors of eight, in 32 bits. */
__global__ void __launch_bounds__(CLUSTER_THREADS, 2)
    cross_entropy_cluster_kernel(struct loss_args a, int each) {
    __shared__ struct row_part warp_part[CLUSTER_WARPS], block_part;
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    int64_t row = blockIdx.x / cluster.num_blocks();
    int first = (int)cluster.block_rank() * each, end = min(first + each, (int)(a.width / 8));
    int vocab = (int)a.vocab, target = a.targets[row];
    const uint4 *x = (const uint4 *)(a.logits + row * a.ld);
    uint4 held[CLUSTER_VECTORS];
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        int at = first + (int)threadIdx.x + i * CLUSTER_THREADS;
        held[i] = make_uint4(NONE, NONE, NONE, NONE);
        if (at < end) held[i] = x[at];
    }
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        int at = first + (int)threadIdx.x + i * CLUSTER_THREADS;
        if (at >= vocab / 8) held[i] = keep_logits(held[i], vocab - at * 8);
    }
    float picked = picked_logit(a, row); /* before anything is stored behind the meeting */
    struct row_part p = cluster_join(thread_part(held), cluster, warp_part, &block_part);
    cluster.barrier_arrive(); /* block_part has been read: see the end */
    if (first == 0 && threadIdx.x == 0) store_loss(a, row, p.max, p.sum, picked);
    float scale = a.d_logits ? *a.grad_scale : 0.0f, factor = scale / p.sum;
    uint4 *d = (uint4 *)(a.d_logits + row * a.width);
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER_VECTORS; i++) {
        int at = first + (int)threadIdx.x + i * CLUSTER_THREADS;
        if (!a.d_logits || at >= end) continue;
        float v[8];
        bf16x8_decode(v, held[i]);
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = fast_exp(v[j] - p.max) * factor;
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
    block_amax_into(a.amax, max(top << 16, top & 0xFFFF0000u));
    cluster.barrier_wait(); /* no block leaves while another may read its block_part */
}

#else
__global__ void cross_entropy_cluster_kernel(struct loss_args, int) {}
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
    int each = (int)ceil_div(a->width / 8, blocks);
    CUDA_TRY(e, cudaLaunchKernelEx(&launch, cross_entropy_cluster_kernel, *a, each));
    return cuda_launched("cross_entropy", e);
}
