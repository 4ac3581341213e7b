/* The choice table of GEMM algorithms.
 *
 * cuBLASLt's first heuristic is not its fastest algorithm. So the first CANDIDATES of a shape are
 * timed once, on operands of our own (the caller's may be incomplete). For a product with a bias or
 * a residual, algorithms listed for the product alone are also candidates, if the library accepts
 * them. For a product without either, split-K is allowed if its partial sums are f32 in the
 * workspace, added in a fixed order. (Before a bias or a residual some kernels round the sum.)
 * Schemes that add in place or in the output's type are not allowed. If our own kernel for block
 * factors can serve a shape (gemm_hopper.cu), it and the best algorithm are timed again, for
 * longer. The faster one at the power-limited clock serves. Our kernel on mma.sync (gemm_sync.cu)
 * serves without a trial what the library has no algorithm for. The heuristic may list an algorithm
 * that then fails (seen: cuBLASLt 13.1 with misaligned scales). So only algorithms that ran are
 * kept. If memory for a trial is lacking, the first one is used. */
#include "kernels/cuda/gemm.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/byte_scales.h"
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/gemm_sync.cuh"
#include "kernels/cuda/trial.cuh"

enum {
    CANDIDATES = 16,  /* of two queries: 13.1 never returns more than 8 each */
    TABLE_MAX = 1024  /* shapes; a model has some tens */
};
/* Our kernel serves if it takes less than this share of the library's time. Closer than this, noise
 * would decide. */
static const float OWN_TIME_MAX = 0.98f;
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
    char why[40]; /* "wgmma 480 us, cublaslt 502 us", as measured here; "": nothing was compared */
};

struct gemm_library {
    cublasLtHandle_t handle;
    struct trial trial;
    int64_t choices;
    struct gemm_choice choice[TABLE_MAX];
};

