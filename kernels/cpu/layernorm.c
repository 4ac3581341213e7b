/* LayerNorm. Forward, per row: mean = sum(x) / C, variance = sum of the centred squares / C,
 * y = ((x - mean) * rstd) * gain + bias.
 *
 * Backward, with xh = (x - mean) * rstd and g = dy * gain:
 *   dx = rstd * ((g - sum(g)/C) - xh * (sum(g*xh) / C)) + residual
 *   d_gain += sum over rows of dy * xh
 *   d_bias += sum over rows of dy
 * Sums are those of lanes.h. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/norm.h"

struct layernorm_row {
    const struct tensor *y, *x;
    const float *gain, *bias; /* bias may be NULL */
    float *mean, *rstd;
    float eps;
    const struct row_order *order; /* NULL: the reference's */
};

CLONES static void forward_row(const struct layernorm_row *a, int64_t row, float *buffer) {
    int64_t n = tensor_cols(a->x);
    const float *gain = a->gain, *bias = a->bias;
    load_row(buffer, a->x, row);
    float mean = row_sum(a->order, buffer, n) / (float)n;
    for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] - mean;
    float rstd = 1.0f / sqrtf(row_dot(a->order, buffer, buffer, n) / (float)n + a->eps);
    for (int64_t c = 0; c < n; c++) buffer[c] = (buffer[c] * rstd) * gain[c];
    if (bias)
        for (int64_t c = 0; c < n; c++) buffer[c] = buffer[c] + bias[c];
    store_row(a->y, row, buffer);
    a->mean[row] = f32_canonical(mean);
    a->rstd[row] = f32_canonical(rstd);
}

enum status cpu_layernorm_fwd(struct backend *b, int lane, const struct norm_fwd_args *args,
                              struct err *e) {
    const struct tensor *x = args->x, *gain = args->gain, *bias = args->bias;
    const struct tensor *mean = args->mean, *rstd = args->rstd;
    const struct sink *y = args->y;
    TRY(cpu_check(x, "layernorm_fwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    TRY(cpu_check(gain, "layernorm_fwd: gain", 1 << x->dtype, n, 1, e));
    if (bias) TRY(cpu_check(bias, "layernorm_fwd: bias", 1 << x->dtype, n, 1, e));
    TRY(cpu_check(mean, "layernorm_fwd: mean", IS_F32, rows, 1, e));
    TRY(cpu_check(rstd, "layernorm_fwd: rstd", IS_F32, rows, 1, e));
    TRY(cpu_check_sink(y, "layernorm_fwd: y", rows, n, e));
    TRY(lanes_check(b, "layernorm_fwd", 0, 3 * n, e));
    struct tensor value = sink_rows(y, rows, n);
    struct row_order order = norm_fwd_order(n, rows_are_eights(n, x->stride[0]));
    const struct row_order *follow = cpu_follows(b) ? &order : NULL;
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *g = cpu_scratch(b, omp_get_thread_num());
        load_span(g, gain, 0, n);
        if (bias) load_span(g + n, bias, 0, n);
        struct layernorm_row a = { &value, x, g, bias ? g + n : NULL, mean->data, rstd->data,
                                   args->eps, follow };
        #pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) forward_row(&a, r, g + 2 * n);
    }
    cpu_sink_emit(b, y);
    return OK;
}

struct layernorm_grad {
    const struct tensor *dx, *dy, *x, *residual;
    const float *gain, *mean, *rstd;
    const struct row_order *order; /* NULL: the reference's */
    bool sums;                     /* of dx as well */
};

/* sums: [C] of d_gain, of d_bias, then of dx. */
CLONES static void backward_row(const void *context, int64_t row, float *sums, float *buffer) {
    const struct layernorm_grad *a = context;
    int64_t n = tensor_cols(a->x);
    float *dy = buffer, *xh = buffer + n, *g = buffer + 2 * n;
    const float *gain = a->gain;
    float mean = a->mean[row], rstd = a->rstd[row];
    load_row(dy, a->dy, row);
    load_row(xh, a->x, row);
    for (int64_t c = 0; c < n; c++) {
        xh[c] = (xh[c] - mean) * rstd;
        g[c] = dy[c] * gain[c];
    }
    for (int64_t c = 0; c < n; c++) {
        sums[c] = sums[c] + dy[c] * xh[c];
        sums[n + c] = sums[n + c] + dy[c];
    }
    float g_mean = row_sum(a->order, g, n) / (float)n;
    float gx_mean = row_dot(a->order, g, xh, n) / (float)n;
    for (int64_t c = 0; c < n; c++) g[c] = rstd * ((g[c] - g_mean) - xh[c] * gx_mean);
    if (a->residual) {
        load_row(dy, a->residual, row);
        for (int64_t c = 0; c < n; c++) g[c] = g[c] + dy[c];
    }
    store_row(a->dx, row, g);
    if (!a->sums) return;
    load_row(g, a->dx, row);
    for (int64_t c = 0; c < n; c++) sums[2 * n + c] = sums[2 * n + c] + g[c];
}

enum status cpu_layernorm_bwd(struct backend *b, int lane, const struct norm_bwd_args *args,
                              struct err *e) {
    const struct tensor *dy = args->dy, *x = args->x, *gain = args->gain, *mean = args->mean;
    const struct tensor *rstd = args->rstd, *residual = args->residual;
    const struct tensor *d_gain = args->d_gain, *d_bias = args->d_bias;
    TRY(cpu_check(x, "layernorm_bwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), n = tensor_cols(x);
    int act = 1 << x->dtype;
    TRY(cpu_check(dy, "layernorm_bwd: dy", act, rows, n, e));
    TRY(cpu_check(gain, "layernorm_bwd: gain", act, n, 1, e));
    TRY(cpu_check(d_gain, "layernorm_bwd: d_gain", IS_ACT, n, 1, e));
    if (d_bias) TRY(cpu_check(d_bias, "layernorm_bwd: d_bias", IS_ACT, n, 1, e));
    TRY(cpu_check(mean, "layernorm_bwd: mean", IS_F32, rows, 1, e));
    TRY(cpu_check(rstd, "layernorm_bwd: rstd", IS_F32, rows, 1, e));
    if (residual) TRY(cpu_check(residual, "layernorm_bwd: residual", act, rows, n, e));
    TRY(cpu_check_sink(args->dx, "layernorm_bwd: dx", rows, n, e));
    struct norm_orders how = norm_orders_of(b, args, true);
    int64_t width = how.own ? 3 * n : 2 * n;
    TRY(lanes_check(b, "layernorm_bwd", width, 4 * n, e));
    struct sink dx = *args->dx;
    struct lanes l = lanes_start(b, rows, width, how.over);
    struct tensor value = sink_rows(&dx, rows, n);
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *buffers = lanes_buffers(b, omp_get_thread_num(), &l);
        float *g = lanes_rows(&l, buffers) + 3 * n;
        load_span(g, gain, 0, n);
        struct layernorm_grad a = { &value, dy, x, residual, g, mean->data, rstd->data,
                                    how.follows ? &how.along : NULL, how.own };
        #pragma omp for schedule(static)
        for (int i = 0; i < l.count; i++) lanes_each(&l, i, buffers, backward_row, &a);
    }
    lanes_finish(d_gain, &l, 0, n);
    if (d_bias) lanes_finish(d_bias, &l, n, n);
    if (how.own) lanes_finish(dx.sums, &l, 2 * n, n);
    if (how.own) dx.sums = NULL;
    cpu_sink_emit(b, &dx);
    return OK;
}
