/* Chooses the algorithm of a GEMM shape.
 *
 * cuBLASLt's first heuristic is not its fastest algorithm. So the first ones of a shape are timed
 * once, on operands of our own (the caller's may be incomplete). Only those of the shape's class
 * may be chosen (gemm_class.cuh), so the choice changes no bit. On other devices than Hopper the
 * class is only what an algorithm says of itself: its number of parts.
 *
 * For a product with a bias or a residual, algorithms listed for the product alone are also
 * candidates, if the library accepts them. For a product without either, split-K is allowed if its
 * partial sums are f32 in the workspace, added in a fixed order. (Before a bias or a residual some
 * kernels round the sum.) Schemes that add in place or in the output's type are not allowed. If the
 * class has parts, each algorithm is also tried with their number. If our own kernel for block
 * factors can serve a shape (gemm_hopper.cu), it and the best algorithm are timed again, for
 * longer. The faster one at the power-limited clock serves. Our kernel on mma.sync (gemm_sync.cu)
 * serves without a trial the FP8 that the library has no algorithm for. The heuristic may list an
 * algorithm that then fails (seen: cuBLASLt 13.1 with misaligned scales). Only those that ran are
 * kept. If no algorithm adds in a known way, the first that ran is used; if memory for a trial is
 * lacking, the first with the right number of parts. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/byte_scales.h"
#include "kernels/cuda/gemm_choice.cuh"
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/gemm_sync.cuh"

enum { LISTED = 16 /* of two queries: 13.1 never returns more than 8 each */ };

/* ---- stand-ins ---- */

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

static int64_t stand_in_bytes(const struct gemm_operand *x, int64_t outer, int64_t k) {
    int64_t rows = x->transposed ? outer : k, cols = x->transposed ? k : outer;
    return round_up(bytes_of(x->type, max_i64((rows - 1) * x->ld + cols, 1)), 256);
}

/* Memory for a stand-in of one operand and its scale: one allocation. */
static cudaError_t stand_in(struct gemm_operand *x, int64_t outer, int64_t k, void **owned) {
    uint32_t one;
    int64_t bytes = stand_in_bytes(x, outer, k), factors = scale_bytes_of(x, outer, k, &one);
    cudaError_t status = cudaMalloc(owned, (size_t)(bytes + factors));
    x->data = *owned;
    if (x->scale) x->scale = x->factors = (float *)((char *)*owned + bytes);
    return status;
}

/* Codes or BF16 values of moderate size, and factors of 1. */
static cudaError_t fill_moderate(const struct trial *t, const struct gemm_operand *x, int64_t outer,
                                 int64_t k) {
    uint32_t one;
    int64_t bytes = stand_in_bytes(x, outer, k), factors = scale_bytes_of(x, outer, k, &one);
    void *data = (void *)x->data;
    cudaError_t status;
    if (x->type == CUDA_R_16BF)
        status = trial_noise(t, data, bytes, NOISE_BF16_KEEP, NOISE_BF16_SET);
    else if (x->type == CUDA_R_4F_E2M1) /* each of its codes is a moderate number */
        status = trial_noise(t, data, bytes, 0xFFFFFFFFu, 0);
    else status = trial_noise(t, data, bytes, 0x8F8F8F8Fu, 0x30303030u);
    if (!factors || status != cudaSuccess) return status;
    return trial_noise(t, (void *)x->factors, factors, 0, one);
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
    return gemm_multiply(c->g, c->d, c->p, &c->list[i].algo, c->workspace, stream) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Algorithms to choose from: those of the class, of the listed ones and others. */
struct listed {
    cublasLtMatmulHeuristicResult_t of[GEMM_CANDIDATES];
    bool in_class[GEMM_CANDIDATES];
    float seen[GEMM_CANDIDATES]; /* microseconds in the class's test; negative: none */
    int count, free; /* the first `free` are what would be timed if classes did not matter */
};

/* The fastest of the first `count` that ran, of the class if `in_class`; -1: none. */
static int fastest(const struct listed *list, const float *us, int count, bool in_class) {
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (us[i] < 0.0f || (in_class && !list->in_class[i])) continue;
        if (best < 0 || us[i] < us[best]) best = i;
    }
    return best;
}

/* The *place-th of the class that ran, or the last of them; *place <- what is left. */
static int placed(const struct listed *list, const float *us, int *place) {
    int found = -1;
    for (int i = 0; i < list->count && *place > 0; i++)
        if (us[i] >= 0.0f && list->in_class[i]) found = i, --*place;
    return found;
}

