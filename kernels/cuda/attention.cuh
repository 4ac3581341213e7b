/* What the attention kernels share: 16-byte copies into padded shared-memory tiles, ldmatrix, and
 * mma.m16n8k16 over them. Runs on every device from sm_80 on.
 *
 * A tile is [rows][D] BF16 with rows D + 8 apart. Eight rows of 16 bytes then use distinct banks
 * for every D that is a multiple of 16. Fragments (PTX ISA, mma.m16n8k16): lane l has group g = l/4
 * and t = l%4; an accumulator tile of 16 x 8 holds rows g and g+8, columns 2t and 2t+1. */
#ifndef FP8LAB_KERNELS_CUDA_ATTENTION_CUH
#define FP8LAB_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/attention_order.h"
#include "kernels/cuda/cuda_common.cuh"
#include "kernels/exactmath_f32.h"

/* qkv [B,T,H+2G,D] and the values that both directions derive from it. */
struct attention {
    const bf16_bits *qkv;
    const int32_t *first_key; /* [B,T]; NULL: 0 everywhere. Kernels that read it are RANGED */
    int64_t batch, length, width; /* width = (H+2G)*D: between time steps */
    int heads, kv_heads, head_dim;
    float scale; /* 1 / sqrt D */
    bool exact;  /* the kernels whose bits the CPU has (cpu/attention_exact.c) */
};

/* What forward reads and writes. */
struct forward {
    struct attention a;
    bf16_bits *o; /* [B*T, H*D] */
    float *lse;   /* [B,H,T] */
    uint32_t *amax;
};

/* What backward reads and writes. */
struct backward {
    struct attention a;
    bf16_bits *d_qkv;
    const bf16_bits *d_o, *o; /* [B*T, H*D] */
    const float *lse;         /* [B,H,T] */
    float *delta;             /* [B,H,T] */
    uint32_t *amax;           /* of d_qkv, or NULL */
};

/* `what`: the operator, in error texts. */
enum status attention_setup(struct attention *a, const char *what, const struct tensor *qkv,
                            int64_t heads, int64_t kv_heads, const struct tensor *first_key,
                            struct err *e);

/* Records the kernel that served a call: "cudnn", "wgmma" (ours on Hopper) or "mma" (ours on other
 * devices); and the reason, "" if there was no choice. */
NODISCARD enum status attention_decided(struct cuda_backend *b, const struct attention *a,
                                        const char *direction, const char *way, const char *why,
                                        struct err *e);

/* The forward by our own kernel for this device, which also raises f->amax; and its name.
 * Queued. */
NODISCARD enum status attention_own_fwd(struct cuda_backend *b, const struct forward *f,
                                        cudaStream_t stream, struct err *e);
const char *attention_own_name(const struct cuda_backend *b, const struct attention *a);

#ifdef __CUDACC__

enum { ATTENTION_THREADS = 128, ATTENTION_WARPS = 4 };

/* The first key that query `row` of a sequence sees; 0 behind the last row. */
__device__ static inline int first_key_of(const struct attention &a, int64_t sequence,
                                          int64_t row) {
    return row < a.length ? __ldg(a.first_key + sequence * a.length + row) : 0;
}

template <int D> struct padded_tile { static constexpr int STRIDE = D + 8; };

/* Copies ROWS rows of D from global memory, `stride` apart; rows from `valid` on become zero. */
template <int D, int ROWS>
__device__ static inline void copy_tile(bf16_bits *tile, const bf16_bits *from, int64_t stride,
                                        int64_t valid) {
    constexpr int CHUNKS = D / 8;
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += ATTENTION_THREADS) {
        int row = i / CHUNKS, chunk = i % CHUNKS;
        bool there = row < valid;
        const bf16_bits *source = from + (there ? row * stride : 0) + chunk * 8;
        uint32_t to = shared_address(tile + row * padded_tile<D>::STRIDE + chunk * 8);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(source),
                     "r"(there ? 16 : 0));
    }
}
__device__ static inline void copies_commit() { asm volatile("cp.async.commit_group;"); }
template <int PENDING> __device__ static inline void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING));
}

__device__ static inline void ldmatrix(uint32_t (&r)[4], const bf16_bits *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
__device__ static inline void ldmatrix_transposed(uint32_t (&r)[4], const bf16_bits *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
__device__ static inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* 2^x, 2 ulp. */
__device__ static inline float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* What EXACT kernels compute instead of the device's approximations. */
template <bool EXACT> __device__ static inline float attention_exp2(float x) {
    if constexpr (EXACT) return exact_exp2f(x);
    else return exp2_fast(x);
}
template <bool EXACT> __device__ static inline float attention_log(float x) {
    if constexpr (EXACT) return exact_logf(x);
    else return logf(x);
}

/* acc [M tiles][N tiles] += A B^T over D: A rows at `a`, B rows at `b`, both tiles in shared
 * memory. */
template <int D, int M, int N>
__device__ static inline void multiply_rows(float (&acc)[M][N][4], const bf16_bits *a,
                                            const bf16_bits *b) {
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    int lane = threadIdx.x % WARP;
    const bf16_bits *a_lane = a + lane % 16 * STRIDE + lane / 16 * 8;
    const bf16_bits *b_lane = b + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) ldmatrix(fa[m], a_lane + m * 16 * STRIDE + k * 16);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            uint32_t fb[4];
            ldmatrix(fb, b_lane + n * 8 * STRIDE + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma(acc[m][n], fa[m], fb[0], fb[1]);
                mma(acc[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* acc [M][D/8] += P B: P [M tiles][K/8 tiles] in accumulator layout, rounded to BF16; B [K][D] in
 * shared memory. */
template <int D, int M, int K>
__device__ static inline void multiply_columns(float (&acc)[M][D / 8][4],
                                               const float (&p)[M][K / 8][4], const bf16_bits *b) {
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    int lane = threadIdx.x % WARP;
    const bf16_bits *b_lane = b + lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        uint32_t fa[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            fa[m][0] = bf16x2_encode(p[m][2 * k][0], p[m][2 * k][1]);
            fa[m][1] = bf16x2_encode(p[m][2 * k][2], p[m][2 * k][3]);
            fa[m][2] = bf16x2_encode(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
            fa[m][3] = bf16x2_encode(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t fb[4];
            ldmatrix_transposed(fb, b_lane + k * 16 * STRIDE + n * 8);
#pragma unroll
            for (int m = 0; m < M; m++) {
                mma(acc[m][n], fa[m], fb[0], fb[1]);
                mma(acc[m][n + 1], fa[m], fb[2], fb[3]);
            }
        }
    }
}

/* Stores the rows of a 16 x D accumulator, scaled; rows from `valid` on do not exist. */
template <int D>
__device__ static inline void store_tile(bf16_bits *to, int64_t stride, const float (&x)[D / 8][4],
                                         float scale, int64_t valid) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = lane / 4 + 8 * h;
        if (row >= valid) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            *(uint32_t *)(to + row * stride + n * 8 + lane % 4 * 2) =
                bf16x2_encode(x[n][2 * h] * scale, x[n][2 * h + 1] * scale);
    }
}

/* Maximum and sum over the four lanes that share a row. */
__device__ static inline float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ static inline float quad_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

#endif /* __CUDACC__ */
#endif
