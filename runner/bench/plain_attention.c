#include "runner/bench/plain_attention.h"

#include <math.h>
#include <stdio.h>

/* ---- memory -----------------------------------------------------------------------------------*/

static int64_t scores(const struct attention_shape *s) {
    return s->batch * s->heads * s->seq_len * s->seq_len * dtype_bytes(s->act);
}

int64_t plain_attention_bytes(const struct attention_shape *s) {
    return scores(s) * (s->backward ? 2 : 1);
}

/* The log of each row's sum; backward also each row's sum of d_o * o. */
int64_t fused_attention_bytes(const struct attention_shape *s) {
    return s->batch * s->heads * s->seq_len * 4 * (s->backward ? 2 : 1);
}

int64_t plain_attention_all_bytes(const struct attention_shape *s) {
    int64_t operands = s->batch * (2 * s->heads + 2 * s->kv_heads) * s->seq_len * s->head_dim *
                       dtype_bytes(s->act);
    return plain_attention_bytes(s) + operands * (s->backward ? 2 : 1);
}

enum status plain_attention_make(struct bench_memory *m, const struct attention_shape *s,
                                 struct plain_attention *out, struct err *e) {
    int64_t n = s->batch * s->heads, T = s->seq_len, D = s->head_dim;
    *out = (struct plain_attention){ .b = m->b, .shape = *s };
    struct { struct tensor *x; int64_t heads; bool backward; } operand[] = {
        { &out->q, s->heads, false }, { &out->k, s->kv_heads, false },
        { &out->v, s->kv_heads, false }, { &out->o, s->heads, false },
        { &out->d_q, s->heads, true }, { &out->d_k, s->kv_heads, true },
        { &out->d_v, s->kv_heads, true }, { &out->d_o, s->heads, true },
    };
    for (size_t i = 0; i < sizeof operand / sizeof *operand; i++)
        if (!operand[i].backward || s->backward)
            TRY(bench_tensor(m, operand[i].x, s->act, s->batch, operand[i].heads, T, D, e));
    TRY(bench_tensor(m, &out->p, s->act, n, T, T, 1, e));
    return s->backward ? bench_tensor(m, &out->d_p, s->act, n, T, T, 1, e) : OK;
}

/* ---- views ------------------------------------------------------------------------------------*/

/* Matrix number i of x: [T,D] of an operand, [T,T] of p. */
static struct tensor matrix(const struct tensor *x, int64_t i) {
    bool square = x->dim[3] == 1;
    int64_t rows = square ? x->dim[1] : x->dim[2], cols = square ? x->dim[2] : x->dim[3];
    char *at = (char *)x->data + i * rows * cols * dtype_bytes(x->dtype);
    return tensor_2d(at, x->dtype, rows, cols);
}

static struct tensor transposed(const struct tensor *x, int64_t i) {
    struct tensor m = matrix(x, i), t = m;
    t.dim[0] = m.dim[1]; t.dim[1] = m.dim[0];
    t.stride[0] = m.stride[1]; t.stride[1] = m.stride[0];
    return t;
}

/* The key and value head that head h of sequence i reads. */
static int64_t group_of(const struct attention_shape *s, int64_t n) {
    int64_t i = n / s->heads, h = n % s->heads;
    return i * s->kv_heads + h * s->kv_heads / s->heads;
}

/* out = a b^T, or out += a b^T */
static enum status product(struct backend *b, struct tensor out, struct tensor a, struct tensor k,
                           bool adds, enum gemm_direction direction, struct err *e) {
    const struct matmul_args args = { .out = &out, .a = &a, .b = &k, .beta = adds ? 1.0f : 0.0f,
                                      .direction = direction };
    return b->ops->matmul(b, LANE_COMPUTE, &args, e);
}

/* ---- the two passes ---------------------------------------------------------------------------*/

static float factor_of(const struct attention_shape *s) {
    return 1.0f / sqrtf((float)s->head_dim);
}