#define LT_TRY(e, call)                                                             \
    do {                                                                            \
        cublasStatus_t lt_try_ = (call);                                            \
        if (lt_try_ != CUBLAS_STATUS_SUCCESS)                                       \
            return FAIL((e), ERR_DEVICE, "%s: cuBLASLt status %d", #call, lt_try_); \
    } while (0)

/* Libraries of one major version share a name, and an older one may be first in the search path.
 * Every mode used here is in 13.0, and in 12.9. */
enum status cuda_gemm_library(struct err *e) {
    enum { VERSION_MIN = CUBLAS_VER_MAJOR >= 13 ? 130000 : 120900 };
    size_t version = cublasLtGetVersion();
    if (version >= VERSION_MIN) return OK;
    return FAIL(e, ERR_DEVICE,
                "cuBLASLt %zu.%zu was loaded, this build needs %d.%d or later: another "
                "CUDA's library comes first in LD_LIBRARY_PATH", version / 10000,
                version / 100 % 100, VERSION_MIN / 10000, VERSION_MIN / 100 % 100);
}

enum status cuda_gemm_open(struct cuda_backend *b, struct err *e) {
    b->gemm = (struct gemm_library *)calloc(1, sizeof *b->gemm);
    if (!b->gemm) return FAIL(e, ERR_MEMORY, "no memory for the GEMM choice table");
    LT_TRY(e, cublasLtCreate(&b->gemm->handle));
    if (b->cc == 90) TRY(gemm_hopper_open(e));
    TRY(gemm_sync_open(b, e));
    return trial_open(&b->gemm->trial, e);
}

void cuda_gemm_close(struct cuda_backend *b) {
    if (!b->gemm) return;
    trial_close(&b->gemm->trial);
    if (b->gemm->handle) cublasLtDestroy(b->gemm->handle);
    free(b->gemm);
    b->gemm = NULL;
}

static int32_t alignment_of(const void *p) {
    uintptr_t bits = (uintptr_t)p | 256;
    return (int32_t)(bits & -bits);
}

static struct gemm_key key_of(const struct gemm_problem *p) {
    struct gemm_key key;
    memset(&key, 0, sizeof key);
    key.m = p->m; key.n = p->n; key.k = p->k;
    key.lda = p->a.ld; key.ldb = p->b.ld; key.ldd = p->ld;
    key.type_a = p->a.type; key.type_b = p->b.type; key.type_d = p->type;
    key.type_bias = p->bias ? p->bias_type : -1;
    key.scale_a = p->a.scale ? p->a.scale_mode : -1;
    key.scale_b = p->b.scale ? p->b.scale_mode : -1;
    key.align_a = alignment_of(p->a.data); key.align_b = alignment_of(p->b.data);
    key.align_c = alignment_of(p->c ? p->c : p->d); key.align_d = alignment_of(p->d);
    key.transposed_a = p->a.transposed; key.transposed_b = p->b.transposed;
    key.accumulate = p->beta != 0.0f;
    key.fast = p->fast_accumulate;
    key.elsewhere = p->beta != 0.0f && p->c != p->d;
    return key;
}

/* ---- the table as text: kernels/choices.h ---- */

enum { KEY_INTEGERS = 21 };

static void key_integers(const struct gemm_key *k, int64_t out[KEY_INTEGERS]) {
    const int64_t list[KEY_INTEGERS] = {
        k->m, k->n, k->k, k->lda, k->ldb, k->ldd, k->type_a, k->type_b, k->type_d, k->type_bias,
        k->scale_a, k->scale_b, k->align_a, k->align_b, k->align_c, k->align_d, k->transposed_a,
        k->transposed_b, k->accumulate, k->fast, k->elsewhere,
    };
    memcpy(out, list, sizeof list);
}

static struct gemm_key key_from(const int64_t v[KEY_INTEGERS]) {
    struct gemm_key k;
    memset(&k, 0, sizeof k);
    k.m = v[0]; k.n = v[1]; k.k = v[2]; k.lda = v[3]; k.ldb = v[4]; k.ldd = v[5];
    k.type_a = (int32_t)v[6]; k.type_b = (int32_t)v[7]; k.type_d = (int32_t)v[8];
    k.type_bias = (int32_t)v[9]; k.scale_a = (int32_t)v[10]; k.scale_b = (int32_t)v[11];
    k.align_a = (int32_t)v[12]; k.align_b = (int32_t)v[13]; k.align_c = (int32_t)v[14];
    k.align_d = (int32_t)v[15];
    k.transposed_a = v[16] != 0; k.transposed_b = v[17] != 0;
    k.accumulate = v[18] != 0; k.fast = v[19] != 0; k.elsewhere = v[20] != 0;
    return k;
}

int64_t gemm_choices(const struct cuda_backend *b) { return b->gemm->choices; }

/* Times are left out: they differ in every run, and the text is hashed. */
void gemm_choices_write(const struct cuda_backend *b, bool timed, FILE *out) {
    if (b->gemm->choices)
        fputs("# gemm m n k lda ldb ldd type_a type_b type_d type_bias scale_a scale_b align_a "
              "align_b align_c align_d transposed_a transposed_b accumulate fast elsewhere : "
              "cublasLtMatmulAlgo_t, or i32 1: gemm_hopper.cu, 2: gemm_sync.cu\n",
              out);
    for (int64_t i = 0; i < b->gemm->choices; i++) {
        const struct gemm_choice *from = &b->gemm->choice[i];
        struct choice c = {};
        if (timed && !from->timed) continue;
        static_assert(sizeof from->algo <= sizeof c.value, "an algorithm fits a line");
        snprintf(c.kind, sizeof c.kind, "gemm");
        key_integers(&from->key, c.key);
        c.keys = KEY_INTEGERS;
        c.bytes = from->usable ? (int)sizeof from->algo : 0;
        memcpy(c.value, &from->algo, (size_t)c.bytes);
        if (from->own) {
            c.bytes = sizeof from->own;
            memcpy(c.value, &from->own, sizeof from->own);
        }
        choices_put(out, &c);
    }
}

/* Makes an entry of a line of a table; false: the line is of another version. */
static bool read_entry(const struct choice *c, struct gemm_choice *to) {
    int32_t own = OWN_NONE;
    if (c->bytes == (int)sizeof own) memcpy(&own, c->value, sizeof own);
    if (own != OWN_HOPPER && own != OWN_SYNC) own = OWN_NONE;
    if (c->keys != KEY_INTEGERS || (c->bytes && !own && c->bytes != (int)sizeof to->algo))
        return false;
    memset(to, 0, sizeof *to);
    to->key = key_from(c->key);
    to->usable = c->bytes > 0;
    to->own = own;
    if (!own) memcpy(&to->algo, c->value, (size_t)c->bytes);
    return true;
}

enum status gemm_choice_take(struct cuda_backend *b, const struct choice *c, struct err *e) {
    struct gemm_library *g = b->gemm;
    if (g->choices == TABLE_MAX)
        return FAIL(e, ERR_CONFIG, "the choice table has more than %d GEMM shapes", TABLE_MAX);
    if (!read_entry(c, &g->choice[g->choices]))
        return FAIL(e, ERR_CONFIG, "choice table: a GEMM entry has %d integers and %d bytes",
                    c->keys, c->bytes);
    g->choices++;
    return OK;
}

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

struct preference {
    cublasLtMatmulPreference_t of = NULL;

    preference() = default;
    preference(const preference &) = delete;
    ~preference() {
        if (of) cublasLtMatmulPreferenceDestroy(of);
    }
};

static cublasStatus_t layout_of(cublasLtMatrixLayout_t *out, const struct gemm_operand *x,
                                int64_t outer, int64_t k) {
    int64_t rows = x->transposed ? k : outer, cols = x->transposed ? outer : k;
    return cublasLtMatrixLayoutCreate(out, x->type, (uint64_t)rows, (uint64_t)cols, x->ld);
}

#define SET(name, value) cublasLtMatmulDescSetAttribute(d->product, name, &(value), sizeof(value))

/* Fills d, which is empty. */
static enum status describe(struct descriptors *d, const struct gemm_problem *p, struct err *e) {
    LT_TRY(e, cublasLtMatmulDescCreate(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    cublasOperation_t ta = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    /* B enters as [K, n], which is how it is stored unless it is transposed. */
    cublasOperation_t tb = p->b.transposed ? CUBLAS_OP_N : CUBLAS_OP_T;
    LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_TRANSA, ta));
    LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_TRANSB, tb));
    if (p->a.scale) {
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, p->a.scale_mode));
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, p->b.scale_mode));
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p->a.scale));
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p->b.scale));
        int8_t fast = p->fast_accumulate; /* of FP8 only: for FP4 the attribute is refused */
        if (p->a.type != CUDA_R_4F_E2M1) LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast));
    }
    cublasLtPointerMode_t where = CUBLASLT_POINTER_MODE_DEVICE;
    if (p->alpha) LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_POINTER_MODE, where));
    if (p->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias));
        LT_TRY(e, SET(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p->bias_type));
    }
    LT_TRY(e, layout_of(&d->a, &p->a, p->m, p->k));
    LT_TRY(e, layout_of(&d->b, &p->b, p->n, p->k));
    LT_TRY(e, cublasLtMatrixLayoutCreate(&d->d, p->type, (uint64_t)p->m, (uint64_t)p->n, p->ld));
    return OK;
}

