/* Sums over whole tensors, the sum of two tensors, and results from them: clip factor, non-finite
 * flag.
 *
 * A long vector is summed in two levels: sum16 of each block of 65536 elements, then sum16 of the
 * block sums. Blocks are the unit of parallel work, and their number depends on the length
 * alone. If the arithmetic follows a GPU, blocks and their sums are added in the order of
 * kernels/sum_order.h. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/lanes.h"

enum { BLOCK = SUM_EXTENT, SPAN = 1024 };

/* sum16 over x[at, at+n), or over its squares. Spans are multiples of 16, so an element's lane is
 * its index modulo 16. */
CLONES static float block_sum(const struct tensor *x, int64_t at, int64_t n, bool squared) {
    float lane[16] = { 0 }, v[SPAN];
    for (int64_t s = 0; s < n; s += SPAN) {
        int64_t count = n - s < SPAN ? n - s : SPAN;
        load_span(v, x, at + s, count);
        if (squared)
            for (int64_t i = 0; i < count; i++) v[i] = v[i] * v[i];
        for (int64_t i = count; i % 16 != 0; i++) v[i] = 0; /* adds +0: no sum from +0 is ever -0 */
        for (int64_t i = 0; i < count; i += 16)
            for (int j = 0; j < 16; j++) lane[j] = lane[j] + v[i + j];
    }
    return sum16_join(lane);
}

/* The same block as a GPU's threads add it. */
CLONES static float thread_sum(const struct tensor *x, int64_t at, int64_t n, bool squared) {
    float sum[SUM_THREADS][4] = { { 0 } }, lane[SUM_THREADS], v[SPAN];
    int64_t each = squared && x->dtype == DTYPE_BF16 ? 8 : 4, whole = n / each * each;
    for (int64_t s = 0; s < n; s += SPAN) {
        int64_t count = n - s < SPAN ? n - s : SPAN;
        load_span(v, x, at + s, count);
        if (squared)
            for (int64_t i = 0; i < count; i++) v[i] = v[i] * v[i];
        int64_t end = s + count < whole ? s + count : whole;
        for (int64_t i = s; i < end; i += 4) {
            float *to = sum[i / each % SUM_THREADS], *from = v + (i - s);
            for (int j = 0; j < 4; j++) to[j] = to[j] + from[j];
        }
        for (int64_t i = end < s ? s : end; i < s + count; i++) { /* fewer than `each` */
            float *to = squared ? sum[i - whole] : &sum[i / each % SUM_THREADS][i % 4];
            *to = *to + v[i - s];
        }
    }
    for (int t = 0; t < SUM_THREADS; t++)
        lane[t] = (sum[t][0] + sum[t][1]) + (sum[t][2] + sum[t][3]);
    return row_join(lane, SUM_THREADS);
}

static enum status sum_blocks(struct backend *b, const struct tensor *x, bool squared, float *out,
                              const char *what, struct err *e) {
    int64_t n = tensor_count(x), blocks = ceil_div(n, BLOCK);
    TRY(lanes_check(b, what, 0, blocks, e));
    float *sums = cpu_scratch(b, 0);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads) if (blocks > 1)
    for (int64_t i = 0; i < blocks; i++) {
        int64_t count = n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK;
        sums[i] = cpu_follows(b) ? thread_sum(x, i * BLOCK, count, squared)
                                 : block_sum(x, i * BLOCK, count, squared);
    }
    struct row_order joined = { SUM_THREADS, 1, 0 };
    *out = row_sum(cpu_follows(b) ? &joined : NULL, sums, blocks);
    return OK;
}

enum status cpu_sum(struct backend *b, int lane, const struct tensor *total, const struct tensor *x,
                    float factor, float beta, struct err *e) {
    TRY(cpu_check_packed(x, "sum: x", IS_F32, -1, -1, e));
    TRY(cpu_check(total, "sum: total", IS_F32, 1, 1, e));
    float s, *out = total->data;
    TRY(sum_blocks(b, x, false, &s, "sum", e));
    *out = f32_canonical(beta == 0.0f ? factor * s : beta * *out + factor * s);
    return OK;
}

enum status cpu_add(struct backend *b, int lane, const struct tensor *out, const struct tensor *x,
                    struct err *e) {
    TRY(cpu_check_packed(out, "add: out", IS_ACT, -1, -1, e));
    TRY(cpu_check_packed(x, "add: x", IS_ACT, -1, -1, e));
    int64_t n = tensor_count(out);
    if (tensor_count(x) != n)
        return FAIL(e, ERR_ARG, "add: %lld elements to %lld", (long long)tensor_count(x),
                    (long long)n);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads) if (n > BLOCK)
    for (int64_t at = 0; at < n; at += SPAN) {
        int64_t count = n - at < SPAN ? n - at : SPAN;
        float sum[SPAN], v[SPAN];
        load_span(sum, out, at, count);
        load_span(v, x, at, count);
        for (int64_t i = 0; i < count; i++) sum[i] = sum[i] + v[i];
        store_span(out, at, sum, count);
    }
    return OK;
}

enum status cpu_sum_squares(struct backend *b, int lane, const struct tensor *out,
                            const struct tensor *x, int64_t n, struct err *e) {
    TRY(cpu_check_packed(out, "sum_squares: out", IS_F32, n, 1, e));
    for (int64_t i = 0; i < n; i++) {
        TRY(cpu_check_packed(&x[i], "sum_squares: x", IS_ACT, -1, -1, e));
        if (x[i].dtype != x->dtype)
            return FAIL(e, ERR_ARG, "sum_squares: x is %s, then %s", dtype_name(x->dtype),
                        dtype_name(x[i].dtype));
        float s;
        TRY(sum_blocks(b, &x[i], true, &s, "sum_squares", e));
        ((float *)out->data)[i] = f32_canonical(s);
    }
    return OK;
}

enum status cpu_clip_factor(struct backend *b, int lane, const struct tensor *norm,
                            const struct tensor *clip, const struct tensor *squares, float max_norm,
                            struct err *e) {
    TRY(cpu_check_packed(squares, "clip_factor: squares", IS_F32, -1, -1, e));
    TRY(cpu_check(norm, "clip_factor: norm", IS_F32, 1, 1, e));
    TRY(cpu_check(clip, "clip_factor: clip", IS_F32, 1, 1, e));
    float s;
    TRY(sum_blocks(b, squares, false, &s, "clip_factor", e));
    float n = sqrtf(s);
    *(float *)norm->data = f32_canonical(n);
    *(float *)clip->data = max_norm > 0 && n > max_norm ? max_norm / n : 1.0f;
    return OK;
}

enum status cpu_flag_nonfinite(struct backend *b, int lane, const struct tensor *flag,
                               const struct tensor *step, const struct tensor *x, int32_t base,
                               struct err *e) {
    TRY(cpu_check_packed(x, "flag_nonfinite: x", IS_F32 | IS_U32, -1, -1, e));
    TRY(cpu_check(flag, "flag_nonfinite: flag", IS_I32, 2, 1, e));
    TRY(cpu_check(step, "flag_nonfinite: step", IS_I32, 1, 1, e));
    int32_t *out = flag->data;
    if (out[0] >= 0) return OK;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)x->data + 4 * i, 4);
        if ((bits & 0x7F800000u) != 0x7F800000u) continue;
        out[0] = *(const int32_t *)step->data;
        out[1] = base + (int32_t)i;
        break;
    }
    return OK;
}
