/* delayed_update: TransformerEngine's delayed scaling, as kernels/operators.inc says. A few hundred
 * slots and a history of about a thousand rows: bound by latency, so all rows of a slot are read at
 * once. */
#include <math.h>

#include "kernels/cuda/cuda_common.cuh"

enum {
    UPDATE_SLOTS = 256, /* of a launch */
    UPDATE_THREADS = 256,
    BLOCK_SLOTS = 8,    /* neighbours in memory: 32 bytes of each row of history */
    SLOT_THREADS = UPDATE_THREADS / BLOCK_SLOTS,
    THREAD_ROWS = 32    /* of history in a thread's registers at a time */
};

/* Arrays over slots, each with its own stride. Passed by value, so that a captured graph keeps the
 * limits. */
struct delayed_slots {
    float *history, *multiplier, *factor;
    uint32_t *amax;
    int64_t history_row, multiplier_step, factor_step, amax_step;
    int64_t depth, slots, first;
    float margin;
    bool most_recent;
    float limit[UPDATE_SLOTS];
};

/* The history moves up by one row; its maximum is taken in the same pass. Rows are read and written
 * in groups of all threads of a slot: those of a group are all read before one of them is written.
 * A slot whose amax is 0 does not change. */
__global__ void __launch_bounds__(UPDATE_THREADS) delayed_update_kernel(struct delayed_slots d) {
    __shared__ uint32_t top[BLOCK_SLOTS];
    int own = threadIdx.x % BLOCK_SLOTS, at = blockIdx.x * BLOCK_SLOTS + own;
    int64_t s = d.first + at, thread_row = threadIdx.x / BLOCK_SLOTS * THREAD_ROWS;
    uint32_t *amax = d.amax + s * d.amax_step;
    float *history = d.history + s;
    /* An unsigned maximum keeps NaN, as the amax slot itself does. */
    uint32_t newest = s < d.slots ? *amax : 0, used = newest;
    if (threadIdx.x < BLOCK_SLOTS) top[threadIdx.x] = 0;
    for (int64_t group = 1; group < d.depth; group += SLOT_THREADS * THREAD_ROWS) {
        int64_t row = group + thread_row;
        float older[THREAD_ROWS];
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++)
            if (newest && row + i < d.depth) older[i] = history[(row + i) * d.history_row];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++) {
            if (!newest || row + i >= d.depth) continue;
            if (!d.most_recent) used = max(used, f32_bits(older[i]));
            if (row + i > 1) history[(row + i - 1) * d.history_row] = older[i];
        }
    }
    __syncthreads();
    atomicMax(&top[own], used);
    __syncthreads();
    if (thread_row || !newest) return;
    used = top[own];
    if (d.depth > 1) history[(d.depth - 1) * d.history_row] = f32_from_bits(newest);
    history[0] = 0.0f;
    float amax_used = f32_from_bits(used), *multiplier = d.multiplier + s * d.multiplier_step;
    const float largest = 3.402823466e+38f;
    if (amax_used > 0.0f && amax_used <= largest) {
        float m = d.limit[at] * d.margin / amax_used;
        *multiplier = m > largest ? largest : m;
    }
    d.factor[s * d.factor_step] = 1.0f / *multiplier;
    *amax = 0;
}

enum status cuda_delayed_update(struct backend *b, int lane, const struct delayed_args *args,
                                struct err *e) {
    TRY(cuda_check(args->history, "delayed_update: history", IS_F32, -1, -1, e));
    int64_t slots = tensor_cols(args->history);
    TRY(cuda_check(args->multiplier, "delayed_update: multiplier", IS_F32, slots, 1, e));
    TRY(cuda_check(args->factor, "delayed_update: factor", IS_F32, slots, 1, e));
    TRY(cuda_check(args->amax, "delayed_update: amax", IS_U32, slots, 1, e));
    struct delayed_slots d = {};
    d.history = (float *)args->history->data;
    d.multiplier = (float *)args->multiplier->data;
    d.factor = (float *)args->factor->data;
    d.amax = (uint32_t *)args->amax->data;
    d.history_row = args->history->stride[0];
    d.multiplier_step = args->multiplier->stride[0];
    d.factor_step = args->factor->stride[0];
    d.amax_step = args->amax->stride[0];
    d.depth = args->history->dim[0];
    d.slots = slots;
    d.most_recent = args->most_recent;
    d.margin = ldexpf(1.0f, -args->margin);
    for (d.first = 0; d.first < slots; d.first += UPDATE_SLOTS) {
        int64_t count = min_i64(slots - d.first, UPDATE_SLOTS);
        for (int64_t i = 0; i < count; i++) d.limit[i] = args->code_max[d.first + i];
        delayed_update_kernel<<<(unsigned)ceil_div(count, BLOCK_SLOTS), UPDATE_THREADS, 0,
                                cuda_lane(b, lane)>>>(d);
    }
    return cuda_launched("delayed_update", e);
}