/* What the class's test tells a trial. `each`: a test may force any of the class. */
static void hint_at(const struct listed *list, bool each, struct trial_hint *hint) {
    bool found = false;
    for (int i = 0; i < list->count; i++) found = found || list->in_class[i];
    for (int i = 0; i < list->count; i++)
        hint[i] = { !found || list->in_class[i], each ? -1.0f : list->seen[i] };
}

/* Chooses by time within the class. If no algorithm is of a class, the first that runs serves. */
static void time_candidates(struct candidates *c, const struct listed *list,
                            struct gemm_choice *choice) {
    float us[GEMM_CANDIDATES];
    struct trial_hint hint[GEMM_CANDIDATES];
    hint_at(list, c->g->place != 0, hint);
    trial_run(&c->g->trial, queue_candidate, c, list->count, hint, us);
    int i = fastest(list, us, list->count, true), any = fastest(list, us, list->free, false);
    int place = c->g->place;
    if (place) i = placed(list, us, &place);
    if (c->g->place && place == 0) choice->own = OWN_NONE; /* our own kernel comes last */
    for (int k = 0; i < 0 && !choice->own && k < list->count; k++)
        if (us[k] >= 0.0f) i = k;
    if (i < 0) return;
    choice->usable = true;
    choice->timed = c->g->place == 0; /* later runs take no algorithm that a test forced */
    choice->algo = list->of[i].algo;
    choice->time_us = us[i];
    if (any >= 0 && us[any] < GEMM_OWN_TIME_MAX * us[i])
        snprintf(choice->why, sizeof choice->why, "%.1f us, free %.1f us", (double)us[i],
                 (double)us[any]);
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
    return gemm_multiply(c->b->gemm, c->d, c->p, c->algo, c->workspace, stream) ==
           CUBLAS_STATUS_SUCCESS;
}

static void time_pair(struct pair *c, struct gemm_choice *choice) {
    float us[PAIR_COUNT];
    trial_settled(&c->b->gemm->trial, queue_candidate_of, c, PAIR_COUNT, us);
    choice->own = us[OWN] < 0.0f ? OWN_NONE : OWN_HOPPER;
    if (us[LIBRARY] < 0.0f || us[OWN] < 0.0f) return;
    choice->own = us[OWN] < GEMM_OWN_TIME_MAX * us[LIBRARY] ? OWN_HOPPER : OWN_NONE;
    snprintf(choice->why, sizeof choice->why,
             choice->own ? "wgmma %.0f us, cublaslt %.0f us" : "cublaslt %.0f us, wgmma %.0f us",
             (double)us[choice->own ? OWN : LIBRARY], (double)us[choice->own ? LIBRARY : OWN]);
}

/* A trial's memory. */
struct stand_ins {
    struct gemm_problem p;
    void *owned[6]; /* operands, D, bias, C, factors of alpha */
    int64_t out_bytes;
};

static cudaError_t open_stand_ins(const struct trial *t, const struct gemm_problem *problem,
                                  bool elsewhere, struct stand_ins *s) {
    struct gemm_problem *p = &s->p;
    memset(s, 0, sizeof *s);
    *p = *problem;
    s->out_bytes = round_up(bytes_of(p->type, p->ld * p->n), 4);
    cudaError_t status = stand_in(&p->a, p->m, p->k, &s->owned[0]);
    if (status == cudaSuccess) status = stand_in(&p->b, p->n, p->k, &s->owned[1]);
    const int64_t zeroed[4] = { s->out_bytes, p->bias ? p->m * 4 : 0, elsewhere ? s->out_bytes : 0,
                                p->alpha ? GEMM_FACTORS * 4 : 0 };
    for (int i = 0; i < 4 && status == cudaSuccess; i++) {
        if (!zeroed[i]) continue;
        status = cudaMalloc(&s->owned[2 + i], (size_t)zeroed[i]);
        if (status == cudaSuccess)
            status = cudaMemsetAsync(s->owned[2 + i], 0, (size_t)zeroed[i], t->stream);
    }
    static const float FACTORS[GEMM_FACTORS] = { 1.0f, 0.0f, 1.0f };
    if (p->alpha && status == cudaSuccess)
        status = cudaMemcpyAsync(s->owned[5], FACTORS, sizeof FACTORS, cudaMemcpyHostToDevice,
                                 t->stream);
    p->d = s->owned[2];
    p->alpha = (const float *)s->owned[5];
    p->c = elsewhere ? s->owned[4] : s->owned[2];
    if (p->bias) p->bias = s->owned[3];
    return status;
}

static void close_stand_ins(struct stand_ins *s) {
    for (int i = 0; i < 6; i++) cudaFree(s->owned[i]);
}

