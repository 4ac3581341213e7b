/* cuBLASLt behind one function: D = A B with everything that its descriptors can express. The
 * algorithm is the fastest measured on this device for this shape, or our own kernel
 * (gemm_hopper.cuh) if that was faster, or the one on mma.sync (gemm_sync.cuh) if the library has
 * none. Private to matmul.cu. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_CUH

#include <cublasLt.h>

#include "kernels/arithmetic.h"
#include "kernels/choices.h"
#include "kernels/cuda/cuda_common.cuh"

/* One operand, column-major as in the library: [rows = K when transposed, ...]. */
struct gemm_operand {
    const void *data;
    const void *scale; /* device, in the library's layout; NULL unless FP8 */
    const float *factors; /* device, block factors as the tensor has them, [..][K blocks] */
    int64_t ld;
    cudaDataType_t type;
    cublasLtMatmulMatrixScale_t scale_mode;
    bool transposed; /* stored [K, outer]: the operand enters as its transpose */
    bool one_factor; /* `factors` has one in all, not one for each row or block */
};

/* The library reads either all scalars on the device or all on the host: beta is 0 or 1. */
enum { GEMM_FACTORS = 3 };

/* D [m,n] = alpha op(A) op(B) + beta C (+ bias over m), column-major; C and D share type and ld. */
struct gemm_problem {
    struct gemm_operand a, b;
    void *d;
    const void *c; /* D itself or a residual; read when beta is 1 */
    const void *bias;
    const float *alpha; /* device [GEMM_FACTORS]: the product's factor, 0, 1. NULL: factor 1 */
    int64_t m, n, k, ld;
    cudaDataType_t type, bias_type;
    float beta;
    bool fast_accumulate;
    bool own; /* the library is not asked: the device that is assumed lacks the mode */
};

/* Queues the product. If the library has no algorithm that ran, sets *found to false and does
 * nothing else. The first call of a shape measures: it may allocate, and waits for the device.
 * *why: as gemm_way's. */
NODISCARD enum status gemm_run(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                               const char **why, bool *found, struct err *e);

/* The choice for the problem, made now if there is none. Our own kernel reads factors, not scales:
 * if `own` is set, scales need not be laid out. */
struct gemm_way {
    bool found; /* false: no algorithm runs */
    bool own;
    const char *why; /* "wgmma 480 us, cublaslt 502 us"; a kernel of ours that was not timed: its
                        name; "": the library, not timed. Valid until a new choice */
    bool known; /* that it adds in `way`: of the problem as matmul's arguments, p->b being a */
    struct mma_way way;
};
NODISCARD enum status gemm_way_of(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                                  struct gemm_way *out, struct err *e);

/* Whether gemm_run would find an algorithm; the choice is made now if there is none. Addresses of
 * the problem are never read; NULL counts as aligned. */
NODISCARD enum status gemm_found(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                                 bool *found, struct err *e);

/* The table, for choices.cu: number of choices; all as text, or only those that this process timed;
 * one back from text. */
int64_t gemm_choices(const struct cuda_backend *b);
/* For tests: from now on take the place-th algorithm of each class, not the fastest. */
void gemm_choices_place(struct cuda_backend *b, int place);
void gemm_choices_write(const struct cuda_backend *b, bool timed, FILE *out);
NODISCARD enum status gemm_choice_take(struct cuda_backend *b, const struct choice *c,
                                       struct err *e);

#endif
