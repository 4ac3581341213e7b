/* How a GEMM adds its products: the reference's way, or a tensor core's, to the bit.
 *
 * A tensor core adds a group of products along K to its accumulator C in one instruction:
 *   1. An operand is sign * sig * 2^exp with sig in [1,2). Below its format's smallest normal
 *      number exp stays at the least one, and sig is in [0,1). A product is exact and is not
 *      normalised: sig in [0,4), exp the sum of both. Zero products take no part.
 *   2. E is the largest exponent of the products and of C (f32, at least -126). Each product and C
 *      is shifted to E and truncated toward zero at `fraction` bits below it.
 *   3. These integers are added exactly. The sum is truncated toward zero to `mantissa` bits after
 *      its leading one (not below f32's smallest step); beyond f32 it is infinite.
 * NaN, infinity * 0 and opposite infinities give NaN, otherwise an infinity stays.
 *
 * Of NVFP4 the terms are not products but blocks of 16: the sum of their products, which is exact,
 * times the significands of both scales. A term's exponent is the sum of the scales', also if the
 * block's sum is 0. Rules 2 and 3 are the same.
 * Source of the model: MMA-Sim (arXiv 2511.10909). EXACT.md says what was compared with a device.
 *
 * Host memory and host code only: the CPU backend, and whatever checks a device's outputs. */
#ifndef FP8LAB_KERNELS_ARITHMETIC_H
#define FP8LAB_KERNELS_ARITHMETIC_H

#include "kernels/arguments.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mma {
    int group;    /* products along K in one instruction, even */
    int fraction; /* bits kept below the largest exponent */
    int mantissa; /* bits of C after its leading one */
};

/* The class of an algorithm: its order along K. Within a part, chains of `chain` products start at
 * 0 and are added to the part's f32 total as they end, k ascending. The parts' totals are added in
 * f32, ascending (split-K). Tiles, clusters and rasters change no bit. */
struct k_order {
    int64_t chain; /* 0: one chain a part */
    int64_t part;  /* 0: one part; otherwise a multiple of `chain` and of the group */
    int64_t tile;  /* > 0: the K % tile products come first, in groups of their own. Libraries do
                      this where rows are not aligned for larger copies */
};

/* How the factors of both operands reach a sum x, each step rounded to f32. All have the same bits
 * if the factors are powers of two. */
enum factor_order {
    FACTORS_TOGETHER, /* x * (s_a * s_b) */
    FACTOR_A_FIRST,   /* (x * s_a) * s_b */
    FACTOR_B_FIRST    /* (x * s_b) * s_a */
};

/* A named arithmetic: static storage. */
struct arithmetic {
    const char *name;  /* "hopper" */
    const char *about; /* a few words for people */
    bool verified;     /* compared with a device, to the bit */
    bool wgmma;        /* our attention there is the kernel on wgmma (attention_order.h) */
    struct mma fp8, bf16; /* group 0: as kernels/cpu/README.md defines the reference */
    struct mma fp4;       /* NVFP4; group 0: not described */
    bool by_shape;     /* the shape selects the class, as kernels/cuda/gemm.cu chooses algorithms */
    int64_t promoted;  /* the chain of FP8 without fast accumulation; 0: one chain */
    unsigned native;   /* 1 << enum scale_kind: FP8 operands that the library multiplies as they
                          are. The others are widened to BF16 first, as kernels/cuda/matmul.cu
                          does, unless by_sync has them */
    unsigned by_sync;  /* those that kernels/cuda/gemm_sync.cu multiplies: chains of 128 */
    bool follows;      /* other operators too add as kernels/cuda does there (sum_order.h), and use
                          the functions of exactmath_fma.h */
};

/* The i-th arithmetic, the reference first; NULL after the last. */
const struct arithmetic *arithmetic_at(int i);
/* ERR_ARG for an unknown name; the text lists the names. */
NODISCARD enum status arithmetic_find(const char *name, const struct arithmetic **out,
                                      struct err *e);
