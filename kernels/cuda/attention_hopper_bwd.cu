/* Causal attention's backward on Hopper's warpgroup products: five products, as in FlashAttention-3
 * (arXiv:2407.08608), without storing scores.
 *
 * A block owns 128 keys. Queries come 64 at a time, from the last to those of the block's own
 * positions; of each 64 come all heads of the group. Two warpgroups, each with 64 of the keys, sum
 * the gradients of keys and values in registers. A third warpgroup reads the score gradients from
 * shared memory and multiplies them by the keys. The copy engine adds that product to the queries'
 * sums in global memory (reductions by the load and store units reached one float a clock). Single
 * threads request tiles and wait for their turns.
 *
 * The same bits in every run: blocks add to a tile of queries one after the other, those of earlier
 * keys first; a counter gives each block its turn. All blocks of a head begin with the last queries
 * and advance alike. So they follow each other at a short distance and seldom wait, and the queries
 * and sums between them are in the L2 cache. A block waits only for blocks that began before it.
 * The first block stores instead of adding, so no sum needs zeroing. */
#include "kernels/cuda/attention_hopper_bwd.cuh"
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/wgmma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- requesting tiles: one thread ---- */

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

template <int D, bool RANGED>
__device__ static void request_tiles(const struct backward &f, const struct order &o,
                                     const struct maps &m, const struct places<D> &s) {
    struct keys_task t = keys_of<D, RANGED>(f, s);
    int n = 0;
    barrier_expect(s.own_full(), 2 * tiles<D>::OWN_BYTES);
    copy_tile_of<D, OWN>(s.own(0), &m.qkv, s.own_full(), f.a.heads + t.group, t.key0, t.sequence);
    copy_tile_of<D, OWN>(s.own(1), &m.qkv, s.own_full(), f.a.heads + f.a.kv_heads + t.group,
                         t.key0, t.sequence);
    for (int at = t.tiles - 1; at >= 0; at--)
        for (int h = 0; h < t.share; h++, n++) {
            int stage = n % STAGES, head = t.group * t.share + h, row = t.key0 + at * STEP;
            if (n >= STAGES) barrier_wait(s.empty(stage), n / STAGES - 1 & 1);
            barrier_expect(s.full(stage), 2 * tiles<D>::STEP_BYTES + STEP * 8);
            copy_tile_of<D, STEP>(s.coming(stage, 0), &m.qkv, s.full(stage), head, row, t.sequence);
            copy_tile_of<D, STEP>(s.coming(stage, 1), &m.d_o, s.full(stage), head, row, t.sequence);
            copy_piece(s.lse(stage), &m.rows, s.full(stage), 0, (int)query_tile(f, o, t, h, at));
        }
}

/* ---- keys and values: a warpgroup's rows are keys, columns queries ---- */

/* Sums over the eight lanes that hold other rows of the same columns. Three times each lane keeps
 * half of its values and sends the other half: it ends with columns 2 lane, 2 lane + 1. */
__device__ static float2 join_rows(float (&x)[8][2]) {
#pragma unroll
    for (int half = 4; half; half /= 2) {
        bool upper = threadIdx.x & half * 4;
#pragma unroll
        for (int j = 0; j < half; j++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float keep = upper ? x[j + half][i] : x[j][i];
                float give = upper ? x[j][i] : x[j + half][i];
                x[j][i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, half * 4);
            }
    }
    return { x[0][0], x[0][1] };
}

/* Where the column sums of this warp's 16 rows (of a tile of 64) are stored, from `column` on. */
__device__ static float *partial_of(const struct backward &f, const struct order &o, int sequence,
                                    int tile, int column) {
    if (!o.partial || tile >= o.query_tiles) return NULL;
    int64_t rows = ((int64_t)sequence * o.query_tiles + tile) * 4 + threadIdx.x / WARP % 4;
    return o.partial + rows * f.a.width + column;
}

