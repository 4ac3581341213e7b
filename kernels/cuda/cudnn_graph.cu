/* The composite graphs of causal attention with grouped heads: the forward of BF16 and of E4M3
 * codes, the backward of codes. NVIDIA describes the supported patterns in cudnn-frontend 1.23:
 * scaled_dot_product_flash_attention.h, sdpa_fp8_bwd.h, matmul_fp8.h. S x S tensors are virtual. */
#include "kernels/cuda/attention_cudnn.cuh"

#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/cudnn_graph.cuh"

enum { OPERATIONS_MAX = 48 };
typedef cudnn_node node;

/* ---- building: the first failure is kept, and all later calls do nothing ---- */

struct builder {
    const struct cudnn_functions *f;
    struct cudnn_nodes *owned;
    node op[OPERATIONS_MAX];
    int ops;
    int64_t next_id; /* of virtual tensors */
    cudnnStatus_t status;
};

cudnn_node cudnn_make(const struct cudnn_functions *f, struct cudnn_nodes *owned,
                      cudnnBackendDescriptorType_t type, cudnnStatus_t *status) {
    node n = NULL;
    if (*status == CUDNN_STATUS_SUCCESS && owned->count == CUDNN_NODES_MAX)
        *status = CUDNN_STATUS_INTERNAL_ERROR;
    if (*status == CUDNN_STATUS_SUCCESS) *status = f->make(type, &n);
    if (*status == CUDNN_STATUS_SUCCESS) owned->node[owned->count++] = n;
    return *status == CUDNN_STATUS_SUCCESS ? n : NULL;
}

