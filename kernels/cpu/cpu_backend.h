/* The reference backend: plain C, no device, the same bits on every machine and for any number of
 * threads. The contract of each operator is in kernels/operators.inc or kernels/arguments.h.
 * kernels/cpu/README.md has the rules for the bits. */
#ifndef FP8LAB_KERNELS_CPU_BACKEND_H
#define FP8LAB_KERNELS_CPU_BACKEND_H

#include "kernels/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the reference with `threads` threads. 0 means OpenMP's default: OMP_NUM_THREADS if it is
 * set, otherwise one per processor that this process may run on.
 * The caller owns *out and ends it with (*out)->ops->close(*out). All scratch memory is allocated
 * here. ERR_ARG for a negative or too large count, ERR_MEMORY. */
NODISCARD enum status cpu_backend_open(struct backend **out, int threads, struct err *e);

/* For tests and measurements: makes an open CPU backend use the vector kernels called `isa`
 * ("avx512", "avx2", "neon", "portable") instead of the machine's best. No result changes.
 * ERR_UNSUPPORTED if the machine lacks them; the error names the machine's best. */
NODISCARD enum status cpu_backend_use(struct backend *b, const char *isa, struct err *e);

/* From now on matmul adds as `arithmetic` says (kernels/arithmetic.h): "reference", the default,
 * "hopper" ... BF16 attention with heads of 16, 32, 64 or 128 then has the order of our GPU kernels
 * (attention_order.h). Other operators stay the reference's, unless the arithmetic follows a GPU in
 * them. ERR_ARG for another name. */
NODISCARD enum status cpu_backend_calculate(struct backend *b, const char *arithmetic,
                                            struct err *e);

#ifdef __cplusplus
}
#endif
#endif
