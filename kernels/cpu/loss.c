/* Cross-entropy of logits, forward and backward in one pass over the row:
 *   m = max   p_i = exp(x_i - m)   l = sum16(p)
 *   loss = (m + ln l) - x_target
 *   d_logits_i = (p_i * (1/l) - onehot_i) * grad_scale
 * If the arithmetic follows a GPU, the parts of a row are those of kernels/sum_order.h, exp is
 * exactmath_fma.h's, and d_logits_i = p_i * (grad_scale / l) - onehot_i * grad_scale. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/lanes.h"
#include "kernels/exactmath_f32.h"
#include "kernels/exactmath_fma.h"

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

/* ---- as a GPU adds ---- */

/* The largest of some logits, NaN ignored, and the sum of exp(x - max). If all are -infinity, the
 * sum is that of exp(x). */
struct row_part { float max, sum; };

/* Brings 32 parts to their largest maximum, and joins them. */
CLONES static struct row_part join_parts(const struct row_part *part) {
    float max = -INFINITY, lane[SUM_WARP];
    for (int l = 0; l < SUM_WARP; l++) max = part[l].max > max ? part[l].max : max;
    for (int l = 0; l < SUM_WARP; l++)
        lane[l] = part[l].max == -INFINITY ? part[l].sum
                                           : part[l].sum * fma_expf(part[l].max - max);
    return (struct row_part){ max, row_join(lane, SUM_WARP) };
}

/* The part of thread t of a block that has the elements [first, end) of x. Elements from `vocab` on
 * are -infinity, whose exponential is +0. */
CLONES static struct row_part thread_part(const float *x, int64_t first, int64_t end,
                                          int64_t vocab, int t) {
    struct row_part p = { -INFINITY, 0.0f };
    end = end < vocab ? end : vocab;
    const int64_t step = LOSS_THREADS * 8, from = first + t * 8;
    for (int64_t at = from; at < end; at += step)
        for (int64_t i = at; i < at + 8 && i < end; i++) p.max = x[i] > p.max ? x[i] : p.max;
    float shift = p.max == -INFINITY ? 0.0f : p.max;
    for (int64_t at = from; at < end; at += step) {
        float e[8];
        int64_t n = end - at < 8 ? end - at : 8;
        for (int64_t i = 0; i < n; i++) e[i] = fma_expf(x[at + i] - shift);
        for (int64_t i = 0; i < n; i++) p.sum = p.sum + e[i];
    }
    return p;
}

/* The part of a whole row of `width` columns. */
static struct row_part ordered_part(const float *x, int64_t width, int64_t vocab) {
    const struct row_part NONE = { -INFINITY, 0.0f };
    struct row_part block[SUM_WARP], warp[SUM_WARP], thread[SUM_WARP];
    int64_t blocks = loss_blocks(width), share = (int64_t)loss_each(width) * 8;
    for (int i = 0; i < SUM_WARP; i++) block[i] = warp[i] = NONE;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t end = (b + 1) * share < width ? (b + 1) * share : width;
        for (int w = 0; w < LOSS_THREADS / SUM_WARP; w++) {
            for (int l = 0; l < SUM_WARP; l++)
                thread[l] = thread_part(x, b * share, end, vocab, w * SUM_WARP + l);
            warp[w] = join_parts(thread);
        }
        block[b] = join_parts(warp);
    }
    return join_parts(block);
}

CLONES static void ordered_gradient(float *x, int64_t n, int64_t target, struct row_part p,
                                    float scale) {
    float factor = scale / p.sum;
    for (int64_t i = 0; i < n; i++) x[i] = fma_expf(x[i] - p.max) * factor;
    x[target] = x[target] - scale;
}

/* loss_row() below for one row, with a target, that a GPU divides. */
static float ordered_loss(const struct cross_entropy_args *a, float *x, int64_t target,
                          bool *right) {
    struct row_part p = ordered_part(x, tensor_cols(a->logits), a->vocab);
    float picked = x[target];
    if (p.max == -INFINITY) p.sum = f32_from_bits(0x7FC00000u);
    *right = picked >= p.max;
    if (a->d_logits) ordered_gradient(x, a->vocab, target, p, *(const float *)a->grad_scale->data);
    return f32_canonical((p.max + exact_logf(p.sum)) - picked);
}

static void loss_row(const struct cross_entropy_args *a, const struct tensor *d_logits,
                     int64_t row, int64_t target, float *buffer, bool follows) {
    const struct tensor *logits = a->logits;
    int64_t width = tensor_cols(logits), vocab = a->vocab;
    float total = 0, loss = 0;
    bool right = false;
    if (target >= 0) {
        load_span(buffer, logits, row * logits->stride[0], vocab);
        loss = follows ? ordered_loss(a, buffer, target, &right)
                       : row_loss(buffer, vocab, target, &total, &right);
    }
    ((float *)a->loss->data)[row] = loss;
    if (a->right) ((float *)a->right->data)[row] = right ? 1.0f : 0.0f;
    if (!d_logits) return;
    const float *scale = a->grad_scale->data;
    if (target >= 0 && !follows) row_gradient(buffer, vocab, target, total, *scale);
    if (target < 0) memset(buffer, 0, (size_t)vocab * sizeof(float));
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
    bool follows = cpu_follows(b) && loss_divides(width, rows_are_eights(width, logits->stride[0]));
    struct tensor value;
    if (d_logits) value = sink_rows(d_logits, rows, width);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int64_t r = 0; r < rows; r++)
        loss_row(args, d_logits ? &value : NULL, r, target[r],
                 cpu_scratch(b, omp_get_thread_num()), follows);
    if (d_logits) cpu_sink_emit(b, d_logits);
    return OK;
}
