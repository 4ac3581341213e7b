/* The choice table of GEMM algorithms: as text, and for each call. gemm_trial.cu makes choices. */
#include "kernels/cuda/gemm.cuh"

#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_choice.cuh"
#include "kernels/cuda/gemm_hopper.cuh"
#include "kernels/cuda/gemm_sync.cuh"

/* The class of a choice, as the table has it behind the algorithm. */
struct kept_class { int32_t rules, flags, chain, part, tile, group; };
enum { KEPT_KNOWN = 1, KEPT_ROUNDED = 2, KEPT_FACTORS = 4 /* times enum factor_order */,
       KEPT_FUSED = 16, KEPT_BIAS_LAST = 32 };

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

static struct kept_class keep_class(const struct gemm_choice *c) {
    int32_t flags = (c->known ? KEPT_KNOWN : 0) | (c->way.rounded ? KEPT_ROUNDED : 0) |
                    (c->way.fused ? KEPT_FUSED : 0) |
                    (c->way.bias_last ? KEPT_BIAS_LAST : 0) |
                    KEPT_FACTORS * (int32_t)c->way.factors;
    return { c->rules, flags, (int32_t)c->way.order.chain, (int32_t)c->way.order.part,
             (int32_t)c->way.order.tile, c->way.mma.group };
}

/* What the arithmetic of the problem adds to this is found when the shape is used: way_of. */
static void read_class(const struct kept_class *kept, struct gemm_choice *c) {
    c->rules = kept->rules;
    c->known = kept->flags & KEPT_KNOWN;
    c->way.rounded = kept->flags & KEPT_ROUNDED;
    c->way.fused = kept->flags & KEPT_FUSED;
    c->way.bias_last = kept->flags & KEPT_BIAS_LAST;
    c->way.factors = (enum factor_order)(kept->flags / KEPT_FACTORS & 3);
    c->way.order = { kept->chain, kept->part, kept->tile };
    c->way.mma.group = kept->group;
}

int64_t gemm_choices(const struct cuda_backend *b) { return b->gemm->choices; }

void gemm_choices_place(struct cuda_backend *b, int place) { b->gemm->place = place; }

