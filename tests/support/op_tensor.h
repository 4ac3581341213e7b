/* Small tensors for operator tests: made, filled and read by hand. The CPU backend's memory is host
 * memory, so a test may read it directly. */
#ifndef FP8LAB_TESTS_SUPPORT_OP_TENSOR_H
#define FP8LAB_TESTS_SUPPORT_OP_TENSOR_H

#include "kernels/backend.h"

/* Everything made below lives until op_free(). */
void op_free(void);

/* The reference with this many threads; isa NULL: the best one. NULL if the machine lacks it. */
struct backend *op_backend(int threads, const char *isa);

/* Zeroed and packed; FP8 rows padded as tensor_fp8 does, with a zeroed scale of `kind`. */
struct tensor *op_tensor(enum dtype t, int64_t rows, int64_t cols, enum scale_kind kind);
/* The view with rows and columns exchanged. */
struct tensor op_transposed_view(const struct tensor *x);

/* FP8 codes and their scale again, as an untransposed twin. */
struct tensor *op_untransposed(const struct tensor *x);

/* F32 and BF16: signed, spread over 2^-spread .. 2^spread. FP8: any finite code. Scales: f32 in
 * [1/8, 8), e8m0 2^-4 .. 2^4. The same for the same seed. */
void op_fill(struct tensor *x, uint64_t seed, int spread);

/* The decoded value at (i, j); the factor of that element (1 without a scale). */
float op_stored(const struct tensor *x, int64_t i, int64_t j);
float op_factor(const struct tensor *x, int64_t i, int64_t j);
/* Rounds to x's dtype. */
void op_set(const struct tensor *x, int64_t i, int64_t j, float value);

/* Bytes of x's data with padding, for comparisons bit for bit. */
int64_t op_bytes(const struct tensor *x);

#endif