static node make(struct builder *w, cudnnBackendDescriptorType_t type) {
    return cudnn_make(w->f, w->owned, type, &w->status);
}
static void set(struct builder *w, node n, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    if (w->status == CUDNN_STATUS_SUCCESS) w->status = w->f->set(n, name, type, count, value);
}
static void set_node(struct builder *w, node n, cudnnBackendAttributeName_t name, node value) {
    set(w, n, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}
static void finalize(struct builder *w, node n) {
    if (w->status == CUDNN_STATUS_SUCCESS) w->status = w->f->finalize(n);
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
    if (w->ops == OPERATIONS_MAX) w->status = CUDNN_STATUS_INTERNAL_ERROR;
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

/* The same elements in the places and the type of y. */
static node reshape(struct builder *w, node x, node y) {
    node op = make(w, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_node(w, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(w, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(w, op);
    return y;
}

/* ---- parts of the graphs ---- */

static const cudnnDataType_t F32 = CUDNN_DATA_FLOAT, E4M3 = CUDNN_DATA_FP8_E4M3;

/* Shapes of one problem. The products' right operands are the transposed views of k and v. */
struct shapes { struct extent q, k, o, d_q, d_k, queries, keys, scores, row; };

static struct shapes shapes_of(const struct attention *a) {
    int64_t b = a->batch, t = a->length, h = a->heads, g = a->kv_heads, d = a->head_dim;
    int64_t row = h * d, width = a->width, out = (h + 2 * g) * d;
    struct shapes s;
    s.q = { { b, h, t, d }, { t * width, d, width, 1 } };
    s.k = { { b, g, t, d }, { t * width, d, width, 1 } };
    s.o = { { b, h, t, d }, { t * row, d, row, 1 } };
    s.d_q = { { b, h, t, d }, { t * out, d, out, 1 } };
    s.d_k = { { b, g, t, d }, { t * out, d, out, 1 } };
    s.queries = packed(b, h, t, d);
    s.keys = packed(b, g, t, d);
    s.scores = packed(b, h, t, t);
    s.row = packed(b, h, t, 1);
    return s;
}

/* One f32 on the device. */
static node on_device(struct builder *w, int64_t id) {
    return tensor(w, id, packed(1, 1, 1, 1), F32, false);
}
static node times(struct builder *w, node x, node factor, struct extent of) {
    return binary(w, CUDNN_POINTWISE_MUL, x, factor, hidden(w, of, F32));
}

/* What scores are made of; both factors are NULL in BF16. */
struct score_operands { node q, kt, scale, factor_q, factor_k; };

/* scale * q k^T, with keys after the query at minus infinity. */
static node masked_scores(struct builder *w, const struct shapes *s,
                          const struct score_operands *of) {
    node x = matmul(w, of->q, of->kt, hidden(w, s->scores, F32));
    x = times(w, x, of->scale, s->scores);
    if (of->factor_q) x = times(w, x, of->factor_q, s->scores);
    if (of->factor_k) x = times(w, x, of->factor_k, s->scores);
    node row = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), F32, 2);
    node col = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), F32, 3);
    node seen = pointwise(w, CUDNN_POINTWISE_CMP_GE, row, col, NULL,
                          hidden(w, s->scores, CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN, 0);
    return pointwise(w, CUDNN_POINTWISE_BINARY_SELECT, x, scalar(w, ID_MINUS_INFINITY), seen,
                     hidden(w, s->scores, F32), F32, 0);
}

/* Both operands of a product of codes, and their factors. */
struct code_operands { node a, b, factor_a, factor_b; };
/* Where its result goes: `full` is of all query heads, `of` of the heads that c has. */
struct code_result {
    struct extent full, of;
    node multiplier, c, amax;
};

/* c <- (a b * factor_a * factor_b) * multiplier; amax <- of the product before the multiplier. Over
 * the query heads of a key's head it is summed first. */
static void product_of_codes(struct builder *w, const struct code_operands *x,
                             const struct code_result *to) {
    node y = matmul(w, x->a, x->b, hidden(w, to->full, F32));
    if (to->full.dim[1] != to->of.dim[1])
        y = reduce(w, CUDNN_REDUCE_TENSOR_ADD, y, hidden(w, to->of, F32));
    y = times(w, y, x->factor_a, to->of);
    y = times(w, y, x->factor_b, to->of);
    binary(w, CUDNN_POINTWISE_MUL, y, to->multiplier, to->c);
    reduce(w, CUDNN_REDUCE_TENSOR_AMAX, y, to->amax);
}

/* ---- forward ---- */

static void forward_graph(struct builder *w, const struct shapes *s,
                          const struct cudnn_spec *spec) {
    bool fp8 = spec->pass == CUDNN_FP8_FORWARD;
    cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16, in = fp8 ? E4M3 : bf16;
    node q = tensor(w, ID_Q, s->q, in, false), kt = tensor(w, ID_K, swapped(s->k), in, false);
    node v = tensor(w, ID_V, s->k, in, false);
    node o = tensor(w, ID_O, s->o, spec->codes_out ? E4M3 : bf16, false);
    node stats = tensor(w, ID_STATS, s->row, F32, false);
    struct score_operands of = { q, kt, scalar(w, ID_SCALE), NULL, NULL };
    if (fp8) of.factor_q = on_device(w, ID_FACTOR_Q);
    if (fp8) of.factor_k = on_device(w, ID_FACTOR_K);
    node x = masked_scores(w, s, &of);
    node top = reduce(w, CUDNN_REDUCE_TENSOR_MAX, x, hidden(w, s->row, F32));
    x = binary(w, CUDNN_POINTWISE_SUB, x, top, hidden(w, s->scores, F32));
    x = binary(w, CUDNN_POINTWISE_EXP, x, NULL, hidden(w, s->scores, F32));
    node sum = reduce(w, CUDNN_REDUCE_TENSOR_ADD, x, hidden(w, s->row, F32));
    node log = binary(w, CUDNN_POINTWISE_LOG, sum, NULL, hidden(w, s->row, F32));
    binary(w, CUDNN_POINTWISE_ADD, top, log, stats);
    node p = binary(w, CUDNN_POINTWISE_DIV, x, sum, hidden(w, s->scores, fp8 ? F32 : bf16));
    if (!fp8) {
        matmul(w, p, v, o);
        return;
    }
    reduce(w, CUDNN_REDUCE_TENSOR_AMAX, p, on_device(w, ID_AMAX_P));
    p = binary(w, CUDNN_POINTWISE_MUL, p, on_device(w, ID_MULTIPLIER_P),
               hidden(w, s->scores, E4M3));
    const struct code_operands pv = { p, v, on_device(w, ID_FACTOR_P), on_device(w, ID_FACTOR_V) };
    const struct code_result to = { s->queries, s->queries, on_device(w, ID_MULTIPLIER_O), o,
                                    on_device(w, ID_AMAX_O) };
    product_of_codes(w, &pv, &to);
}

/* ---- backward ---- */

/* delta = the sum over D of d_o * o. */
static node delta_of(struct builder *w, const struct shapes *s, node d_o, node factor_d_o, node o) {
    node x = binary(w, CUDNN_POINTWISE_MUL, d_o, o, hidden(w, s->queries, F32));
    x = reduce(w, CUDNN_REDUCE_TENSOR_ADD, x, hidden(w, s->row, F32));
    x = times(w, x, factor_d_o, s->row);
    return times(w, x, on_device(w, ID_FACTOR_O), s->row);
}

/* A gradient of one of qkv's parts. */
static struct code_result gradient(struct builder *w, const struct shapes *s, int64_t id,
                                   struct extent place, struct extent of, cudnnDataType_t type) {
    int64_t part = id - ID_D_Q;
    struct code_result to = { s->queries, of, on_device(w, ID_MULTIPLIER_D_Q + part),
                              tensor(w, id, place, type, false),
                              on_device(w, ID_AMAX_D_Q + part) };
    return to;
}

/* From the codes of P, then of dS; the maximum is of dS, as the operator defines it. */
static void backward_graph(struct builder *w, const struct shapes *s,
                           const struct cudnn_spec *spec) {
    cudnnDataType_t bf16 = CUDNN_DATA_BFLOAT16;
    cudnnDataType_t d_type = spec->gradient_e5m2 ? CUDNN_DATA_FP8_E5M2 : E4M3;
    cudnnDataType_t out = spec->codes_out ? d_type : bf16;
    struct extent transposed = swapped(s->scores);
    node q = tensor(w, ID_Q, s->q, E4M3, false), kt = tensor(w, ID_K, swapped(s->k), E4M3, false);
    node vt = tensor(w, ID_V, swapped(s->k), E4M3, false);
    node o = tensor(w, ID_O, s->o, spec->o_codes ? E4M3 : bf16, false);
    node d_o = tensor(w, ID_D_O, s->o, d_type, false);
    node stats = tensor(w, ID_STATS, s->row, F32, false);
    node factor_d_o = on_device(w, ID_FACTOR_D_O), factor_ds = on_device(w, ID_FACTOR_DS);
    const struct score_operands of = { q, kt, scalar(w, ID_SCALE), on_device(w, ID_FACTOR_Q),
                                       on_device(w, ID_FACTOR_K) };
    node delta = delta_of(w, s, d_o, factor_d_o, o);

    node x = masked_scores(w, s, &of);
    x = binary(w, CUDNN_POINTWISE_SUB, x, stats, hidden(w, s->scores, F32));
    node p = binary(w, CUDNN_POINTWISE_EXP, x, NULL, hidden(w, s->scores, F32));
    node codes = binary(w, CUDNN_POINTWISE_MUL, p, on_device(w, ID_MULTIPLIER_P),
                        hidden(w, s->scores, E4M3));
    codes = reshape(w, codes, hidden(w, transposed, E4M3));
    const struct code_operands dv = { codes, d_o, on_device(w, ID_FACTOR_P), factor_d_o };
    const struct code_result to_dv = gradient(w, s, ID_D_V, s->d_k, s->keys, out);
    product_of_codes(w, &dv, &to_dv);

    x = matmul(w, d_o, vt, hidden(w, s->scores, F32));
    x = times(w, x, factor_d_o, s->scores);
    x = times(w, x, on_device(w, ID_FACTOR_V), s->scores);
    x = binary(w, CUDNN_POINTWISE_SUB, x, delta, hidden(w, s->scores, F32));
    x = times(w, x, p, s->scores);
    x = times(w, x, of.scale, s->scores);
    reduce(w, CUDNN_REDUCE_TENSOR_AMAX, x, on_device(w, ID_AMAX_DS));
    codes = binary(w, CUDNN_POINTWISE_MUL, x, on_device(w, ID_MULTIPLIER_DS),
                   hidden(w, s->scores, d_type));
    node k = reshape(w, kt, hidden(w, s->k, E4M3));
    const struct code_operands dq = { codes, k, factor_ds, of.factor_k };
    const struct code_result to_dq = gradient(w, s, ID_D_Q, s->d_q, s->queries, out);
    product_of_codes(w, &dq, &to_dq);
    codes = reshape(w, codes, hidden(w, transposed, d_type));
    const struct code_operands dk = { codes, q, factor_ds, of.factor_q };
    const struct code_result to_dk = gradient(w, s, ID_D_K, s->d_k, s->keys, out);
    product_of_codes(w, &dk, &to_dk);
}

cudnn_node cudnn_attention_graph(const struct cudnn_functions *f, cudnnHandle_t handle,
                                 const struct attention *a, const struct cudnn_spec *spec,
                                 struct cudnn_nodes *owned, cudnnStatus_t *status) {
    struct builder w = {};
    w.f = f;
    w.owned = owned;
    w.next_id = ID_VIRTUAL;
    struct shapes s = shapes_of(a);
    if (spec->pass == CUDNN_FP8_BACKWARD) backward_graph(&w, &s, spec);
    else forward_graph(&w, &s, spec);
    node graph = make(&w, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&w, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, w.ops, w.op);
    if (handle)
        set(&w, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(&w, graph);
    *status = w.status;
    return w.status == CUDNN_STATUS_SUCCESS ? graph : NULL;
}

/* ---- a configuration ---- */

enum { KNOBS_MAX = 6, BACKWARD_ENGINE = 5, VERSION_KNOBS = 92300 /* other knobs from here on */ };
struct knob { cudnnBackendKnobType_t type; int64_t value; };

static int backward_knobs(size_t version, struct knob out[KNOBS_MAX]) {
    static const struct knob OLD[] = { { CUDNN_KNOB_TYPE_KERNEL_CFG, 31 },
                                       { CUDNN_KNOB_TYPE_STAGES, 2 } };
    static const struct knob NEW[KNOBS_MAX] = {
        { CUDNN_KNOB_TYPE_TILE_M, 3 },   { CUDNN_KNOB_TYPE_TILE_N, 2 },
        { CUDNN_KNOB_TYPE_KERNEL_CFG, 2 }, { CUDNN_KNOB_TYPE_STREAM_K, 0 },
        { CUDNN_KNOB_TYPE_TILE_CGA_M, 0 }, { CUDNN_KNOB_TYPE_STAGES, 2 },
    };
    bool old = version < VERSION_KNOBS;
    int count = old ? (int)(sizeof OLD / sizeof *OLD) : KNOBS_MAX;
    for (int i = 0; i < count; i++) out[i] = old ? OLD[i] : NEW[i];
    return count;
}

cudnn_node cudnn_backward_config(const struct cudnn_functions *f, cudnn_node graph,
                                 cudnn_node device, struct cudnn_nodes *owned,
                                 cudnnStatus_t *status) {
    struct builder w = {};
    struct knob knob[KNOBS_MAX];
    node choice[KNOBS_MAX];
    int64_t number = BACKWARD_ENGINE;
    int knobs = backward_knobs(f->version(), knob);
    w.f = f;
    w.owned = owned;
    node engine = make(&w, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    set_node(&w, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
    set(&w, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    if (device) set_node(&w, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, device);
    finalize(&w, engine);
    for (int i = 0; i < knobs; i++) {
        choice[i] = make(&w, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
        set(&w, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
            &knob[i].type);
        set(&w, choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob[i].value);
        finalize(&w, choice[i]);
    }
    node config = make(&w, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_node(&w, config, CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    set(&w, config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs,
        choice);
    finalize(&w, config);
    *status = w.status;
    return w.status == CUDNN_STATUS_SUCCESS ? config : NULL;
}

#endif