/* Stores rows of a 64 x D sum as BF16 rows `stride` apart; rows from `valid` on do not exist. Adds
 * the columns of the stored values to `partial`, unless NULL. Raises `top`, two 16-bit maxima in a
 * word, to the largest |bits|. */
template <int D>
__device__ static void store_rows(bf16_bits *to, int64_t stride, const float (&x)[D / 8][4],
                                  float scale, int64_t valid, float *partial, uint32_t &top) {
    int lane = threadIdx.x % WARP, first = threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int panel = 0; panel < D / 64; panel++) {
        float sum[8][2] = {};
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = first + 8 * h;
            if (row >= valid) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const float(&v)[4] = x[panel * 8 + j];
                uint32_t pair = bf16x2_encode(v[2 * h] * scale, v[2 * h + 1] * scale);
                *(uint32_t *)(to + row * stride + panel * 64 + j * 8 + lane % 4 * 2) = pair;
                sum[j][0] += bf16_low(pair);
                sum[j][1] += bf16_high(pair);
                top = __vmaxu2(top, pair & 0x7FFF7FFFu);
            }
        }
        if (partial) ((float2 *)(partial + panel * 64))[lane] = join_rows(sum);
    }
}
__device__ static void raise_amax_to(uint32_t *amax, uint32_t top) {
    warp_amax_into(amax, max(top << 16, top & 0xFFFF0000u));
}

__device__ static float2 shared_pair(uint32_t at) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at));
    return x;
}

/* Masks scores s^T of keys after the query. diagonal: the tile's first query minus the warpgroup's
 * first key. */
__device__ static void mask_keys(float (&s)[STEP / 8][4], int diagonal) {
    int lane = threadIdx.x % WARP, key = threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > j * 8 + lane % 4 * 2 + i % 2 + diagonal) s[j][i] = -INFINITY;
}

/* The same of keys before the first that a query sees. key, row: the warpgroup's first key, the
 * tile's first query. */
__device__ static void mask_before(float (&s)[STEP / 8][4], const struct attention &a, int sequence,
                                   int key, int row) {
    int lane = threadIdx.x % WARP, own = key + threadIdx.x / WARP % 4 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < STEP / 8; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int low = first_key_of(a, sequence, row + j * 8 + lane % 4 * 2 + c);
            if (own < low) s[j][c] = -INFINITY;
            if (own + 8 < low) s[j][c + 2] = -INFINITY;
        }
}

