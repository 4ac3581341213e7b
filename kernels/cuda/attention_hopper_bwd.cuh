/* The work of a block of attention's backward on Hopper (attention_hopper_bwd.cu): its tiles, the
 * order in which their sums are added, and the layout of shared memory. Private to that file. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_BWD_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_BWD_CUH

#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/hopper_copy.cuh"

enum {
    WARPGROUP = 128, THREADS = 4 * WARPGROUP, OWN = 128, STEP = 64,
    STAGES = 3,
    USERS = 8, /* warps of the two warpgroups of keys */
    ADDERS = 4 /* warps of the third */
};
struct maps { CUtensorMap qkv, d_o, rows; };

/* Whether a separate pass rounds the queries' gradients. Otherwise the last block to add rounds
 * them. For most tiles of a head this is the same block, which is then late: with heads of 128 that
 * costs more than the pass. The bits are the same. */
template <int D> struct finished { static constexpr bool APART = D == 128; };

/* Which block adds when, and where. */
struct order {
    int tiles, query_tiles; /* of a sequence: of 128 keys, of 64 queries */
    int blocks;             /* of a key/value head */
    int half;               /* the first late tile; 0: blocks take one tile each */
    float *sums;            /* of each tile of queries: its gradient, 64 x D */
    float *rows;            /* of each tile of queries a row: 64 times -lse, 64 times delta */
    uint32_t *turns;        /* of each tile of queries: how many have added */
    uint32_t *tickets;      /* blocks that have begun */
    float *partial;         /* column sums of each 16 rows of gradients; or NULL */
    int64_t turns_count;    /* with the tickets behind them */
};

/* Shared memory: offsets in bytes from a 1024-byte-aligned address. */
template <int D> struct tiles {
    static constexpr int OWN_BYTES = OWN * D * 2, STEP_BYTES = STEP * D * 2;
    static constexpr int DS_BYTES = OWN * STEP * 2, DQ_BYTES = STEP * 64 * 4;
    static constexpr int COMING = 2 * OWN_BYTES; /* after k, v; STAGES times: q, d_o */
    static constexpr int DS = COMING + STAGES * 2 * STEP_BYTES; /* twice, [keys][queries] */
    static constexpr int DQ = DS + 2 * DS_BYTES;   /* twice: products of 64 columns */
    static constexpr int ROWS = DQ + 2 * DQ_BYTES; /* STAGES times: as in struct order */
    static constexpr int BARRIERS = ROWS + STAGES * STEP * 8;
    static constexpr int TICKET = BARRIERS + (2 * STAGES + 14) * 8;
    static constexpr int BYTES = TICKET + 8 + 1024;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Addresses in shared memory. */
template <int D> struct places {
    uint32_t base;
    __device__ uint32_t own(int which) const { return base + which * tiles<D>::OWN_BYTES; }
    __device__ uint32_t coming(int stage, int which) const {
        return base + tiles<D>::COMING + (2 * stage + which) * tiles<D>::STEP_BYTES;
    }
    __device__ uint32_t ds(int which) const {
        return base + tiles<D>::DS + which * tiles<D>::DS_BYTES;
    }
    __device__ uint32_t dq(int which) const {
        return base + tiles<D>::DQ + which * tiles<D>::DQ_BYTES;
    }
    __device__ uint32_t lse(int stage) const { return base + tiles<D>::ROWS + stage * STEP * 8; }
    __device__ uint32_t delta(int stage) const { return lse(stage) + STEP * 4; }
    __device__ uint32_t ticket() const { return base + tiles<D>::TICKET; }
    __device__ uint32_t barrier(int i) const { return base + tiles<D>::BARRIERS + i * 8; }
    __device__ uint32_t full(int stage) const { return barrier(stage); }
    __device__ uint32_t empty(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t own_full() const { return barrier(2 * STAGES); }
    __device__ uint32_t own_empty() const { return barrier(2 * STAGES + 1); }
    __device__ uint32_t ds_full(int which) const { return barrier(2 * STAGES + 2 + which); }
    __device__ uint32_t ds_empty(int which) const { return barrier(2 * STAGES + 4 + which); }
    __device__ uint32_t turn(int which) const { return barrier(2 * STAGES + 6 + which); }
    __device__ uint32_t dq_full(int which) const { return barrier(2 * STAGES + 8 + which); }
    __device__ uint32_t dq_empty(int which) const { return barrier(2 * STAGES + 12 + which); }
};

template <int D> __device__ static struct places<D> open_places(uint32_t *tickets) {
    extern __shared__ char memory[];
    struct places<D> s = { (shared_address(memory) + 1023) & ~1023u };
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full(i), 1);
            barrier_init(s.empty(i), USERS);
        }
        barrier_init(s.own_full(), 1);
        barrier_init(s.own_empty(), USERS + ADDERS);
        for (int i = 0; i < 2; i++) {
            barrier_init(s.ds_full(i), USERS);
            barrier_init(s.ds_empty(i), ADDERS);
            barrier_init(s.turn(i), 1);
            barrier_init(s.dq_full(i), ADDERS);
            barrier_init(s.dq_full(2 + i), ADDERS);
            barrier_init(s.dq_empty(i), 1);
        }
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(s.ticket()), "r"(atomicAdd(tickets, 1u)));
    }
    barriers_ready();
    return s;
}

__device__ static bool is_first_lane() { return threadIdx.x % WARP == 0; }

/* ---- the work of a block ---- */

/* Many queries attend to early keys, few to late ones. So a block takes one tile of each, late
 * first, and all blocks have equal work. Blocks of one key/value head then wait for each other and
 * must run together. If there are too many for that, a block takes one tile, and waits only for
 * blocks with earlier tickets, which have begun. */
struct block_task { int group, sequence, late, early; }; /* late == early: one tile */

__device__ static struct block_task task_of(const struct backward &f, const struct order &o,
                                            uint32_t ticket) {
    int index = (int)ticket % o.blocks, rest = (int)ticket / o.blocks;
    int late = o.tiles - 1 - index, early = o.half ? index : late;
    return { rest % f.a.kv_heads, rest / f.a.kv_heads, late, early };
}
__device__ static int rounds_of(const struct block_task &b) { return b.late == b.early ? 1 : 2; }

/* A tile of keys, and the tiles of queries that attend to it. */
struct keys_task { int tile, key0, sequence, group, share, tiles; };

__device__ static struct keys_task keys_of(const struct backward &f, const struct block_task &b,
                                           int round) {
    int tile = round ? b.early : b.late, key0 = tile * OWN;
    return { tile, key0, b.sequence, b.group, f.a.heads / f.a.kv_heads,
             ((int)f.a.length - key0 + STEP - 1) / STEP };
}

/* The index of a tile of 64 queries among those of all sequences and heads. */
__device__ static int64_t query_tile(const struct backward &f, const struct order &o,
                                     const struct keys_task &t, int head, int at) {
    return ((int64_t)t.sequence * f.a.heads + t.group * t.share + head) * o.query_tiles +
           t.key0 / STEP + at;
}

/* The turn of a tile of keys to add to queries whose diagonal is in tile `diagonal`. Late tiles
 * come first, from the diagonal down, then early tiles from the first up. */
__device__ static int place_of(const struct order &o, int tile, int diagonal) {
    return tile >= o.half ? diagonal - tile : max(diagonal - o.half + 1, 0) + tile;
}

__device__ static uint32_t ticket_of(uint32_t at) {
    uint32_t ticket;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(ticket) : "r"(at));
    return ticket;
}

#endif

#endif
