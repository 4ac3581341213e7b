/* Hopper's warpgroup products (wgmma): BF16 for attention, FP8 codes for gemm_hopper.cu; f32 sums;
 * tiles in shared memory in the 128-byte swizzle. Only machine code for sm_90a has the
 * instructions.
 *
 * A tile is [ROWS][D] with D a multiple of 64: D/64 consecutive panels, each ROWS lines of 128
 * bytes; the 16-byte chunk c of line r is at c ^ (r % 8). One tile serves a product in two ways
 * (PTX ISA, matrix descriptor). "Rows": D is the inner dimension K. "Columns": D is the outer
 * dimension N, which the instruction transposes.
 *
 * Sums are in the layout of mma.m16n8 (attention.cuh), a warp 16 of the 64 rows: sum[j] holds
 * columns 8j + 2t and 8j + 2t + 1 of rows g and g + 8. */
#ifndef FP8LAB_KERNELS_CUDA_WGMMA_CUH
#define FP8LAB_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/attention.cuh"

#if defined(__CUDACC__) && (!defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL))

enum { LINE_BYTES = 128 };

/* ---- descriptors ---- */

/* Rows of a panel as the outer dimension: 8 of them are 1024 bytes. A step of 16 elements along D
 * is 32 bytes within a line. */
__device__ static inline uint64_t rows_of(uint32_t panel) {
    return (uint64_t)(panel >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}
/* Columns as the outer dimension: 64 of them a panel of ROWS lines; 8 rows are 1024 bytes. */
template <int ROWS> __device__ static inline uint64_t columns_of(uint32_t line) {
    return (uint64_t)(line >> 4) | (uint64_t)(ROWS * LINE_BYTES >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* ---- products: queued between wgmma_begin and wgmma_commit ---- */

__device__ static inline void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ static inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most PENDING groups are running. */
template <int PENDING> __device__ static inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Keeps the compiler from moving reads or writes of sums across running products. */
template <int N> __device__ static inline void wgmma_hold(float (&x)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(x[j][i])::"memory");
}

#define SUM8(c, j)                                                                              \
    "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]), "+f"(c[j + 1][0]),              \
        "+f"(c[j + 1][1]), "+f"(c[j + 1][2]), "+f"(c[j + 1][3])
#define SUM32(c, j) SUM8(c, j), SUM8(c, j + 2), SUM8(c, j + 4), SUM8(c, j + 6)
#define NAMES32                                                                                 \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"    \
    "%24,%25,%26,%27,%28,%29,%30,%31"
#define NAMES64                                                                                 \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
            "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* c (+)= A B^T: 64 x 8N over 16 of D; A and B by rows in shared memory. add: 0 starts from zero. */
__device__ static inline void wgmma_rows(float (&c)[8][4], uint64_t a, uint64_t b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32 "}, %32, %33, p, "
                 "1, 1, 0, 0;}"
                 : SUM32(c, 0)
                 : "l"(a), "l"(b), "r"(add));
}
__device__ static inline void wgmma_rows(float (&c)[16][4], uint64_t a, uint64_t b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "}, %64, %65, p, "
                 "1, 1, 0, 0;}"
                 : SUM32(c, 0), SUM32(c, 8)
                 : "l"(a), "l"(b), "r"(add));
}

/* c (+)= A B^T: 64 x 128 over 32 codes, A of E4M3 or E5M2, B of E4M3; both by rows, a line of 128
 * codes each. */
template <bool A_E5M2>
__device__ static inline void wgmma_codes(float (&c)[16][4], uint64_t a, uint64_t b, int add) {
#define WGMMA_CODES(type)                                                              \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0;\n"                             \
                 "wgmma.mma_async.sync.aligned.m64n128k32.f32." type ".e4m3 {" NAMES64 \
                 "}, %64, %65, p, 1, 1;}"                                              \
                 : SUM32(c, 0), SUM32(c, 8)                                            \
                 : "l"(a), "l"(b), "r"(add))
    if (A_E5M2) WGMMA_CODES("e5m2");
    else WGMMA_CODES("e4m3");
#undef WGMMA_CODES
}

/* c += P B: P 64 x 16 in registers, B [16][8N] by columns in shared memory. */
__device__ static inline void wgmma_columns(float (&c)[8][4], const uint32_t (&p)[4], uint64_t b) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 1;}"
                 : SUM32(c, 0)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b), "r"(1));
}
__device__ static inline void wgmma_columns(float (&c)[16][4], const uint32_t (&p)[4], uint64_t b) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64 "}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, 1;}"
                 : SUM32(c, 0), SUM32(c, 8)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b), "r"(1));
}

/* c (+)= A^T B: 64 x 64 over 16 lines; A [16][64] and B [16][64] by columns in shared memory. */
__device__ static inline void wgmma_both(float (&c)[8][4], uint64_t a, uint64_t b, int add) {
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32 "}, %32, %33, p, "
                 "1, 1, 1, 1;}"
                 : SUM32(c, 0)
                 : "l"(a), "l"(b), "r"(add));
}

/* ---- whole tiles ---- */

/* c = A^T B over K lines of tiles A and B, of 64 columns each. */
template <int K>
__device__ static inline void queue_both(float (&c)[8][4], uint32_t a, uint32_t b) {
#pragma unroll
    for (int k = 0; k < K / 16; k++)
        wgmma_both(c, columns_of<K>(a + k * 16 * LINE_BYTES),
                   columns_of<K>(b + k * 16 * LINE_BYTES), k != 0);
}

/* c = A B^T over D: 64 rows of tile A from `line` on, all ROWS_B = 8N rows of tile B. */
template <int D, int ROWS_A, int N>
__device__ static inline void queue_rows(float (&c)[N][4], uint32_t a, int line, uint32_t b) {
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t panel = k / 4, step = k % 4 * 32;
        wgmma_rows(c, rows_of(a + panel * (ROWS_A * LINE_BYTES) + line * LINE_BYTES + step),
                   rows_of(b + panel * (8 * N * LINE_BYTES) + step), k != 0);
    }
}

/* c [64][D] += P B: P 64 x K packed in registers, B a tile of K rows. */
template <int D, int K>
__device__ static inline void queue_columns(float (&c)[D / 8][4], const uint32_t (&p)[K / 16][4],
                                            uint32_t b) {
#pragma unroll
    for (int k = 0; k < K / 16; k++) wgmma_columns(c, p[k], columns_of<K>(b + k * 16 * LINE_BYTES));
}

/* Two values rounded to BF16 in one word; NaN stays NaN, not canonical. */
__device__ static inline uint32_t pack_pair(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
/* Sums rounded to BF16 in the layout of the left operand in registers. */
template <int N>
__device__ static inline void pack_left(uint32_t (&p)[N / 2][4], const float (&x)[N][4]) {
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        p[k][0] = pack_pair(x[2 * k][0], x[2 * k][1]);
        p[k][1] = pack_pair(x[2 * k][2], x[2 * k][3]);
        p[k][2] = pack_pair(x[2 * k + 1][0], x[2 * k + 1][1]);
        p[k][3] = pack_pair(x[2 * k + 1][2], x[2 * k + 1][3]);
    }
}

#endif
#endif
