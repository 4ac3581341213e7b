/* delayed_update: TransformerEngine's delayed scaling, as kernels/operators.inc defines it. */
#include <float.h>
#include <math.h>

#include "kernels/cpu/cpu.h"

static enum status check(const struct delayed_args *d, struct err *e) {
    if (!d->history) return FAIL(e, ERR_ARG, "delayed_update: history is missing");
    int64_t slots = tensor_cols(d->history);
    TRY(cpu_check(d->history, "delayed_update: history", IS_F32, -1, slots, e));
    if (d->history->dim[0] < 1) return FAIL(e, ERR_ARG, "delayed_update: history has no rows");
    TRY(cpu_check(d->multiplier, "delayed_update: multiplier", IS_F32, slots, 1, e));
    TRY(cpu_check(d->factor, "delayed_update: factor", IS_F32, slots, 1, e));
    TRY(cpu_check(d->amax, "delayed_update: amax", IS_U32, slots, 1, e));
    if (!d->code_max) return FAIL(e, ERR_ARG, "delayed_update: code_max is missing");
    return OK;
}

/* Compares bits as unsigned, like every amax: NaN and infinity in the history keep the old scale
 * until they have left the history. */
static uint32_t max_with_history(const struct delayed_args *d, int64_t slot, uint32_t amax) {
    const float *history = d->history->data;
    for (int64_t r = 1; r < d->history->dim[0]; r++) {
        uint32_t bits = f32_bits(history[r * d->history->stride[0] + slot]);
        amax = amax > bits ? amax : bits;
    }
    return amax;
}

static void roll(const struct delayed_args *d, int64_t slot, float amax) {
    float *history = d->history->data;
    int64_t rows = d->history->dim[0], stride = d->history->stride[0];
    for (int64_t r = 1; r + 1 < rows; r++)
        history[r * stride + slot] = history[(r + 1) * stride + slot];
    if (rows > 1) history[(rows - 1) * stride + slot] = amax;
    history[slot] = 0.0f;
}

enum status cpu_delayed_update(struct backend *b, int lane, const struct delayed_args *d,
                               struct err *e) {
    TRY(check(d, e));
    float *multiplier = d->multiplier->data, *factor = d->factor->data;
    int64_t stride = d->factor->stride[0];
    uint32_t *amax = d->amax->data;
    for (int64_t s = 0; s < tensor_cols(d->history); s++) {
        if (amax[s] == 0) continue;
        float used = f32_from_bits(d->most_recent ? amax[s] : max_with_history(d, s, amax[s]));
        roll(d, s, f32_from_bits(amax[s]));
        if (used > 0 && used <= FLT_MAX) {
            float m = ldexpf(d->code_max[s], -d->margin) / used;
            multiplier[s] = m > FLT_MAX ? FLT_MAX : m;
        }
        factor[s * stride] = 1.0f / multiplier[s];
        amax[s] = 0;
    }
    return OK;
}
