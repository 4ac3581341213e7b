/* Causal softmax of whole score matrices, the middle of unfused attention. Row r is query
 * i = r % T of its matrix; over the keys j = 0..i:
 *   x_j = s_j * factor,   m = max x_j,   e_j = exp(x_j - m),   p_j = e_j * (1 / sum16(e))
 *   ds_j = (p_j * (dp_j - sum16(p dp))) * factor
 * Later keys get +0. If the arithmetic follows a GPU, sums have the order of kernels/sum_order.h,
 * and exp is exactmath_fma.h's. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/lanes.h"
#include "kernels/exactmath_f32.h"
#include "kernels/exactmath_fma.h"

/* A NaN never becomes the maximum, but reaches the sum. */
CLONES static void row_forward(float *x, int64_t n, float factor,
                               const struct row_order *order) {
    float max = -INFINITY;
    for (int64_t j = 0; j < n; j++) x[j] = x[j] * factor;
    for (int64_t j = 0; j < n; j++) max = x[j] > max ? x[j] : max;
    if (order)
        for (int64_t j = 0; j < n; j++) x[j] = fma_expf(x[j] - max);
    else
        for (int64_t j = 0; j < n; j++) x[j] = exact_expf(x[j] - max);
    float inverse = 1.0f / row_sum(order, x, n);
    for (int64_t j = 0; j < n; j++) x[j] = x[j] * inverse;
}

CLONES static void row_backward(float *dp, const float *p, int64_t n, float factor,
                                const struct row_order *order) {
    float dot = row_dot(order, p, dp, n);
    for (int64_t j = 0; j < n; j++) dp[j] = (p[j] * (dp[j] - dot)) * factor;
}

/* x: [N,T,T] act, packed; its T fits the scratch of a thread `rows` times. */
static enum status check(const struct tensor *x, const char *what, int rows, struct err *e) {
    TRY(cpu_check_packed(x, what, IS_ACT, -1, -1, e));
    if (x->dim[1] != x->dim[2] || x->dim[3] != 1)
        return FAIL(e, ERR_ARG, "%s is [%lld, %lld, %lld, %lld], not [N, T, T]", what,
                    (long long)x->dim[0], (long long)x->dim[1], (long long)x->dim[2],
                    (long long)x->dim[3]);
    if (rows * x->dim[2] <= SCRATCH_FLOATS) return OK;
    return FAIL(e, ERR_ARG, "%s has rows of %lld keys, at most %d", what, (long long)x->dim[2],
                SCRATCH_FLOATS / rows);
}

static enum status check_like(const struct tensor *x, const char *what, const struct tensor *like,
                              struct err *e) {
    TRY(check(x, what, 1, e));
    if (x->dim[0] == like->dim[0] && x->dim[1] == like->dim[1] && x->dtype == like->dtype)
        return OK;
    return FAIL(e, ERR_ARG, "%s is %s [%lld, %lld, %lld]; the others are %s [%lld, %lld, %lld]",
                what, dtype_name(x->dtype), (long long)x->dim[0], (long long)x->dim[1],
                (long long)x->dim[2], dtype_name(like->dtype), (long long)like->dim[0],
                (long long)like->dim[1], (long long)like->dim[2]);
}

enum status cpu_softmax_fwd(struct backend *b, int lane, const struct tensor *p,
                            const struct tensor *s, float factor, struct err *e) {
    TRY(check(s, "softmax_fwd: s", 1, e));
    TRY(check_like(p, "softmax_fwd: p", s, e));
    int64_t length = s->dim[2], rows = s->dim[0] * length;
    struct row_order order = softmax_order(length % 8 == 0);
    const struct row_order *follow = cpu_follows(b) ? &order : NULL;
    #pragma omp parallel for schedule(static, 16) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *x = cpu_scratch(b, omp_get_thread_num());
        int64_t seen = r % length + 1;
        load_span(x, s, r * length, seen);
        row_forward(x, seen, factor, follow);
        memset(x + seen, 0, (size_t)(length - seen) * sizeof *x);
        store_span(p, r * length, x, length);
    }
    return OK;
}

enum status cpu_softmax_bwd(struct backend *b, int lane, const struct tensor *ds,
                            const struct tensor *p, const struct tensor *dp, float factor,
                            struct err *e) {
    TRY(check(p, "softmax_bwd: p", 2, e));
    TRY(check_like(dp, "softmax_bwd: dp", p, e));
    TRY(check_like(ds, "softmax_bwd: ds", p, e));
    int64_t length = p->dim[2], rows = p->dim[0] * length;
    struct row_order order = softmax_order(length % 8 == 0);
    const struct row_order *follow = cpu_follows(b) ? &order : NULL;
    #pragma omp parallel for schedule(static, 16) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *grad = cpu_scratch(b, omp_get_thread_num()), *weight = grad + length;
        int64_t seen = r % length + 1;
        load_span(grad, dp, r * length, seen);
        load_span(weight, p, r * length, seen);
        row_backward(grad, weight, seen, factor, follow);
        memset(grad + seen, 0, (size_t)(length - seen) * sizeof *grad);
        store_span(ds, r * length, grad, length);
    }
    return OK;
}
