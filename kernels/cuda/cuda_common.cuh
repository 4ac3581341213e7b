/* Private to kernels/cuda: the backend's state, error macros, argument checks, and the device
 * helpers that every operator shares. No CUDA type leaves this directory. */
#ifndef FP8LAB_KERNELS_CUDA_COMMON_CUH
#define FP8LAB_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/backend.h"
#include "kernels/cuda/scratch.h"
#include "kernels/exactmath_fma.h"

typedef uint16_t bf16_bits; /* a stored BF16 */

/* ---- state ----------------------------------------------------------------------------------- */

enum { WARP = 32 };

/* Scratch memory of one lane, by use. Each grows to the largest request and stays. */
enum scratch_use {
    SCRATCH_GEMM,      /* cuBLASLt's workspace */
    SCRATCH_SCALE_A,   /* scale factors in the library's layout */
    SCRATCH_SCALE_B,
    SCRATCH_OPERAND_A, /* emulated modes: operands widened to BF16 */
    SCRATCH_OPERAND_B,
    SCRATCH_RESULT,    /* emulated modes: the product before its epilogue, f32 */
    SCRATCH_AMAX,      /* row and column maxima */
    SCRATCH_PARTIAL,   /* partial sums of two-stage reductions */
    SCRATCH_ATTENTION, /* cuDNN's workspace, or sums of our own backward */
    SCRATCH_TERMS,     /* terms of other ranks of a sum */
    SCRATCH_SORT,      /* embedding_bwd: tokens and rows, twice */
    SCRATCH_COUNT
};

struct scratch { void *data; int64_t bytes; };

/* Where an event or read-back was last recorded: the capture (0: outside any graph) and the lane.
 * The host cannot wait for a captured record. The wait is for the end of its graph instead. */
struct event_slot { cudaEvent_t event; int64_t capture; int lane; };

struct readback_slot {
    void *host; /* pinned, READBACK_BYTES */
    int64_t bytes;
    struct event_slot done;
};

/* Pinned memory for uploads, used chunk by chunk. The host continues while the device is busy, and
 * waits only for a chunk that has not been copied yet. */
enum { STAGING_CHUNKS = 32, STAGING_BYTES = 256 << 10 /* of a chunk */ };
struct staging {
    char *host; /* STAGING_CHUNKS * STAGING_BYTES */
    cudaEvent_t copied[STAGING_CHUNKS];
    int next;
};

struct graph_slot {
    cudaGraphExec_t exec; /* NULL: nothing captured */
    bool warm;            /* the operators ran once outside a capture */
};

struct gemm_library;    /* gemm.cu */
struct attention_table; /* attention_choice.cu */
struct cudnn_library;   /* attention_cudnn.cu */
struct decision_log;    /* choices.cu */
struct cuda_progress;   /* cuda_progress.cu */
struct cuda_group;      /* comm.cu */

enum { FORBIDDEN_MAX = 24 };
struct forbidden_way { char section[16], way[FORBIDDEN_WAY_CAP]; };

struct cuda_backend {
    struct backend base;    /* first: a struct backend * is a struct cuda_backend * */
    struct backend_ops ops; /* what base.ops points to */
    int device, cc, sm_count; /* cc: 90 for 9.0 */
    int64_t memory_bytes;     /* total of the device */
    int caps;         /* capability whose features are used: cc, or of assume_architecture() */
    struct forbidden_way forbidden[FORBIDDEN_MAX]; /* see forbid() */
    int forbidden_count;
    int shared_bytes; /* opt-in shared memory of one block */
    bool exact;       /* operators take the forms that the CPU follows */
    cudaStream_t lane[LANE_COUNT];
    struct event_slot event[EVENT_COUNT];
    struct readback_slot readback[READBACK_SLOTS];
    struct staging staging;
    struct scratch scratch[LANE_COUNT][SCRATCH_COUNT];
    struct graph_slot graph[GRAPH_COUNT];
    cudaEvent_t join[LANE_COUNT]; /* orders the lanes around graphs */
    cudaEvent_t graph_done;
    cudaEvent_t timer[TIMER_MARKS]; /* NULL until marked */
    int64_t capture;    /* number of the open capture, 0 outside */
    int64_t captures;   /* begun so far, counted */
    char *offers;       /* a table of earlier runs (choices_offer), owned; NULL: none */
    double choosing_seconds; /* spent so far on choices: trial.cuh */
    struct gemm_library *gemm;
    struct attention_table *attention; /* NULL until attention has a choice */
    struct cudnn_library *cudnn;       /* NULL until attention uses it */
    struct decision_log *decisions; /* NULL until the first */
    struct cuda_progress *progress;
    struct cuda_group *group;       /* NULL with one rank */
};

