/* Tiles into shared memory by Hopper's copy engine (TMA), and its barriers. One thread requests a
 * tile and names a barrier; the barrier opens when all bytes have arrived.
 *
 * A pipeline is a ring of stages with two barriers each. The arriving bytes open `full`; the warps
 * that have used them open `empty`. A wait names the parity of its round. */
#ifndef FP8LAB_KERNELS_CUDA_HOPPER_COPY_CUH
#define FP8LAB_KERNELS_CUDA_HOPPER_COPY_CUH

#include <cuda.h>

#include "kernels/cuda/cuda_common.cuh"

/* A tensor [B, T, heads, D] of BF16 with its rows `row` elements apart, in boxes of `rows` x 64 for
 * one head: 128-byte lines in the 128-byte swizzle (wgmma.cuh). Elements outside T read as zero. */
NODISCARD enum status hopper_map(CUtensorMap *out, const void *data, int64_t batch, int64_t length,
                                 int64_t heads, int64_t head_dim, int64_t row, int rows,
                                 struct err *e);
/* Rows of `bytes` (a multiple of 8), `stride` bytes apart (a multiple of 16), in pieces of `piece`
 * bytes (a multiple of 16, at most PIECE_MAX), not swizzled. Bytes after the end of a row read as
 * zero. data must be 16-byte aligned; both maps keep it. ERR_DEVICE if the driver refuses. */
enum { PIECE_WORD = 8, PIECE_MAX = 256 * PIECE_WORD };
NODISCARD enum status hopper_rows_map(CUtensorMap *out, const void *data, int64_t rows,
                                      int64_t bytes, int64_t stride, int piece, struct err *e);

/* Codes [rows, k] of a byte each, rows `stride` bytes apart (a multiple of 16), in boxes of `box`
 * rows x 128: lines in the 128-byte swizzle. Elements outside read as zero. */
NODISCARD enum status hopper_codes_map(CUtensorMap *out, const void *data, int64_t rows, int64_t k,
                                       int64_t stride, int box, struct err *e);

#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)

__device__ static inline void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
/* After all inits, before the first use by another thread or by a copy. */
__device__ static inline void barriers_ready() {
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
}
/* This thread arrives, and announces `bytes` bytes of copies. */
__device__ static inline void barrier_expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ static inline void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Whether the phase of this parity is over. */
__device__ static inline bool barrier_passed(uint32_t barrier, int parity) {
    uint32_t done;
    asm volatile("{.reg .pred p;\n"
                 "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return done;
}
/* Waits until it is. */
__device__ static inline void barrier_wait(uint32_t barrier, int parity) {
    uint32_t done;
    do {
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
}

/* One box of the map: columns from `column` on of one head, rows from `row` on. */
__device__ static inline void copy_box(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                       int column, int head, int row, int sequence) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(map), "r"(column), "r"(head),
                 "r"(row), "r"(sequence), "r"(barrier)
                 : "memory");
}
/* A piece of a row, from 8-byte word `word` on, to a 128-byte-aligned address. (cp.async.bulk takes
 * an address instead of a map, but racecheck does not follow its barrier from one iteration of a
 * loop to the next.) */
__device__ static inline void copy_piece(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                         int word, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(word), "r"(row),
                 "r"(barrier)
                 : "memory");
}

/* One box of codes, from code k of a row on. */
__device__ static inline void copy_codes(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                                         int k, int row) {
    copy_piece(to, map, barrier, k, row);
}
/* The same to this place in each block of a cluster of BLOCKS; each block's own barrier counts
 * it. */
template <int BLOCKS>
__device__ static inline void copy_codes_to_all(uint32_t to, const CUtensorMap *map,
                                                uint32_t barrier, int k, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map), "r"(k),
                 "r"(row), "r"(barrier), "h"((uint16_t)((1 << BLOCKS) - 1))
                 : "memory");
}

/* ---- from shared memory ---- */

/* Makes this thread's writes to shared memory visible to the copy engine. */
__device__ static inline void stores_ready() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* Queues the store of one box; what is outside the map is left out. LAST: the lines leave the L2
 * cache before others. */
template <bool LAST>
__device__ static inline void store_codes(const CUtensorMap *map, uint32_t from, int byte,
                                          int row) {
    if (LAST) {
        uint64_t policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint "
                     "[%0, {%1, %2}], [%3], %4;" ::"l"(map), "r"(byte), "r"(row), "r"(from),
                     "l"(policy)
                     : "memory");
    } else {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                     "[%0, {%1, %2}], [%3];" ::"l"(map), "r"(byte), "r"(row), "r"(from)
                     : "memory");
    }
}
/* Groups this thread's stores so far; waits until all groups have read shared memory, or are
 * done. */
__device__ static inline void stores_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ static inline void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ static inline void stores_done() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- clusters: blocks that reach one another's shared memory ---- */

__device__ static inline uint32_t cluster_rank() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* The address of the same place in block `rank`. */
__device__ static inline uint32_t cluster_address(uint32_t own, int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
    return there;
}
/* Arrives at a barrier of any block of the cluster. Orders no ordinary access: the reads before it
 * must be complete, as they are after wgmma_wait. (A release at cluster scope waits for all that
 * the thread wrote, and took half the time of a product.) */
__device__ static inline void barrier_arrive_far(uint32_t barrier) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}
/* Waits for all threads of all blocks of the cluster. */
__device__ static inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* ---- single values in shared memory ---- */

__device__ static inline float load_shared(uint32_t from) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(from));
    return x;
}
__device__ static inline float2 load_shared2(uint32_t from) {
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(from));
    return x;
}
__device__ static inline float4 load_shared4(uint32_t from) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(from));
    return x;
}
__device__ static inline void store_shared(uint32_t to, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
}

/* Registers of a warpgroup: copying needs few, multiplying many. sm_90a has these instructions,
 * sm_90 does not, unlike the rest of this file. */
template <int N> __device__ static inline void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ static inline void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
#endif
