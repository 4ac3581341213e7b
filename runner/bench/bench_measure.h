/* How long one call of an operator takes, hot: many calls in a row between two marks of the
 * backend's clock; and tensors of random numbers to call it on. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_MEASURE_H
#define FP8LAB_RUNNER_BENCH_BENCH_MEASURE_H

#include "kernels/backend.h"

enum { BENCH_SAMPLES_MAX = 1000, BENCH_BLOCKS_MAX = 32 };

/* ---- time ---- */

struct bench_effort {
    int64_t samples;  /* 1..BENCH_SAMPLES_MAX */
    double sample_us; /* a sample is as many calls as take about this long, at least one */
    int64_t pause_us; /* idle before each sample: what a chip does in a burst, before power and heat
                         slow it down; 0: one sample after the other */
};
struct bench_time {
    double median_us, best_us; /* of one call, over the samples */
    int64_t calls;             /* in a sample */
};
/* Calls run(context) twice to warm up, then measures. */
NODISCARD enum status bench_measure(struct backend *b, const struct bench_effort *effort,
                                    enum status (*run)(void *context, struct err *e), void *context,
                                    struct bench_time *out, struct err *e);

/* ---- memory ---- released together */

struct bench_memory {
    struct backend *b; /* borrowed */
    void *block[BENCH_BLOCKS_MAX];
    int count;
    uint32_t draws; /* tensors filled so far: each has its own numbers */
};
void bench_free(struct bench_memory *m);

/* `bytes` of zeros. */
NODISCARD enum status bench_zeros(struct bench_memory *m, int64_t bytes, void **out, struct err *e);
/* A packed tensor; F32 and BF16 get normal numbers (zeros would take less power, and some machines
 * then run faster), other dtypes zeros. */
NODISCARD enum status bench_tensor(struct bench_memory *m, struct tensor *out, enum dtype t,
                                   int64_t d0, int64_t d1, int64_t d2, int64_t d3, struct err *e);
/* A GEMM operand [rows, k]. FP8: codes of normal numbers under scales of `kind`. transposed (not
 * for FP8): a view of [k, rows]. */
NODISCARD enum status bench_operand(struct bench_memory *m, struct tensor *out, enum dtype t,
                                    int64_t rows, int64_t k, enum scale_kind kind, bool transposed,
                                    struct err *e);
/* The sink that quantises [rows, k] values into *codes by the rule that a recipe with scales of
 * this kind has by default. twin NULL: without the transposed codes. All three tensors are filled
 * in, `value` without memory of its own if it has some already. */
NODISCARD enum status bench_sink(struct bench_memory *m, struct sink *out, struct tensor *value,
                                 struct tensor *codes, struct tensor *twin, enum dtype t,
                                 int64_t rows, int64_t k, enum scale_kind kind, struct err *e);

#endif
