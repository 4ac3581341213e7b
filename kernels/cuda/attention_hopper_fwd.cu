/* Causal attention forward on Hopper's warpgroup products: the online softmax of attention.cu. A
 * block has two warpgroups with 64 query rows each, and a warp that requests keys, 128 at a time.
 *
 * As in FlashAttention-3 (arXiv:2407.08608) the scores of the next tile are multiplied before the
 * probabilities of this tile are multiplied by V. So a warpgroup's exponentials overlap its own
 * products. The two warpgroups alternate in queueing products, so that they overlap each other. */
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/hopper_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

enum { WARPGROUP = 128, THREADS = 3 * WARPGROUP, OWN = ATTENTION_QUERIES,
       STEP = ATTENTION_WGMMA_KEYS, STAGES = 2, QUERY_WARPS = 8 };

/* Shared memory: offsets in bytes from a 1024-byte-aligned address. */
template <int D> struct tiles {
    static constexpr int TILE = STEP * D * 2;
    static constexpr int Q = 0, K = TILE, V = K + STAGES * TILE, BARRIERS = V + STAGES * TILE;
    static constexpr int BYTES = BARRIERS + (4 * STAGES + 1) * 8 + 1024;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Addresses in shared memory. */
template <int D> struct places {
    uint32_t base;
    __device__ uint32_t q() const { return base; }
    __device__ uint32_t k(int stage) const { return base + tiles<D>::K + stage * tiles<D>::TILE; }
    __device__ uint32_t v(int stage) const { return base + tiles<D>::V + stage * tiles<D>::TILE; }
    __device__ uint32_t barrier(int i) const { return base + tiles<D>::BARRIERS + i * 8; }
    __device__ uint32_t k_full(int stage) const { return barrier(stage); }
    __device__ uint32_t v_full(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t k_empty(int stage) const { return barrier(2 * STAGES + stage); }
    __device__ uint32_t v_empty(int stage) const { return barrier(3 * STAGES + stage); }
    __device__ uint32_t q_full() const { return barrier(4 * STAGES); }
};

struct task { int row0, head, group, sequence, first, count; }; /* tiles of keys */

template <bool RANGED>
__device__ static struct task task_of(const struct forward &f, const struct sweeps &w) {
    struct swept it = swept_at(w, (int)blockIdx.x);
    struct task t;
    t.row0 = (w.tiles - 1 - it.tile) * OWN; /* the last queries see the most keys */
    t.head = it.head % f.a.heads;
    t.group = t.head * f.a.kv_heads / f.a.heads;
    t.sequence = it.head / f.a.heads;
    t.first = RANGED ? first_key_of(f.a, t.sequence, t.row0) / STEP : 0;
    t.count = t.row0 / STEP + 1 - t.first; /* the last tile is the diagonal */
    return t;
}

/* 128 rows of one head. */
template <int D>
__device__ static void copy_tile_of(uint32_t to, const CUtensorMap *map, uint32_t barrier, int head,
                                    int row, int sequence) {
    barrier_expect(barrier, tiles<D>::TILE);
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++)
        copy_box(to + panel * (STEP * LINE_BYTES), map, barrier, panel * 64, head, row, sequence);
}

template <int D, bool RANGED>
__device__ static void request_tiles(const struct forward &f, const struct sweeps &w,
                                     const CUtensorMap *map, const struct places<D> &s) {
    struct task t = task_of<RANGED>(f, w);
    int key_head = f.a.heads + t.group, value_head = key_head + f.a.kv_heads;
    copy_tile_of<D>(s.q(), map, s.q_full(), t.head, t.row0, t.sequence);
    for (int n = 0; n < t.count; n++) {
        int stage = n % STAGES, parity = n / STAGES - 1 & 1, row = (t.first + n) * STEP;
        if (n >= STAGES) barrier_wait(s.k_empty(stage), parity);
        copy_tile_of<D>(s.k(stage), map, s.k_full(stage), key_head, row, t.sequence);
        if (n >= STAGES) barrier_wait(s.v_empty(stage), parity);
        copy_tile_of<D>(s.v(stage), map, s.v_full(stage), value_head, row, t.sequence);
    }
}

/* The warpgroups alternate in queueing their products. */
__device__ static void wait_for_turn(int warpgroup) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warpgroup), "n"(2 * WARPGROUP) : "memory");
}
__device__ static void pass_turn(int warpgroup) {
    asm volatile("bar.arrive %0, %1;" ::"r"(2 - warpgroup), "n"(2 * WARPGROUP) : "memory");
}

/* Running maximum and sum of a thread's two rows: g and g + 8. */
struct rows_so_far { float max[2], sum[2]; };