/* Scores to probabilities: 2^(s scale + lse), lse by column. */
template <bool EXACT>
__device__ static void probabilities(float (&p)[STEP / 8][4], uint32_t lse, float scale_log2) {
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        float2 l = shared_pair(lse + (j * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[j][i] = attention_exp2<EXACT>(fmaf(p[j][i], scale_log2, i % 2 ? l.y : l.x));
    }
}

/* Turns products of dO and v into score gradients, with the packed probabilities. */
__device__ static void gradients(float (&ds)[STEP / 8][4], const uint32_t (&p)[STEP / 16][4],
                                 uint32_t delta) {
#pragma unroll
    for (int j = 0; j < STEP / 8; j++) {
        float2 d = shared_pair(delta + (j * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t pair = p[j / 2][j % 2 * 2 + h];
            ds[j][2 * h] = bf16_low(pair) * (ds[j][2 * h] - d.x);
            ds[j][2 * h + 1] = bf16_high(pair) * (ds[j][2 * h + 1] - d.y);
        }
    }
}

/* Stores the warpgroup's 64 lines of a tile of score gradients for the third warpgroup. */
__device__ static void store_ds(const uint32_t (&a)[STEP / 16][4], uint32_t tile, int line) {
    int lane = threadIdx.x % WARP;
    int row = line + threadIdx.x / WARP % 4 * 16 + lane / 8 % 2 * 8 + lane % 8;
#pragma unroll
    for (int k = 0; k < STEP / 16; k++)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(
                         tile + row * LINE_BYTES + ((2 * k + lane / 16) ^ (row % 8)) * 16),
                     "r"(a[k][0]), "r"(a[k][1]), "r"(a[k][2]), "r"(a[k][3])
                     : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
}

/* A warpgroup's position in the ring of tiles. */
struct ring { int n, stage, phase; };

/* Scores of a tile of queries to probabilities. key: the warpgroup's first. */
template <int D, bool RANGED, bool EXACT>
__device__ static void recompute_softmax(const struct backward &f, const struct places<D> &s,
                                         int sequence, int key, int stage, int diagonal,
                                         float (&x)[STEP / 8][4]) {
    if (diagonal < STEP) mask_keys(x, diagonal);
    if constexpr (RANGED) { /* the last query has the largest first key */
        int64_t end = min((int64_t)key + diagonal + STEP, f.a.length);
        if (first_key_of(f.a, sequence, end - 1) > key)
            mask_before(x, f.a, sequence, key, key + diagonal);
    }
    probabilities<EXACT>(x, s.lse(stage), f.a.scale * ATTENTION_LOG2_E);
}

/* The scores of the next queries are queued with the last product of these queries, so that
 * exponentials overlap products. After the last tile its own scores are queued again and not used.
 * Packed values reuse registers, so they are packed only after the products that read these
 * registers. */
template <int D, bool RANGED, bool EXACT>
__device__ static void take_queries(const struct backward &f, const struct places<D> &s, int line,
                                    float (&dk)[D / 8][4], float (&dv)[D / 8][4]) {
    struct keys_task t = keys_of<D, RANGED>(f, s);
    struct ring r = { 0, 0, 0 };
    int at = t.tiles - 1, head = 0;
    float x[STEP / 8][4]; /* scores, then their gradients */
    uint32_t packed[STEP / 16][4];
    barrier_wait(s.full(r.stage), r.phase);
    wgmma_hold(x);
    wgmma_begin();
    queue_rows<D, OWN>(x, s.own(0), line, s.coming(r.stage, 0));
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(x);
    recompute_softmax<D, RANGED, EXACT>(f, s, t.sequence, t.key0 + line, r.stage, at * STEP - line,
                                        x);
    for (int more = t.share * t.tiles - 1; more >= 0; more--) {
        int stage = r.stage, which = r.n % 2;
        wgmma_hold(x);
        pack_left(packed, x);
        wgmma_hold(dv);
        wgmma_begin();
        queue_rows<D, OWN>(x, s.own(1), line, s.coming(stage, 1));
        wgmma_commit();
        queue_columns<D, STEP>(dv, packed, s.coming(stage, 1));
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_hold(x);
        gradients(x, packed, s.delta(stage));
        wgmma_wait<0>(); /* the product reads the packed values */
        wgmma_hold(dv);
        barrier_wait(s.ds_empty(which), r.n / 2 - 1 & 1);
        wgmma_hold(x);
        pack_left(packed, x);
        store_ds(packed, s.ds(which), line);
        if (is_first_lane()) barrier_arrive(s.ds_full(which));
        r.n++;
        if (++head == t.share) head = 0, at -= more > 0;
        if (++r.stage == STAGES) r.stage = 0, r.phase ^= 1;
        int next = more ? r.stage : stage;
        if (more) barrier_wait(s.full(next), r.phase);
        wgmma_hold(x);
        wgmma_hold(dk);
        wgmma_begin();
        queue_rows<D, OWN>(x, s.own(0), line, s.coming(next, 0));
        wgmma_commit();
        queue_columns<D, STEP>(dk, packed, s.coming(stage, 0));
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_hold(x);
        recompute_softmax<D, RANGED, EXACT>(f, s, t.sequence, t.key0 + line, next, at * STEP - line,
                                            x);
        wgmma_wait<0>();
        wgmma_hold(dk);
        __syncwarp(); /* every lane has read the data of these queries */
        if (is_first_lane()) barrier_arrive(s.empty(stage));
    }
}

template <int D, bool RANGED, bool EXACT>
__device__ static void own_keys(const struct backward &f, const struct order &o,
                                const struct places<D> &s) {
    int line = __shfl_sync(0xFFFFFFFFu, (int)threadIdx.x / WARPGROUP - 1, 0) * 64;
    uint32_t top = 0;
    float dk[D / 8][4] = {}, dv[D / 8][4] = {};
    barrier_wait(s.own_full(), 0);
    take_queries<D, RANGED, EXACT>(f, s, line, dk, dv);
    struct keys_task t = keys_of<D, RANGED>(f, s); /* again, since registers are scarce */
    int row = t.key0 + line, column = (f.a.heads + t.group) * D, values = f.a.kv_heads * D;
    bf16_bits *to = f.d_qkv + (t.sequence * f.a.length + row) * f.a.width + column;
    float *partial = partial_of(f, o, t.sequence, row / STEP, column);
    int64_t valid = f.a.length - row;
    store_rows<D>(to, f.a.width, dk, f.a.scale, valid, partial, top);
    store_rows<D>(to + values, f.a.width, dv, 1.0f, valid, partial ? partial + values : NULL, top);
    raise_amax_to(f.amax, top);
}

/* ---- queries: sums in turns ---- */

__device__ static uint32_t load_turn(const uint32_t *p) {
    uint32_t x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}

__device__ static void publish_turn(uint32_t *p, int turn) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(turn) : "memory");
}

