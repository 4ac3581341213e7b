/* Causal attention's backward on Hopper's warpgroup products, without atomics and without storing
 * scores: as in attention_bwd.cu the gradients of keys and values have one owner per key tile, those of
 * queries one per query tile, and each recomputes the probabilities that it needs.
 *
 * A block is one warp that asks for tiles (hopper_copy.cuh) and two warpgroups that multiply, each with
 * 64 rows of the block's own 128: keys in the first kernel, where queries come 64 at a time, queries
 * in the second, where keys come 64 at a time. The two run apart by what the ring of tiles allows, so
 * that the exponentials of one fall into the products of the other. */
#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/hopper_copy.cuh"
#include "kernels/cuda/wgmma.cuh"

enum { WARPGROUP = 128, THREADS = 3 * WARPGROUP, OWN = 128, STEP = 64, STAGES = 4, USERS = 8 };

struct maps { CUtensorMap qkv, d_o; };

/* Shared memory, in bytes from an address that 1024 divides. */
template <int D> struct tiles {
    static constexpr int OWN_BYTES = OWN * D * 2, STEP_BYTES = STEP * D * 2;
    static constexpr int FIRST = 0, SECOND = OWN_BYTES; /* own: k, v or q, d_o */
    static constexpr int COMING = 2 * OWN_BYTES;         /* STAGES times: q, d_o or k, v */
    static constexpr int LSE = COMING + STAGES * 2 * STEP_BYTES, DELTA = LSE + STAGES * STEP * 4;
    static constexpr int BARRIERS = DELTA + STAGES * STEP * 4;
    static constexpr int BYTES = BARRIERS + (2 * STAGES + 2) * 8 + 1024;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

static const float LOG2_E = 1.44269504f;

/* Addresses in shared memory. */
template <int D> struct places {
    uint32_t base;
    __device__ uint32_t own(int which) const { return base + which * tiles<D>::OWN_BYTES; }
    __device__ uint32_t coming(int stage, int which) const {
        return base + tiles<D>::COMING + (2 * stage + which) * tiles<D>::STEP_BYTES;
    }
    __device__ uint32_t lse(int stage) const { return base + tiles<D>::LSE + stage * STEP * 4; }
    __device__ uint32_t delta(int stage) const { return base + tiles<D>::DELTA + stage * STEP * 4; }
    __device__ uint32_t full(int stage) const { return base + tiles<D>::BARRIERS + stage * 8; }
    __device__ uint32_t empty(int stage) const { return full(STAGES + stage); }
    __device__ uint32_t own_full() const { return full(2 * STAGES); }
    __device__ uint32_t own_empty() const { return full(2 * STAGES + 1); }
};

template <int D> __device__ static struct places<D> open_places() {
    extern __shared__ char memory[];
    struct places<D> s = { (shared_address(memory) + 1023) & ~1023u };
    /* Rows behind the last are not copied: what they multiply must be finite. */
    for (int i = threadIdx.x; i < 2 * STAGES * STEP; i += THREADS)
        asm volatile("st.shared.u32 [%0], 0;" ::"r"(s.lse(0) + i * 4));
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full(i), 1);
            barrier_init(s.empty(i), USERS);
        }
        barrier_init(s.own_full(), 1);
        barrier_init(s.own_empty(), USERS);
    }
    barriers_ready();
    return s;
}

/* `ROWS` rows of D of one head, 64 at a time. */
template <int D, int ROWS>
__device__ static void copy_tile_of(uint32_t to, const CUtensorMap *map, uint32_t barrier, int head,
                                    int row, int sequence) {
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++)
#pragma unroll
        for (int line = 0; line < ROWS; line += 64)
            copy_box(to + panel * (ROWS * LINE_BYTES) + line * LINE_BYTES, map, barrier, panel * 64,
                     head, row + line, sequence);
}

__device__ static bool is_first_lane() { return threadIdx.x % WARP == 0; }

