/* The transposed view of a matrix: the same memory, rows and columns exchanged. */
#ifndef FP8LAB_KERNELS_TRANSPOSED_H
#define FP8LAB_KERNELS_TRANSPOSED_H

#include <stdbool.h>

#include "kernels/tensor.h"

static inline struct tensor tensor_transposed(const struct tensor *x) {
    struct tensor t = *x;
    t.dim[0] = x->dim[1]; t.dim[1] = x->dim[0];
    t.stride[0] = x->stride[1]; t.stride[1] = x->stride[0];
    return t;
}

/* Whether x is the transposed view of a matrix whose rows are contiguous. */
static inline bool is_transposed_view(const struct tensor *x) {
    return x->stride[1] != 1 && x->stride[0] == 1 && x->dim[2] * x->dim[3] == 1;
}

#endif
