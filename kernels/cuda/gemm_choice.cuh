/* What gemm.cu and gemm_trial.cu share: an entry of the choice table, and the library's
 * descriptors. Private to both. */
#ifndef FP8LAB_KERNELS_CUDA_GEMM_CHOICE_CUH
#define FP8LAB_KERNELS_CUDA_GEMM_CHOICE_CUH

#include "kernels/cuda/gemm_class.cuh"

/* The entry of a kernel of ours in the choice table, instead of an algorithm. */
enum own_kernel { OWN_NONE, OWN_HOPPER, OWN_SYNC };

/* The inputs that an algorithm's validity and speed depend on. Compared as bytes, so zeroed before
 * it is filled. */
struct gemm_key {
    int64_t m, n, k, lda, ldb, ldd;
    int32_t type_a, type_b, type_d, type_bias; /* type_bias -1: no bias */
    int32_t scale_a, scale_b;                  /* -1: none */
    int32_t align_a, align_b, align_c, align_d;
    uint8_t transposed_a, transposed_b, accumulate, fast;
    uint8_t elsewhere; /* C is not D: a residual */
    uint8_t unused[3];
};

struct gemm_choice {
    struct gemm_key key;
    cublasLtMatmulAlgo_t algo;
    float time_us;
    bool usable; /* false: the library has no algorithm that runs */
    int32_t own; /* enum own_kernel: which of ours serves it, not the library */
    bool timed;  /* by this process; false: loaded, offered, or without memory for a trial */
    bool known;  /* it adds in `way` */
    int rules;   /* the GEMM_CLASS_RULES that found out; 0: none, an older table's choice */
    struct mma_way way;
    char why[48]; /* "wgmma 480 us, cublaslt 502 us", as measured here; "": nothing was compared */
};

enum { GEMM_TABLE_MAX = 1024 /* shapes; a model has some tens */ };

struct gemm_library {
    cublasLtHandle_t handle;
    struct trial trial;
    int64_t choices;
    int place; /* for tests: take the place-th algorithm of a class, not the fastest; 0: do not */
    struct gemm_choice choice[GEMM_TABLE_MAX];
};

#define LT_TRY(e, call)                                                             \
    do {                                                                            \
        cublasStatus_t lt_try_ = (call);                                            \
        if (lt_try_ != CUBLAS_STATUS_SUCCESS)                                       \
            return FAIL((e), ERR_DEVICE, "%s: cuBLASLt status %d", #call, lt_try_); \
    } while (0)

/* Our kernel serves if it takes less than this share of the library's time. Closer than this, noise
 * would decide. */
static const float GEMM_OWN_TIME_MAX = 0.98f;

/* ---- descriptors: the library's, made per call, freed at the end of their scope ----
 *
 * The library allocates them. Later versions made some of them larger, so memory of ours, sized by
 * the headers of the build, would be too small for a newer library. */

struct descriptors {
    cublasLtMatmulDesc_t product = NULL;
    cublasLtMatrixLayout_t a = NULL, b = NULL, d = NULL;

    descriptors() = default;
    descriptors(const descriptors &) = delete;
    ~descriptors() {
        if (product) cublasLtMatmulDescDestroy(product);
        if (a) cublasLtMatrixLayoutDestroy(a);
        if (b) cublasLtMatrixLayoutDestroy(b);
        if (d) cublasLtMatrixLayoutDestroy(d);
    }
};

/* Fills d, which is empty. */
NODISCARD enum status gemm_describe(struct descriptors *d, const struct gemm_problem *p,
                                    struct err *e);
cublasStatus_t gemm_multiply(struct gemm_library *g, struct descriptors *d,
                             const struct gemm_problem *p, const cublasLtMatmulAlgo_t *algo,
                             void *workspace, cudaStream_t stream);
/* Whether the library runs this algorithm for d, in our workspace. */
bool gemm_accepts(struct gemm_library *g, const struct descriptors *d,
                  const cublasLtMatmulAlgo_t *algo);

/* Chooses an algorithm, or our own kernel, for choice->key by trials. Not usable afterwards: none
 * runs. Waits for the device. */
NODISCARD enum status gemm_choose(struct cuda_backend *b, const struct gemm_problem *p,
                                  void *workspace, struct gemm_choice *choice, struct err *e);

#endif
