/* Attention's forward by cuDNN: plans by shape, built once. Its deterministic backward keeps score
 * gradients in memory, 2 bytes for each head, query and key, and is not used. */
#include "kernels/cuda/attention_cudnn.cuh"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/cudnn_graph.cuh"

enum {
    PLANS_MAX = 32,
    CONFIGS_MAX = 16,
    LENGTH_MIN = 256,      /* shorter sequences are our own kernels': nothing to gain */
    VERSION_MIN = 91100,   /* 9.10 computes attention wrongly */
    VERSION_TAILS = 91501, /* before it, lengths that 128 does not divide fail in graphs */
};

/* A finalised plan and everything it was made of, which must outlive it. */
struct plan {
    int64_t batch, length;
    int heads, kv_heads, head_dim;
    bool usable;
    bool built;               /* false: the choice table names it, nobody has used it yet */
    int32_t config, engine;   /* what it is: place in the heuristic's list, engine's global index */
    bool given;               /* config and engine are the choice table's, and no other will do */
    cudnn_node execution;
    int64_t workspace_bytes;
    struct cudnn_nodes owned;
};

struct cudnn_library {
    void *so;
    cudnnHandle_t handle;
    struct cudnn_functions f;
    struct plan plan[PLANS_MAX];
    int plans;
};

/* ---- plans ---- */

/* An engine that may add in another order in every run is not for us. *index: its number. */
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

/* The plan of one engine configuration, if it is one for us: the first that can be built stays. */
static void try_config(struct cudnn_library *lib, struct plan *p, cudnn_node config,
                       int32_t place) {
    int32_t engine;
    if (p->usable || !is_deterministic(lib, config, &engine)) return;
    if (p->given && (p->config != place || p->engine != engine)) return;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node execution = cudnn_make(&lib->f, &p->owned,
                                      CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &status);
    int64_t count = 0;
    p->usable = status == CUDNN_STATUS_SUCCESS &&
                lib->f.set(execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == CUDNN_STATUS_SUCCESS &&
                lib->f.set(execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                           &lib->handle) == CUDNN_STATUS_SUCCESS &&
                lib->f.finalize(execution) == CUDNN_STATUS_SUCCESS &&
                lib->f.get(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                           &count, &p->workspace_bytes) == CUDNN_STATUS_SUCCESS;
    if (!p->usable) return;
    p->execution = execution;
    p->config = place;
    p->engine = engine;
}

static void build(struct cudnn_library *lib, struct plan *p, const struct attention *a) {
    const struct cudnn_functions *f = &lib->f;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    cudnn_node graph = cudnn_attention_graph(f, lib->handle, a, &p->owned, &status);
    cudnn_node heuristic = cudnn_make(f, &p->owned, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &status);
    cudnn_node config[CONFIGS_MAX];
    for (int i = 0; i < CONFIGS_MAX; i++)
        config[i] = cudnn_make(f, &p->owned, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &status);
    if (status != CUDNN_STATUS_SUCCESS) return;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t count = 0;
    if (f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &graph) != CUDNN_STATUS_SUCCESS ||
        f->set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) !=
            CUDNN_STATUS_SUCCESS ||
        f->finalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        f->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX,
               &count, config) != CUDNN_STATUS_SUCCESS)
        return;
    for (int64_t i = 0; i < count && i < CONFIGS_MAX; i++)
        try_config(lib, p, config[i], (int32_t)i);
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

/* Opens cuDNN once; a library that cannot be used stays closed for this backend. */
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

void cudnn_attention_close(struct cuda_backend *b) {
    struct cudnn_library *lib = b->cudnn;
    if (!lib) return;
    for (int i = 0; i < lib->plans; i++)
        for (int j = lib->plan[i].owned.count - 1; j >= 0; j--)
            lib->f.drop(lib->plan[i].owned.node[j]);
    if (lib->handle) lib->f.destroy(lib->handle);
    if (lib->so) dlclose(lib->so);
    free(lib);
    b->cudnn = NULL;
}

static bool plan_is_of(const struct plan *p, const struct attention *a) {
    return p->batch == a->batch && p->length == a->length && p->heads == a->heads &&
           p->kv_heads == a->kv_heads && p->head_dim == a->head_dim;
}

/* The plan of the shape, built on first use; NULL where there is no room for one or no time. */
static struct plan *plan_of(struct cuda_backend *b, struct cudnn_library *lib,
                            const struct attention *a) {
    int i = 0;
    while (i < lib->plans && !plan_is_of(&lib->plan[i], a)) i++;
    struct plan *p = &lib->plan[i];
    if (i < lib->plans && p->built) return p;
    if (i == PLANS_MAX || b->capture) return NULL;
    if (i == lib->plans) {
        lib->plans++;
        p->batch = a->batch;
        p->length = a->length;
        p->heads = a->heads;
        p->kv_heads = a->kv_heads;
        p->head_dim = a->head_dim;
    }
    build(lib, p, a);
    p->built = true;
    return p;
}

/* ---- the choice table: its sixth integer says backward, 1 in tables from before it was ours -- */

int64_t cudnn_version(struct cuda_backend *b) {
    struct cudnn_library *lib = library_of(b);
    return lib ? (int64_t)lib->f.version() : 0;
}

