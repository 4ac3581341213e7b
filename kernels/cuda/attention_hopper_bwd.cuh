/* The work of a block of attention's backward on Hopper (attention_hopper_bwd.cu): its tiles, the
 * order in which their sums are added, and the layout of shared memory. Private to that file. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_BWD_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_HOPPER_BWD_CUH

#include "kernels/cuda/attention_hopper.cuh"
#include "kernels/cuda/hopper_copy.cuh"

enum {
    WARPGROUP = 128, THREADS = 4 * WARPGROUP, OWN = ATTENTION_KEYS, STEP = ATTENTION_STEP,
    STAGES = 3,
    KEY_WARPS = 8, /* warps of the two warpgroups of keys */
    QUERY_WARPS = 4 /* warps of the third */
};
struct maps { CUtensorMap qkv, d_o, rows; };

/* Whether a separate pass rounds the queries' gradients. Otherwise the last block to add rounds
 * them. For most tiles of a head this is the same block, which is then late: with heads of 128 that
 * costs more than the pass. The bits are the same. */
template <int D> struct finished { static constexpr bool APART = D == 128; };

/* Which block adds when, and where. */
struct order {
    int tiles, query_tiles; /* in a sequence: tiles of 128 keys, tiles of 64 queries */
    int blocks;             /* blocks of a key/value head */
    int half;               /* the first late tile; 0: blocks take one tile each */
    float *sums;            /* per tile of queries: its gradient, 64 x D */
    float *rows;            /* per tile of queries a row: 64 times -lse, 64 times delta */
    uint32_t *turns;        /* per tile of queries: how many blocks have added */
    uint32_t *tickets;      /* blocks that have begun */
    float *partial;         /* column sums of each 16 rows of gradients; or NULL */
    int64_t turns_count;    /* elements of turns and the tickets after them */
};

/* Shared memory: offsets in bytes from a 1024-byte-aligned address. */
template <int D> struct tiles {
    static constexpr int OWN_BYTES = OWN * D * 2, STEP_BYTES = STEP * D * 2;
    static constexpr int DS_BYTES = OWN * STEP * 2, DQ_BYTES = STEP * 64 * 4;
    static constexpr int INCOMING = 2 * OWN_BYTES; /* after k, v; STAGES times: q, d_o */
    static constexpr int DS = INCOMING + STAGES * 2 * STEP_BYTES; /* twice, [keys][queries] */
    static constexpr int DQ = DS + 2 * DS_BYTES;   /* twice: products of 64 columns */
    static constexpr int ROWS = DQ + 2 * DQ_BYTES; /* STAGES times: as in struct order */
    static constexpr int BARRIERS = ROWS + STAGES * STEP * 8;
    static constexpr int TICKET = BARRIERS + (2 * STAGES + 14) * 8;
    static constexpr int COUNTS = TICKET + 4; /* two: see count_tiles */
    static constexpr int BYTES = TICKET + 16 + 1024;
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Addresses in shared memory. */
template <int D> struct places {
    uint32_t base;
    __device__ uint32_t own(int which) const { return base + which * tiles<D>::OWN_BYTES; }
    __device__ uint32_t coming(int stage, int which) const {
        return base + tiles<D>::INCOMING + (2 * stage + which) * tiles<D>::STEP_BYTES;
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
    __device__ uint32_t count(int round) const { return base + tiles<D>::COUNTS + round * 4; }
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
            barrier_init(s.empty(i), KEY_WARPS);
        }
        barrier_init(s.own_full(), 1);
        barrier_init(s.own_empty(), KEY_WARPS + QUERY_WARPS);
        for (int i = 0; i < 2; i++) {
            barrier_init(s.ds_full(i), KEY_WARPS);
            barrier_init(s.ds_empty(i), QUERY_WARPS);
            barrier_init(s.turn(i), 1);
            barrier_init(s.dq_full(i), QUERY_WARPS);
            barrier_init(s.dq_full(2 + i), QUERY_WARPS);
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

__device__ static uint32_t shared_word(uint32_t at) {
    uint32_t x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
    return x;
}
__device__ static uint32_t ticket_of(uint32_t at) { return shared_word(at); }

/* A tile of keys, and the tiles of queries that come to it. */
struct keys_task { int tile, key0, sequence, group, share, tiles; };

template <int D, bool RANGED>
__device__ static struct keys_task keys_of(const struct backward &f, const struct block_task &b,
                                           const struct places<D> &s, int round) {
    int tile = round ? b.early : b.late, key0 = tile * OWN;
    return { tile, key0, b.sequence, b.group, f.a.heads / f.a.kv_heads,
             RANGED ? (int)shared_word(s.count(round))
                    : ((int)f.a.length - key0 + STEP - 1) / STEP };
}

/* Whether any query of a tile sees a key of the tile at key0: its first query sees the most. */
__device__ static bool sees(const struct backward &f, int sequence, int query_tile, int key0) {
    return first_key_of(f.a, sequence, (int64_t)query_tile * STEP) < key0 + OWN;
}

/* The tiles of queries that see each of the block's tiles of keys, into shared memory. Queries see
 * no key before their first, which never decreases: the tiles are those from the diagonal on. The
 * whole block calls this. */
template <int D>
__device__ static void count_tiles(const struct backward &f, const struct order &o,
                                   const struct places<D> &s) {
    struct block_task b = task_of(f, o, ticket_of(s.ticket()));
    for (int round = 0; round < rounds_of(b); round++) {
        int key0 = (round ? b.early : b.late) * OWN, count = 0;
        for (int from = key0 / STEP; from < o.query_tiles; from += THREADS) {
            int tile = from + (int)threadIdx.x;
            count += __syncthreads_count(tile < o.query_tiles && sees(f, b.sequence, tile, key0));
        }
        if (threadIdx.x == 0)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(s.count(round)), "r"(count) : "memory");
    }
    __syncthreads();
}

/* The index of a tile of 64 queries among those of all sequences and heads. */
__device__ static int64_t query_tile(const struct backward &f, const struct order &o,
                                     const struct keys_task &t, int head, int at) {
    return ((int64_t)t.sequence * f.a.heads + t.group * t.share + head) * o.query_tiles +
           t.key0 / STEP + at;
}

/* The tiles of keys that add to a tile of queries: `first` up to its diagonal. */
struct adders { int first, diagonal; };

template <bool RANGED>
__device__ static struct adders adders_of(const struct backward &f, const struct keys_task &t,
                                          int at) {
    int64_t row = t.key0 + (int64_t)at * STEP;
    return { RANGED ? first_key_of(f.a, t.sequence, row) / OWN : 0, t.tile + at / 2 };
}

__device__ static int place_of(const struct order &o, int tile, struct adders a) {
    return attention_place(o.half, tile, a.first, a.diagonal);
}
/* Whether it is the last one, which rounds the queries' gradients. */
template <int D> __device__ static bool finishes(int place, struct adders a) {
    return !finished<D>::APART && place == a.diagonal - a.first;
}

#endif

#endif