/* Rows of a 64 x D sum into BF16 rows `stride` apart; rows from `valid` on are not there. */
template <int D>
__device__ static void store_rows(bf16_bits *to, int64_t stride, const float (&x)[D / 8][4],
                                  float scale, int64_t valid) {
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = first + 8 * h;
        if (row >= valid) continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++)
            *(uint32_t *)(to + row * stride + j * 8 + lane % 4 * 2) =
                bf16x2_encode(x[j][2 * h] * scale, x[j][2 * h + 1] * scale);
    }
}

/* ---- keys and values: a warpgroup's rows are keys, columns queries ---- */

/* A tile of keys and what comes to it: tiles of queries, one head of the group after the other. */
struct keys_task {
    int key0, sequence, group, share, tiles, count; /* tiles of one head; count: of all */
};

__device__ static struct keys_task keys_task_of(const struct backward &f, int tile) {
    struct keys_task t;
    t.key0 = tile * OWN;
    t.sequence = blockIdx.z;
    t.group = blockIdx.y;
    t.share = f.a.heads / f.a.kv_heads;
    t.tiles = ((int)f.a.length - t.key0 + STEP - 1) / STEP;
    t.count = t.share * t.tiles;
    return t;
}

/* The tiles of keys of this block: early keys are seen by many queries, late ones by few, so it takes
 * one of each, and all blocks have as much to do. */
struct pair_of_tiles { int at, last, step; };
__device__ static struct pair_of_tiles tiles_of_block(int length) {
    int last = (length + OWN - 1) / OWN - 1, early = (int)blockIdx.x;
    return { early, last - early, max(last - 2 * early, 1) };
}

template <int D>
__device__ static void ask_for_queries(const struct backward &f, const struct maps &m,
                                       const struct places<D> &s) {
    struct pair_of_tiles pair = tiles_of_block((int)f.a.length);
    int n = 0, round = 0;
    for (int tile = pair.at; tile <= pair.last; tile += pair.step, round++) {
        struct keys_task t = keys_task_of(f, tile);
        if (round) barrier_wait(s.own_empty(), round - 1);
        barrier_expect(s.own_full(), 2 * tiles<D>::OWN_BYTES);
        copy_tile_of<D, OWN>(s.own(0), &m.qkv, s.own_full(), f.a.heads + t.group, t.key0, t.sequence);
        copy_tile_of<D, OWN>(s.own(1), &m.qkv, s.own_full(), f.a.heads + f.a.kv_heads + t.group,
                             t.key0, t.sequence);
        for (int index = 0; index < t.count; index++, n++) {
            int stage = n % STAGES, head = t.group * t.share + index / t.tiles;
            int row = t.key0 + index % t.tiles * STEP;
            int floats = min(STEP, (int)f.a.length - row) * 4;
            int64_t at = ((int64_t)t.sequence * f.a.heads + head) * f.a.length + row;
            if (n >= STAGES) barrier_wait(s.empty(stage), n / STAGES - 1 & 1);
            barrier_expect(s.full(stage), 2 * tiles<D>::STEP_BYTES + 2 * floats);
            copy_tile_of<D, STEP>(s.coming(stage, 0), &m.qkv, s.full(stage), head, row, t.sequence);
            copy_tile_of<D, STEP>(s.coming(stage, 1), &m.d_o, s.full(stage), head, row, t.sequence);
            copy_bytes(s.lse(stage), f.lse + at, floats, s.full(stage));
            copy_bytes(s.delta(stage), f.delta + at, floats, s.full(stage));
        }
    }
}

__device__ static float2 shared_pair(uint32_t at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
    return x;
}

/* Scores s^T of keys behind the query: none. diagonal: by how much the first query of the tile is
 * behind the warpgroup's first key. */
__device__ static void mask_keys(float (&s)[STEP / 8][4], int diagonal) {
    int lane = threadIdx.x % WARP, key = threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > j * 8 + lane % 4 * 2 + i % 2 + diagonal) s[j][i] = -INFINITY;
}