static cublasStatus_t multiply(struct gemm_library *g, struct descriptors *d,
                               const struct gemm_problem *p, const cublasLtMatmulAlgo_t *algo,
                               void *workspace, cudaStream_t stream) {
    const float one = 1.0f, *alpha = p->alpha ? p->alpha : &one;
    const float *beta = p->alpha ? p->alpha + (p->beta != 0.0f ? 2 : 1) : &p->beta;
    return cublasLtMatmul(g->handle, d->product, alpha, p->a.data, d->a, p->b.data, d->b,
                          beta, p->beta != 0.0f ? p->c : p->d, d->d, p->d, d->d, algo,
                          workspace, (size_t)GEMM_WORKSPACE_BYTES, stream);
}

/* ---- measuring ---- */

static int64_t bytes_of(cudaDataType_t type, int64_t elements) {
    if (type == CUDA_R_4F_E2M1) return ceil_div(elements, 2);
    return elements * (type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1);
}

/* An operand's scales in the library's layout, at most: bytes, and the word for factors of 1. */
static int64_t scale_bytes_of(const struct gemm_operand *x, int64_t outer, int64_t k,
                              uint32_t *one) {
    bool mxfp8 = x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    bool nvfp4 = x->scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
    *one = mxfp8 ? 0x7F7F7F7Fu : nvfp4 ? 0x38383838u : 0x3F800000u;
    if (!x->scale) return 0;
    if (mxfp8 || nvfp4) return 4 * swizzle_words(outer, ceil_div(k, mxfp8 ? 32 : 16));
    return 4 * (ceil_div(outer, 128) * 128) * (ceil_div(k, 128) + 4);
}

