/* For tests of operators: a backend with tensors that are freed together, seeded values, and the
 * three ways to compare: NMSE against doubles, directional derivatives, and bits. */
#ifndef FP8LAB_TESTS_OPS_SUPPORT_H
#define FP8LAB_TESTS_OPS_SUPPORT_H

#include "kernels/backend.h"

enum { OPS_MEMORY_MAX = 256 };

struct ops {
    struct backend *b;
    const struct backend_ops *table; /* b->ops */
    struct err e;                    /* of the call under test */
    void *memory[OPS_MEMORY_MAX];    /* owned */
    int count;
};

/* The CPU backend with this many threads; fails the test if it does not open. */
struct ops *ops_open(int threads);
/* Closes the backend and frees every tensor and array made through o. */
void ops_close(struct ops *o);

/* A packed, zeroed tensor, 64-byte aligned; d1..d3 of 1 for fewer dimensions. */
struct tensor ops_tensor(struct ops *o, enum dtype t, int64_t d0, int64_t d1, int64_t d2,
                         int64_t d3);
/* n zeroed bytes, 64-byte aligned. */
void *ops_memory(struct ops *o, int64_t n);
/* One element: f32, i32 or u64 tensors of scalars that operators read. */
struct tensor ops_f32(struct ops *o, float x);
struct tensor ops_i32(struct ops *o, int32_t x);

/* Element i of a packed F32, BF16, I32 or U32 tensor. */
double ops_get(const struct tensor *x, int64_t i);
/* Rounds to the tensor's dtype. */
void ops_set(const struct tensor *x, int64_t i, double value);
/* Uniform in [-scale, scale], from the seed, rounded to the dtype. */
void ops_fill(const struct tensor *x, uint64_t seed, double scale);
/* All elements; owned by o. */
double *ops_doubles(struct ops *o, const struct tensor *x);
/* A copy in another dtype (F32, BF16); owned by o. */
struct tensor ops_copy(struct ops *o, const struct tensor *x, enum dtype t);

/* sum (got - want)^2 / sum want^2; sum (got - want)^2 where want is all 0. NaN if got has one. */
double ops_nmse(const struct tensor *got, const double *want);
/* Hash of dtype, shape and bits of a packed tensor. */
uint64_t ops_hash(const struct tensor *x);

/* ops_along: the sum over i of gradient_i * d_i for a seeded direction d. ops_difference: the value
 * expected for this sum, the central difference of f along d. f reads x. x is restored. */
double ops_along(const struct tensor *gradient, uint64_t seed);
double ops_difference(double (*f)(void *context), void *context, double *x, int64_t n,
                      uint64_t seed, double step);

/* Fails the test unless the call returned this status and the error's text contains `words`. */
#define OPS_OK(o, call) ops_expect(__FILE__, __LINE__, (o), (call), OK, NULL)
#define OPS_ERR(o, call, status, words) \
    ops_expect(__FILE__, __LINE__, (o), (call), (status), (words))
void ops_expect(const char *file, int line, const struct ops *o, enum status got, enum status want,
                const char *words);

/* Fails the test unless value <= bound; prints `what` with both. NaN fails. */
#define OPS_BELOW(value, bound, what) ops_below(__FILE__, __LINE__, (value), (bound), (what))
void ops_below(const char *file, int line, double value, double bound, const char *what);

#endif
