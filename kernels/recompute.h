/* Computes parts of a backend's results again, on the host and from copies of their operands:
 * single outputs of a matmul, and parts of a cast. What is equal by definition is compared to the
 * bit: for audits, and for certificates. Host memory only. */
#ifndef FP8LAB_KERNELS_RECOMPUTE_H
#define FP8LAB_KERNELS_RECOMPUTE_H

#include "kernels/arithmetic.h"
#include "kernels/quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two values that should be equal. Any NaN equals any other. */
struct recomputed {
    const char *what;       /* "product", "code", "factor", "value above its amax" */
    int64_t row, col;       /* in the views given; of a factor: the first element it scales */
    enum dtype dtype;       /* of both values */
    uint32_t found, expected;   /* their bits */
    bool equal;
};

/* The value of such bits. */
float recomputed_value(enum dtype dtype, uint32_t bits);

/* out[row][col] of args in that way (arithmetic_output), rounded to out's dtype, beside the element
 * that `found` points to. With beta 1, args->out holds what was there before the product. */
void recompute_product(const struct mma_way *way, const struct matmul_args *args, int64_t row,
                       int64_t col, const void *found, struct recomputed *r);

/* A part of a cast: x [rows, k] F32 or BF16, codes [rows, k] with the scales of this part. The part
 * holds whole blocks of the scale kind, or what the tensor has of them; whole rows for
 * SCALE_ROW. */
struct cast_part {
    struct tensor x, codes;
    struct quant_rule rule;
    const float *multiplier; /* SCALE_TENSOR only: SCALE_SOURCE_KNOWN's, or NULL: from the amax */
    const uint32_t *amax;    /* its bits, of the whole tensor */
};

/* Whether recompute_cast knows the kind: all but NVFP4's. */
bool recompute_knows_cast(enum scale_kind kind);
/* The rows and columns of a block: { 1, K } for SCALE_ROW, { 1, 1 } for SCALE_TENSOR. */
struct cast_block { int64_t rows, cols; };
struct cast_block recompute_block(enum scale_kind kind, int64_t k);
/* Compares all codes and factors of the part; *r is the first difference, or r->equal is set. */
void recompute_cast(const struct cast_part *p, struct recomputed *r);

#ifdef __cplusplus
}
#endif
#endif
