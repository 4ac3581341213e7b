/* The composite attention graphs of cuDNN's C backend: causal, grouped heads, BF16, deterministic.
 * What stands in them is in NVIDIA's description of the supported patterns (cudnn-frontend,
 * scaled_dot_product_flash_attention). S x S tensors are virtual, but for one: the deterministic
 * backward keeps the score gradients in its workspace, 2 bytes for each head, query and key. */
#include "kernels/cuda/attention_cudnn.cuh"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

enum {
    DESCRIPTORS_MAX = 160, /* of one plan */
    NODES_MAX = 40,
    PLANS_MAX = 32,
    CONFIGS_MAX = 16,
    LENGTH_MIN = 256,      /* shorter sequences are our own kernels': nothing to gain */
    VERSION_MIN = 91100,   /* 9.10 computes attention wrongly */
    VERSION_TAILS = 91501, /* before it, lengths that 128 does not divide fail in graphs */
};

typedef cudnnBackendDescriptor_t node;

struct cudnn_functions {
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnGetVersion) version;
    decltype(&cudnnBackendCreateDescriptor) make;
    decltype(&cudnnBackendDestroyDescriptor) drop;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendSetAttribute) set;
    decltype(&cudnnBackendGetAttribute) get;
    decltype(&cudnnBackendExecute) execute;
};

/* A finalised plan and everything it was made of, which must outlive it. */
struct plan {
    int64_t batch, length;
    int heads, kv_heads, head_dim;
    bool backward, usable;
    bool built;               /* false: the choice table names it, nobody has used it yet */
    int32_t config, engine;   /* what it is: place in the heuristic's list, engine's global index */
    bool given;               /* config and engine are the choice table's, and no other will do */
    node execution;
    int64_t workspace_bytes;
    node owned[DESCRIPTORS_MAX];
    int count;
};

struct cudnn_library {
    void *so;
    cudnnHandle_t handle;
    struct cudnn_functions f;
    struct plan plan[PLANS_MAX];
    int plans;
};

/* ---- building: the first failure is kept, everything after it does nothing ---- */

struct builder {
    struct cudnn_library *lib;
    struct plan *plan;
    node op[NODES_MAX];
    int ops;
    int64_t next_id; /* of virtual tensors */
    cudnnStatus_t status;
};

/* Identities of what a call passes in. */
enum { ID_Q = 1, ID_K, ID_V, ID_O, ID_STATS, ID_DO, ID_DQ, ID_DK, ID_DV, ID_DELTA, ID_SCALE,
       ID_MINUS_INFINITY, ID_ONE, ID_VIRTUAL };

static node make(struct builder *w, cudnnBackendDescriptorType_t type) {
    node n = NULL;
    if (w->status != CUDNN_STATUS_SUCCESS) return NULL;
    if (w->plan->count == DESCRIPTORS_MAX) {
        w->status = CUDNN_STATUS_INTERNAL_ERROR;
        return NULL;
    }
    w->status = w->lib->f.make(type, &n);
    if (w->status == CUDNN_STATUS_SUCCESS) w->plan->owned[w->plan->count++] = n;
    return n;
}