/* A stand-in for one operand, of codes or BF16 values of moderate size, and its scale (factors of
 * 1): one allocation. */
static cudaError_t stand_in(const struct trial *t, struct gemm_operand *x, int64_t outer, int64_t k,
                            void **owned) {
    int64_t rows = x->transposed ? outer : k, cols = x->transposed ? k : outer;
    int64_t bytes = round_up(bytes_of(x->type, max_i64((rows - 1) * x->ld + cols, 1)), 256);
    uint32_t one;
    int64_t factors = scale_bytes_of(x, outer, k, &one);
    cudaError_t status = cudaMalloc(owned, (size_t)(bytes + factors));
    if (status != cudaSuccess) return status;
    if (x->type == CUDA_R_16BF)
        status = trial_noise(t, *owned, bytes, NOISE_BF16_KEEP, NOISE_BF16_SET);
    else if (x->type == CUDA_R_4F_E2M1) /* each of its codes is a moderate number */
        status = trial_noise(t, *owned, bytes, 0xFFFFFFFFu, 0);
    else status = trial_noise(t, *owned, bytes, 0x8F8F8F8Fu, 0x30303030u);
    float *factor = (float *)((char *)*owned + bytes);
    if (factors && status == cudaSuccess) status = trial_noise(t, factor, factors, 0, one);
    x->data = *owned;
    if (x->scale) x->scale = x->factors = factor;
    return status;
}

/* A trial: the products of one problem by each algorithm of a list. */
struct candidates {
    struct gemm_library *g;
    struct descriptors *d;
    const struct gemm_problem *p;
    const cublasLtMatmulHeuristicResult_t *list;
    void *workspace;
};

static bool queue_candidate(void *context, int i, cudaStream_t stream) {
    struct candidates *c = (struct candidates *)context;
    return multiply(c->g, c->d, c->p, &c->list[i].algo, c->workspace, stream) ==
           CUBLAS_STATUS_SUCCESS;
}

static void time_candidates(struct candidates *c, int count, struct gemm_choice *choice) {
    float best[CANDIDATES];
    trial_run(&c->g->trial, queue_candidate, c, count, best);
    for (int i = 0; i < count; i++) {
        if (best[i] < 0.0f || (choice->usable && best[i] >= choice->time_us)) continue;
        choice->usable = true;
        choice->algo = c->list[i].algo;
        choice->time_us = best[i];
    }
    choice->timed = choice->usable;
}

/* The library's best and our own kernel, in this order. */
enum { LIBRARY, OWN, PAIR_COUNT };
struct pair {
    const struct cuda_backend *b;
    struct descriptors *d;
    const struct gemm_problem *p;
    const cublasLtMatmulAlgo_t *algo;
    void *workspace;
};

static bool queue_candidate_of(void *context, int i, cudaStream_t stream) {
    struct pair *c = (struct pair *)context;
    struct err e = {};
    if (i == OWN) return gemm_hopper_run(c->b, c->p, stream, &e) == OK;
    return multiply(c->b->gemm, c->d, c->p, c->algo, c->workspace, stream) ==
           CUBLAS_STATUS_SUCCESS;
}

static void time_pair(struct pair *c, struct gemm_choice *choice) {
    float us[PAIR_COUNT];
    trial_settled(&c->b->gemm->trial, queue_candidate_of, c, PAIR_COUNT, us);
    if (us[LIBRARY] < 0.0f || us[OWN] < 0.0f) return;
    choice->own = us[OWN] < OWN_TIME_MAX * us[LIBRARY] ? OWN_HOPPER : OWN_NONE;
    snprintf(choice->why, sizeof choice->why,
             choice->own ? "wgmma %.0f us, cublaslt %.0f us" : "cublaslt %.0f us, wgmma %.0f us",
             (double)us[choice->own ? OWN : LIBRARY], (double)us[choice->own ? LIBRARY : OWN]);
}