static enum status fill_wide(const struct trial *t, const struct stand_ins *s, struct err *e) {
    const struct gemm_problem *p = &s->p;
    uint32_t one;
    CUDA_TRY(e, gemm_class_operand(t, &p->a, stand_in_bytes(&p->a, p->m, p->k),
                                   scale_bytes_of(&p->a, p->m, p->k, &one)));
    CUDA_TRY(e, gemm_class_operand(t, &p->b, stand_in_bytes(&p->b, p->n, p->k),
                                   scale_bytes_of(&p->b, p->n, p->k, &one)));
    if (p->bias) CUDA_TRY(e, gemm_class_addend(t, s->owned[3], p->m * 4, p->bias_type));
    if (s->owned[4]) CUDA_TRY(e, gemm_class_addend(t, s->owned[4], s->out_bytes, p->type));
    return OK;
}

/* Whether our kernel serves, with the bits of the class. It rounds once what it adds to BF16. For
 * rows of E5M2 the class rounds twice, as the library does (kernels/arithmetic_way.c). */
static bool own_serves(const struct cuda_backend *b, const struct gemm_problem *p) {
    struct mma_way way;
    return gemm_hopper_serves(b, p) && !(gemm_class_of(p, &way) && way.rounded);
}

/* Finds the candidates of the class. Our own kernel, if it serves, is always of it. */
static enum status sort_candidates(struct cuda_backend *b, struct candidates *c,
                                   const struct stand_ins *s, struct listed *list,
                                   struct gemm_choice *choice, struct err *e) {
    struct gemm_library *g = b->gemm;
    bool described = gemm_class_of(&s->p, &choice->way);
    for (int i = 0; i < list->count; i++) list->seen[i] = -1.0f;
    if (b->cc != 90 || !described) {
        int parts = described ? gemm_class_parts_of(&s->p, &choice->way) : 0;
        for (int i = 0; i < list->count; i++)
            list->in_class[i] = !parts || gemm_class_parts(&list->of[i].algo) == parts;
        return OK;
    }
    choice->rules = GEMM_CLASS_RULES;
    TRY(fill_wide(&g->trial, s, e));
    const struct class_trial test = { &g->trial, &s->p, s->out_bytes, queue_candidate, c,
                                      list->count, choice->own != OWN_NONE, list->seen };
    TRY(gemm_class_sort(&test, list->in_class, &choice->way, &choice->known, e));
    choice->known = choice->known || choice->own;
    return OK;
}

/* Our own kernel instead of the library, if it is faster, or if no algorithm is of the class. */
static void weigh_own(struct cuda_backend *b, struct descriptors *d, const struct stand_ins *s,
                      void *workspace, struct gemm_choice *choice) {
    struct pair pair = { b, d, &s->p, &choice->algo, workspace };
    if (b->gemm->place && choice->usable) return;
    if (choice->usable) time_pair(&pair, choice);
    else snprintf(choice->why, sizeof choice->why, "wgmma, alone in its class");
    choice->usable = true;
    choice->timed = b->gemm->place == 0;
}

/* Without memory for a trial: a candidate by what it says of itself. */
static void take_untimed(const struct gemm_problem *p, const struct listed *list,
                         struct gemm_choice *choice) {
    struct mma_way way;
    int parts = gemm_class_of(p, &way) ? gemm_class_parts_of(p, &way) : 0, i = 0;
    while (i < list->count && gemm_class_parts(&list->of[i].algo) != parts) i++;
    choice->algo = list->of[i < list->count ? i : 0].algo;
    choice->usable = true;
}

/* Fills choice->algo from trials on stand-ins for the operands. */
static enum status measure(struct cuda_backend *b, const struct gemm_problem *problem,
                           struct listed *list, void *workspace, struct gemm_choice *choice,
                           struct err *e) {
    struct gemm_library *g = b->gemm;
    struct stand_ins s;
    struct descriptors d;
    enum status st = OK;
    bool serves = own_serves(b, problem);
    choice->own = serves ? OWN_HOPPER : OWN_NONE;
    cudaError_t status = open_stand_ins(&g->trial, problem, choice->key.elsewhere, &s);
    if (status == cudaSuccess) {
        struct candidates c = { g, &d, &s.p, list->of, workspace };
        st = gemm_describe(&d, &s.p, e);
        if (st == OK) st = sort_candidates(b, &c, &s, list, choice, e);
        if (st == OK) status = fill_moderate(&g->trial, &s.p.a, s.p.m, s.p.k);
        if (st == OK && status == cudaSuccess)
            status = fill_moderate(&g->trial, &s.p.b, s.p.n, s.p.k);
        if (st == OK && status == cudaSuccess) time_candidates(&c, list, choice);
        if (st == OK && status == cudaSuccess && serves) weigh_own(b, &d, &s, workspace, choice);
    } else if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        status = cudaSuccess;
        if (serves) choice->usable = true;
        else take_untimed(problem, list, choice);
    }
    if (st == OK && status != cudaSuccess)
        st = FAIL(e, ERR_DEVICE, "measuring a GEMM: %s", cudaGetErrorString(status));
    close_stand_ins(&s);
    return st;
}

