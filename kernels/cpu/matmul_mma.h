/* What matmul does otherwise under a tensor core's arithmetic (kernels/arithmetic.h): panels also
 * have the exponents of their values, and other micro-kernels add. */
#ifndef FP8LAB_KERNELS_CPU_MATMUL_MMA_H
#define FP8LAB_KERNELS_CPU_MATMUL_MMA_H

#include "kernels/cpu/matmul_pack.h"

/* One packed panel of o, [kn][width] values from row `row` on, becomes what the instruction gets:
 * values with their scales where `way` says so, and their exponents at `exponents`.
 * scratch: kn * width floats. kn starts on a scale block of K. */
void mma_pack(const struct isa *isa, const struct mma_way *way, int least, const struct operand *o,
              int64_t row, int64_t k0, int64_t kn, float *values, int32_t *exponents,
              float *scratch);

/* One operand of a micro-tile: packed values, exponents, and factors (NULL: none) a block. */
struct mma_panel { const float *value; const int32_t *exponent; const float *factor; };

/* The same of NVFP4 (way->term), for panels and sums of [mr][nr]. They have factors and no
 * exponents. k is a multiple of the group, and kn, but for the end of K. */
void mma_term_tile(const struct isa *isa, const struct mma_way *way, struct mma_panel a,
                   struct mma_panel b, int64_t k, int64_t kn, float *sums);

/* Continues the sums [mma_mr][mma_nr] of a micro-tile over elements [k, k + kn) of the panels. If
 * way->order.chain is set, k and kn are multiples of it, but for the end of K. */
void mma_micro_tile(const struct isa *isa, const struct mma_way *way, struct mma_panel a,
                    struct mma_panel b, int64_t k, int64_t kn, float *sums);

#endif