/* Masks keys after the query. behind: the warpgroup's first query minus the tile's first key. */
__device__ static void mask(float (&s)[STEP / 8][4], int behind) {
    int lane = threadIdx.x % WARP, row = threadIdx.x / WARP % 4 * 16 + lane / 4 + behind;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (j * 8 + lane % 4 * 2 + i % 2 > row + i / 2 * 8) s[j][i] = -INFINITY;
}

/* Keys before the first that a query sees. row, key: the warpgroup's first query, the tile's first
 * key. */
__device__ static void mask_before(float (&s)[STEP / 8][4], const struct attention &a, int sequence,
                                   int row, int key) {
    int lane = threadIdx.x % WARP, own = row + threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int low = first_key_of(a, sequence, own + 8 * h) - key;
#pragma unroll
        for (int j = 0; j < STEP / 8; j++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++)
                if (j * 8 + lane % 4 * 2 + i % 2 < low) s[j][i] = -INFINITY;
    }
}

/* Scores to probabilities under the new maximum; keep: the factor of earlier sums. RANGED: a row
 * may have seen no key yet. */
template <bool RANGED, bool EXACT>
__device__ static void softmax_step(float (&s)[STEP / 8][4], struct rows_so_far &r,
                                    float (&keep)[2], float scale_log2) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = r.max[h], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < STEP / 8; j++) top = fmaxf(top, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        top = quad_max(top);
        float base = RANGED && top == -INFINITY ? 0.0f : top, shift = base * scale_log2;
        keep[h] = attention_exp2<EXACT>((r.max[h] - base) * scale_log2);
#pragma unroll
        for (int j = 0; j < STEP / 8; j++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                s[j][i] = attention_exp2<EXACT>(fmaf(s[j][i], scale_log2, -shift));
                sum += s[j][i];
            }
        r.max[h] = top;
        r.sum[h] = fmaf(r.sum[h], keep[h], sum);
    }
}

template <int D>
__device__ static void rescale_sums(float (&o)[D / 8][4], const float (&keep)[2]) {
#pragma unroll
    for (int j = 0; j < D / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[j][i] *= keep[i / 2];
}

/* The warpgroup's rows from `first` on. */
template <int D, bool EXACT>
__device__ static void store_out(const struct forward &f, const float (&o)[D / 8][4],
                                 const struct rows_so_far &r, int64_t sequence, int head,
                                 int64_t first) {
    int lane = threadIdx.x % WARP;
    uint32_t top = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = first + threadIdx.x / WARP % 4 * 16 + lane / 4 + 8 * h;
        float sum = quad_sum(r.sum[h]), inverse = 1.0f / sum;
        if (row >= f.a.length) continue;
        if (lane % 4 == 0)
            f.lse[(sequence * f.a.heads + head) * f.a.length + row] =
                f32_canonical(r.max[h] * f.a.scale + attention_log<EXACT>(sum));
        bf16_bits *to = f.o + ((sequence * f.a.length + row) * f.a.heads + head) * D;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            uint32_t pair = bf16x2_encode(o[j][2 * h] * inverse, o[j][2 * h + 1] * inverse);
            *(uint32_t *)(to + j * 8 + lane % 4 * 2) = pair;
            top = max(top, max(pair << 16 & 0x7FFF0000u, pair & 0x7FFF0000u));
        }
    }
    warp_amax_into(f.amax, top);
}

