/* SwiGLU. h = (gate * sigmoid(gate)) * up. Backward, with s = sigmoid(gate):
 *   d_up = dh * (gate * s),   d_gate = (dh * up) * (s * (1 + gate * (1 - s))).
 * The sigmoid is exactmath_fma.h's if the arithmetic follows a GPU. */
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exactmath_f32.h"
#include "kernels/exactmath_fma.h"

enum { SPAN = 512 }; /* elements processed at a time: buffers that stay in the first cache */

/* s = sigmoid(x) */
static inline void sigmoids(float *s, const float *x, int64_t n, bool follows) {
    if (follows)
        for (int64_t i = 0; i < n; i++) s[i] = fma_sigmoidf(x[i]);
    else
        for (int64_t i = 0; i < n; i++) s[i] = exact_sigmoidf(x[i]);
}

CLONES static void forward_row(const struct tensor *h, const struct tensor *gate_up, int64_t row,
                               bool follows) {
    int64_t width = tensor_cols(h);
    float gate[SPAN], up[SPAN], s[SPAN];
    for (int64_t at = 0; at < width; at += SPAN) {
        int64_t n = width - at < SPAN ? width - at : SPAN;
        load_span(gate, gate_up, row * gate_up->stride[0] + at, n);
        load_span(up, gate_up, row * gate_up->stride[0] + width + at, n);
        sigmoids(s, gate, n, follows);
        for (int64_t i = 0; i < n; i++) gate[i] = swiglu_of(gate[i], up[i], s[i]);
        store_span(h, row * h->stride[0] + at, gate, n);
    }
}

enum status cpu_swiglu_fwd(struct backend *b, int lane, const struct sink *h,
                           const struct tensor *gate_up, struct err *e) {
    TRY(cpu_check(gate_up, "swiglu_fwd: gate_up", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(gate_up), width = tensor_cols(gate_up);
    if (width % 2 != 0)
        return FAIL(e, ERR_ARG, "swiglu_fwd: gate_up has %lld columns, which is odd",
                    (long long)width);
    TRY(cpu_check_sink(h, "swiglu_fwd: h", rows, width / 2, e));
    struct tensor value = sink_rows(h, rows, width / 2);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) forward_row(&value, gate_up, r, cpu_follows(b));
    cpu_sink_emit(b, h);
    return OK;
}

CLONES static void backward_row(const struct tensor *d, const struct tensor *dh,
                                const struct tensor *gate_up, int64_t row, bool follows) {
    int64_t width = tensor_cols(dh);
    float gate[SPAN], up[SPAN], g[SPAN], s[SPAN];
    for (int64_t at = 0; at < width; at += SPAN) {
        int64_t n = width - at < SPAN ? width - at : SPAN;
        load_span(gate, gate_up, row * gate_up->stride[0] + at, n);
        load_span(up, gate_up, row * gate_up->stride[0] + width + at, n);
        load_span(g, dh, row * dh->stride[0] + at, n);
        sigmoids(s, gate, n, follows);
        for (int64_t i = 0; i < n; i++) {
            float d_gate = swiglu_d_gate(gate[i], up[i], g[i], s[i]);
            up[i] = swiglu_d_up(gate[i], g[i], s[i]);
            gate[i] = d_gate;
        }
        store_span(d, row * d->stride[0] + at, gate, n);
        store_span(d, row * d->stride[0] + width + at, up, n);
    }
}

enum status cpu_swiglu_bwd(struct backend *b, int lane, const struct sink *d_gate_up,
                           const struct tensor *dh, const struct tensor *gate_up, struct err *e) {
    TRY(cpu_check(dh, "swiglu_bwd: dh", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(dh), width = tensor_cols(dh);
    TRY(cpu_check(gate_up, "swiglu_bwd: gate_up", 1 << dh->dtype, rows, 2 * width, e));
    TRY(cpu_check_sink(d_gate_up, "swiglu_bwd: d_gate_up", rows, 2 * width, e));
    struct tensor value = sink_rows(d_gate_up, rows, 2 * width);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++) backward_row(&value, dh, gate_up, r, cpu_follows(b));
    cpu_sink_emit(b, d_gate_up);
    return OK;
}