/* Stores or adds 64 x 64 sums from shared memory. The queuing thread must wait for them. */
__device__ static void queue_sums(float *to, uint32_t from, bool add) {
    constexpr int BYTES = STEP * 64 * 4;
    if (add)
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::
                         "l"(to), "r"(from), "n"(BYTES)
                     : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(from), "n"(BYTES)
                     : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Wait until all sums have been read from shared memory; until all have been added. */
__device__ static void sums_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ static void sums_added() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* The shared-memory place where the product of tile n waits to be added. A place holds 64 columns:
 * with D 128 each half has its own, with D 64 tiles alternate. used(n) is the round of a place's
 * barrier `empty`. Each of the two adding threads has its own barriers `full`, with round n / 2, so
 * that it only waits for its next round. */
template <int D> __device__ static int place_in_shared(int n, int panel) {
    return D == 128 ? panel : n % 2;
}
template <int D> __device__ static int used(int n) { return D == 128 ? n : n / 2; }
template <int D> __device__ static int full_barrier(int n, int panel) { return n % 2 + 2 * panel; }

/* Two threads take the tiles of queries in turns. Each waits for the block's turn, adds, and tells
 * the next block. If no block comes after, the third warpgroup adds and finishes the tile. */
template <int D, bool RANGED>
__device__ static void add_in_turn(const struct backward &f, const struct order &o,
                                   const struct places<D> &s, int adder) {
    struct keys_task t = keys_of<D, RANGED>(f, s);
    int n = 0;
    for (int at = t.tiles - 1; at >= 0; at--)
        for (int head = 0; head < t.share; head++, n++) {
            if (n % 2 != adder) continue;
            int place = place_of<RANGED>(f, t, at);
            bool last = finishes<D>(at);
            int64_t which = query_tile(f, o, t, head, at);
            if (place)
                while (load_turn(o.turns + which) != (uint32_t)place) {}
            if (last) barrier_arrive(s.turn(adder));
            asm volatile("fence.proxy.async;" ::: "memory");
            for (int panel = 0; panel < D / 64; panel++) {
                barrier_wait(s.dq_full(full_barrier<D>(n, panel)), n / 2 & 1);
                if (!last)
                    queue_sums(o.sums + which * (STEP * D) + panel * (STEP * 64),
                               s.dq(place_in_shared<D>(n, panel)), place > 0);
            }
            sums_read();
            for (int panel = 0; panel < D / 64; panel++)
                barrier_arrive(s.dq_empty(place_in_shared<D>(n, panel)));
            if (last) continue;
            sums_added();
            publish_turn(o.turns + which, place + 1);
        }
}

/* Sums of 64 x 64 are stored in register order: 16 bytes of each thread together. */
__device__ static void put_sums(uint32_t to, const float (&x)[8][4]) {
#pragma unroll
    for (int j = 0; j < 8; j++)
        asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to + j * (WARPGROUP * 16)),
                     "f"(x[j][0]), "f"(x[j][1]), "f"(x[j][2]), "f"(x[j][3])
                     : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ static void add_sums(float (&x)[8][4], const float *from) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float4 y = __ldcg((const float4 *)(from + j * (WARPGROUP * 4)));
        x[j][0] += y.x;
        x[j][1] += y.y;
        x[j][2] += y.z;
        x[j][3] += y.w;
    }
}

