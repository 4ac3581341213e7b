/* Attention's forward by cuDNN: the library and its plans. Its deterministic backward keeps score
 * gradients in memory, 2 bytes for each head, query and key, and is not used. */
#include "kernels/cuda/attention_cudnn.cuh"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/cudnn_graph.cuh"

enum {
    CONFIGS_MAX = 16,
    VERSION_MIN = 91100,   /* 9.10 computes attention wrongly */
    VERSION_TAILS = 91501, /* older: lengths that are no multiple of 128 fail in graphs */
};

struct cudnn_library {
    void *so;
    cudnnHandle_t handle;
    struct cudnn_functions f;
};

/* ---- plans ---- */

/* Engines that may add in another order in every run are not allowed. *index: its number. */
static bool is_deterministic(struct cudnn_library *lib, cudnn_node config, int32_t *index) {
    cudnn_node engine = NULL;
    if (lib->f.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
    int64_t count = 0, notes = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    bool known = lib->f.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                            &count, &engine) == CUDNN_STATUS_SUCCESS &&
                 lib->f.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &notes, note) == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; known && i < notes; i++)
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) known = false;
    int64_t number = -1;
    if (known)
        known = lib->f.get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count,
                           &number) == CUDNN_STATUS_SUCCESS;
    *index = (int32_t)number;
    lib->f.drop(engine);
    return known;
}

/* Finalises the plan of one engine configuration. False if the engine is not allowed, is not the
 * named one, or cannot be built. */
static bool try_config(struct cudnn_library *lib, struct cudnn_plan *p, cudnn_node config,
                       int32_t place, const struct cudnn_plan_name *name) {
    p->name.place = place;
    if (!is_deterministic(lib, config, &p->name.engine)) return false;
    if (name && !cudnn_same_plan(*name, p->name)) return false;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node execution = cudnn_make(&lib->f, p->owned, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                      &status);
    int64_t count = 0;
    p->execution = execution;
    return status == CUDNN_STATUS_SUCCESS &&
           lib->f.set(execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == CUDNN_STATUS_SUCCESS &&
           lib->f.set(execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                      &lib->handle) == CUDNN_STATUS_SUCCESS &&
           lib->f.finalize(execution) == CUDNN_STATUS_SUCCESS &&
           lib->f.get(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                      &count, &p->workspace_bytes) == CUDNN_STATUS_SUCCESS;
}

static bool build(struct cudnn_library *lib, struct cudnn_plan *p, const struct attention *a,
                  bool fp8, const struct cudnn_plan_name *name) {
    const struct cudnn_functions *f = &lib->f;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node graph = cudnn_attention_graph(f, lib->handle, a, fp8, p->owned, &status);
    cudnn_node heuristic = cudnn_make(f, p->owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &status);
    cudnn_node config[CONFIGS_MAX];
    for (int i = 0; i < CONFIGS_MAX; i++)
        config[i] = cudnn_make(f, p->owned, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &status);
    if (status != CUDNN_STATUS_SUCCESS) return false;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    if (f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &graph) != CUDNN_STATUS_SUCCESS ||
        f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) !=
            CUDNN_STATUS_SUCCESS ||
        f->finalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        f->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX,
               &count, config) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count && i < CONFIGS_MAX; i++)
        if (try_config(lib, p, config[i], (int32_t)i, name)) return true;
    return false;
}

/* ---- the library ---- */

static bool find_functions(struct cudnn_library *lib) {
    static const char *const NAME[] = {
        "cudnnCreate", "cudnnDestroy", "cudnnSetStream", "cudnnGetVersion",
        "cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendFinalize",
        "cudnnBackendSetAttribute", "cudnnBackendGetAttribute", "cudnnBackendExecute",
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

void cudnn_close(struct cuda_backend *b) {
    struct cudnn_library *lib = b->cudnn;
    if (!lib) return;
    if (lib->handle) lib->f.destroy(lib->handle);
    if (lib->so) dlclose(lib->so);
    free(lib);
    b->cudnn = NULL;
}

struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a, bool fp8,
                                     const struct cudnn_plan_name *name) {
    struct cudnn_library *lib = library_of(b);
    if (!lib || (a->length % 128 && lib->f.version() < VERSION_TAILS)) return NULL;
    struct cudnn_plan *p = (struct cudnn_plan *)calloc(1, sizeof *p + sizeof *p->owned);
    if (!p) return NULL;
    p->owned = (struct cudnn_nodes *)(p + 1);
    if (build(lib, p, a, fp8, name)) return p;
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
    return FAIL(e, ERR_DEVICE, "attention by cuDNN: status %d", (int)status);
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

enum status cudnn_plan_run_fp8(struct cuda_backend *b, const struct cudnn_plan *p,
                               const struct cudnn_fp8_forward *f, void *workspace,
                               cudaStream_t stream, struct err *e) {
    const struct attention *a = f->a;
    uint8_t *q = (uint8_t *)f->codes, *k = q + (int64_t)a->heads * a->head_dim;
    uint8_t *v = k + (int64_t)a->kv_heads * a->head_dim;
    float scale = a->scale, minus_infinity = -INFINITY;
    float *factor = (float *)f->factor, *p_factor = (float *)f->p_factor;
    float *multiplier = (float *)f->p_multiplier, *amax = f->scalars + CUDNN_FP8_P_AMAX;
    float *one = f->scalars + CUDNN_FP8_ONE, *o_amax = f->scalars + CUDNN_FP8_O_AMAX;
    const int64_t id[] = { ID_Q, ID_K, ID_V, ID_O, ID_STATS, ID_SCALE, ID_MINUS_INFINITY,
                           ID_FACTOR_Q, ID_FACTOR_K, ID_FACTOR_V, ID_FACTOR_P, ID_MULTIPLIER_P,
                           ID_AMAX_P, ID_MULTIPLIER_O, ID_AMAX_O };
    void *const data[] = { q, k, v, f->o, f->lse, &scale, &minus_infinity, factor, factor, factor,
                           p_factor, multiplier, amax, one, o_amax };
    static_assert(sizeof id / sizeof *id == sizeof data / sizeof *data, "one address for each");
    return run(b, p, workspace, stream, id, data, sizeof data / sizeof *data, e);
}

#else /* built without cuDNN's headers: our own kernels serve every call */

struct cudnn_plan *cudnn_plan_create(struct cuda_backend *b, const struct attention *a, bool fp8,
                                     const struct cudnn_plan_name *name) {
    return NULL;
}
void cudnn_plan_destroy(struct cuda_backend *b, struct cudnn_plan *p) {}
enum status cudnn_plan_run(struct cuda_backend *b, const struct cudnn_plan *p,
                           const struct forward *f, void *workspace, cudaStream_t stream,
                           struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "attention by cuDNN: built without its headers");
}
enum status cudnn_plan_run_fp8(struct cuda_backend *b, const struct cudnn_plan *p,
                               const struct cudnn_fp8_forward *f, void *workspace,
                               cudaStream_t stream, struct err *e) {
    return FAIL(e, ERR_UNSUPPORTED, "attention by cuDNN: built without its headers");
}
int64_t cudnn_version(struct cuda_backend *b) { return 0; }
void cudnn_close(struct cuda_backend *b) {}

#endif