/* Fills choice->algo from trials on stand-ins for the operands. */
static enum status measure(struct cuda_backend *b, const struct gemm_problem *problem,
                           const cublasLtMatmulHeuristicResult_t *list, int count, void *workspace,
                           struct gemm_choice *choice, struct err *e) {
    struct gemm_library *g = b->gemm;
    struct gemm_problem p = *problem;
    enum { OWNED = 6 };
    void *owned[OWNED] = {};
    struct descriptors d;
    enum status st = OK;
    int64_t out_bytes = bytes_of(p.type, p.ld * p.n);
    cudaError_t status = stand_in(&g->trial, &p.a, p.m, p.k, &owned[0]);
    if (status == cudaSuccess) status = stand_in(&g->trial, &p.b, p.n, p.k, &owned[1]);
    const int64_t zeroed[OWNED - 2] = { out_bytes, p.bias ? p.m * 4 : 0,
                                        choice->key.elsewhere ? out_bytes : 0,
                                        p.alpha ? GEMM_FACTORS * 4 : 0 };
    for (int i = 0; i < OWNED - 2 && status == cudaSuccess; i++) {
        if (!zeroed[i]) continue;
        status = cudaMalloc(&owned[2 + i], (size_t)zeroed[i]);
        if (status == cudaSuccess)
            status = cudaMemsetAsync(owned[2 + i], 0, (size_t)zeroed[i], g->trial.stream);
    }
    static const float FACTORS[GEMM_FACTORS] = { 1.0f, 0.0f, 1.0f };
    if (p.alpha && status == cudaSuccess)
        status = cudaMemcpyAsync(owned[5], FACTORS, sizeof FACTORS, cudaMemcpyHostToDevice,
                                 g->trial.stream);
    if (status == cudaSuccess) {
        p.d = owned[2];
        p.alpha = (const float *)owned[5];
        p.c = choice->key.elsewhere ? owned[4] : owned[2];
        if (p.bias) p.bias = owned[3];
        st = describe(&d, &p, e);
        struct candidates c = { g, &d, &p, list, workspace };
        if (st == OK) time_candidates(&c, count, choice);
        struct pair pair = { b, &d, &p, &choice->algo, workspace };
        if (st == OK && choice->usable && gemm_hopper_serves(b, problem))
            time_pair(&pair, choice);
    } else if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        choice->algo = list[0].algo; /* no room to measure: the library's own first choice */
        choice->usable = true;
    } else {
        st = FAIL(e, ERR_DEVICE, "measuring a GEMM: %s", cudaGetErrorString(status));
    }
    for (int i = 0; i < OWNED; i++) cudaFree(owned[i]);
    return st;
}

#define PREFER(name, value) \
    cublasLtMatmulPreferenceSetAttribute(preference.of, name, &(value), sizeof(value))

/* Adds the library's first algorithms for d under these reduction schemes to the list, if they also
 * support `whole`. */
static enum status query(struct cuda_backend *b, struct descriptors *d, struct descriptors *whole,
                         const struct gemm_key *key, uint32_t schemes,
                         cublasLtMatmulHeuristicResult_t *list, int *count, struct err *e) {
    struct preference preference;
    LT_TRY(e, cublasLtMatmulPreferenceCreate(&preference.of));
    uint64_t bytes = (uint64_t)GEMM_WORKSPACE_BYTES;
    uint32_t align[4] = { (uint32_t)key->align_a, (uint32_t)key->align_b, (uint32_t)key->align_c,
                          (uint32_t)key->align_d };
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes));
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes));
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align[0]));
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align[1]));
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align[2]));
    LT_TRY(e, PREFER(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align[3]));
    cublasLtMatmulHeuristicResult_t more[CANDIDATES / 2];
    int found = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(b->gemm->handle, d->product, d->a, d->b, d->d, d->d,
                                       preference.of, CANDIDATES / 2, more, &found);
    /* Out of memory or no device says nothing about the shape, so no entry may be made of it. */
    if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED ||
        status == CUBLAS_STATUS_EXECUTION_FAILED)
        return FAIL(e, ERR_DEVICE, "asking cuBLASLt for algorithms: status %d", (int)status);
    if (status != CUBLAS_STATUS_SUCCESS) return OK; /* none: not usable */
    for (int i = 0; i < found; i++) {
        bool fresh = more[i].state == CUBLAS_STATUS_SUCCESS; /* otherwise not an algorithm */
        for (int j = 0; j < *count; j++)
            fresh = fresh && memcmp(&list[j].algo, &more[i].algo, sizeof more[i].algo) != 0;
        cublasLtMatmulHeuristicResult_t checked = more[i];
        if (fresh && d != whole)
            fresh = cublasLtMatmulAlgoCheck(b->gemm->handle, whole->product, whole->a, whole->b,
                                            whole->d, whole->d, &more[i].algo,
                                            &checked) == CUBLAS_STATUS_SUCCESS &&
                    checked.workspaceSize <= (size_t)GEMM_WORKSPACE_BYTES;
        if (fresh) list[(*count)++] = more[i];
    }
    return OK;
}