/* Scores to probabilities: exp(s scale - lse), lse by column. */
__device__ static void probabilities(float (&p)[STEP / 8][4], uint32_t lse, float scale_log2) {
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        float2 l = shared_pair(lse + (j * 8 + threadIdx.x % 4 * 2) * 4);
        l.x *= -LOG2_E;
        l.y *= -LOG2_E;
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[j][i] = exp2_fast(fmaf(p[j][i], scale_log2, i % 2 ? l.y : l.x));
    }
}

/* Queries from `valid` on are not there. */
__device__ static void cut_queries(float (&p)[STEP / 8][4], int valid) {
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (j * 8 + (int)threadIdx.x % 4 * 2 + i % 2 >= valid) p[j][i] = 0.0f;
}

/* One tile of queries against the warpgroup's keys. The products into dk and dv are waited for here:
 * left under way into the next tile, the compiler puts all products one after the other. */
template <int D>
__device__ static void meet_queries(const struct places<D> &s, int stage, int diagonal, int valid,
                                    float scale_log2, float (&dk)[D / 8][4],
                                    float (&dv)[D / 8][4]) {
    uint32_t q = s.coming(stage, 0), d_o = s.coming(stage, 1);
    int line = (threadIdx.x / WARPGROUP - 1) * 64;
    float p[STEP / 8][4], ds[STEP / 8][4];
    uint32_t left[STEP / 16][4], right[STEP / 16][4];
    wgmma_hold(p);
    wgmma_hold(ds);
    wgmma_begin();
    queue_rows<D, OWN>(p, s.own(0), line, q);
    wgmma_commit();
    queue_rows<D, OWN>(ds, s.own(1), line, d_o);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(p);
    if (diagonal < STEP) mask_keys(p, diagonal);
    probabilities(p, s.lse(stage), scale_log2);
    if (valid < STEP) cut_queries(p, valid);
    pack_left(left, p);
    wgmma_wait<0>();
    wgmma_hold(ds);
    wgmma_hold(dv);
    wgmma_begin();
    queue_columns<D, STEP>(dv, left, d_o);
    wgmma_commit();
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        float2 d = shared_pair(s.delta(stage) + (j * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) ds[j][i] = p[j][i] * (ds[j][i] - (i % 2 ? d.y : d.x));
    }
    pack_left(right, ds);
    wgmma_hold(dk);
    wgmma_begin();
    queue_columns<D, STEP>(dk, right, q);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(dk);
    wgmma_hold(dv);
}

