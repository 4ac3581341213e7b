/* GPT-2's GELU (tanh form, arXiv:1606.08415).
 * With u = sqrt(2/pi) * (x + 0.044715 x^3) and t = tanh(u):
 *   h = (0.5 x) (1 + t),   dx = dh * (0.5 (1 + t) + (0.5 x) (1 - t^2) u').
 * If the arithmetic follows a GPU: the form of exactmath_fma.h. */
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exactmath_f32.h"
#include "kernels/exactmath_fma.h"

enum { SPAN = 512 }; /* elements processed at a time */

static const float SQRT_2_OVER_PI = 0.79788456f, CUBIC = 0.044715f;

CLONES static void forward_row(const struct tensor *h, const struct tensor *x, int64_t row,
                               bool follows) {
    float v[SPAN];
    int64_t width = tensor_cols(x);
    for (int64_t at = 0; at < width; at += SPAN) {
        int64_t n = width - at < SPAN ? width - at : SPAN;
        load_span(v, x, row * x->stride[0] + at, n);
        for (int64_t i = 0; i < n && follows; i++)
            v[i] = fma_gelu(v[i]);
        for (int64_t i = 0; i < n && !follows; i++) {
            float u = SQRT_2_OVER_PI * (v[i] + CUBIC * (v[i] * (v[i] * v[i])));
            v[i] = (0.5f * v[i]) * (1.0f + exact_tanhf(u));
        }
        store_span(h, row * h->stride[0] + at, v, n);
    }
}

CLONES static void backward_row(const struct tensor *dx, const struct tensor *dh,
                                const struct tensor *x, int64_t row, bool follows) {
    float v[SPAN], g[SPAN];
    int64_t width = tensor_cols(x);
    for (int64_t at = 0; at < width; at += SPAN) {
        int64_t n = width - at < SPAN ? width - at : SPAN;
        load_span(v, x, row * x->stride[0] + at, n);
        load_span(g, dh, row * dh->stride[0] + at, n);
        for (int64_t i = 0; i < n && follows; i++)
            v[i] = g[i] * fma_gelu_slope(v[i]);
        for (int64_t i = 0; i < n && !follows; i++) {
            float square = v[i] * v[i];
            float t = exact_tanhf(SQRT_2_OVER_PI * (v[i] + CUBIC * (v[i] * square)));
            float slope = SQRT_2_OVER_PI * (1.0f + (3.0f * CUBIC) * square);
            /* 1 - t^2 vanishes long before x^2 overflows: this avoids 0 * infinity. */
            float tanh_slope = (1.0f - t) * (1.0f + t);
            float tail = tanh_slope == 0.0f ? 0.0f : ((0.5f * v[i]) * tanh_slope) * slope;
            v[i] = g[i] * (0.5f * (1.0f + t) + tail);
        }
        store_span(dx, row * dx->stride[0] + at, v, n);
    }
}

enum status cpu_gelu_fwd(struct backend *b, int lane, const struct sink *h, const struct tensor *x,
                         struct err *e) {
    TRY(cpu_check(x, "gelu_fwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), width = tensor_cols(x);
    TRY(cpu_check_sink(h, "gelu_fwd: h", rows, width, e));
    struct tensor value = sink_rows(h, rows, width);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) forward_row(&value, x, r, cpu_follows(b));
    cpu_sink_emit(b, h);
    return OK;
}

enum status cpu_gelu_bwd(struct backend *b, int lane, const struct sink *dx,
                         const struct tensor *dh, const struct tensor *x, struct err *e) {
    TRY(cpu_check(x, "gelu_bwd: x", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(x), width = tensor_cols(x);
    TRY(cpu_check(dh, "gelu_bwd: dh", 1 << x->dtype, rows, width, e));
    TRY(cpu_check_sink(dx, "gelu_bwd: dx", rows, width, e));
    struct tensor value = sink_rows(dx, rows, width);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) backward_row(&value, dh, x, r, cpu_follows(b));
    cpu_sink_emit(b, dx);
    return OK;
}
