/* Attention by cuDNN: the library and its plans. Its deterministic backward in BF16 keeps score
 * gradients in memory, 2 bytes for each head, query and key, and is not used. */
#include "kernels/cuda/attention_cudnn.cuh"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/cudnn_graph.cuh"

enum { VERSION_MIN = 91100 /* 9.10 computes attention wrongly */ };

struct cudnn_library {
    void *so;
    cudnnHandle_t handle;
    struct cudnn_functions f;
};

/* ---- plans ---- */

/* What is being looked for, and what was found so far. */
struct search {
    struct cudnn_library *lib;
    struct cudnn_plan *plan;
    const struct cudnn_plan_name *name; /* or NULL: any */
    bool any_order;
    struct cudnn_found found;
};

/* Whether the engine has no note that it may add in another order in every run. *index: its
 * number. False if either is unknown. */
static bool is_deterministic(struct cudnn_library *lib, cudnn_node config, int32_t *index) {
    cudnn_node engine = NULL;
    if (lib->f.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    int64_t count = 0, notes = 0, number = -1;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    bool known = lib->f.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                            &count, &engine) == CUDNN_STATUS_SUCCESS &&
                 lib->f.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                            &number) == CUDNN_STATUS_SUCCESS &&
                 lib->f.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &notes, note) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; known && i < notes; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) known = false;
    *index = (int32_t)number;
    lib->f.drop(engine);
    return known;
}

/* Finalises the plan of one engine configuration. False if the engine is not allowed, is not the
 * named one, or cannot be built. */
static bool try_config(struct search *s, cudnn_node config, int32_t place) {
    const struct cudnn_functions *f = &s->lib->f;
    struct cudnn_plan *p = s->plan;
    p->name.place = place;
    bool ordered = is_deterministic(s->lib, config, &p->name.engine);
    s->found.deterministic += ordered;
    if (!ordered && !s->any_order) return false;
    if (s->name && !cudnn_same_plan(*s->name, p->name)) return false;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node execution = cudnn_make(f, p->owned, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                      &status);
    int64_t count = 0;
    p->execution = execution;
    return status == CUDNN_STATUS_SUCCESS &&
           f->set(execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == CUDNN_STATUS_SUCCESS &&
           f->set(execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                  &s->lib->handle) == CUDNN_STATUS_SUCCESS &&
           f->finalize(execution) == CUDNN_STATUS_SUCCESS &&
           f->get(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                  &count, &p->workspace_bytes) == CUDNN_STATUS_SUCCESS;
}

/* Asks the heuristic for configurations, and tries them in its order. */
static bool try_listed(struct search *s, cudnn_node graph) {
    const struct cudnn_functions *f = &s->lib->f;
    struct cudnn_nodes *owned = s->plan->owned;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node heuristic = cudnn_make(f, owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &status);
    cudnn_node config[CUDNN_LISTED_MAX];
    for (int i = 0; i < CUDNN_LISTED_MAX; i++)
        config[i] = cudnn_make(f, owned, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &status);
    if (status != CUDNN_STATUS_SUCCESS) return false;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    if (f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &graph) != CUDNN_STATUS_SUCCESS ||
        f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) !=
            CUDNN_STATUS_SUCCESS ||
        f->finalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        f->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               CUDNN_LISTED_MAX, &count, config) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CUDNN_LISTED_MAX; i++) {
        s->found.listed++;
        if (try_config(s, config[i], (int32_t)i)) return true;
    }
    return false;
}

static bool build(struct search *s, int cc, const struct attention *a,
                  const struct cudnn_spec *spec) {
    const struct cudnn_functions *f = &s->lib->f;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node graph = cudnn_attention_graph(f, s->lib->handle, a, spec, s->plan->owned, &status);
    if (!graph) return false;
    if (spec->pass != CUDNN_FP8_BACKWARD || cc < 100 || spec->any_order)
        return try_listed(s, graph);
    cudnn_node config = cudnn_backward_config(f, graph, NULL, s->plan->owned, &status);
    s->found.listed += config != NULL;
    return config && try_config(s, config, CUDNN_LISTED_MAX);
}

/* ---- the library ---- */

static bool find_functions(struct cudnn_library *lib) {
    static const char *const NAME[] = {
        "cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnGetVersion",
        "cudnnGetLastErrorString", "cudnnBackendCreateDescriptor",
        "cudnnBackendDestroyDescriptor", "cudnnBackendFinalize", "cudnnBackendSetAttribute",
        "cudnnBackendGetAttribute", "cudnnBackendExecute",
    };
    void *found[sizeof NAME / sizeof *NAME];
    static_assert(sizeof found == sizeof lib->f, "one address for each function");
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++)
        if (!(found[i] = dlsym(lib->so, NAME[i]))) return false;
    memcpy(&lib->f, found, sizeof found);
    return true;
}

