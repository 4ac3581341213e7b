/* Measures the time of one call of an operator: many calls in a row between two marks of the
 * backend's clock. Also makes tensors of random numbers for the calls. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_MEASURE_H
#define FP8LAB_RUNNER_BENCH_BENCH_MEASURE_H

#include "runner/bench/bench_energy.h"

enum { BENCH_SAMPLES_MAX = 1000, BENCH_BLOCKS_MAX = 32 };

/* ---- time ---- */

struct bench_effort {
    int64_t samples;  /* 1..BENCH_SAMPLES_MAX */
    double sample_us; /* duration of a sample, which has at least one call */
    int64_t pause_us; /* idle time before each sample, so that power and heat do not limit the
                         clock; 0: no pause */
    const struct energy_meter *meter; /* borrowed; NULL: only time is measured */
};
struct bench_time {
    double median_us, best_us; /* time of one call, over the samples */
    int64_t calls;             /* calls in a sample */
    double joules;             /* of one call; 0: not measured */
};
/* Calls run(context) twice to warm up, then measures: time, then energy in a loop of its own. */
NODISCARD enum status bench_measure(struct backend *b, const struct bench_effort *effort,
                                    enum status (*run)(void *context, struct err *e), void *context,
                                    struct bench_time *out, struct err *e);

/* ---- memory ---- released together */

struct bench_memory {
    struct backend *b; /* borrowed */
    void *block[BENCH_BLOCKS_MAX];
    int count;
    uint32_t draws; /* number of tensors filled so far: seeds of their numbers */
};
void bench_free(struct bench_memory *m);

/* Allocates `bytes` of zeros. */
NODISCARD enum status bench_zeros(struct bench_memory *m, int64_t bytes, void **out, struct err *e);
/* Makes a packed tensor. F32 and BF16 get normal numbers, other dtypes zeros. Zeros take less
 * power, so some machines run faster with them. */
NODISCARD enum status bench_tensor(struct bench_memory *m, struct tensor *out, enum dtype t,
                                   int64_t d0, int64_t d1, int64_t d2, int64_t d3, struct err *e);
/* Makes a GEMM operand [rows, k]. FP8: codes of normal numbers under scales of `kind`. transposed
 * (not for FP8): a view of [k, rows]. */
NODISCARD enum status bench_operand(struct bench_memory *m, struct tensor *out, enum dtype t,
                                    int64_t rows, int64_t k, enum scale_kind kind, bool transposed,
                                    struct err *e);
/* Makes a sink that quantises [rows, k] values into *codes. Its rule is the default of a recipe
 * with scales of this kind. twin NULL: no transposed codes. Fills all three tensors; `value` keeps
 * its memory if it has some. */
NODISCARD enum status bench_sink(struct bench_memory *m, struct sink *out, struct tensor *value,
                                 struct tensor *codes, struct tensor *twin, enum dtype t,
                                 int64_t rows, int64_t k, enum scale_kind kind, struct err *e);

#endif