/* Times are left out: they differ in every run, and the text is hashed. */
void gemm_choices_write(const struct cuda_backend *b, bool timed, FILE *out) {
    if (b->gemm->choices)
        fputs("# gemm m n k lda ldb ldd type_a type_b type_d type_bias scale_a scale_b align_a "
              "align_b align_c align_d transposed_a transposed_b accumulate fast elsewhere : "
              "cublasLtMatmulAlgo_t and its class, or i32 1: gemm_hopper.cu, 2: gemm_sync.cu\n",
              out);
    for (int64_t i = 0; i < b->gemm->choices; i++) {
        const struct gemm_choice *from = &b->gemm->choice[i];
        struct choice c = {};
        if (timed && !from->timed) continue;
        static_assert(sizeof from->algo + sizeof(struct kept_class) <= sizeof c.value,
                      "an algorithm fits a line");
        snprintf(c.kind, sizeof c.kind, "gemm");
        key_integers(&from->key, c.key);
        c.keys = KEY_INTEGERS;
        c.bytes = from->usable ? (int)sizeof from->algo : 0;
        memcpy(c.value, &from->algo, (size_t)c.bytes);
        if (from->usable && from->rules) {
            struct kept_class kept = keep_class(from);
            memcpy(c.value + c.bytes, &kept, sizeof kept);
            c.bytes += (int)sizeof kept;
        }
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
    struct kept_class kept = {};
    const int older = (int)sizeof to->algo, whole = older + (int)sizeof kept;
    if (c->keys != KEY_INTEGERS || (c->bytes && !own && c->bytes != older && c->bytes != whole))
        return false;
    memset(to, 0, sizeof *to);
    to->key = key_from(c->key);
    to->usable = c->bytes > 0;
    to->own = own;
    if (own || !c->bytes) return true;
    memcpy(&to->algo, c->value, sizeof to->algo);
    if (c->bytes == whole) memcpy(&kept, c->value + older, sizeof kept);
    read_class(&kept, to);
    return true;
}

enum status gemm_choice_take(struct cuda_backend *b, const struct choice *c, struct err *e) {
    struct gemm_library *g = b->gemm;
    if (g->choices == GEMM_TABLE_MAX)
        return FAIL(e, ERR_CONFIG, "the choice table has more than %d GEMM shapes", GEMM_TABLE_MAX);
    if (!read_entry(c, &g->choice[g->choices]))
        return FAIL(e, ERR_CONFIG, "choice table: a GEMM entry has %d integers and %d bytes",
                    c->keys, c->bytes);
    g->choices++;
    return OK;
}

/* ---- descriptors ---- */

static cublasStatus_t layout_of(cublasLtMatrixLayout_t *out, const struct gemm_operand *x,
                                int64_t outer, int64_t k) {
    int64_t rows = x->transposed ? k : outer, cols = x->transposed ? outer : k;
    return cublasLtMatrixLayoutCreate(out, x->type, (uint64_t)rows, (uint64_t)cols, x->ld);
}

#define SET(name, value) cublasLtMatmulDescSetAttribute(d->product, name, &(value), sizeof(value))

enum status gemm_describe(struct descriptors *d, const struct gemm_problem *p, struct err *e) {
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

cublasStatus_t gemm_multiply(struct gemm_library *g, struct descriptors *d,
                               const struct gemm_problem *p, const cublasLtMatmulAlgo_t *algo,
                               void *workspace, cudaStream_t stream) {
    const float one = 1.0f, *alpha = p->alpha ? p->alpha : &one;
    const float *beta = p->alpha ? p->alpha + (p->beta != 0.0f ? 2 : 1) : &p->beta;
    return cublasLtMatmul(g->handle, d->product, alpha, p->a.data, d->a, p->b.data, d->b,
                          beta, p->beta != 0.0f ? p->c : p->d, d->d, p->d, d->d, algo,
                          workspace, (size_t)GEMM_WORKSPACE_BYTES, stream);
}

bool gemm_accepts(struct gemm_library *g, const struct descriptors *d,
                        const cublasLtMatmulAlgo_t *algo) {
    cublasLtMatmulHeuristicResult_t checked = {};
    return cublasLtMatmulAlgoCheck(g->handle, d->product, d->a, d->b, d->d, d->d, algo,
                                   &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= (size_t)GEMM_WORKSPACE_BYTES;
}

/* ---- choices ---- */

static bool own_serves(const struct cuda_backend *b, const struct gemm_problem *p, int32_t own) {
    return own == OWN_HOPPER ? gemm_hopper_serves(b, p) : gemm_sync_serves(b, p);
}

/* Whether an offered table has an algorithm for the problem that still runs, and that was chosen
 * by the rules of today's classes. */
static bool offered(struct cuda_backend *b, const struct gemm_problem *p,
                    struct gemm_choice *out) {
    struct choice c;
    struct descriptors d;
    struct mma_way way;
    struct err ignored = {};
    int64_t key[KEY_INTEGERS];
    key_integers(&out->key, key);
    if (!b->offers || b->gemm->place || !choices_find(b->offers, "gemm", key, KEY_INTEGERS, &c) ||
        !read_entry(&c, out) || !out->usable)
        return false;
    snprintf(out->why, sizeof out->why, "timed by an earlier run");
    if (out->own) return own_serves(b, p, out->own);
    if (b->cc == 90 && gemm_class_of(p, &way) && out->rules != GEMM_CLASS_RULES) return false;
    return gemm_describe(&d, p, &ignored) == OK && gemm_accepts(b->gemm, &d, &out->algo);
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
    if (i == GEMM_TABLE_MAX)
        return FAIL(e, ERR_UNSUPPORTED, "more than %d GEMM shapes in one run", GEMM_TABLE_MAX);
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
        TRY(gemm_choose(b, p, *workspace, choice, e));
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

/* What decided, or the name of a kernel of ours that was not timed. */
static const char *why_of(const struct gemm_choice *c) {
    const char *name = c->own == OWN_SYNC ? "mma.sync" : c->own ? "wgmma" : "";
    return *c->why ? c->why : name;
}

enum status gemm_run(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                     const char **why, bool *found, struct err *e) {
    struct gemm_choice *choice;
    void *workspace;
    TRY(choice_of(b, lane, p, &choice, &workspace, e));
    *found = choice->usable;
    *why = why_of(choice);
    if (!choice->usable) return OK;
    if (choice->own) return run_own(b, lane, p, choice->own, e);
    struct descriptors d;
    TRY(gemm_describe(&d, p, e));
    LT_TRY(e, gemm_multiply(b->gemm, &d, p, &choice->algo, workspace, b->lane[lane]));
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

/* How a choice adds. Of an older table's algorithm it is only known what the algorithm says. */
static bool way_of(const struct gemm_problem *p, const struct gemm_choice *choice,
                   struct mma_way *way) {
    if (choice->own == OWN_SYNC) return false; /* on devices that nothing was compared with */
    if (choice->own) return gemm_class_of(p, way);
    if (!choice->rules) return gemm_class_by_attributes(p, &choice->algo, way);
    if (!choice->known || !gemm_class_of(p, way)) return false;
    way->order = choice->way.order;
    way->rounded = choice->way.rounded;
    way->fused = choice->way.fused;
    way->bias_last = choice->way.bias_last;
    way->factors = choice->way.factors;
    way->mma.group = choice->way.mma.group;
    return true;
}

enum status gemm_way_of(struct cuda_backend *b, int lane, const struct gemm_problem *p,
                        struct gemm_way *out, struct err *e) {
    struct gemm_choice *choice;
    void *workspace;
    TRY(choice_of(b, lane, p, &choice, &workspace, e));
    *out = {};
    out->found = choice->usable;
    out->own = choice->own != OWN_NONE;
    out->why = why_of(choice);
    out->known = choice->usable && b->cc == 90 && way_of(p, choice, &out->way);
    return OK;
}
