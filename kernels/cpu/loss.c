/* Cross-entropy of logits, forward and backward in one pass over the row:
 *   m = max   p_i = exp(x_i - m)   l = sum16(p)
 *   loss = (m + ln l) - x_target
 *   d_logits_i = (p_i * (1/l) - onehot_i) * grad_scale */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/clones.h"
#include "kernels/cpu/cpu.h"
#include "kernels/exactmath_f32.h"

/* Returns the loss; leaves exp(x - max) in x[0..n), its sum in *total, and in *right whether the
 * target has the maximum. A NaN in the row never becomes the maximum, but reaches the sum. */
CLONES static float row_loss(float *x, int64_t n, int64_t target, float *total, bool *right) {
    float lane[16];
    for (int j = 0; j < 16; j++) lane[j] = -INFINITY;
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    float max = lane[0];
    for (int j = 1; j < 16; j++) max = lane[j] > max ? lane[j] : max;
    float picked = x[target];
    *right = picked >= max;
    for (i = 0; i < n; i++) x[i] = exact_expf(x[i] - max);
    *total = sum16(x, n);
    return f32_canonical((max + exact_logf(*total)) - picked);
}

CLONES static void row_gradient(float *p, int64_t n, int64_t target, float total, float scale) {
    float inverse = 1.0f / total;
    for (int64_t i = 0; i < n; i++) p[i] = p[i] * inverse;
    p[target] = p[target] - 1.0f;
    for (int64_t i = 0; i < n; i++) p[i] = p[i] * scale;
}

static void loss_row(const struct cross_entropy_args *a, const struct tensor *d_logits,
                     int64_t row, int64_t target, float *buffer) {
    const struct tensor *logits = a->logits;
    int64_t width = tensor_cols(logits), vocab = a->vocab;
    float total = 0, loss = 0;
    bool right = false;
    if (target >= 0) {
        load_span(buffer, logits, row * logits->stride[0], vocab);
        loss = row_loss(buffer, vocab, target, &total, &right);
    }
    ((float *)a->loss->data)[row] = loss;
    if (a->right) ((float *)a->right->data)[row] = right ? 1.0f : 0.0f;
    if (!d_logits) return;
    const float *scale = a->grad_scale->data;
    if (target >= 0) row_gradient(buffer, vocab, target, total, *scale);
    else memset(buffer, 0, (size_t)vocab * sizeof(float));
    memset(buffer + vocab, 0, (size_t)(width - vocab) * sizeof(float));
    store_row(d_logits, row, buffer);
}

enum status cpu_cross_entropy(struct backend *b, int lane, const struct cross_entropy_args *args,
                              struct err *e) {
    const struct tensor *loss = args->loss, *logits = args->logits, *targets = args->targets;
    const struct tensor *grad_scale = args->grad_scale;
    const struct sink *d_logits = args->d_logits;
    int64_t vocab = args->vocab;
    TRY(cpu_check(logits, "cross_entropy: logits", IS_ACT, -1, -1, e));
    int64_t rows = tensor_rows(logits), width = tensor_cols(logits);
    TRY(cpu_check(loss, "cross_entropy: loss", IS_F32, rows, 1, e));
    if (args->right) TRY(cpu_check(args->right, "cross_entropy: right", IS_F32, rows, 1, e));
    TRY(cpu_check(targets, "cross_entropy: targets", IS_I32, rows, 1, e));
    if (d_logits) {
        TRY(cpu_check(grad_scale, "cross_entropy: grad_scale", IS_F32, 1, 1, e));
        TRY(cpu_check_sink(d_logits, "cross_entropy: d_logits", rows, width, e));
    }
    if (vocab < 1 || vocab > width || width > SCRATCH_FLOATS)
        return FAIL(e, ERR_ARG, "cross_entropy: vocabulary %lld of %lld columns, at most %d",
                    (long long)vocab, (long long)width, SCRATCH_FLOATS);
    const int32_t *target = targets->data;
    for (int64_t r = 0; r < rows; r++)
        if (target[r] >= vocab)
            return FAIL(e, ERR_ARG, "cross_entropy: target %d at row %lld is not below %lld",
                        (int)target[r], (long long)r, (long long)vocab);
    struct tensor value;
    if (d_logits) value = sink_rows(d_logits, rows, width);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++)
        loss_row(args, d_logits ? &value : NULL, r, target[r],
                 cpu_scratch(b, omp_get_thread_num()));
    if (d_logits) cpu_sink_emit(b, d_logits);
    return OK;
}