/* The last product for 64 columns of a tile of queries: added to the sums so far, and rounded. */
template <int D>
__device__ static void finish_queries(const struct backward &f, const struct order &o,
                                      const struct keys_task &t, int head, int at, int panel,
                                      bool add, float (&dq)[8][4], uint32_t &top) {
    int64_t row = t.key0 + at * STEP;
    int column = (t.group * t.share + head) * D + panel * 64;
    if (add)
        add_sums(dq, o.sums + query_tile(f, o, t, head, at) * (STEP * D) + panel * (STEP * 64) +
                         threadIdx.x % WARPGROUP * 4);
    store_rows<64>(f.d_qkv + (t.sequence * f.a.length + row) * f.a.width + column, f.a.width, dq,
                   f.a.scale, f.a.length - row,
                   partial_of(f, o, t.sequence, t.key0 / STEP + at, column), top);
}

template <int D, bool RANGED>
__device__ static void add_queries(const struct backward &f, const struct order &o,
                                   const struct places<D> &s) {
    struct keys_task t = keys_of<D, RANGED>(f, s);
    int n = 0, last_parity = 0, thread = threadIdx.x % WARPGROUP;
    uint32_t top = 0;
    barrier_wait(s.own_full(), 0);
    for (int at = t.tiles - 1; at >= 0; at--)
        for (int head = 0; head < t.share; head++, n++) {
            bool last = finishes<D>(at);
            barrier_wait(s.ds_full(n % 2), n / 2 & 1);
#pragma unroll 1
            for (int panel = 0; panel < D / 64; panel++) {
                int to = place_in_shared<D>(n, panel);
                float dq[8][4];
                wgmma_hold(dq);
                wgmma_begin();
                queue_both<OWN>(dq, s.ds(n % 2), s.own(0) + panel * (OWN * LINE_BYTES));
                wgmma_commit();
                wgmma_wait<0>();
                wgmma_hold(dq);
                if (panel + 1 == D / 64 && is_first_lane()) barrier_arrive(s.ds_empty(n % 2));
                barrier_wait(s.dq_empty(to), used<D>(n) - 1 & 1);
                if (last) {
                    bool add = place_of<RANGED>(f, t, at) > 0;
                    if (panel == 0) barrier_wait(s.turn(n % 2), last_parity >> n % 2 & 1);
                    finish_queries<D>(f, o, t, head, at, panel, add, dq, top);
                } else {
                    put_sums(s.dq(to) + thread * 16, dq);
                }
                __syncwarp();
                if (is_first_lane()) barrier_arrive(s.dq_full(full_barrier<D>(n, panel)));
            }
            if (last) last_parity ^= 1 << n % 2;
        }
    raise_amax_to(f.amax, top);
}

