/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh.
 * Sums are those of lanes.h. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/norm.h"

CLONES static void forward_row(const struct tensor *y, const struct tensor *x, int64_t row,
                               const float *gain, float *buffer, float *rstd, float eps,
                               const struct row_order *order) {
    int64_t n = tensor_cols(x);
    load_row(buffer, x, row);
    float r = 1.0f / sqrtf(row_dot(order, buffer, buffer, n) / (float)n + eps);
    for (int64_t c = 0; c < n; c++) buffer[c] = (buffer[c] * r) * gain[c];
    store_row(y, row, buffer);
    *rstd = f32_canonical(r);
}

enum status cpu_rmsnorm_fwd(struct backend *b, int lane, const struct norm_fwd_args *args,
                            struct err *e) {
    const struct tensor *x = args->x, *gain = args->gain, *rstd = args->rstd;
    const struct sink *y = args->y;
    if (args->mean || args->bias)
        return FAIL(e, ERR_ARG, "rmsnorm_fwd: has neither mean nor bias");
    TRY(cpu_check(x, "rmsnorm_fwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    TRY(cpu_check(gain, "rmsnorm_fwd: gain", 1 << x->dtype, n, 1, e));
    TRY(cpu_check(rstd, "rmsnorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cpu_check_sink(y, "rmsnorm_fwd: y", rows, n, e));
    TRY(lanes_check(b, "rmsnorm_fwd", 0, 2 * n, e));
    struct tensor value = sink_rows(y, rows, n);
    struct row_order order = norm_fwd_order(n, rows_are_eights(n, x->stride[0]));
    const struct row_order *follow = cpu_follows(b) ? &order : NULL;
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *g = cpu_scratch(b, omp_get_thread_num()), *buffer = g + n;
        load_span(g, gain, 0, n);
        #pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
            forward_row(&value, x, r, g, buffer, (float *)rstd->data + r, args->eps,
                        follow);
    }
    cpu_sink_emit(b, y);
    return OK;
}

struct rmsnorm_grad {
    const struct tensor *dx, *dy, *x, *residual;
    const float *gain, *rstd;
    const struct row_order *order; /* NULL: the reference's */
    bool sums;                     /* of dx as well */
};

/* sums: [C] of d_gain, then those of dx. */
CLONES static void backward_row(const void *context, int64_t row, float *sums, float *buffer) {
    const struct rmsnorm_grad *a = context;
    int64_t n = tensor_cols(a->x);
    float *dy = buffer, *xh = buffer + n, *g = buffer + 2 * n;
    const float *gain = a->gain;
    float rstd = a->rstd[row];
    load_row(dy, a->dy, row);
    load_row(xh, a->x, row);
    for (int64_t c = 0; c < n; c++) {
        xh[c] = xh[c] * rstd;
        g[c] = dy[c] * gain[c];
        sums[c] = sums[c] + dy[c] * xh[c];
    }
    float mean = row_dot(a->order, g, xh, n) / (float)n;
    for (int64_t c = 0; c < n; c++) g[c] = rstd * (g[c] - xh[c] * mean);
    if (a->residual) {
        load_row(dy, a->residual, row);
        for (int64_t c = 0; c < n; c++) g[c] = g[c] + dy[c];
    }
    store_row(a->dx, row, g);
    if (!a->sums) return;
    load_row(g, a->dx, row);
    for (int64_t c = 0; c < n; c++) sums[n + c] = sums[n + c] + g[c];
}

enum status cpu_rmsnorm_bwd(struct backend *b, int lane, const struct norm_bwd_args *args,
                            struct err *e) {
    const struct tensor *dy = args->dy, *x = args->x, *gain = args->gain, *rstd = args->rstd;
    const struct tensor *d_gain = args->d_gain, *residual = args->residual;
    if (args->mean || args->d_bias)
        return FAIL(e, ERR_ARG, "rmsnorm_bwd: has neither mean nor d_bias");
    TRY(cpu_check(x, "rmsnorm_bwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    int act = 1 << x->dtype;
    TRY(cpu_check(dy, "rmsnorm_bwd: dy", act, rows, n, e));
    TRY(cpu_check(gain, "rmsnorm_bwd: gain", act, n, 1, e));
    TRY(cpu_check(d_gain, "rmsnorm_bwd: d_gain", IS_ACT, n, 1, e));
    TRY(cpu_check(rstd, "rmsnorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cpu_check(residual, "rmsnorm_bwd: residual", act, rows, n, e));
    TRY(cpu_check_sink(args->dx, "rmsnorm_bwd: dx", rows, n, e));
    struct norm_orders how = norm_orders_of(b, args, false);
    int64_t width = how.own ? 2 * n : n;
    TRY(lanes_check(b, "rmsnorm_bwd", width, 4 * n, e));
    struct sink dx = *args->dx;
    struct lanes l = lanes_start(b, rows, width, how.over);
    struct tensor value = sink_rows(&dx, rows, n);
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *buffers = lanes_buffers(b, omp_get_thread_num(), &l);
        float *g = lanes_rows(&l, buffers) + 3 * n;
        load_span(g, gain, 0, n);
        struct rmsnorm_grad a = { &value, dy, x, residual, g, rstd->data,
                                  how.follows ? &how.along : NULL, how.own };
        #pragma omp for schedule(static)
        for (int i = 0; i < l.count; i++) lanes_each(&l, i, buffers, backward_row, &a);
    }
    lanes_finish(d_gain, &l, 0, n);
    if (how.own) lanes_finish(dx.sums, &l, n, n);
    if (how.own) dx.sums = NULL;
    cpu_sink_emit(b, &dx);
    return OK;
}
