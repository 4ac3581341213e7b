/* The elements of a tensor in row-major order, as spans of elements that are equally far apart:
 * pieces of a packed tensor, rows of another one. */
#ifndef FP8LAB_KERNELS_CPU_SPANS_H
#define FP8LAB_KERNELS_CPU_SPANS_H

#include "kernels/tensor.h"

struct spans {
    int64_t count; /* elements of the tensor */
    int64_t span;  /* of a span; the last one may be shorter */
    int64_t step;  /* from an element to the next */
    bool packed;
};

static inline struct spans spans_of(const struct tensor *x) {
    int64_t cols = x->dim[3], rows = x->dim[0] * x->dim[1] * x->dim[2];
    bool packed = x->stride[3] == 1 && (x->dim[2] == 1 || x->stride[2] == cols) &&
                  (x->dim[1] == 1 || x->stride[1] == cols * x->dim[2]) &&
                  (x->dim[0] == 1 || x->stride[0] == cols * x->dim[2] * x->dim[1]);
    return (struct spans){ rows * cols, packed ? 16384 : cols, packed ? 1 : x->stride[3], packed };
}

/* Where the span that begins with element `first` lies, in elements; *n: its elements. */
static inline int64_t spans_at(const struct spans *s, const struct tensor *x, int64_t first,
                               int64_t *n) {
    *n = s->count - first < s->span ? s->count - first : s->span;
    if (s->packed) return first;
    int64_t row = first / x->dim[3], k = row % x->dim[2], j = row / x->dim[2] % x->dim[1];
    return row / (x->dim[2] * x->dim[1]) * x->stride[0] + j * x->stride[1] + k * x->stride[2];
}

#endif
