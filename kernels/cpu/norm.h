/* What the backward of both norms shares: its sums under an arithmetic that follows a GPU. */
#ifndef FP8LAB_KERNELS_CPU_NORM_H
#define FP8LAB_KERNELS_CPU_NORM_H

#include "kernels/cpu/lanes.h"

struct norm_orders {
    bool follows;
    struct row_order along; /* if it follows */
    struct rows_order over;
    bool own; /* the sums of dx belong to these over rows; otherwise they are the sink's */
};

static inline struct norm_orders norm_orders_of(struct backend *b,
                                                const struct norm_bwd_args *args, bool centred) {
    int64_t rows = tensor_rows(args->x), n = tensor_cols(args->x);
    const struct tensor *residual = args->residual, *sums = args->dx->sums;
    bool eights = rows_are_eights(n, args->x->stride[0]) &&
                  rows_are_eights(n, args->dy->stride[0]) &&
                  (!residual || rows_are_eights(n, residual->stride[0]));
    bool held = eights && n <= NORM_ROW_MAX;
    return (struct norm_orders){
        .follows = cpu_follows(b), .along = norm_bwd_order(n, eights),
        .over = held ? norm_bwd_rows_order(rows, n, centred, sums != NULL) : column_order(),
        .own = cpu_follows(b) && held && sums,
    };
}

#endif