/* Asks the library, and times what it lists. */
static enum status choose_of_library(struct cuda_backend *b, const struct gemm_problem *p,
                                     void *workspace, struct gemm_choice *choice,
                                     struct err *e) {
    struct descriptors d, product;
    cublasLtMatmulHeuristicResult_t list[CANDIDATES];
    const uint32_t unsplit = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t split = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int count = 0;
    TRY(describe(&d, p, e));
    TRY(query(b, &d, &d, &choice->key, unsplit, list, &count, e));
    if (p->bias || choice->key.elsewhere) {
        struct gemm_problem alone = *p;
        alone.bias = NULL;
        alone.beta = 0.0f;
        TRY(describe(&product, &alone, e));
        TRY(query(b, &product, &d, &choice->key, unsplit, list, &count, e));
    } else {
        TRY(query(b, &d, &d, &choice->key, split, list, &count, e));
    }
    return count ? measure(b, p, list, count, workspace, choice, e) : OK;
}

static enum status choose(struct cuda_backend *b, const struct gemm_problem *p, void *workspace,
                          struct gemm_choice *choice, struct err *e) {
    if (!p->own) TRY(choose_of_library(b, p, workspace, choice, e));
    if (choice->usable || !gemm_sync_serves(b, p)) return OK;
    choice->own = OWN_SYNC;
    choice->usable = true;
    return OK;
}

static bool own_serves(const struct cuda_backend *b, const struct gemm_problem *p, int32_t own) {
    return own == OWN_HOPPER ? gemm_hopper_serves(b, p) : gemm_sync_serves(b, p);
}