int64_t cudnn_choices(const struct cuda_backend *b) { return b->cudnn ? b->cudnn->plans : 0; }

void cudnn_choices_write(const struct cuda_backend *b, FILE *out) {
    if (cudnn_choices(b))
        fputs("# attention batch length heads kv_heads head_dim backward : place and engine of "
              "cuDNN's plan, i32 each\n", out);
    for (int i = 0; i < cudnn_choices(b); i++) {
        const struct plan *p = &b->cudnn->plan[i];
        struct choice c = {};
        snprintf(c.kind, sizeof c.kind, "attention");
        const int64_t key[] = { p->batch, p->length, p->heads, p->kv_heads, p->head_dim, 0 };
        c.keys = sizeof key / sizeof *key;
        memcpy(c.key, key, sizeof key);
        const int32_t value[2] = { p->config, p->engine };
        c.bytes = p->usable || !p->built ? (int)sizeof value : 0;
        memcpy(c.value, value, (size_t)c.bytes);
        choices_put(out, &c);
    }
}

enum status cudnn_choice_take(struct cuda_backend *b, const struct choice *c, struct err *e) {
    struct cudnn_library *lib = library_of(b);
    int32_t value[2];
    if (c->keys != 6 || (c->bytes && c->bytes != (int)sizeof value) || !lib ||
        lib->plans == PLANS_MAX)
        return FAIL(e, ERR_CONFIG,
                    "an attention of the choice table has %d integers and %d bytes%s",
                    c->keys, c->bytes, lib ? "" : ", and there is no cuDNN");
    if (c->key[5] != 0)
        return FAIL(e, ERR_CONFIG, "the choice table names a plan of cuDNN for attention's "
                    "backward, which is always our own: measure anew, without this table");
    struct plan *p = &lib->plan[lib->plans++];
    p->batch = c->key[0];
    p->length = c->key[1];
    p->heads = (int)c->key[2];
    p->kv_heads = (int)c->key[3];
    p->head_dim = (int)c->key[4];
    p->given = c->bytes > 0;
    p->built = !p->given; /* none: our own kernels */
    memcpy(value, c->value, (size_t)c->bytes);
    p->config = p->given ? value[0] : 0;
    p->engine = p->given ? value[1] : 0;
    return OK;
}

/* ---- a call ---- */

static cudnnStatus_t execute(struct cudnn_library *lib, const struct plan *p, void *workspace,
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

static cudnnStatus_t run(struct cudnn_library *lib, const struct plan *p, const struct forward *f,
                         void *workspace) {
    const struct attention *a = &f->a;
    bf16_bits *q = (bf16_bits *)a->qkv, *k = q + (int64_t)a->heads * a->head_dim;
    bf16_bits *v = k + (int64_t)a->kv_heads * a->head_dim;
    float scale = a->scale, minus_infinity = -INFINITY;
    const int64_t id[] = { ID_Q, ID_K, ID_V, ID_STATS, ID_SCALE, ID_MINUS_INFINITY, ID_O };
    void *const data[] = { q, k, v, f->lse, &scale, &minus_infinity, f->o };
    return execute(lib, p, workspace, id, data, sizeof data / sizeof *data);
}

enum status cudnn_attention_fwd(struct cuda_backend *b, int lane, const struct forward *f,
                                bool *done, struct err *e) {
    const struct attention *a = &f->a;
    *done = false;
    if (a->length < LENGTH_MIN || (b->caps != 90 && b->caps != 100) || a->head_dim < 64) return OK;
    struct cudnn_library *lib = library_of(b);
    if (lib && a->length % 128 && lib->f.version() < VERSION_TAILS) return OK;
    struct plan *p = lib ? plan_of(b, lib, a) : NULL;
    if (p && p->given && !p->usable)
        return FAIL(e, ERR_DEVICE,
                    "attention: the choice table's plan %d with engine %d is not what "
                    "this cuDNN offers", p->config, p->engine);
    if (!p || !p->usable) return OK;
    void *workspace;
    TRY(cuda_scratch(&b->base, lane, SCRATCH_ATTENTION, max_i64(p->workspace_bytes, 1), &workspace,
                     e));
    cudnnStatus_t status = lib->f.set_stream(lib->handle, b->lane[lane]);
    if (status == CUDNN_STATUS_SUCCESS) status = run(lib, p, f, workspace);
    if (status != CUDNN_STATUS_SUCCESS)
        return FAIL(e, ERR_DEVICE, "attention by cuDNN: status %d", (int)status);
    *done = true;
    return OK;
}

#else /* built without cuDNN's headers: our own kernels serve every call */

enum status cudnn_attention_fwd(struct cuda_backend *b, int lane, const struct forward *f,
                                bool *done, struct err *e) {
    *done = false;
    return OK;
}
void cudnn_attention_close(struct cuda_backend *b) {}
int64_t cudnn_version(struct cuda_backend *b) { return 0; }
int64_t cudnn_choices(const struct cuda_backend *b) { return 0; }
void cudnn_choices_write(const struct cuda_backend *b, FILE *out) {}
enum status cudnn_choice_take(struct cuda_backend *b, const struct choice *c, struct err *e) {
    return FAIL(e, ERR_CONFIG, "the choice table has an attention of cuDNN, which is not there");
}

#endif
