/* RMSNorm. Forward, per row: rstd = 1 / sqrt(sum16(x*x) / C + eps), y = (x * rstd) * gain.
 * Backward, with xh = x * rstd and g = dy * gain:
 *   dx = rstd * (g - xh * (sum16(g*xh) / C)) + residual,   d_gain += sum over rows of dy * xh. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/lanes.h"

CLONES static void forward_row(const struct tensor *y, const struct tensor *x, int64_t row,
                               const float *gain, float *buffer, float *rstd, float eps) {
    int64_t n = tensor_cols(x);
    load_row(buffer, x, row);
    float r = 1.0f / sqrtf(sum16_dot(buffer, buffer, n) / (float)n + eps);
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
    TRY(lanes_check("rmsnorm_fwd", 0, 2 * n, e));
    struct tensor value = sink_rows(y, rows, n);
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *g = cpu_scratch(b, omp_get_thread_num()), *buffer = g + n;
        load_span(g, gain, 0, n);
        #pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
            forward_row(&value, x, r, g, buffer, (float *)rstd->data + r, args->eps);
    }
    cpu_sink_emit(b, y);
    return OK;
}

struct rmsnorm_grad {
    const struct tensor *dx, *dy, *x, *residual;
    const float *gain, *rstd;
};

CLONES static void backward_row(const struct rmsnorm_grad *a, int64_t row, float *d_gain,
                                float *buffer) {
    int64_t n = tensor_cols(a->x);
    float *dy = buffer, *xh = buffer + n, *g = buffer + 2 * n;
    const float *gain = a->gain;
    float rstd = a->rstd[row];
    load_row(dy, a->dy, row);
    load_row(xh, a->x, row);
    for (int64_t c = 0; c < n; c++) {
        xh[c] = xh[c] * rstd;
        g[c] = dy[c] * gain[c];
        d_gain[c] = d_gain[c] + dy[c] * xh[c];
    }
    float mean = sum16_dot(g, xh, n) / (float)n;
    for (int64_t c = 0; c < n; c++) g[c] = rstd * (g[c] - xh[c] * mean);
    if (a->residual) {
        load_row(dy, a->residual, row);
        for (int64_t c = 0; c < n; c++) g[c] = g[c] + dy[c];
    }
    store_row(a->dx, row, g);
}

enum status cpu_rmsnorm_bwd(struct backend *b, int lane, const struct norm_bwd_args *args,
                            struct err *e) {
    const struct tensor *dy = args->dy, *x = args->x, *gain = args->gain, *rstd = args->rstd;
    const struct tensor *d_gain = args->d_gain, *residual = args->residual;
    const struct sink *dx = args->dx;
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
    TRY(cpu_check_sink(dx, "rmsnorm_bwd: dx", rows, n, e));
    TRY(lanes_check("rmsnorm_bwd", n, 4 * n, e));
    float *lanes = lanes_start(b, n);
    struct tensor value = sink_rows(dx, rows, n);
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *g = lanes_rows(b, omp_get_thread_num(), n), *buffer = g + n;
        load_span(g, gain, 0, n);
        struct rmsnorm_grad a = { &value, dy, x, residual, g, rstd->data };
        #pragma omp for schedule(static)
        for (int l = 0; l < LANES; l++)
            for (int64_t r = l; r < rows; r += LANES) backward_row(&a, r, lanes + l * n, buffer);
    }
    lanes_finish(d_gain, lanes, n, n);
    cpu_sink_emit(b, dx);
    return OK;
}