static void set(struct builder *w, node n, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    if (w->status == CUDNN_STATUS_SUCCESS) w->status = w->lib->f.set(n, name, type, count, value);
}
static void set_node(struct builder *w, node n, cudnnBackendAttributeName_t name, node value) {
    set(w, n, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void finalize(struct builder *w, node n) {
    if (w->status == CUDNN_STATUS_SUCCESS) w->status = w->lib->f.finalize(n);
}

struct extent { int64_t dim[4], stride[4]; };

static struct extent packed(int64_t b, int64_t h, int64_t rows, int64_t cols) {
    struct extent x = { { b, h, rows, cols }, { h * rows * cols, rows * cols, cols, 1 } };
    return x;
}
static struct extent swapped(struct extent x) {
    struct extent y = { { x.dim[0], x.dim[1], x.dim[3], x.dim[2] },
                        { x.stride[0], x.stride[1], x.stride[3], x.stride[2] } };
    return y;
}

static node tensor(struct builder *w, int64_t id, struct extent x, cudnnDataType_t type,
                   bool by_value) {
    node n = make(w, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool is_virtual = id >= ID_VIRTUAL;
    int64_t align = 16;
    set(w, n, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(w, n, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(w, n, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, x.dim);
    set(w, n, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, x.stride);
    set(w, n, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    set(w, n, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) set(w, n, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finalize(w, n);
    return n;
}
static node hidden(struct builder *w, struct extent x, cudnnDataType_t type) {
    return tensor(w, w->next_id++, x, type, false);
}
static node scalar(struct builder *w, int64_t id) {
    return tensor(w, id, packed(1, 1, 1, 1), CUDNN_DATA_FLOAT, true);
}

static void add(struct builder *w, node op) {
    finalize(w, op);
    if (w->ops == NODES_MAX) w->status = CUDNN_STATUS_INTERNAL_ERROR;
    else w->op[w->ops++] = op;
}

/* y = mode(x, b, t); b and t may be NULL. axis is GEN_INDEX's. */
static node pointwise(struct builder *w, cudnnPointwiseMode_t mode, node x, node b, node t, node y,
                      cudnnDataType_t compute, int64_t axis) {
    node p = make(w, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(w, p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(w, p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(w, p, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(w, p);
    node op = make(w, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_node(w, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    set_node(w, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) set_node(w, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t) set_node(w, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_node(w, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(w, op);
    return y;
}
static node binary(struct builder *w, cudnnPointwiseMode_t mode, node x, node b, node y) {
    return pointwise(w, mode, x, b, NULL, y, CUDNN_DATA_FLOAT, 0);
}

static node matmul(struct builder *w, node a, node b, node c) {
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    node m = make(w, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(w, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(w, m);
    node op = make(w, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_node(w, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_node(w, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_node(w, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set_node(w, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    add(w, op);
    return c;
}

static node reduce(struct builder *w, cudnnReduceTensorOp_t mode, node x, node y) {
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    node r = make(w, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(w, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode);
    set(w, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    finalize(w, r);
    node op = make(w, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_node(w, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_node(w, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set_node(w, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    add(w, op);
    return y;
}

static node reshape(struct builder *w, node x, node y) {
    node op = make(w, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_node(w, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(w, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(w, op);
    return y;
}

/* ---- the two graphs ---- */

/* Shapes of one problem. kt and vt are the transposed views that products take as right operand. */
struct shapes { struct extent q, k, kt, vt, o, scores, row; };

static struct shapes shapes_of(const struct plan *p) {
    int64_t b = p->batch, t = p->length, h = p->heads, g = p->kv_heads, d = p->head_dim;
    int64_t width = (h + 2 * g) * d;
    struct shapes s;
    s.q = { { b, h, t, d }, { t * width, d, width, 1 } };
    s.k = { { b, g, t, d }, { t * width, d, width, 1 } };
    s.kt = s.vt = swapped(s.k);
    s.o = { { b, h, t, d }, { t * h * d, d, h * d, 1 } };
    s.scores = packed(b, h, t, t);
    s.row = packed(b, h, t, 1);
    return s;
}

/* scale * q k^T with later keys at minus infinity. */
static node masked_scores(struct builder *w, const struct shapes *s, node q, node kt, node scale) {
    node x = matmul(w, q, kt, hidden(w, s->scores, CUDNN_DATA_FLOAT));
    x = binary(w, CUDNN_POINTWISE_MUL, x, scale, hidden(w, s->scores, CUDNN_DATA_FLOAT));
    node row = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 2);
    node col = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 3);
    node seen = pointwise(w, CUDNN_POINTWISE_CMP_GE, row, col, NULL,
                          hidden(w, s->scores, CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN, 0);
    return pointwise(w, CUDNN_POINTWISE_BINARY_SELECT, x, scalar(w, ID_MINUS_INFINITY), seen,
                     hidden(w, s->scores, CUDNN_DATA_FLOAT), CUDNN_DATA_FLOAT, 0);
}

static void forward_graph(struct builder *w, const struct shapes *s) {
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT, bf16 = CUDNN_DATA_BFLOAT16;
    node q = tensor(w, ID_Q, s->q, bf16, false), kt = tensor(w, ID_K, s->kt, bf16, false);
    node v = tensor(w, ID_V, s->k, bf16, false), o = tensor(w, ID_O, s->o, bf16, false);
    node stats = tensor(w, ID_STATS, s->row, f32, false), scale = scalar(w, ID_SCALE);
    node x = masked_scores(w, s, q, kt, scale);
    node top = reduce(w, CUDNN_REDUCE_TENSOR_MAX, x, hidden(w, s->row, f32));
    x = binary(w, CUDNN_POINTWISE_SUB, x, top, hidden(w, s->scores, f32));
    x = binary(w, CUDNN_POINTWISE_EXP, x, NULL, hidden(w, s->scores, f32));
    node sum = reduce(w, CUDNN_REDUCE_TENSOR_ADD, x, hidden(w, s->row, f32));
    node log = binary(w, CUDNN_POINTWISE_LOG, sum, NULL, hidden(w, s->row, f32));
    binary(w, CUDNN_POINTWISE_ADD, top, log, stats);
    node p = binary(w, CUDNN_POINTWISE_DIV, x, sum, hidden(w, s->scores, bf16));
    matmul(w, p, v, o);
}

/* Into a gradient of keys or values: over all query heads, then summed over those that share. */
static void shared_head_gradient(struct builder *w, const struct plan *p, node x, node y,
                                 node out) {
    if (p->heads == p->kv_heads) {
        matmul(w, x, y, out);
        return;
    }
    node full = hidden(w, packed(p->batch, p->heads, p->length, p->head_dim), CUDNN_DATA_BFLOAT16);
    reduce(w, CUDNN_REDUCE_TENSOR_ADD, matmul(w, x, y, full), out);
}

static void backward_graph(struct builder *w, const struct shapes *s) {
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT, bf16 = CUDNN_DATA_BFLOAT16;
    struct extent turned = swapped(s->scores);
    struct extent product = { { s->o.dim[0], s->o.dim[1], s->o.dim[2], s->o.dim[3] },
                              { s->o.stride[0], s->o.dim[2] * s->o.dim[3], s->o.stride[2], 1 } };
    node q = tensor(w, ID_Q, s->q, bf16, false), kt = tensor(w, ID_K, s->kt, bf16, false);
    node vt = tensor(w, ID_V, s->vt, bf16, false), o = tensor(w, ID_O, s->o, bf16, false);
    node d_o = tensor(w, ID_DO, s->o, bf16, false), stats = tensor(w, ID_STATS, s->row, f32, false);
    node scale = scalar(w, ID_SCALE), delta = tensor(w, ID_DELTA, s->row, f32, false);
    node x = binary(w, CUDNN_POINTWISE_MUL, d_o, o, hidden(w, product, f32));
    x = reduce(w, CUDNN_REDUCE_TENSOR_ADD, x, hidden(w, s->row, f32));
    binary(w, CUDNN_POINTWISE_MUL, x, scalar(w, ID_ONE), delta);

    x = masked_scores(w, s, q, kt, scale);
    x = binary(w, CUDNN_POINTWISE_SUB, x, stats, hidden(w, s->scores, f32));
    node p = binary(w, CUDNN_POINTWISE_EXP, x, NULL, hidden(w, s->scores, f32));
    node p_turned = reshape(w, p, hidden(w, turned, bf16));
    shared_head_gradient(w, w->plan, p_turned, d_o, tensor(w, ID_DV, s->k, bf16, false));

    x = matmul(w, d_o, vt, hidden(w, s->scores, f32));
    x = binary(w, CUDNN_POINTWISE_SUB, x, delta, hidden(w, s->scores, f32));
    x = binary(w, CUDNN_POINTWISE_MUL, x, p, hidden(w, s->scores, f32));
    node ds = binary(w, CUDNN_POINTWISE_MUL, x, scale, hidden(w, s->scores, f32));
    node ds_turned = reshape(w, ds, hidden(w, turned, bf16));
    shared_head_gradient(w, w->plan, ds_turned, q, tensor(w, ID_DK, s->k, bf16, false));
    node k = reshape(w, kt, hidden(w, s->k, bf16));
    matmul(w, ds, k, tensor(w, ID_DQ, s->q, bf16, false));
}

/* ---- plans ---- */

/* An engine that may add in another order in every run is not for us. *index: its number. */
static bool is_deterministic(struct cudnn_library *lib, node config, int32_t *index) {
    node engine = NULL;
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

static void try_config(struct builder *w, node config, int32_t place) {
    struct plan *p = w->plan;
    int32_t engine;
    if (p->usable || !is_deterministic(w->lib, config, &engine)) return;
    if (p->given && (p->config != place || p->engine != engine)) return;
    node execution = make(w, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_node(w, execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    set(w, execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &w->lib->handle);
    finalize(w, execution);
    int64_t count = 0;
    if (w->status == CUDNN_STATUS_SUCCESS)
        w->status = w->lib->f.get(execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                  CUDNN_TYPE_INT64, 1, &count, &p->workspace_bytes);
    p->usable = w->status == CUDNN_STATUS_SUCCESS;
    if (p->usable) {
        p->execution = execution;
        p->config = place;
        p->engine = engine;
    }
    w->status = CUDNN_STATUS_SUCCESS; /* the next one may do */
}

static void build(struct builder *w) {
    struct plan *p = w->plan;
    struct shapes s = shapes_of(p);
    if (p->backward) backward_graph(w, &s);
    else forward_graph(w, &s);
    node graph = make(w, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(w, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, w->ops, w->op);
    set(w, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &w->lib->handle);
    finalize(w, graph);
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    node heuristic = make(w, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_node(w, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(w, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finalize(w, heuristic);
    node config[CONFIGS_MAX];
    int64_t count = 0;
    for (int i = 0; i < CONFIGS_MAX; i++) config[i] = make(w, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (w->status == CUDNN_STATUS_SUCCESS)
        w->status = w->lib->f.get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX, &count, config);
    if (w->status != CUDNN_STATUS_SUCCESS) return;
    for (int64_t i = 0; i < count && i < CONFIGS_MAX; i++)
        try_config(w, config[i], (int32_t)i);
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
        for (int j = lib->plan[i].count - 1; j >= 0; j--) lib->f.drop(lib->plan[i].owned[j]);
    if (lib->handle) lib->f.destroy(lib->handle);
    if (lib->so) dlclose(lib->so);
    free(lib);
    b->cudnn = NULL;
}

static bool plan_is_of(const struct plan *p, const struct attention *a, bool backward) {
    return p->batch == a->batch && p->length == a->length && p->heads == a->heads &&
           p->kv_heads == a->kv_heads && p->head_dim == a->head_dim && p->backward == backward;
}

/* The plan of the shape, built on first use; NULL where there is no room for one or no time. */
static struct plan *plan_of(struct cuda_backend *b, struct cudnn_library *lib,
                            const struct attention *a, bool backward) {
    int i = 0;
    while (i < lib->plans && !plan_is_of(&lib->plan[i], a, backward)) i++;
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
        p->backward = backward;
    }
    struct builder w = {};
    w.lib = lib;
    w.plan = p;
    w.next_id = ID_VIRTUAL;
    build(&w);
    p->built = true;
    return p;
}

/* ---- the choice table ---- */

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
        const int64_t key[] = { p->batch, p->length, p->heads, p->kv_heads, p->head_dim,
                                p->backward };
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
        return FAIL(e, ERR_CONFIG, "an attention of the choice table has %d integers and %d bytes%s",
                    c->keys, c->bytes, lib ? "" : ", and there is no cuDNN");
    struct plan *p = &lib->plan[lib->plans++];
    p->batch = c->key[0];
    p->length = c->key[1];
    p->heads = (int)c->key[2];
    p->kv_heads = (int)c->key[3];
    p->head_dim = (int)c->key[4];
    p->backward = c->key[5] != 0;
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
    node pack = NULL;
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

enum status cudnn_attention(struct cuda_backend *b, int lane, const struct attention *a,
                            const struct attention_data *d, bool backward, bool *done,
                            struct err *e) {
    *done = false;
    if (a->length < LENGTH_MIN || (b->caps != 90 && b->caps != 100) || a->head_dim < 64) return OK;
    struct cudnn_library *lib = library_of(b);
    if (lib && a->length % 128 && lib->f.version() < VERSION_TAILS) return OK;
    struct plan *p = lib ? plan_of(b, lib, a, backward) : NULL;
    if (p && p->given && !p->usable)
        return FAIL(e, ERR_DEVICE, "attention: the choice table's plan %d with engine %d is not what "
                    "this cuDNN offers", p->config, p->engine);
    if (!p || !p->usable) return OK;
    void *workspace;
    TRY(cuda_scratch(&b->base, lane, SCRATCH_ATTENTION, max_i64(p->workspace_bytes, 1), &workspace,
                     e));
    int64_t head = a->head_dim, k_at = a->heads * head, v_at = k_at + a->kv_heads * head;
    float scale = a->scale, minus_infinity = -INFINITY, one = 1.0f;
    bf16_bits *qkv = (bf16_bits *)a->qkv;
    int64_t id[16] = { ID_Q, ID_K, ID_V, ID_STATS, ID_SCALE, ID_MINUS_INFINITY, ID_O };
    void *data[16] = { qkv, qkv + k_at, qkv + v_at, d->lse, &scale, &minus_infinity,
                       backward ? (void *)d->o_in : (void *)d->o };
    int64_t count = 7;
    if (backward) {
        const int64_t more[] = { ID_DO, ID_DQ, ID_DK, ID_DV, ID_DELTA, ID_ONE };
        void *const of[] = { (void *)d->d_o, d->d_qkv, d->d_qkv + k_at, d->d_qkv + v_at, d->delta,
                             &one };
        for (int i = 0; i < 6; i++) {
            id[count] = more[i];
            data[count++] = of[i];
        }
    }
    cudnnStatus_t status = lib->f.set_stream(lib->handle, b->lane[lane]);
    if (status == CUDNN_STATUS_SUCCESS) status = execute(lib, p, workspace, id, data, count);
    if (status != CUDNN_STATUS_SUCCESS)
        return FAIL(e, ERR_DEVICE, "attention by cuDNN: status %d", (int)status);
    *done = true;
    return OK;
}

#else /* built without cuDNN's headers: our own kernels serve every call */

enum status cudnn_attention(struct cuda_backend *b, int lane, const struct attention *a,
                            const struct attention_data *d, bool backward, bool *done,
                            struct err *e) {
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