/* Adds an algorithm that is not in the list, if it also supports `whole` (NULL: not asked). */
static void add_candidate(struct gemm_library *g, const struct descriptors *whole,
                          const cublasLtMatmulHeuristicResult_t *one, struct listed *list) {
    for (int i = 0; i < list->count; i++)
        if (memcmp(&list->of[i].algo, &one->algo, sizeof one->algo) == 0) return;
    if (list->count < GEMM_CANDIDATES && (!whole || gemm_accepts(g, whole, &one->algo)))
        list->of[list->count++] = *one;
}

/* ---- candidates ---- */

struct preference {
    cublasLtMatmulPreference_t of = NULL;

    preference() = default;
    preference(const preference &) = delete;
    ~preference() {
        if (of) cublasLtMatmulPreferenceDestroy(of);
    }
};

#define PREFER(name, value) \
    cublasLtMatmulPreferenceSetAttribute(preference.of, name, &(value), sizeof(value))

/* Adds the library's first algorithms for d under these reduction schemes to the list, if they also
 * support `whole`. */
static enum status query(struct cuda_backend *b, struct descriptors *d, struct descriptors *whole,
                         const struct gemm_key *key, uint32_t schemes, struct listed *list,
                         struct err *e) {
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
    cublasLtMatmulHeuristicResult_t more[LISTED / 2];
    int found = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(b->gemm->handle, d->product, d->a, d->b, d->d, d->d,
                                       preference.of, LISTED / 2, more, &found);
    /* Out of memory or no device says nothing about the shape, so no entry may be made of it. */
    if (status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED ||
        status == CUBLAS_STATUS_EXECUTION_FAILED)
        return FAIL(e, ERR_DEVICE, "asking cuBLASLt for algorithms: status %d", (int)status);
    if (status != CUBLAS_STATUS_SUCCESS) return OK; /* none: not usable */
    for (int i = 0; i < found; i++)
        if (more[i].state == CUBLAS_STATUS_SUCCESS) /* otherwise not an algorithm */
            add_candidate(b->gemm, d == whole ? NULL : whole, &more[i], list);
    list->free = list->count;
    return OK;
}

/* Adds each algorithm with the number of parts that the class has. Some shapes' FP8 algorithms are
 * listed with parts alone, although others were asked for. */
static void add_parts(struct gemm_library *g, const struct gemm_problem *p,
                      const struct descriptors *d, struct listed *list) {
    struct mma_way way;
    int parts = gemm_class_of(p, &way) ? gemm_class_parts_of(p, &way) : 1;
    for (int i = 0; i < list->free; i++) {
        cublasLtMatmulHeuristicResult_t split = list->of[i];
        if (gemm_class_parts(&split.algo) == parts) continue;
        if (gemm_class_split(&split.algo, parts)) add_candidate(g, d, &split, list);
    }
}

/* Asks the library, and times what it lists. */
static enum status choose_of_library(struct cuda_backend *b, const struct gemm_problem *p,
                                     void *workspace, struct gemm_choice *choice,
                                     struct err *e) {
    struct descriptors d, product;
    struct listed list;
    const uint32_t unsplit = CUBLASLT_REDUCTION_SCHEME_NONE;
    const uint32_t split = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    memset(&list, 0, sizeof list);
    TRY(gemm_describe(&d, p, e));
    TRY(query(b, &d, &d, &choice->key, unsplit, &list, e));
    if (p->bias || choice->key.elsewhere) {
        struct gemm_problem alone = *p;
        alone.bias = NULL;
        alone.beta = 0.0f;
        TRY(gemm_describe(&product, &alone, e));
        TRY(query(b, &product, &d, &choice->key, unsplit, &list, e));
    } else {
        TRY(query(b, &d, &d, &choice->key, split, &list, e));
        add_parts(b->gemm, p, &d, &list);
    }
    return list.count ? measure(b, p, &list, workspace, choice, e) : OK;
}

enum status gemm_choose(struct cuda_backend *b, const struct gemm_problem *p, void *workspace,
                        struct gemm_choice *choice, struct err *e) {
    const choosing_time time(b);
    if (!p->own) TRY(choose_of_library(b, p, workspace, choice, e));
    if (choice->usable || p->a.type == CUDA_R_16BF || !gemm_sync_serves(b, p)) return OK;
    choice->own = OWN_SYNC;
    choice->usable = true;
    return OK;
}