/* Opens cuDNN once; a library that cannot be used is not tried again by this backend. */
static struct cudnn_library *library_of(struct cuda_backend *b) {
    if (b->cudnn) return b->cudnn->handle ? b->cudnn : NULL;
    struct cudnn_library *lib = (struct cudnn_library *)calloc(1, sizeof *lib);
    if (!lib) return NULL;
    b->cudnn = lib;
    lib->so = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!lib->so || !find_functions(lib) || lib->f.version() < VERSION_MIN) return NULL;
    if (lib->f.create(&lib->handle) != CUDNN_STATUS_SUCCESS) lib->handle = NULL;
    return lib->handle ? lib : NULL;
}

int64_t cudnn_version(struct cuda_backend *b) {
    struct cudnn_library *lib = library_of(b);
    return lib ? (int64_t)lib->f.version() : 0;
}

void cudnn_last_error(struct cuda_backend *b, char *out, size_t size) {
    out[0] = 0;
    if (b->cudnn && b->cudnn->handle) b->cudnn->f.last_error(out, size);
}

void cudnn_close(struct cuda_backend *b) {
    struct cudnn_library *lib = b->cudnn;
    if (!lib) return;
    if (lib->handle) lib->f.destroy(lib->handle);
    if (lib->so) dlclose(lib->so);
    free(lib);
    b->cudnn = NULL;
}

struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a,
                                     const struct cudnn_spec *spec,
                                     const struct cudnn_plan_name *name,
                                     struct cudnn_found *found) {
    struct cudnn_library *lib = library_of(b);
    struct search s = { lib, NULL, name, spec->any_order, { 0, 0 } };
    if (found) *found = s.found;
    if (!lib || (int64_t)lib->f.version() < cudnn_version_for(b->cc, spec->pass, a->length))
        return NULL;
    struct cudnn_plan *p = (struct cudnn_plan *)calloc(1, sizeof *p + sizeof *p->owned);
    if (!p) return NULL;
    p->owned = (struct cudnn_nodes *)(p + 1);
    p->spec = *spec;
    s.plan = p;
    bool built = build(&s, b->cc, a, spec);
    if (found) *found = s.found;
    if (built) return p;
    cudnn_plan_destroy(b, p);
    return NULL;
}

void cudnn_plan_destroy(struct cuda_backend *b, struct cudnn_plan *p) {
    if (!p) return;
    for (int i = p->owned->count - 1; i >= 0; i--) b->cudnn->f.drop(p->owned->node[i]);
    free(p);
}

/* ---- a call ---- */

static cudnnStatus_t execute(struct cudnn_library *lib, const struct cudnn_plan *p, void *workspace,
                             const int64_t *id, void *const *data, int64_t count) {
    cudnn_node pack = NULL;
    cudnnStatus_t status = lib->f.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = lib->f.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, id);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->f.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                            data);
    if (status == CUDNN_STATUS_SUCCESS)
        status = lib->f.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                            &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = lib->f.finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = lib->f.execute(lib->handle, p->execution, pack);
    lib->f.drop(pack);
    return status;
}

static enum status run(struct cuda_backend *b, const struct cudnn_plan *p, void *workspace,
                       cudaStream_t stream, const int64_t *id, void *const *data, int64_t count,
                       struct err *e) {
    struct cudnn_library *lib = b->cudnn;
    cudnnStatus_t status = lib->f.set_stream(lib->handle, stream);
    if (status == CUDNN_STATUS_SUCCESS) status = execute(lib, p, workspace, id, data, count);
    if (status == CUDNN_STATUS_SUCCESS) return OK;
    char text[160];
    cudnn_last_error(b, text, sizeof text);
    return FAIL(e, ERR_DEVICE, "attention by cuDNN: status %d %s", (int)status, text);
}

enum status cudnn_plan_run(struct cuda_backend *b, const struct cudnn_plan *p,
                           const struct forward *f, void *workspace, cudaStream_t stream,
                           struct err *e) {
    const struct attention *a = &f->a;
    bf16_bits *q = (bf16_bits *)a->qkv, *k = q + (int64_t)a->heads * a->head_dim;
    bf16_bits *v = k + (int64_t)a->kv_heads * a->head_dim;
    float scale = a->scale, minus_infinity = -INFINITY;
    const int64_t id[] = { ID_Q, ID_K, ID_V, ID_STATS, ID_SCALE, ID_MINUS_INFINITY, ID_O };
    void *const data[] = { q, k, v, f->lse, &scale, &minus_infinity, f->o };
    return run(b, p, workspace, stream, id, data, sizeof data / sizeof *data, e);
}

/* ---- a call of codes ---- */

/* Addresses of a call, in any order. */
enum { POINTERS_MAX = 32 };
struct pointers {
    int64_t id[POINTERS_MAX];
    void *data[POINTERS_MAX];
    int count;
};
static void point(struct pointers *p, enum cudnn_id id, const void *data) {
    p->id[p->count] = id;
    p->data[p->count++] = (void *)data;
}