static inline struct cuda_backend *cuda_of(struct backend *b) { return (struct cuda_backend *)b; }
static inline cudaStream_t cuda_lane(struct backend *b, int lane) { return cuda_of(b)->lane[lane]; }

/* At least `bytes` of scratch, 256-byte aligned, valid for the operator being queued. Growing drops
 * the captured graphs, which hold its address. Growing inside a capture is ERR_STATE. */
NODISCARD enum status cuda_scratch(struct backend *b, int lane, enum scratch_use use, int64_t bytes,
                                   void **out, struct err *e);

/* Whether forbid() named this way. */
bool cuda_is_forbidden(const struct cuda_backend *b, const char *section, const char *way);

/* Records the decision of a call (kernels/backend.h, struct decision), and counts the calls. */
NODISCARD enum status cuda_decided(struct cuda_backend *b, const struct decision *d,
                                   struct err *e);

/* ---- errors ---------------------------------------------------------------------------------- */

#define CUDA_TRY(e, call)                                                                     \
    do {                                                                                      \
        cudaError_t cuda_try_ = (call);                                                       \
        if (cuda_try_ != cudaSuccess)                                                         \
            return FAIL((e), cuda_try_ == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE, \
                        "%s: %s", #call, cudaGetErrorString(cuda_try_));                      \
    } while (0)

/* A debug build (CONFIG=debug) waits for the device after each launch and captures no graph. */
#ifdef FP8LAB_CUDA_DEBUG
enum { SYNC_EACH_LAUNCH = 1 };
#else
enum { SYNC_EACH_LAUNCH = 0 };
#endif

/* To be called after each launch. It also reports a sticky error of an earlier launch: the text
 * then names the operator that noticed it. In a debug build it names the launch that failed. */
static inline enum status cuda_launched(const char *what, struct err *e) {
    cudaError_t status = cudaGetLastError();
    if (SYNC_EACH_LAUNCH && status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) return OK;
    return FAIL(e, ERR_DEVICE, "%s: %s", what, cudaGetErrorString(status));
}

/* ---- argument checks (check.cu) -------------------------------------------------------------- */

enum { /* sets of dtypes */
    IS_F32 = 1 << DTYPE_F32, IS_BF16 = 1 << DTYPE_BF16, IS_GRAD = IS_F32 | IS_BF16,
    IS_E4M3 = 1 << DTYPE_E4M3, IS_E5M2 = 1 << DTYPE_E5M2, IS_E2M1 = 1 << DTYPE_E2M1,
    IS_FP8 = IS_E4M3 | IS_E5M2 | IS_E2M1,
    IS_I32 = 1 << DTYPE_I32, IS_U32 = 1 << DTYPE_U32, IS_U64 = 1 << DTYPE_U64
};

/* OK if x is not NULL, has one of the dtypes, the shape [rows, cols], and contiguous rows. The
 * shape is seen as [dim 0, the rest]; -1: any extent. ERR_UNSUPPORTED for f32 activations where
 * only BF16 is listed: only the CPU backend has them. `what` names operator and operand. */
NODISCARD enum status cuda_check(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                                 int64_t cols, struct err *e);
/* cuda_check, and the rows must have no gaps between them. */
NODISCARD enum status cuda_check_packed(const struct tensor *x, const char *what, int dtypes,
                                        int64_t rows, int64_t cols, struct err *e);
bool cuda_is_packed(const struct tensor *x);
/* `count` packed I32. */
NODISCARD enum status cuda_check_indices(const struct tensor *x, const char *what, int64_t count,
                                         struct err *e);
/* The scale of FP8 codes [rows, cols]: kind, dtype, shape, and what a GPU needs to be aligned. */
NODISCARD enum status cuda_check_scale(const struct tensor *codes, const char *what, int64_t rows,
                                       int64_t cols, struct err *e);
/* FP8 codes [rows, cols] with such a scale: rows aligned to 16 bytes, or an untransposed twin. */
NODISCARD enum status cuda_check_codes(const struct tensor *codes, const char *what, int64_t rows,
                                       int64_t cols, struct err *e);
/* cuda_check of every part of a sink whose value is rows x cols packed elements, in any shape. */
NODISCARD enum status cuda_check_sink(const struct sink *s, const char *what, int64_t rows,
                                      int64_t cols, struct err *e);

/* ---- sinks (quantise.cu) --------------------------------------------------------------------- */

/* A producer calls this once s->value is queued. Producers maximise s->amax themselves, in the pass
 * that writes the value, and pass that fact; otherwise this function reads the value for it. */
NODISCARD enum status cuda_sink_emit(struct backend *b, int lane, const struct sink *s,
                                     bool amax_done, struct err *e);
/* The codes of a sink of NVFP4, from its stored value and amax (nvfp4.cu). */
NODISCARD enum status cuda_nvfp4_codes(struct backend *b, int lane, const struct sink *s,
                                       struct err *e);
/* out [rows,K] BF16 = codes * scale, rounded once: the operands of an emulated matmul. Of NVFP4 the
 * blocks' scales, which is exact; the tensors' factor is left to the product. Of an untransposed
 * twin out is a transposed view, too. */
NODISCARD enum status cuda_dequantise(struct backend *b, int lane, const struct tensor *out,
                                      const struct tensor *codes, struct err *e);
/* cuda_sink_emit for AdamW: nothing is written once flag[0] >= 0 on the device. */
NODISCARD enum status cuda_sink_emit_gated(struct backend *b, int lane, const struct sink *s,
                                           const int32_t *flag, struct err *e);
static inline bf16_bits *sink_value_of(const struct sink *s) { return (bf16_bits *)s->value->data; }
static inline uint32_t *sink_amax(const struct sink *s) {
    return s->amax ? (uint32_t *)s->amax->data : NULL;
}

/* ---- device helpers -------------------------------------------------------------------------- */

/* True if rows of n BF16 at this stride can be read 16 bytes at a time. */
static inline bool rows_are_vectors(const void *data, int64_t n, int64_t stride) {
    return ((uintptr_t)data & 15) == 0 && n % 8 == 0 && stride % 8 == 0;
}
static inline bool tensor_is_vectors(const struct tensor *x) {
    return rows_are_vectors(x->data, tensor_cols(x), x->stride[0]);
}

#ifdef __CUDACC__

/* The device's clock. */
__device__ static inline uint64_t clock_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

__device__ static inline uint32_t shared_address(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Two values rounded to BF16 in one word, NaN canonical (0x7FC0). */
__device__ static inline uint32_t bf16x2_encode(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    if (low != low) packed = (packed & 0xFFFF0000u) | 0x7FC0u;
    if (high != high) packed = (packed & 0xFFFFu) | 0x7FC00000u;
    return packed;
}
__device__ static inline float bf16_low(uint32_t packed) { return __uint_as_float(packed << 16); }
__device__ static inline float bf16_high(uint32_t packed) {
    return __uint_as_float(packed & 0xFFFF0000u);
}

__device__ static inline void bf16x8_decode(float (&out)[8], uint4 v) {
    const uint32_t word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = bf16_low(word[i]);
        out[2 * i + 1] = bf16_high(word[i]);
    }
}

/* bf16x2_encode of eight, with one test for NaN. */
__device__ static inline uint4 bf16x8_encode(const float (&in)[8]) {
    uint32_t word[4];
    bool nan = false;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = in[2 * i], high = in[2 * i + 1];
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word[i]) : "f"(high), "f"(low));
        nan |= !(low <= high) && !(low > high);
    }
    if (nan) {
#pragma unroll
        for (int i = 0; i < 4; i++) word[i] = bf16x2_encode(in[2 * i], in[2 * i + 1]);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}