/* Rounds 64 columns of a tile of queries, if blocks do not finish their tiles. */
template <int D>
__global__ void __launch_bounds__(WARPGROUP) finish_kernel(struct backward f, struct order o) {
    int64_t tile = blockIdx.x / (D / 64);
    int panel = blockIdx.x % (D / 64), at = (int)(tile % o.query_tiles);
    int head = (int)(tile / o.query_tiles % f.a.heads);
    int sequence = (int)(tile / o.query_tiles / f.a.heads), column = head * D + panel * 64;
    int64_t row = (int64_t)at * STEP;
    uint32_t top = 0;
    float dq[8][4] = {};
    add_sums(dq, o.sums + tile * (STEP * D) + panel * (STEP * 64) + threadIdx.x * 4);
    store_rows<64>(f.d_qkv + (sequence * f.a.length + row) * f.a.width + column, f.a.width, dq,
                   f.a.scale, f.a.length - row, partial_of(f, o, sequence, at, column), top);
    raise_amax_to(f.amax, top);
}

template <int D, bool RANGED, bool EXACT>
__global__ void __launch_bounds__(THREADS, 1)
    hopper_bwd_kernel(struct backward f, struct order o, const __grid_constant__ struct maps m) {
    struct places<D> s = open_places<D>(o);
    if constexpr (RANGED) count_tiles<D>(f, o, s);
    if (threadIdx.x < WARPGROUP) {
        registers_down<24>();
        if (threadIdx.x == 0) request_tiles<D, RANGED>(f, o, m, s);
        if (threadIdx.x == WARP) add_in_turn<D, RANGED>(f, o, s, 0);
        if (threadIdx.x == 2 * WARP) add_in_turn<D, RANGED>(f, o, s, 1);
    } else if (threadIdx.x < 3 * WARPGROUP) {
        registers_up<208>();
        own_keys<D, RANGED, EXACT>(f, o, s);
    } else {
        registers_down<72>();
        add_queries<D, RANGED>(f, o, s);
    }
}

#else

template <int D> __global__ void finish_kernel(struct backward f, struct order o) {}
template <int D, bool RANGED, bool EXACT> __global__ void
hopper_bwd_kernel(struct backward f, struct order o, const __grid_constant__ struct maps m) {}

#endif

/* ---- before: delta and log-sum-exp of queries; counters become zero ---- */

/* -lse in powers of two, and delta = sum over D of dO * O. Queries after the last get probability
 * 0. */
template <int D> __global__ void rows_kernel(struct backward f, struct order o) {
    enum { LANES = D / 8 };
    int64_t thread = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, item = thread / LANES;
    int64_t rows = (int64_t)o.query_tiles * STEP;
    if (thread < o.turns_count) o.turns[thread] = 0;
    if (item >= f.a.batch * rows * f.a.heads) return;
    int head = (int)(item % f.a.heads), lane = (int)(thread % LANES);
    int64_t row = item / f.a.heads % rows, sequence = item / f.a.heads / rows;
    float delta = 0.0f, lse = -INFINITY;
    bool there = row < f.a.length;
    if (there) {
        int64_t at = ((sequence * f.a.length + row) * f.a.heads + head) * D + lane * 8;
        uint4 x = *(const uint4 *)(f.d_o + at), y = *(const uint4 *)(f.o + at);
        const uint32_t *u = &x.x, *v = &y.x;
#pragma unroll
        for (int i = 0; i < 4; i++)
            delta += bf16_low(u[i]) * bf16_low(v[i]) + bf16_high(u[i]) * bf16_high(v[i]);
        lse = f.lse[(sequence * f.a.heads + head) * f.a.length + row] * -ATTENTION_LOG2_E;
    }
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) delta += __shfl_xor_sync(0xFFFFFFFFu, delta, i);
    float *to = o.rows + ((sequence * f.a.heads + head) * o.query_tiles + row / STEP) * (2 * STEP) +
                row % STEP;
    if (lane == 0) to[0] = lse;
    if (lane == 1) to[STEP] = delta;
}

/* ---- launching ---- */

