/* MXFP8 and NVFP4 operands in the library's order (byte_scales.h).
 *
 * Every product lays out the scales of its two operands again: 1/32 or 1/16 of the codes' bytes.
 * NVFP4's codes, which are kept one a byte, are packed too: 1 byte read and half a byte written an
 * element. Bound by memory. */
#include "kernels/cuda/byte_scales.cuh"

#include "kernels/cuda/byte_scales.h"
#include "kernels/nvfp4.h"

enum { THREADS = 256, PACKED = 32 /* codes a thread packs into 16 bytes */ };

struct swizzles { struct swizzle side[2]; };

/* Grid: x over words, y the operand. */
__global__ static void swizzle_kernel(struct swizzles s) {
    const struct swizzle &one = s.side[blockIdx.y];
    int64_t words = swizzle_words(one.rows, one.blocks), step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < words; i += step)
        one.to[i] = swizzle_word(&one, i);
}

struct packing {
    const uint8_t *codes; /* [rows][ld] */
    uint4 *to;            /* [rows][cols / 32] */
    int64_t rows, cols, ld;
};
struct packings { struct packing side[2]; };

__device__ static inline uint32_t pack8(uint32_t low, uint32_t high) {
    return nibbles_of(low) | nibbles_of(high) << 16;
}

__global__ static void pack_kernel(struct packings s) {
    const struct packing &p = s.side[blockIdx.y];
    int64_t across = p.cols / PACKED, n = p.rows * across, step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        const uint4 *from = (const uint4 *)(p.codes + i / across * p.ld + i % across * PACKED);
        uint4 x = from[0], y = from[1];
        p.to[i] = make_uint4(pack8(x.x, x.y), pack8(x.z, x.w), pack8(y.x, y.y), pack8(y.z, y.w));
    }
}

/* GEMM_FACTORS floats: the product's factor, 0, 1. */
__global__ static void factors_kernel(float *out, const float *amax_a, const float *amax_b) {
    out[0] = nvfp4_product_factor(*amax_a, *amax_b);
    out[1] = 0.0f;
    out[2] = 1.0f;
}

static bool is_nvfp4(const struct tensor *x) { return scale_is_nvfp4(x->scale.kind); }

/* What the blocks' scales are in the tensor's order; NVFP4's follow a header. */
static struct swizzle swizzle_of(const struct tensor *x, void *to) {
    bool square = x->scale.kind == SCALE_32X32 || x->scale.kind == SCALE_16X16;
    struct swizzle s = {};
    s.from = (const uint8_t *)x->scale.data + (is_nvfp4(x) ? SCALE_HEADER : 0);
    s.to = (uint32_t *)to;
    s.rows = x->dim[0];
    s.blocks = x->scale.dim[1];
    s.share = square ? scale_block(x->scale.kind) : 1;
    return s;
}

static int64_t scale_words(const struct tensor *x) {
    return swizzle_words(x->dim[0], x->scale.dim[1]);
}

/* An untransposed twin enters without the transposition; its scales have the order of any others,
 * since the library counts them by row of the product and block of K, however the codes lie. */
static struct gemm_operand operand_of(const struct tensor *x) {
    struct gemm_operand o = {};
    bool fp4 = is_nvfp4(x);
    o.data = x->data;
    o.type = fp4 ? CUDA_R_4F_E2M1 : x->dtype == DTYPE_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    o.ld = fp4 ? x->dim[1] : fp8_line(x);
    o.transposed = !fp8_is_untransposed(x);
    o.scale_mode = fp4 ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3
                       : CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    return o;
}

void byte_scales_describe(const struct matmul_args *t, struct gemm_problem *p) {
    p->a = operand_of(t->b);
    p->b = operand_of(t->a);
    p->k = t->a->dim[1];
    p->fast_accumulate = false;
}

static enum status pack(struct backend *b, int lane, const struct matmul_args *t,
                        struct gemm_problem *p, struct err *e) {
    static const enum scratch_use USE[2] = { SCRATCH_OPERAND_A, SCRATCH_OPERAND_B };
    const struct tensor *x[2] = { t->b, t->a };
    struct gemm_operand *o[2] = { &p->a, &p->b };
    struct packings s = {};
    for (int i = 0; i < 2; i++) {
        void *to;
        TRY(cuda_scratch(b, lane, USE[i], x[i]->dim[0] * x[i]->dim[1] / 2, &to, e));
        s.side[i] = { (const uint8_t *)x[i]->data, (uint4 *)to, x[i]->dim[0], x[i]->dim[1],
                      x[i]->stride[0] };
        o[i]->data = to;
    }
    int64_t threads = max_i64(x[0]->dim[0], x[1]->dim[0]) * p->k / PACKED;
    dim3 grid(grid_for(b, threads, THREADS), 2);
    pack_kernel<<<grid, THREADS, 0, cuda_lane(b, lane)>>>(s);
    return cuda_launched("matmul: packing", e);
}


enum status byte_scales_operands(struct backend *b, int lane, const struct matmul_args *t,
                                 struct gemm_problem *p, struct err *e) {
    void *to[2];
    int64_t words = scale_words(t->b);
    byte_scales_describe(t, p);
    TRY(cuda_scratch(b, lane, SCRATCH_SCALE_A, 4 * (words + GEMM_FACTORS), &to[0], e));
    TRY(cuda_scratch(b, lane, SCRATCH_SCALE_B, 4 * scale_words(t->a), &to[1], e));
    const struct swizzles s = { { swizzle_of(t->b, to[0]), swizzle_of(t->a, to[1]) } };
    p->a.scale = to[0];
    p->b.scale = to[1];
    dim3 grid(grid_for(b, max_i64(words, scale_words(t->a)), THREADS), 2);
    swizzle_kernel<<<grid, THREADS, 0, cuda_lane(b, lane)>>>(s);
    TRY(cuda_launched("matmul: scales", e));
    if (!is_nvfp4(t->a)) return OK;
    TRY(pack(b, lane, t, p, e));
    float *factors = (float *)to[0] + words; /* which the library reads on the device */
    factors_kernel<<<1, 1, 0, cuda_lane(b, lane)>>>(factors, (const float *)t->a->scale.data,
                                                    (const float *)t->b->scale.data);
    p->alpha = factors;
    return cuda_launched("matmul: factors", e);
}