/* Largest |x| bits of eight stored values, in both halves of a word. */
__device__ static inline uint32_t bf16x8_largest(uint4 v) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    return __vmaxu2(__vmaxu2(v.x & magnitude, v.y & magnitude),
                    __vmaxu2(v.z & magnitude, v.w & magnitude));
}

/* 16 bytes in one store. The compiler would split an assignment of separately computed words. */
__device__ static inline void store_words(void *to, uint4 v) { __stwb((uint4 *)to, v); }

/* N consecutive BF16 as floats: one 16-byte access for 8, scalar for 1. */
template <int N> __device__ static inline void load_bf16(float (&out)[N], const bf16_bits *x) {
    if constexpr (N == 8) {
        bf16x8_decode(out, *(const uint4 *)x);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = bf16_decode(x[i]);
    }
}
/* Returns the largest |x| bits stored, in the form of an amax slot. */
template <int N>
__device__ static inline uint32_t store_bf16(bf16_bits *x, const float (&in)[N]) {
    if constexpr (N == 8) {
        uint4 v = bf16x8_encode(in);
        *(uint4 *)x = v;
        uint32_t top = bf16x8_largest(v);
        return max(top << 16, top & 0xFFFF0000u);
    } else {
        uint32_t top = 0;
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = bf16_encode(in[i]);
            top = max(top, (uint32_t)(x[i] & 0x7FFFu) << 16);
        }
        return top;
    }
}