static inline bool arithmetic_is_reference(const struct arithmetic *m) { return m->fp8.group == 0; }

/* How one product is added. Its operands' values are their codes, unless `widened`. */
struct mma_way {
    struct mma mma;
    struct k_order order;
    enum factor_order factors;
    int64_t block;    /* > 0: a pair of factors each `block` products, then block == order.chain.
                         The last multiplication is fused: total = fma(chain, s_a * s_b, total) */
    bool widened;     /* values are bf16(code * factor) */
    bool scaled;      /* values are code * factor, and the factor's exponent is the value's (MX) */
    int64_t term;     /* > 0: so many products are one term, with both factors (NVFP4) */
    bool last_factor; /* the sum is multiplied by s_a * s_b: tensor and row scales */
    bool fused;       /* with one factor a tensor, or NVFP4's: fma(x, factor, residual), or without
                         one C for the residual; then the bias */
    bool rounded;     /* after the bias the sum is rounded to BF16; then C is added in f32 */
    bool bias_last;   /* the residual or C is added before the bias */
    int least_a, least_b; /* the least exponents of the values */
};

/* Elements along K that share a factor; 0: all of them. */
static inline int64_t arithmetic_block(enum scale_kind kind) {
    if (kind == SCALE_1X128 || kind == SCALE_128X128) return 128;
    if (scale_is_nvfp4(kind)) return 16;
    return kind == SCALE_1X32 || kind == SCALE_32X32 ? 32 : 0;
}

/* Whether the arithmetic describes these operands: a tensor core's not F32, and not every one
 * NVFP4. */
bool arithmetic_describes(const struct arithmetic *m, const struct matmul_args *args);

/* The way of `args`; the reference's has mma.group 0. Operands have dtypes and scales, but need no
 * data. ERR_UNSUPPORTED for operands that the arithmetic does not describe. */
NODISCARD enum status arithmetic_way(const struct arithmetic *m, const struct matmul_args *args,
                                     struct mma_way *way, struct err *e);

/* The same, if the caller knows whether FP8 operands are multiplied as they are (`native`) or
 * widened first. */
NODISCARD enum status arithmetic_way_as(const struct arithmetic *m, const struct matmul_args *args,
                                        bool native, struct mma_way *way, struct err *e);

/* out[row][col] of args in that way, before it is rounded to out's dtype. All tensors are views of
 * host memory that the CPU's matmul would accept; out is read if beta is 1. `way`: from
 * arithmetic_way; a caller may set another order. The operands may be one row each. */
float arithmetic_output(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                        int64_t col);

/* ---- one instruction ---- */

/* Exponents of zero and of NaN and infinity: no sum with another exponent looks like a number's. */
enum { MMA_ZERO = -8192, MMA_SPECIAL = 32768, MMA_LEAST = -126, MMA_LEAST_E4M3 = -6 };
/* Terms of NVFP4 in one instruction. */
enum { MMA_TERMS = 4 };

/* The exponent of x, of a format whose least exponent is `least`. */
static inline int32_t mma_exponent(float x, int32_t least) {
    int32_t magnitude = (int32_t)(f32_bits(x) & 0x7FFFFFFFu), exponent = (magnitude >> 23) - 127;
    int32_t number = exponent > least ? exponent : least;
    int32_t finite = exponent == 128 ? MMA_SPECIAL : number;
    return magnitude == 0 ? MMA_ZERO : finite;
}

/* n values (at most a group) of one row of an operand and their exponents, `stride` apart. */
struct mma_terms { const float *value; const int32_t *exponent; int64_t stride; };

/* One instruction: C plus n products. Correct for all values, and slow. */
float mma_add(const struct mma *m, int64_t n, struct mma_terms a, struct mma_terms b, float c);

#ifdef __cplusplus
}
#endif
#endif
