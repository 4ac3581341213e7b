/* What each collective means, as bodies for ranks_run: the same for every backend, to the bit. */
#ifndef FP8LAB_TESTS_SUPPORT_COMM_CASES_H
#define FP8LAB_TESTS_SUPPORT_COMM_CASES_H

#include "tests/support/ranks.h"

/* The value of rank r at element i: of both signs, with sums that depend on their order. */
float comm_value(int r, int64_t i);
/* The definition: f32, rank order, one rounding to `dtype`. */
float comm_sum(int world, int64_t i, enum dtype dtype);

/* A tensor in the backend's memory with this rank's values; data NULL after a failure. */
struct tensor comm_tensor(struct rank_test *t, enum dtype dtype, int64_t n);
/* Its values, widened to f32; owned by the caller. NULL after a failure. */
float *comm_values(struct rank_test *t, const struct tensor *x);

int comm_sums(struct rank_test *t);       /* all_reduce, sizes from fewer than ranks to millions */
int comm_maxima(struct rank_test *t);     /* infinity and NaN are kept */
int comm_scatters(struct rank_test *t);   /* into memory of its own, and in place */
int comm_scatters_codes(struct rank_test *t); /* terms of 8 bits; zeros, an infinity, a NaN */
int comm_gathers(struct rank_test *t);    /* the same; any dtype */
int comm_broadcasts(struct rank_test *t); /* from every rank */

#endif
