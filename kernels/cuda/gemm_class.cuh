/* Classes of GEMM algorithms: which outputs an algorithm may have, to the bit. Private to gemm.cu.
 *
 * The class of a product is a function of its kind and shape (kernels/arithmetic_way.c), so that
 * timing, which chooses among the algorithms of one class, changes no bit. Whether an algorithm is
 * of the class is found by a test: it multiplies noise, and sampled outputs are computed again on
 * the host. In BF16 outputs the order of a sum hardly shows. So it also multiplies noise whose
 * exact sums are 0: its outputs are what truncation left, and differ from order to order. Where two
 * algorithms of the class differ anywhere, outputs are computed at that place (some split the sums
 * of a few tiles only). */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_CLASS_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_CLASS_CUH

#include "kernels/arithmetic.h"
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/trial.cuh"

/* Changes with the rules of this file and of arithmetic_way.c: choices by other rules are not
 * taken over from earlier runs. */
enum { GEMM_CLASS_RULES = 5 };
/* Algorithms that are tried for one product, at most. */
enum { GEMM_CANDIDATES = 32 };

/* The class of the problem under Hopper's arithmetic. false: no arithmetic describes it. */
bool gemm_class_of(const struct gemm_problem *p, struct mma_way *way);

/* ---- what an algorithm says of itself ---- */

/* The parts of split-K; 0 if it cannot be read, or if parts are not added in f32. */
int gemm_class_parts(const cublasLtMatmulAlgo_t *algo);
/* Sets them. false: the library refuses. */
bool gemm_class_split(cublasLtMatmulAlgo_t *algo, int parts);
/* The parts that the class has; 1: no split-K. */
int gemm_class_parts_of(const struct gemm_problem *p, const struct mma_way *way);
/* The way of an algorithm, from what it says alone. false: that does not tell. */
bool gemm_class_by_attributes(const struct gemm_problem *p, const cublasLtMatmulAlgo_t *algo,
                              struct mma_way *way);

/* ---- the test ---- */

/* Noise whose products differ from way to way: values of many sizes, factors that are no powers of
 * two. Queued on t->stream. */
NODISCARD cudaError_t gemm_class_operand(const struct trial *t, const struct gemm_operand *x,
                                         int64_t bytes, int64_t factor_bytes);
NODISCARD cudaError_t gemm_class_addend(const struct trial *t, void *data, int64_t bytes,
                                        cudaDataType_t type);

/* Candidates that multiply the noise. `queue` is called with `context`, as trial_run does. */
struct class_trial {
    const struct trial *trial;
    const struct gemm_problem *p; /* of stand-ins that have the noise; all are filled again */
    int64_t out_bytes;
    trial_queue queue;
    void *context;
    int count;
    bool class_only; /* look for no other way than the class's */
    float *us;       /* [count] <- microseconds of each candidate's last run; negative: none */
};

/* in_class [count] <- whether a candidate adds in *way: in that of the class, or if no candidate
 * does, in the first other way that one has. *known false: no candidate adds in any known way.
 * Waits for the trial's stream; the host takes some ms, mostly while the device runs. */
NODISCARD enum status gemm_class_sort(const struct class_trial *c, bool *in_class,
                                      struct mma_way *way, bool *known, struct err *e);

#endif