/* store_bf16; if `to` is NULL, only the maximum. */
template <int N> __device__ static inline uint32_t put_bf16(bf16_bits *to, const float (&in)[N]) {
    if (to) return store_bf16(to, in);
    uint32_t top = 0;
    if constexpr (N == 8) {
        top = bf16x8_largest(bf16x8_encode(in));
        top = max(top << 16, top & 0xFFFF0000u);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) top = max(top, (uint32_t)(bf16_encode(in[i]) & 0x7FFFu) << 16);
    }
    return top;
}

/* Elementary functions whose error of 2 ulp disappears in BF16 outputs; subnormal results are 0. */
__device__ static inline float fast_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}
__device__ static inline float fast_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* EXACT: exp with the CPU's bits; otherwise the device's. */
template <bool EXACT> __device__ static inline float exp_of(float x) {
    return EXACT ? fma_expf(x) : fast_exp(x);
}

/* Main gradients are F32 or BF16: one accessor, chosen by a uniform flag. */
struct grad_view { void *data; bool is_bf16; };
static inline struct grad_view grad_of(const struct tensor *x) {
    struct grad_view g = { x ? x->data : NULL, x && x->dtype == DTYPE_BF16 };
    return g;
}
__device__ static inline float grad_load(struct grad_view g, int64_t i) {
    return g.is_bf16 ? bf16_decode(((const bf16_bits *)g.data)[i]) : ((const float *)g.data)[i];
}
__device__ static inline void grad_store(struct grad_view g, int64_t i, float x) {
    if (g.is_bf16) ((bf16_bits *)g.data)[i] = bf16_encode(x);
    else ((float *)g.data)[i] = f32_canonical(x);
}

