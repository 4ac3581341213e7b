/* Packing of matmul operands: the micro-kernels read f32 panels, for any dtype and strides. */
#ifndef FP8LAB_KERNELS_CPU_MATMUL_PACK_H
#define FP8LAB_KERNELS_CPU_MATMUL_PACK_H

#include "kernels/cpu/isa.h"
#include "kernels/tensor.h"

enum { PACK_K = 128 }; /* elements along K that are decoded before they are interleaved */

/* One operand [rows, K] as the GEMM sees it. */
struct operand {
    const struct tensor *x;
    int64_t rows, k;
    int64_t block;    /* elements along K under one scale, or 0: scales are applied at the end */
    int width;        /* rows of a panel: the micro-kernel's mr or nr */
};

/* Packs `panels` panels of o from row `row` on, elements [k0, k0 + kn), as
 * out[p][k][width], panel p at out + p * panel_stride. Rows past the end are zero. scratch holds
 * width * the larger of PACK_K and `panels` floats. */
void pack_panels(const struct isa *isa, const struct operand *o, int64_t row, int64_t panels,
                 int64_t k0, int64_t kn, float *out, int64_t panel_stride, float *scratch);

/* out[block][width] = the stored factors of one panel's rows, blocks covering [k0, k0 + kn). */
void pack_scales(const struct operand *o, int64_t row, int64_t k0, int64_t kn, float *out);

/* The factor of `row` if the scale does not vary along K; 1 without a scale. */
float operand_row_scale(const struct operand *o, int64_t row);

#endif