/* What both directions read. scale and minus_infinity must outlive the call. */
static void point_common(struct pointers *p, const struct cudnn_fp8_call *c, const float *scale,
                         const float *minus_infinity) {
    const struct attention *a = c->a;
    const uint8_t *k = c->codes + (int64_t)a->heads * a->head_dim;
    point(p, ID_Q, c->codes);
    point(p, ID_K, k);
    point(p, ID_V, k + (int64_t)a->kv_heads * a->head_dim);
    point(p, ID_O, c->o);
    point(p, ID_STATS, c->lse);
    point(p, ID_SCALE, scale);
    point(p, ID_MINUS_INFINITY, minus_infinity);
    for (int i = ID_FACTOR_Q; i <= ID_FACTOR_V; i++) point(p, (enum cudnn_id)i, c->factor);
    point(p, ID_FACTOR_P, c->p_factor);
    point(p, ID_MULTIPLIER_P, c->p_multiplier);
}

enum status cudnn_plan_run_fp8_fwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                   const struct cudnn_fp8_call *c, void *workspace,
                                   cudaStream_t stream, struct err *e) {
    float scale = c->a->scale, minus_infinity = -INFINITY;
    struct pointers to = {};
    point_common(&to, c, &scale, &minus_infinity);
    point(&to, ID_AMAX_P, c->scalars + CUDNN_FP8_P_AMAX);
    point(&to, ID_MULTIPLIER_O, c->scalars + CUDNN_FP8_MULTIPLIER);
    point(&to, ID_AMAX_O, c->scalars + CUDNN_FP8_OUT_AMAX);
    return run(b, p, workspace, stream, to.id, to.data, to.count, e);
}

enum status cudnn_plan_run_fp8_bwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                   const struct cudnn_fp8_call *c, void *workspace,
                                   cudaStream_t stream, struct err *e) {
    const struct attention *a = c->a;
    float scale = a->scale, minus_infinity = -INFINITY;
    int64_t size = p->spec.codes_out ? 1 : 2, q = (int64_t)a->heads * a->head_dim * size;
    const char *d_qkv = (const char *)c->d_qkv, *d_k = d_qkv + q;
    struct pointers to = {};
    point_common(&to, c, &scale, &minus_infinity);
    point(&to, ID_D_O, c->d_o);
    point(&to, ID_FACTOR_D_O, c->d_o_factor);
    point(&to, ID_FACTOR_O, c->o_factor ? c->o_factor : c->scalars + CUDNN_FP8_ONE);
    point(&to, ID_FACTOR_DS, c->ds_factor);
    point(&to, ID_MULTIPLIER_DS, c->ds_multiplier);
    point(&to, ID_AMAX_DS, c->scalars + CUDNN_FP8_DS_AMAX);
    point(&to, ID_D_Q, d_qkv);
    point(&to, ID_D_K, d_k);
    point(&to, ID_D_V, d_k + (int64_t)a->kv_heads * a->head_dim * size);
    for (int i = 0; i < 3; i++) {
        point(&to, (enum cudnn_id)(ID_MULTIPLIER_D_Q + i), c->scalars + CUDNN_FP8_MULTIPLIER + i);
        point(&to, (enum cudnn_id)(ID_AMAX_D_Q + i), c->scalars + CUDNN_FP8_OUT_AMAX + i);
    }
    return run(b, p, workspace, stream, to.id, to.data, to.count, e);
}

#else /* built without cuDNN's headers: our own kernels serve every call */

struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a,
                                     const struct cudnn_spec *spec,
                                     const struct cudnn_plan_name *name,
                                     struct cudnn_found *found) {
    if (found) *found = { 0, 0 };
    return NULL;
}
void cudnn_plan_destroy(struct cuda_backend *b, struct cudnn_plan *p) {}
static enum status without_headers(struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "attention by cuDNN: built without its headers");
}
enum status cudnn_plan_run(struct cuda_backend *b, const struct cudnn_plan *p,
                           const struct forward *f, void *workspace, cudaStream_t stream,
                           struct err *e) {
    return without_headers(e);
}
enum status cudnn_plan_run_fp8_fwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                   const struct cudnn_fp8_call *c, void *workspace,
                                   cudaStream_t stream, struct err *e) {
    return without_headers(e);
}
enum status cudnn_plan_run_fp8_bwd(struct cuda_backend *b, const struct cudnn_plan *p,
                                   const struct cudnn_fp8_call *c, void *workspace,
                                   cudaStream_t stream, struct err *e) {
    return without_headers(e);
}
int64_t cudnn_version(struct cuda_backend *b) { return 0; }
void cudnn_last_error(struct cuda_backend *b, char *out, size_t size) { out[0] = 0; }
void cudnn_close(struct cuda_backend *b) {}

#endif