typedef void (*backward_kernel)(struct backward, struct order, const struct maps);
template <int D> static backward_kernel kernel_for(bool ranged, bool exact) {
    if (exact) return ranged ? hopper_bwd_kernel<D, true, true> : hopper_bwd_kernel<D, false, true>;
    return ranged ? hopper_bwd_kernel<D, true, false> : hopper_bwd_kernel<D, false, false>;
}

template <int D> static enum status open_kernels(struct err *e) {
    for (int i = 0; i < 4; i++)
        CUDA_TRY(e, cudaFuncSetAttribute(kernel_for<D>(i % 2, i / 2),
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         tiles<D>::BYTES));
    return OK;
}

enum status hopper_attention_bwd_open(struct err *e) {
    TRY(open_kernels<64>(e));
    return open_kernels<128>(e);
}

template <int D>
static enum status launch(const struct backward &f, const struct order &o, const struct maps &m,
                          cudaStream_t stream, struct err *e) {
    int64_t threads = f.a.batch * o.query_tiles * STEP * f.a.heads * (D / 8);
    rows_kernel<D><<<(unsigned)ceil_div(threads, 256), 256, 0, stream>>>(f, o);
    TRY(cuda_launched("attention_bwd: delta", e));
    auto kernel = kernel_for<D>(f.a.first_key, f.a.exact);
    kernel<<<sweeps_blocks(o.sweeps), THREADS, tiles<D>::BYTES, stream>>>(f, o, m);
    TRY(cuda_launched("attention_bwd: products", e));
    if (!finished<D>::APART) return OK;
    int64_t products = f.a.batch * f.a.heads * o.query_tiles * (D / 64);
    finish_kernel<D><<<(unsigned)products, WARPGROUP, 0, stream>>>(f, o);
    return cuda_launched("attention_bwd: rounding", e);
}

enum status hopper_attention_bwd(struct cuda_backend *b, int lane, const struct backward *f,
                                 const struct tensor *sums, struct err *e) {
    const struct attention *a = &f->a;
    const struct attention_size size = { a->batch, a->length, a->heads, a->kv_heads, a->head_dim };
    struct maps m;
    struct order o = {};
    void *scratch;
    int64_t all = attention_query_tiles(&size);
    TRY(cuda_scratch(&b->base, lane, SCRATCH_ATTENTION, attention_sums_bytes(&size), &scratch, e));
    o.sweeps = sweeps_of(ceil_div(a->length, OWN), a->kv_heads * a->batch, b->sm_count);
    o.query_tiles = (int)ceil_div(a->length, STEP);
    o.sums = (float *)scratch;
    o.rows = o.sums + all * STEP * a->head_dim;
    o.turns = (uint32_t *)(o.rows + all * STEP * 2);
    o.tickets = o.turns + all;
    o.turns_count = all + 1;
    TRY(hopper_map(&m.qkv, a->qkv, a->batch, a->length, a->heads + 2 * a->kv_heads, a->head_dim,
                   a->width, 64, e));
    TRY(hopper_map(&m.d_o, f->d_o, a->batch, a->length, a->heads, a->head_dim,
                   (int64_t)a->heads * a->head_dim, 64, e));
    TRY(hopper_rows_map(&m.rows, o.rows, all, STEP * 8, STEP * 8, STEP * 8, e));
    if (sums) {
        TRY(cuda_scratch(&b->base, lane, SCRATCH_PARTIAL, attention_partial_bytes(&size), &scratch,
                         e));
        o.partial = (float *)scratch;
    }
    if (a->head_dim == 64) TRY(launch<64>(*f, o, m, b->lane[lane], e));
    else TRY(launch<128>(*f, o, m, b->lane[lane], e));
    if (sums) {
        int64_t rows = a->batch * o.query_tiles * 4; /* of partial sums, each of 16 */
        struct column_join join = { { grad_of(sums) }, o.partial, rows, a->width };
        launch_column_join(join, 1, b->lane[lane]);
    }
    return cuda_launched("attention_bwd: bias gradient", e);
}
