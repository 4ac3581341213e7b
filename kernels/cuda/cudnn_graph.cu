/* The composite graphs of attention's forward: causal, grouped heads, of BF16 or of E4M3 codes.
 * NVIDIA describes the supported patterns in cudnn-frontend, scaled_dot_product_flash_attention and
 * sdpa_fp8. S x S tensors are virtual. */
#include "kernels/cuda/attention_cudnn.cuh"

#if __has_include(<cudnn_graph.h>)
#include "kernels/cuda/cudnn_graph.cuh"

enum { OPERATIONS_MAX = 40 };
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

/* ---- the graph ---- */

/* Shapes of one problem. kt is the transposed view of k, the right operand of the product. */
struct shapes { struct extent q, k, kt, o, o_packed, scores, row; };

static struct shapes shapes_of(const struct attention *a) {
    int64_t b = a->batch, t = a->length, h = a->heads, g = a->kv_heads, d = a->head_dim;
    int64_t row = h * d, width = a->width;
    struct shapes s;
    s.q = { { b, h, t, d }, { t * width, d, width, 1 } };
    s.k = { { b, g, t, d }, { t * width, d, width, 1 } };
    s.kt = swapped(s.k);
    s.o = { { b, h, t, d }, { t * row, d, row, 1 } };
    s.o_packed = packed(b, h, t, d);
    s.scores = packed(b, h, t, t);
    s.row = packed(b, h, t, 1);
    return s;
}

/* One f32 on the device. */
static node on_device(struct builder *w, int64_t id) {
    return tensor(w, id, packed(1, 1, 1, 1), CUDNN_DATA_FLOAT, false);
}
static node times(struct builder *w, node x, node factor, struct extent of) {
    return binary(w, CUDNN_POINTWISE_MUL, x, factor, hidden(w, of, CUDNN_DATA_FLOAT));
}

/* scale * q k^T, with keys after the query at minus infinity. */
static node masked_scores(struct builder *w, const struct shapes *s, node q, node kt, node scale,
                          bool fp8) {
    node x = matmul(w, q, kt, hidden(w, s->scores, CUDNN_DATA_FLOAT));
    x = times(w, x, scale, s->scores);
    if (fp8) x = times(w, x, on_device(w, ID_FACTOR_Q), s->scores);
    if (fp8) x = times(w, x, on_device(w, ID_FACTOR_K), s->scores);
    node row = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 2);
    node col = pointwise(w, CUDNN_POINTWISE_GEN_INDEX, x, NULL, NULL,
                         hidden(w, s->scores, CUDNN_DATA_INT32), CUDNN_DATA_FLOAT, 3);
    node seen = pointwise(w, CUDNN_POINTWISE_CMP_GE, row, col, NULL,
                          hidden(w, s->scores, CUDNN_DATA_BOOLEAN), CUDNN_DATA_BOOLEAN, 0);
    return pointwise(w, CUDNN_POINTWISE_BINARY_SELECT, x, scalar(w, ID_MINUS_INFINITY), seen,
                     hidden(w, s->scores, CUDNN_DATA_FLOAT), CUDNN_DATA_FLOAT, 0);
}

/* o <- the product of the codes of p, which is probabilities, and of v. */
static void rounded_product(struct builder *w, const struct shapes *s, node p, node v, node o) {
    node amax = on_device(w, ID_AMAX_P), o_amax = on_device(w, ID_AMAX_O);
    reduce(w, CUDNN_REDUCE_TENSOR_AMAX, p, amax);
    node codes = binary(w, CUDNN_POINTWISE_MUL, p, on_device(w, ID_MULTIPLIER_P),
                        hidden(w, s->scores, CUDNN_DATA_FP8_E4M3));
    node x = matmul(w, codes, v, hidden(w, s->o_packed, CUDNN_DATA_FLOAT));
    x = times(w, x, on_device(w, ID_FACTOR_P), s->o_packed);
    x = times(w, x, on_device(w, ID_FACTOR_V), s->o_packed);
    binary(w, CUDNN_POINTWISE_MUL, x, on_device(w, ID_MULTIPLIER_O), o);
    reduce(w, CUDNN_REDUCE_TENSOR_AMAX, x, o_amax);
}

static void forward_graph(struct builder *w, const struct shapes *s, bool fp8) {
    cudnnDataType_t f32 = CUDNN_DATA_FLOAT, bf16 = CUDNN_DATA_BFLOAT16;
    cudnnDataType_t in = fp8 ? CUDNN_DATA_FP8_E4M3 : bf16;
    node q = tensor(w, ID_Q, s->q, in, false), kt = tensor(w, ID_K, s->kt, in, false);
    node v = tensor(w, ID_V, s->k, in, false), o = tensor(w, ID_O, s->o, bf16, false);
    node stats = tensor(w, ID_STATS, s->row, f32, false), scale = scalar(w, ID_SCALE);
    node x = masked_scores(w, s, q, kt, scale, fp8);
    node top = reduce(w, CUDNN_REDUCE_TENSOR_MAX, x, hidden(w, s->row, f32));
    x = binary(w, CUDNN_POINTWISE_SUB, x, top, hidden(w, s->scores, f32));
    x = binary(w, CUDNN_POINTWISE_EXP, x, NULL, hidden(w, s->scores, f32));
    node sum = reduce(w, CUDNN_REDUCE_TENSOR_ADD, x, hidden(w, s->row, f32));
    node log = binary(w, CUDNN_POINTWISE_LOG, sum, NULL, hidden(w, s->row, f32));
    binary(w, CUDNN_POINTWISE_ADD, top, log, stats);
    node p = binary(w, CUDNN_POINTWISE_DIV, x, sum, hidden(w, s->scores, fp8 ? f32 : bf16));
    if (fp8) rounded_product(w, s, p, v, o);
    else matmul(w, p, v, o);
}

cudnn_node cudnn_attention_graph(const struct cudnn_functions *f, cudnnHandle_t handle,
                                 const struct attention *a, bool fp8, struct cudnn_nodes *owned,
                                 cudnnStatus_t *status) {
    struct builder w = {};
    w.f = f;
    w.owned = owned;
    w.next_id = ID_VIRTUAL;
    struct shapes s = shapes_of(a);
    forward_graph(&w, &s, fp8);
    node graph = make(&w, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&w, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, w.ops, w.op);
    set(&w, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(&w, graph);
    *status = w.status;
    return w.status == CUDNN_STATUS_SUCCESS ? graph : NULL;
}

#endif
