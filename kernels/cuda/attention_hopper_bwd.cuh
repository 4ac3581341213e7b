/* The work of a block of attention's backward on Hopper (attention_hopper_bwd.cu): its tile, the
 * order in which sums are added, and the layout of shared memory. Private to that file. */
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
 * them. The bits are the same. */
template <int D> struct finished { static constexpr bool APART = D == 128; };

/* Which block has which keys, and where sums are. */
struct order {
    struct sweeps sweeps;   /* tiles of 128 keys, of key/value heads */
    int query_tiles;        /* in a sequence: tiles of 64 queries */
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
    static constexpr int TASK = BARRIERS + (2 * STAGES + 13) * 8; /* see struct places */
    static constexpr int BYTES = TASK + 12 + 1024;
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
    __device__ uint32_t tile() const { return base + tiles<D>::TASK; }
    __device__ uint32_t group() const { return tile() + 4; }
    __device__ uint32_t count() const { return tile() + 8; } /* of tiles of queries */
    __device__ uint32_t barrier(int i) const { return base + tiles<D>::BARRIERS + i * 8; }
    __device__ uint32_t full(int stage) const { return barrier(stage); }
    __device__ uint32_t empty(int stage) const { return barrier(STAGES + stage); }
    __device__ uint32_t own_full() const { return barrier(2 * STAGES); }
    __device__ uint32_t ds_full(int which) const { return barrier(2 * STAGES + 1 + which); }
    __device__ uint32_t ds_empty(int which) const { return barrier(2 * STAGES + 3 + which); }
    __device__ uint32_t turn(int which) const { return barrier(2 * STAGES + 5 + which); }
    __device__ uint32_t dq_full(int which) const { return barrier(2 * STAGES + 7 + which); }
    __device__ uint32_t dq_empty(int which) const { return barrier(2 * STAGES + 11 + which); }
};

__device__ static void put_word(uint32_t at, int x) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
__device__ static int shared_word(uint32_t at) {
    int x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(at));
    return x;
}

/* Blocks take tiles of keys in the order in which they begin. The first keys have the most
 * queries. */
template <int D>
__device__ static void take_task(const struct order &o, const struct places<D> &s) {
    struct swept it = swept_at(o.sweeps, (int)atomicAdd(o.tickets, 1u));
    put_word(s.tile(), it.tile);
    put_word(s.group(), it.head);
}

template <int D> __device__ static struct places<D> open_places(const struct order &o) {
    extern __shared__ char memory[];
    struct places<D> s = { (shared_address(memory) + 1023) & ~1023u };
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(s.full(i), 1);
            barrier_init(s.empty(i), KEY_WARPS);
        }
        barrier_init(s.own_full(), 1);
        for (int i = 0; i < 2; i++) {
            barrier_init(s.ds_full(i), KEY_WARPS);
            barrier_init(s.ds_empty(i), QUERY_WARPS);
            barrier_init(s.turn(i), 1);
            barrier_init(s.dq_full(i), QUERY_WARPS);
            barrier_init(s.dq_full(2 + i), QUERY_WARPS);
            barrier_init(s.dq_empty(i), 1);
        }
        take_task<D>(o, s);
    }
    barriers_ready();
    return s;
}

__device__ static bool is_first_lane() { return threadIdx.x % WARP == 0; }

/* ---- the work of a block ---- */

/* A tile of keys, and the tiles of queries that come to it. */
struct keys_task { int tile, key0, sequence, group, share, tiles; };

template <int D, bool RANGED>
__device__ static struct keys_task keys_of(const struct backward &f, const struct places<D> &s) {
    int tile = shared_word(s.tile()), key0 = tile * OWN, group = shared_word(s.group());
    return { tile, key0, group / f.a.kv_heads, group % f.a.kv_heads, f.a.heads / f.a.kv_heads,
             RANGED ? shared_word(s.count()) : ((int)f.a.length - key0 + STEP - 1) / STEP };
}

/* Whether any query of a tile sees a key of the tile at key0: its first query sees the most. */
__device__ static bool sees(const struct backward &f, int sequence, int query_tile, int key0) {
    return first_key_of(f.a, sequence, (int64_t)query_tile * STEP) < key0 + OWN;
}

/* Counts the tiles of queries that see the block's keys, into shared memory. Queries see no key
 * before their first, which never decreases: the tiles are those from the diagonal on. The whole
 * block calls this. */
template <int D>
__device__ static void count_tiles(const struct backward &f, const struct order &o,
                                   const struct places<D> &s) {
    struct keys_task t = keys_of<D, false>(f, s);
    int count = 0;
    for (int from = t.key0 / STEP; from < o.query_tiles; from += THREADS) {
        int tile = from + (int)threadIdx.x;
        count += __syncthreads_count(tile < o.query_tiles && sees(f, t.sequence, tile, t.key0));
    }
    if (threadIdx.x == 0) put_word(s.count(), count);
    __syncthreads();
}

/* The index of a tile of 64 queries among those of all sequences and heads. */
__device__ static int64_t query_tile(const struct backward &f, const struct order &o,
                                     const struct keys_task &t, int head, int at) {
    return ((int64_t)t.sequence * f.a.heads + t.group * t.share + head) * o.query_tiles +
           t.key0 / STEP + at;
}

/* How many blocks add to a tile of queries before this one: those of earlier keys. */
template <bool RANGED>
__device__ static int place_of(const struct backward &f, const struct keys_task &t, int at) {
    int64_t row = t.key0 + (int64_t)at * STEP;
    return RANGED ? t.tile - first_key_of(f.a, t.sequence, row) / OWN : t.tile;
}
/* Whether this block adds last, and rounds the queries' gradients: their keys are the block's. */
template <int D> __device__ static bool finishes(int at) {
    return !finished<D>::APART && at < OWN / STEP;
}

#endif

#endif