/* Butterfly sums: every lane ends with the same bits, since a + b == b + a. */
__device__ static inline float warp_sum(float x) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}
__device__ static inline uint32_t warp_max(uint32_t x) { return __reduce_max_sync(0xFFFFFFFFu, x); }
__device__ static inline uint64_t warp_sum_u64(uint64_t x) {
#pragma unroll
    for (int step = WARP / 2; step; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}
/* Sum over the block, the same bits in every thread; `shared` holds 32 floats and may be used again
 * at once. All threads call it; blockDim.x is a multiple of 32. */
__device__ static inline float block_sum(float x, float *shared) {
    x = warp_sum(x);
    int warps = (int)blockDim.x / WARP;
    if (warps == 1) return x;
    __syncthreads();
    if (threadIdx.x % WARP == 0) shared[threadIdx.x / WARP] = x;
    __syncthreads();
    x = (int)(threadIdx.x % WARP) < warps ? shared[threadIdx.x % WARP] : 0.0f;
    return warp_sum(x);
}
/* Raises *slot to bits. Reads it first: thousands of atomics on one address wait for one another,
 * more than a nanosecond each, and few of them raise it. */
__device__ static inline void raise_amax(uint32_t *slot, uint32_t bits) {
    if (bits > *(volatile uint32_t *)slot) atomicMax(slot, bits);
}
__device__ static inline void warp_amax_into(uint32_t *slot, uint32_t bits) {
    if (!slot) return;
    bits = warp_max(bits);
    if (threadIdx.x % WARP == 0) raise_amax(slot, bits);
}
/* The same by a warp that read the slot early: amax_seen. Its end then waits for no memory. */
__device__ static inline uint32_t amax_seen(const uint32_t *slot) {
    return slot ? *(const volatile uint32_t *)slot : 0;
}
__device__ static inline void warp_amax_above(uint32_t *slot, uint32_t seen, uint32_t bits) {
    if (!slot) return;
    bits = warp_max(bits);
    if (threadIdx.x % WARP == 0 && bits > seen) atomicMax(slot, bits);
}
/* All threads of the block call it. */
__device__ static inline void block_amax_into(uint32_t *slot, uint32_t bits) {
    __shared__ uint32_t top;
    if (!slot) return;
    if (threadIdx.x == 0) top = 0;
    __syncthreads();
    bits = warp_max(bits);
    if (threadIdx.x % WARP == 0) atomicMax(&top, bits);
    __syncthreads();
    if (threadIdx.x == 0) raise_amax(slot, top);
}

#endif /* __CUDACC__ */

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
/* Blocks of a grid-stride loop: enough to fill the device a few times over, no more than needed. */
static inline unsigned grid_for(struct backend *b, int64_t items, int64_t items_per_block) {
    int64_t blocks = ceil_div(items, items_per_block);
    return (unsigned)max_i64(1, min_i64(blocks, (int64_t)cuda_of(b)->sm_count * 16));
}

/* ---- collectives (comm.cu) and the operators ------------------------------------------------- */

void cuda_fill_comm(struct comm_ops *comm);
void cuda_group_close(struct cuda_backend *b);
/* Makes LANE_COMPUTE wait for the event of another lane's collective, and times the wait. */
NODISCARD enum status cuda_await_collective(struct cuda_backend *b, cudaEvent_t event,
                                            struct err *e);
/* Sends rank 0's bytes to every rank, on the host, so that all make the same choice. With one rank
 * it does nothing. All ranks call it at the same place with the same `about`, which identifies the
 * choice. Done on return. */
NODISCARD enum status cuda_agree(struct cuda_backend *b, const char *what, const int64_t about[4],
                                 void *value, int64_t bytes, struct err *e);

enum status cuda_sync(struct backend *b, struct err *e);
enum status cuda_gemm_library(struct err *e); /* ERR_DEVICE if cuBLASLt is too old */
enum status cuda_gemm_open(struct cuda_backend *b, struct err *e);
void cuda_gemm_close(struct cuda_backend *b);
enum status cuda_attention_open(struct cuda_backend *b, struct err *e);
void cuda_attention_close(struct cuda_backend *b);

#define OPERATOR(name, parameters, arguments, cost) \
    enum status cuda_##name OPERATOR_PARAMETERS parameters;
#include "kernels/operators.inc"
enum status cuda_matmul_native(struct backend *b, const struct matmul_args *args, bool *native,
                               struct err *e);

enum status cuda_product_way(struct backend *b, const struct matmul_args *args,
                             struct mma_way *way, bool *known, struct err *e);

bool cuda_twins_untransposed(struct backend *b, enum scale_kind kind);

/* Whether cuda_transpose can do this copy: aligned FP8 codes into their transposed twin. */
bool cuda_is_transposed_copy(const struct tensor *out, const struct tensor *x);
enum status cuda_transpose(struct backend *b, int lane, const struct tensor *out,
                      const struct tensor *x, struct err *e);

#endif