template <int D, bool RANGED, bool EXACT>
__device__ static void multiply(const struct forward &f, const struct sweeps &w,
                                const struct places<D> &s) {
    struct task t = task_of<RANGED>(f, w);
    int warpgroup = threadIdx.x / WARPGROUP - 1, row = t.row0 + warpgroup * 64, low = 0;
    if constexpr (RANGED) /* the largest first key of the warpgroup's rows */
        low = first_key_of(f.a, t.sequence, min((int64_t)row + 64, f.a.length) - 1);
    float scale_log2 = f.a.scale * ATTENTION_LOG2_E, keep[2], x[STEP / 8][4], o[D / 8][4] = {};
    uint32_t left[STEP / 16][4];
    struct rows_so_far r = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f } };
    bool signals = threadIdx.x % WARP == 0;
    if (warpgroup == 1) pass_turn(1);
    barrier_wait(s.q_full(), 0);
    barrier_wait(s.k_full(0), 0);
    wait_for_turn(warpgroup);
    wgmma_hold(x);
    wgmma_begin();
    queue_rows<D, OWN>(x, s.q(), warpgroup * 64, s.k(0));
    wgmma_commit();
    pass_turn(warpgroup);
    wgmma_wait<0>();
    wgmma_hold(x);
    if (signals) barrier_arrive(s.k_empty(0));
    if (t.count == 1) mask(x, warpgroup * 64);
    if (RANGED && t.first * STEP < low) mask_before(x, f.a, t.sequence, row, t.first * STEP);
    softmax_step<RANGED, EXACT>(x, r, keep, scale_log2);
    pack_left(left, x);
    for (int n = 1; n < t.count; n++) {
        int stage = n % STAGES, before = (n - 1) % STAGES;
        barrier_wait(s.k_full(stage), n / STAGES & 1);
        barrier_wait(s.v_full(before), (n - 1) / STAGES & 1);
        wait_for_turn(warpgroup);
        wgmma_hold(x);
        wgmma_hold(o);
        wgmma_begin();
        queue_rows<D, OWN>(x, s.q(), warpgroup * 64, s.k(stage));
        wgmma_commit();
        queue_columns<D, STEP>(o, left, s.v(before));
        wgmma_commit();
        pass_turn(warpgroup);
        wgmma_wait<1>();
        wgmma_hold(x);
        if (signals) barrier_arrive(s.k_empty(stage));
        if (n + 1 == t.count) mask(x, warpgroup * 64);
        if (RANGED && (t.first + n) * STEP < low)
            mask_before(x, f.a, t.sequence, row, (t.first + n) * STEP);
        softmax_step<RANGED, EXACT>(x, r, keep, scale_log2);
        wgmma_wait<0>();
        wgmma_hold(o);
        if (signals) barrier_arrive(s.v_empty(before));
        rescale_sums<D>(o, keep);
        pack_left(left, x);
    }
    int last = (t.count - 1) % STAGES;
    barrier_wait(s.v_full(last), (t.count - 1) / STAGES & 1);
    wgmma_hold(o);
    wgmma_begin();
    queue_columns<D, STEP>(o, left, s.v(last));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(o);
    store_out<D, EXACT>(f, o, r, t.sequence, t.head, row);
}

template <int D, bool RANGED, bool EXACT>
__global__ void __launch_bounds__(THREADS, 1)
    hopper_fwd_kernel(struct forward f, struct sweeps w, const __grid_constant__ CUtensorMap map) {
    extern __shared__ char memory[];
    struct places<D> s = { (shared_address(memory) + 1023) & ~1023u };
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2 * STAGES; i++) barrier_init(s.barrier(i), 1);
        for (int i = 2 * STAGES; i < 4 * STAGES; i++) barrier_init(s.barrier(i), QUERY_WARPS);
        barrier_init(s.q_full(), 1);
    }
    barriers_ready();
    if (threadIdx.x < WARPGROUP) {
        registers_down<24>();
        if (threadIdx.x == 0) request_tiles<D, RANGED>(f, w, &map, s);
    } else {
        registers_up<240>();
        multiply<D, RANGED, EXACT>(f, w, s);
    }
}

#else

template <int D, bool RANGED, bool EXACT> __global__ void
hopper_fwd_kernel(struct forward f, struct sweeps w, const __grid_constant__ CUtensorMap map) {}

#endif

typedef void (*forward_kernel)(struct forward, struct sweeps, const CUtensorMap);
template <int D> static forward_kernel kernel_for(bool ranged, bool exact) {
    if (exact) return ranged ? hopper_fwd_kernel<D, true, true> : hopper_fwd_kernel<D, false, true>;
    return ranged ? hopper_fwd_kernel<D, true, false> : hopper_fwd_kernel<D, false, false>;
}

template <int D> static enum status open_kernels(struct err *e) {
    for (int i = 0; i < 4; i++)
        CUDA_TRY(e, cudaFuncSetAttribute(kernel_for<D>(i % 2, i / 2),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         tiles<D>::BYTES));
    return OK;
}

enum status hopper_attention_fwd_open(struct err *e) {
    TRY(open_kernels<64>(e));
    return open_kernels<128>(e);
}

template <int D>
static void launch(const struct cuda_backend *b, const struct forward &f, const CUtensorMap &map,
                   cudaStream_t stream) {
    const struct attention *a = &f.a;
    struct sweeps w = sweeps_of(ceil_div(a->length, OWN), a->heads * a->batch, b->sm_count);
    auto kernel = kernel_for<D>(a->first_key, a->exact);
    kernel<<<sweeps_blocks(w), THREADS, tiles<D>::BYTES, stream>>>(f, w, map);
}

enum status hopper_attention_fwd(const struct cuda_backend *b, const struct forward *f,
                                 cudaStream_t stream, struct err *e) {
    const struct attention *a = &f->a;
    CUtensorMap map;
    TRY(hopper_map(&map, a->qkv, a->batch, a->length, a->heads + 2 * a->kv_heads, a->head_dim,
                   a->width, STEP, e));
    if (a->head_dim == 64) launch<64>(b, *f, map, stream);
    else launch<128>(b, *f, map, stream);
    return OK;
}
