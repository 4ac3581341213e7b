/* For tests of the CUDA backend against the CPU's. Every tensor exists twice, once in each
 * backend's memory, with the same contents. An operator runs on both, then both are compared. */
#ifndef FP8LAB_TESTS_GPU_PAIR_H
#define FP8LAB_TESTS_GPU_PAIR_H

#include "runner/plan/backends.h"

enum { CPU, GPU, SIDES, PAIR_MEMORY_MAX = 512 };

/* The two backends, and all tensors allocated since the last pair_clear. */
struct pair {
    struct backend_handle handle[SIDES];
    struct backend *b[SIDES];
    const struct backend_ops *ops[SIDES];
    void *memory[SIDES][PAIR_MEMORY_MAX];
    int count;
    struct err e;
};

/* One tensor in both memories. */
struct twin { struct tensor side[SIDES]; };

/* A sink in both memories, with all of its parts. */
struct twin_sink {
    struct sink side[SIDES];
    struct twin value, codes, transposed, multiplier, amax, stats;
};

struct pair *pair_open(void);
void pair_close(struct pair *p);
void pair_clear(struct pair *p); /* frees every tensor */

/* A packed tensor of zeros. */
struct twin pair_tensor(struct pair *p, enum dtype t, int64_t d0, int64_t d1, int64_t d2,
                        int64_t d3);
/* FP8 [rows, k] with a scale; padding and codes start as 0xAA. */
struct twin pair_codes(struct pair *p, enum dtype t, int64_t rows, int64_t k, enum scale_kind kind);
/* A tensor of one element. */
struct twin pair_f32(struct pair *p, float x);
struct twin pair_i32(struct pair *p, int32_t x);

/* F32, BF16: signed, magnitude scale * 2^-spread..2^spread. FP8: finite codes, factors in [1/8, 8).
 * The same on both sides. */
void pair_fill(struct pair *p, struct twin *x, uint64_t seed, int spread, float scale);
/* Writes host bytes (packed as the tensor's data) to both sides. */
void pair_set(struct pair *p, struct twin *x, const void *host, int64_t bytes);
/* Makes the sink on the GPU differ from any producer's output. Codes and factors become 0xAA,
 * except factors that are known before. amax and stats become 0. */
void pair_poison_sink(struct pair *p, struct twin_sink *s);

/* Every part of a sink over [rows, k]. kind SCALE_NONE: value and amax alone. */
void pair_sink(struct pair *p, struct twin_sink *s, int64_t rows, int64_t k, enum dtype code,
               enum scale_kind kind, enum scale_source source, struct quant_rule rule,
               bool transposed);

/* Makes the sink's twin an untransposed one; shared: in the memory of the codes. */
void pair_untranspose(struct pair *p, struct twin_sink *s, bool shared);

/* Fail the test unless the two sides agree: to the bit, or within an NMSE. With DISTANCES=1 in the
 * environment each distance is printed with its bound. */
void pair_same(struct pair *p, const char *what, const struct twin *x);
void pair_near(struct pair *p, const char *what, const struct twin *x, double nmse_max);
/* Fails the test unless two tensors of the GPU are equal to the bit. */
void pair_same_on_gpu(struct pair *p, const struct twin *x, const struct twin *y);
/* Compares to the bit the parts that the sink has: codes with their scales, amax, stats. */
void pair_same_sink(struct pair *p, const char *what, const struct twin_sink *s);

/* Runs `call`, which uses s for the side, on both sides or on the GPU alone; the test fails if one
 * does not return OK. */
#define ON_SIDES(p, first, call)                                                             \
    for (int s = (first); s < SIDES; s++) {                                                  \
        struct backend *b = (p)->b[s];                                                       \
        const struct backend_ops *ops = (p)->ops[s];                                         \
        struct err *e = &(p)->e;                                                             \
        if ((call) != OK) fail_msg("%s: %s: %s", s == GPU ? "cuda" : "cpu", #call, e->text); \
        if (ops->sync(b, e) != OK) fail_msg("sync after %s: %s", #call, e->text);            \
    }
#define ON_BOTH(p, call) ON_SIDES(p, CPU, call)
#define ON_GPU(p, call) ON_SIDES(p, GPU, call)
#define S(x) (&(x).side[s])

/* The choice table with `value` for every choice of a kind: "attention ... : ab12" becomes
 * "attention ... : value". The value of an attention is cuDNN's plan of that name, or "-" for our
 * own kernels. The value of a gemm is an algorithm, or GEMM_OWN for our own kernel. The caller
 * frees the table. */
char *choices_with(const char *kind, const char *table, const char *value);
#define GEMM_OWN "01000000"

#endif