/* Whether an offered table has an algorithm for the problem that still runs. */
static bool offered(struct cuda_backend *b, const struct gemm_problem *p,
                    struct gemm_choice *out) {
    struct choice c;
    struct descriptors d;
    struct err ignored = {};
    int64_t key[KEY_INTEGERS];
    key_integers(&out->key, key);
    if (!b->offers || !choices_find(b->offers, "gemm", key, KEY_INTEGERS, &c) ||
        !read_entry(&c, out) || !out->usable)
        return false;
    snprintf(out->why, sizeof out->why, "timed by an earlier run");
    if (out->own) return own_serves(b, p, out->own);
    cublasLtMatmulHeuristicResult_t checked = {};
    return describe(&d, p, &ignored) == OK &&
           cublasLtMatmulAlgoCheck(b->gemm->handle, d.product, d.a, d.b, d.d, d.d, &out->algo,
                                   &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= (size_t)GEMM_WORKSPACE_BYTES;
}

/* Takes the offered choice if there is one. Only rank 0 looks: offers of ranks may differ. */
static enum status take_offer(struct cuda_backend *b, const struct gemm_problem *p,
                              const int64_t about[4], struct gemm_choice *choice, bool *taken,
                              struct err *e) {
    struct { struct gemm_choice choice; bool taken; } offer;
    memset(&offer, 0, sizeof offer);
    offer.choice.key = choice->key;
    offer.taken = offered(b, p, &offer.choice);
    TRY(cuda_agree(b, "looking for a GEMM's kept choice", about, &offer, sizeof offer, e));
    *taken = offer.taken;
    if (offer.taken) *choice = offer.choice;
    return OK;
}

/* The problem's entry of the table, made on its first use; and the lane's workspace. */
static enum status choice_of(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                             struct gemm_choice **out, void **workspace, struct err *e) {
    struct gemm_library *g = b->gemm;
    struct gemm_key key = key_of(p);
    TRY(cuda_scratch(&b->base, lane, SCRATCH_GEMM, GEMM_WORKSPACE_BYTES, workspace, e));
    int64_t i = 0;
    while (i < g->choices && memcmp(&g->choice[i].key, &key, sizeof key) != 0) i++;
    struct gemm_choice *choice = *out = &g->choice[i];
    if (i < g->choices) return OK;
    if (i == TABLE_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d GEMM shapes in one run", TABLE_MAX);
    if (b->capture)
        return FAIL(e, ERR_STATE, "a GEMM [%lld, %lld, %lld] was not seen in the warm-up pass",
                    (long long)p->n, (long long)p->m, (long long)p->k);
    memset(choice, 0, sizeof *choice);
    choice->key = key;
    const int64_t about[4] = { key.m, key.n, key.k, key.type_a << 16 | key.type_b };
    bool taken;
    TRY(take_offer(b, p, about, choice, &taken, e));
    if (!taken) {
        TRY(cuda_sync(&b->base, e)); /* queued operators share the workspace */
        TRY(choose(b, p, *workspace, choice, e));
        /* Ranks measure different times, but must all use one table. */
        TRY(cuda_agree(b, "choosing a GEMM", about, choice, sizeof *choice, e));
    }
    g->choices++;
    return OK;
}

static enum status run_own(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                           int32_t own, struct err *e) {
    if (!own_serves(b, p, own))
        return FAIL(e, ERR_CONFIG, "the choice table names our own kernel for a GEMM [%lld, %lld, "
                    "%lld], which it does not support: measure again without this table",
                    (long long)p->n, (long long)p->m, (long long)p->k);
    return own == OWN_HOPPER ? gemm_hopper_run(b, p, b->lane[lane], e)
                             : gemm_sync_run(b, p, b->lane[lane], e);
}

enum status gemm_run(struct cuda_backend *b, int lane, const struct gemm_problem *p, bool *found,
                     struct err *e) {
    struct gemm_choice *choice;
    void *workspace;
    TRY(choice_of(b, lane, p, &choice, &workspace, e));
    *found = choice->usable;
    if (!choice->usable) return OK;
    if (choice->own) return run_own(b, lane, p, choice->own, e);
    struct descriptors d;
    TRY(describe(&d, p, e));
    LT_TRY(e, multiply(b->gemm, &d, p, &choice->algo, workspace, b->lane[lane]));
    return OK;
}

enum status gemm_found(struct cuda_backend *b, int lane, const struct gemm_problem *p, bool *found,
                       struct err *e) {
    struct gemm_choice *choice;
    void *workspace;
    TRY(choice_of(b, lane, p, &choice, &workspace, e));
    *found = choice->usable;
    return OK;
}

/* The order of a choice, from its attributes. Unknown are: rows that are not multiples of 16 bytes,
 * BF16 in place (the library rounds before it adds), and schemes that this file does not choose. */
static void order_of(const struct gemm_problem *p, const struct gemm_choice *choice,
                     struct gemm_way *out) {
    out->known = choice->own != OWN_SYNC; /* only on devices that nothing was compared with */
    if (choice->own) return;
    int32_t parts = 1;
    uint32_t scheme = 0;
    size_t bytes;
    bool read = cublasLtMatmulAlgoConfigGetAttribute(&choice->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                     &parts, sizeof parts, &bytes) ==
                    CUBLAS_STATUS_SUCCESS &&
                cublasLtMatmulAlgoConfigGetAttribute(&choice->algo,
                                                     CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                     sizeof scheme, &bytes) ==
                    CUBLAS_STATUS_SUCCESS;
    bool split = parts > 1, narrow = bytes_of(p->a.type, 1) == 1, wide = p->type == CUDA_R_32F;
    bool aligned = bytes_of(p->type, p->ld) % 16 == 0 &&
                   bytes_of(p->a.type, p->a.ld) % 16 == 0 &&
                   bytes_of(p->b.type, p->b.ld) % 16 == 0;
    bool in_place = choice->key.accumulate && !choice->key.elsewhere && !wide;
    out->known = read && aligned && !in_place && parts >= 0 &&
                 (!split || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    if (!out->known) return;
    if (split) out->part = round_up(ceil_div(p->k, parts), narrow ? 128 : 64);
    out->a_first = p->a.scale && p->a.scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F &&
                   p->b.scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
}

enum status gemm_way_of(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                        struct gemm_way *out, struct err *e) {
    struct gemm_choice *choice;
    void *workspace;
    TRY(choice_of(b, lane, p, &choice, &workspace, e));
    const char *name = choice->own == OWN_SYNC ? "mma.sync" : choice->own ? "wgmma" : "";
    *out = {};
    out->found = choice->usable;
    out->own = choice->own != OWN_NONE;
    out->why = *choice->why ? choice->why : name;
    if (choice->usable) order_of(p, choice, out);
    return OK;
}
