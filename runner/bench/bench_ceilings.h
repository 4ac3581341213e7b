/* The ceilings of this machine: a GEMM, an attention or a copy, alone and repeated. The floor of a
 * training step is computed from them. */
#ifndef FP8LAB_RUNNER_BENCH_BENCH_CEILINGS_H
#define FP8LAB_RUNNER_BENCH_BENCH_CEILINGS_H

#include "runner/bench/bench_measure.h"
#include "runner/bench/timed_backend.h"

/* Measures a plain product of this mode and shape: no bias, no residual, no addition. */
NODISCARD enum status ceiling_gemm(struct backend *b, const struct gemm_shape *shape,
                                   const struct bench_effort *effort, struct bench_time *out,
                                   struct err *e);
/* The rate of a large square product (8192 on a device, 1024 on a CPU) in this dtype, in TFLOP/s.
 * FP8 has one scale per tensor and fast accumulation, E2M1 has NVFP4's scales. MFU is measured
 * against this rate. 0 if the backend lacks the mode. */
NODISCARD enum status ceiling_large_gemm(struct backend *b, enum dtype t, double *tflops,
                                         struct err *e);
/* Measures attention forward (plain result) or backward. */
NODISCARD enum status ceiling_attention(struct backend *b, const struct attention_shape *shape,
                                        const struct bench_effort *effort, struct bench_time *out,
                                        struct err *e);
/* Bytes per second of a copy between two tensors of `bytes` each; read and write both count. */
NODISCARD enum status ceiling_copy(struct backend *b, int64_t bytes,
                                   const struct bench_effort *effort, double *bytes_per_s,
                                   struct err *e);

#endif