template <int D>
__device__ static void own_keys(const struct backward &f, const struct places<D> &s) {
    struct pair_of_tiles pair = tiles_of_block((int)f.a.length);
    int warpgroup = threadIdx.x / WARPGROUP - 1, n = 0, round = 0;
    float scale_log2 = f.a.scale * LOG2_E;
    for (int tile = pair.at; tile <= pair.last; tile += pair.step, round++) {
        struct keys_task t = keys_task_of(f, tile);
        float dk[D / 8][4] = {}, dv[D / 8][4] = {};
        barrier_wait(s.own_full(), round);
        for (int index = 0; index < t.count; index++, n++) {
            int stage = n % STAGES, at = index % t.tiles;
            barrier_wait(s.full(stage), n / STAGES & 1);
            if (at || warpgroup == 0) { /* else its keys are all behind these queries */
                int diagonal = at < 2 ? at * STEP - warpgroup * 64 : STEP;
                meet_queries<D>(s, stage, diagonal, (int)f.a.length - t.key0 - at * STEP, scale_log2,
                                dk, dv);
            }
            if (is_first_lane()) barrier_arrive(s.empty(stage));
        }
        if (is_first_lane()) barrier_arrive(s.own_empty());
        int64_t row = t.key0 + warpgroup * 64;
        bf16_bits *to = f.d_qkv + (t.sequence * f.a.length + row) * f.a.width +
                        (int64_t)(f.a.heads + t.group) * D;
        store_rows<D>(to, f.a.width, dk, f.a.scale, f.a.length - row);
        store_rows<D>(to + (int64_t)f.a.kv_heads * D, f.a.width, dv, 1.0f, f.a.length - row);
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    hopper_dkv_kernel(struct backward f, const __grid_constant__ struct maps m) {
    struct places<D> s = open_places<D>();
    if (threadIdx.x < WARPGROUP) {
        registers_down<24>();
        if (threadIdx.x == 0) ask_for_queries<D>(f, m, s);
    } else {
        registers_up<240>();
        own_keys<D>(f, s);
    }
}

/* ---- queries: a warpgroup's rows are queries, columns keys ---- */

/* Scores of keys behind the query, in the tile whose first key is the warpgroup's first query. */
__device__ static void mask_rows(float (&s)[STEP / 8][4], int row) {
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (j * 8 + (int)threadIdx.x % 4 * 2 + i % 2 > row + i / 2 * 8) s[j][i] = -INFINITY;
}

struct queries_task { int row0, head, group, sequence, count; };

__device__ static struct queries_task queries_task_of(const struct backward &f) {
    struct queries_task t;
    t.row0 = ((int)gridDim.x - 1 - (int)blockIdx.x) * OWN; /* the longest first */
    t.head = blockIdx.y;
    t.group = t.head * f.a.kv_heads / f.a.heads;
    t.sequence = blockIdx.z;
    t.count = (min(t.row0 + OWN, (int)f.a.length) + STEP - 1) / STEP;
    return t;
}

template <int D>
__device__ static void ask_for_keys(const struct backward &f, const struct maps &m,
                                    const struct places<D> &s) {
    struct queries_task t = queries_task_of(f);
    barrier_expect(s.own_full(), 2 * tiles<D>::OWN_BYTES);
    copy_tile_of<D, OWN>(s.own(0), &m.qkv, s.own_full(), t.head, t.row0, t.sequence);
    copy_tile_of<D, OWN>(s.own(1), &m.d_o, s.own_full(), t.head, t.row0, t.sequence);
    for (int n = 0; n < t.count; n++) {
        int stage = n % STAGES;
        if (n >= STAGES) barrier_wait(s.empty(stage), n / STAGES - 1 & 1);
        barrier_expect(s.full(stage), 2 * tiles<D>::STEP_BYTES);
        copy_tile_of<D, STEP>(s.coming(stage, 0), &m.qkv, s.full(stage), f.a.heads + t.group,
                              n * STEP, t.sequence);
        copy_tile_of<D, STEP>(s.coming(stage, 1), &m.qkv, s.full(stage),
                              f.a.heads + f.a.kv_heads + t.group, n * STEP, t.sequence);
    }
}

template <int D>
__device__ static void own_queries(const struct backward &f, const struct places<D> &s) {
    struct queries_task t = queries_task_of(f);
    int warpgroup = threadIdx.x / WARPGROUP - 1, lane = threadIdx.x % WARP;
    int first = t.row0 + warpgroup * 64, mine = threadIdx.x / WARP % 4 * 16 + lane / 4;
    float scale_log2 = f.a.scale * LOG2_E, lse[2], delta[2], dq[D / 8][4] = {};
    int64_t rows = ((int64_t)t.sequence * f.a.heads + t.head) * f.a.length;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = first + mine + 8 * h;
        bool there = row < (int)f.a.length;
        lse[h] = there ? f.lse[rows + row] * LOG2_E : 0.0f;
        delta[h] = there ? f.delta[rows + row] : 0.0f;
    }
    uint32_t q[D / 16][4], d_o[D / 16][4];
    barrier_wait(s.own_full(), 0);
    load_left<D, OWN>(q, s.own(0), warpgroup * 64);
    load_left<D, OWN>(d_o, s.own(1), warpgroup * 64);
    int needed = first / STEP + 1; /* tiles that this warpgroup sees; the last is the diagonal */
    for (int n = 0; n < t.count; n++) {
        int stage = n % STAGES;
        barrier_wait(s.full(stage), n / STAGES & 1);
        if (n < needed) {
            float p[STEP / 8][4], ds[STEP / 8][4];
            uint32_t left[STEP / 16][4];
            wgmma_hold(p);
            wgmma_hold(ds);
            wgmma_begin();
            queue_rows<D>(p, q, s.coming(stage, 0));
            wgmma_commit();
            queue_rows<D>(ds, d_o, s.coming(stage, 1));
            wgmma_commit();
            wgmma_wait<1>();
            wgmma_hold(p);
            if (n + 1 == needed) mask_rows(p, mine);
#pragma unroll
            for (int j = 0; j < STEP / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    p[j][i] = exp2_fast(fmaf(p[j][i], scale_log2, -lse[i / 2]));
            wgmma_wait<0>();
            wgmma_hold(ds);
#pragma unroll
            for (int j = 0; j < STEP / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) ds[j][i] = p[j][i] * (ds[j][i] - delta[i / 2]);
            pack_left(left, ds);
            wgmma_hold(dq);
            wgmma_begin();
            queue_columns<D, STEP>(dq, left, s.coming(stage, 0));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_hold(dq);
        }
        if (is_first_lane()) barrier_arrive(s.empty(stage));
    }
    store_rows<D>(f.d_qkv + (t.sequence * f.a.length + first) * f.a.width + (int64_t)t.head * D,
                  f.a.width, dq, f.a.scale, f.a.length - first);
}

template <int D>
__global__ void __launch_bounds__(THREADS, 1)
    hopper_dq_kernel(struct backward f, const __grid_constant__ struct maps m) {
    struct places<D> s = open_places<D>();
    if (threadIdx.x < WARPGROUP) {
        registers_down<24>();
        if (threadIdx.x == 0) ask_for_keys<D>(f, m, s);
    } else {
        registers_up<240>();
        own_queries<D>(f, s);
    }
}

#else

template <int D> __global__ void
hopper_dkv_kernel(struct backward f, const __grid_constant__ struct maps m) {}
template <int D> __global__ void
hopper_dq_kernel(struct backward f, const __grid_constant__ struct maps m) {}

#endif

/* ---- launching ---- */

template <int D> static enum status open_kernels(struct err *e) {
    CUDA_TRY(e, cudaFuncSetAttribute(hopper_dkv_kernel<D>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, tiles<D>::BYTES));
    CUDA_TRY(e, cudaFuncSetAttribute(hopper_dq_kernel<D>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, tiles<D>::BYTES));
    return OK;
}

enum status hopper_attention_bwd_open(struct err *e) {
    TRY(open_kernels<64>(e));
    return open_kernels<128>(e);
}

template <int D>
static void launch(const struct backward &f, const struct maps &m, cudaStream_t stream) {
    unsigned own = (unsigned)ceil_div(f.a.length, OWN), batch = (unsigned)f.a.batch;
    dim3 keys((own + 1) / 2, (unsigned)f.a.kv_heads, batch);
    dim3 queries(own, (unsigned)f.a.heads, batch);
    hopper_dkv_kernel<D><<<keys, THREADS, tiles<D>::BYTES, stream>>>(f, m);
    hopper_dq_kernel<D><<<queries, THREADS, tiles<D>::BYTES, stream>>>(f, m);
}

enum status hopper_attention_bwd(const struct backward *f, cudaStream_t stream, struct err *e) {
    const struct attention *a = &f->a;
    struct maps m;
    TRY(hopper_map(&m.qkv, a->qkv, a->batch, a->length, a->heads + 2 * a->kv_heads, a->head_dim,
                   a->width, 64, e));
    TRY(hopper_map(&m.d_o, f->d_o, a->batch, a->length, a->heads, a->head_dim,
                   (int64_t)a->heads * a->head_dim, 64, e));
    if (a->head_dim == 64) launch<64>(*f, m, stream);
    else launch<128>(*f, m, stream);
    return OK;
}