/* p = softmax(q k^T / sqrt(D)),  o = p v */
enum status plain_attention_forward(void *context, struct err *e) {
    struct plain_attention *a = context;
    const struct attention_shape *s = &a->shape;
    int64_t count = s->batch * s->heads;
    for (int64_t n = 0; n < count; n++)
        TRY(product(a->b, matrix(&a->p, n), matrix(&a->q, n), matrix(&a->k, group_of(s, n)), false,
                    GEMM_FPROP, e));
    TRY(a->b->ops->softmax_fwd(a->b, LANE_COMPUTE, &a->p, &a->p, factor_of(s), e));
    for (int64_t n = 0; n < count; n++)
        TRY(product(a->b, matrix(&a->o, n), matrix(&a->p, n), transposed(&a->v, group_of(s, n)),
                    false, GEMM_FPROP, e));
    return OK;
}

/* d_v = p^T d_o,  d_p = d_o v^T,  d_s = softmax's gradient,  d_q = d_s k,  d_k = d_s^T q. The heads
 * of a group add to the same d_k and d_v. */
enum status plain_attention_backward(void *context, struct err *e) {
    struct plain_attention *a = context;
    const struct attention_shape *s = &a->shape;
    int64_t count = s->batch * s->heads;
    for (int64_t n = 0; n < count; n++) {
        int64_t g = group_of(s, n);
        bool adds = n > 0 && group_of(s, n - 1) == g;
        TRY(product(a->b, matrix(&a->d_v, g), transposed(&a->p, n), transposed(&a->d_o, n), adds,
                    GEMM_WGRAD, e));
        TRY(product(a->b, matrix(&a->d_p, n), matrix(&a->d_o, n), matrix(&a->v, g), false,
                    GEMM_DGRAD, e));
    }
    TRY(a->b->ops->softmax_bwd(a->b, LANE_COMPUTE, &a->d_p, &a->p, &a->d_p, factor_of(s), e));
    for (int64_t n = 0; n < count; n++) {
        int64_t g = group_of(s, n);
        bool adds = n > 0 && group_of(s, n - 1) == g;
        TRY(product(a->b, matrix(&a->d_q, n), matrix(&a->d_p, n), transposed(&a->k, g), false,
                    GEMM_DGRAD, e));
        TRY(product(a->b, matrix(&a->d_k, g), transposed(&a->d_p, n), transposed(&a->q, n), adds,
                    GEMM_WGRAD, e));
    }
    return OK;
}

/* ---- its time ---------------------------------------------------------------------------------*/

static enum status measure(struct plain_attention *plain, const struct attention_shape *s,
                           const struct bench_effort *effort, struct bench_time *out,
                           struct err *e) {
    TRY(plain_attention_forward(plain, e)); /* backward reads its p */
    return bench_measure(plain->b, effort,
                         s->backward ? plain_attention_backward : plain_attention_forward, plain,
                         out, e);
}

enum status plain_attention_measure(struct backend *b, const struct attention_shape *s,
                                    const struct bench_effort *effort, int64_t have,
                                    struct attention_version *out, struct err *e) {
    struct bench_memory m = { .b = b };
    struct plain_attention plain;
    int64_t needs = plain_attention_all_bytes(s);
    *out = (struct attention_version){ .bytes = plain_attention_bytes(s) };
    if (have >= 0 && needs > have / 10 * 9) {
        snprintf(out->why, sizeof out->why, "it needs %.2f GiB, %.2f GiB are free",
                 (double)needs / 0x1p30, (double)have / 0x1p30);
        return OK;
    }
    enum status st = plain_attention_make(&m, s, &plain, e);
    if (st == OK) st = measure(&plain, s, effort, &out->time, e);
    bench_free(&m);
    if (st != ERR_UNSUPPORTED && st != ERR_MEMORY) return st;
    snprintf(out->why, sizeof out->why, "%.200s", e->text);
    return OK;
}
