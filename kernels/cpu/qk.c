/* QK-norm and rotary embedding, between the qkv GEMM and attention.
 *
 * Forward, per head of q and k: xh = x * rstd, y = xh * gain (RMSNorm over D, as rmsnorm.c). Then
 * the pair (y_i, y_{i+D/2}) is rotated by the angle of its position. One rounding, at the store.
 * Backward rotates back, then goes through the norm. The sum of d_gain takes the heads of a row in
 * head order. It takes the rows in 16 lanes: row r belongs to lane r % 16. If the arithmetic
 * follows a GPU, both sums have the order of kernels/sum_order.h, for the head sizes a GPU has. */
#include <math.h>
#include <omp.h>

#include "kernels/cpu/lanes.h"

struct qk {
    const struct tensor *in, *out;  /* seen as [R, (H+2G)*D] */
    const float *gain_q, *gain_k;   /* [D] each, or NULL */
    const float *rope;              /* [T, D] or NULL */
    const int32_t *positions;       /* [R] rows of rope, or NULL: row % T */
    float *rstd;                    /* [R, H+G] or NULL */
    const struct tensor *d_out;     /* backward only */
    int64_t heads, kv_heads, head_dim, width, length;
    float eps;
    bool follows;                   /* sums are a GPU's */
};

/* (x1, x2) -> (x1 c - x2 s, x2 c + x1 s); the inverse with s negated. */
static inline void rotate(float *x, const float *rope, int64_t head_dim, float sign) {
    int64_t half = head_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        float c = rope[i], s = sign * rope[half + i], x1 = x[i], x2 = x[i + half];
        x[i] = x1 * c - x2 * s;
        x[i + half] = x2 * c + x1 * s;
    }
}

static inline const float *angles_of(const struct qk *a, int64_t row) {
    return a->rope + (a->positions ? a->positions[row] : row % a->length) * a->head_dim;
}

/* The sum of x * y over a head. */
static inline float head_dot(const struct qk *a, const float *x, const float *y) {
    int64_t d = a->head_dim, half = d / 2;
    float lane[SUM_WARP] = { 0 };
    if (!a->follows) return sum16_dot(x, y, d);
    for (int64_t i = 0; i < half; i++)
        lane[i / 8] = lane[i / 8] + (x[i] * y[i] + x[half + i] * y[half + i]);
    for (int64_t n = d / 32; n; n /= 2)
        for (int64_t l = 0; l < n; l++) lane[l] = lane[l] + lane[l + n];
    return lane[0];
}

CLONES static void forward_row(const struct qk *a, int64_t row, float *x) {
    int64_t d = a->head_dim;
    load_span(x, a->in, row * a->width, a->width);
    for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
        float *head = x + h * d;
        if (a->gain_q) {
            const float *gain = h < a->heads ? a->gain_q : a->gain_k;
            float rstd = 1.0f / sqrtf(head_dot(a, head, head) / (float)d + a->eps);
            for (int64_t i = 0; i < d; i++) head[i] = (head[i] * rstd) * gain[i];
            a->rstd[row * (a->heads + a->kv_heads) + h] = f32_canonical(rstd);
        }
        if (a->rope) rotate(head, angles_of(a, row), d, 1.0f);
    }
    store_span(a->out, row * a->width, x, a->width);
}

/* sums: [2][D], q's gain then k's; unused without a norm. */
CLONES static void backward_row(const void *context, int64_t row, float *sums, float *buffer) {
    const struct qk *a = context;
    int64_t d = a->head_dim;
    float *g = buffer, *xh = buffer + a->width, *scaled = buffer + 2 * a->width;
    load_span(g, a->d_out, row * a->width, a->width);
    if (a->gain_q) load_span(xh, a->in, row * a->width, a->width);
    for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
        float *dy = g + h * d, *x = xh + h * d;
        if (a->rope) rotate(dy, angles_of(a, row), d, -1.0f);
        if (!a->gain_q) continue;
        const float *gain = h < a->heads ? a->gain_q : a->gain_k;
        float *sum = h < a->heads ? sums : sums + d;
        float rstd = a->rstd[row * (a->heads + a->kv_heads) + h];
        for (int64_t i = 0; i < d; i++) {
            x[i] = x[i] * rstd;
            scaled[i] = dy[i] * gain[i];
            sum[i] = sum[i] + dy[i] * x[i];
        }
        float mean = head_dot(a, scaled, x) / (float)d;
        for (int64_t i = 0; i < d; i++) dy[i] = rstd * (scaled[i] - x[i] * mean);
    }
    store_row(a->out, row, g);
}

/* sum [2][D] += one head's share of the gains' gradients. x: 2 D floats. */
CLONES static void add_gain(const struct qk *a, int64_t row, int64_t h, float *sum, float *x) {
    int64_t d = a->head_dim;
    float *dy = x + d, rstd = a->rstd[row * (a->heads + a->kv_heads) + h];
    load_span(x, a->in, row * a->width + h * d, d);
    load_span(dy, a->d_out, row * a->width + h * d, d);
    if (a->rope) rotate(dy, angles_of(a, row), d, -1.0f);
    sum = h < a->heads ? sum : sum + d;
    for (int64_t i = 0; i < d; i++) sum[i] = sum[i] + dy[i] * (x[i] * rstd);
}

/* The gains' gradients of one block of a GPU; total [2][D] += them. buffer: 6 D floats. */
static void add_block(const struct qk *a, int64_t rows, int64_t block, float *total,
                      float *buffer) {
    int64_t d = a->head_dim, parts = qk_parts(a->heads + 2 * a->kv_heads), items = rows * parts;
    int64_t slots = qk_slots(d), step = slots * qk_blocks(items, d);
    float *sum = buffer, *slot_sum = buffer + 2 * d;
    memset(sum, 0, (size_t)(2 * d) * sizeof *sum);
    for (int64_t slot = 0; slot < slots; slot++) {
        memset(slot_sum, 0, (size_t)(2 * d) * sizeof *slot_sum);
        for (int64_t item = block * slots + slot; item < items; item += step)
            for (int64_t h = item % parts; h < a->heads + a->kv_heads; h += parts)
                add_gain(a, item / parts, h, slot_sum, buffer + 4 * d);
        for (int64_t i = 0; i < 2 * d; i++) sum[i] = sum[i] + slot_sum[i];
    }
    for (int64_t i = 0; i < 2 * d; i++) total[i] = total[i] + sum[i];
}

/* All gains' gradients as a GPU adds them, into l. */
static void add_gains(struct backend *b, const struct qk *a, const struct lanes *l) {
    int64_t items = l->rows * qk_parts(a->heads + 2 * a->kv_heads);
    int64_t blocks = qk_blocks(items, a->head_dim);
    #pragma omp parallel for schedule(static) num_threads(cpu_of(b)->threads)
    for (int i = 0; i < l->count; i++)
        for (int64_t block = i; block < blocks; block += l->count)
            add_block(a, l->rows, block, l->sums + i * l->width,
                      lanes_rows(l, lanes_buffers(b, omp_get_thread_num(), l)));
}

/* The checks and values that forward and backward share; fills *a except for the converted
 * gains. */
static enum status qk_check(struct backend *b, struct qk *a, const char *what,
                            const struct qk_fwd_args *args, struct err *e) {
    const struct tensor *in = args->in, *rope = args->rope, *rstd = args->rstd;
    const struct tensor *gain_q = args->gain_q, *gain_k = args->gain_k;
    int64_t heads = args->heads, kv_heads = args->kv_heads;
    TRY(cpu_check_packed(in, what, IS_ACT, -1, -1, e));
    int64_t batch = in->dim[0], length = in->dim[1], d = in->dim[3];
    if (heads < 1 || kv_heads < 1 || in->dim[2] != heads + 2 * kv_heads)
        return FAIL(e, ERR_ARG, "%s: %lld heads in the tensor, %lld + 2*%lld in the call", what,
                    (long long)in->dim[2], (long long)heads, (long long)kv_heads);
    if (rope && d % 2 != 0) return FAIL(e, ERR_ARG, "%s: head_dim %lld is odd", what, (long long)d);
    if (!gain_q != !gain_k)
        return FAIL(e, ERR_ARG, "%s: a gain for q or for k alone", what);
    if (gain_q) {
        TRY(cpu_check(gain_q, what, 1 << in->dtype, d, 1, e));
        TRY(cpu_check(gain_k, what, 1 << in->dtype, d, 1, e));
        TRY(cpu_check(rstd, what, IS_F32, batch, length * (heads + kv_heads), e));
    }
    if (rope) TRY(cpu_check(rope, what, IS_F32, length, d, e));
    if (rope && args->positions)
        TRY(cpu_check_indices(args->positions, what, batch * length, length, e));
    int64_t width = tensor_cols(in) / length;
    TRY(lanes_check(b, what, 2 * d, 6 * d + 3 * width, e));
    *a = (struct qk){ .in = in, .rope = rope ? rope->data : NULL,
                      .positions = args->positions ? args->positions->data : NULL,
                      .rstd = gain_q ? rstd->data : NULL,
                      .heads = heads, .kv_heads = kv_heads, .head_dim = d, .width = width,
                      .length = length,
                      .follows = cpu_follows(b) && d >= 16 && d <= 128 && !(d & (d - 1)) };
    return OK;
}

enum status cpu_qk_fwd(struct backend *b, int lane, const struct qk_fwd_args *args,
                       struct err *e) {
    struct qk shared;
    const struct tensor *in = args->in, *out = args->out;
    TRY(qk_check(b, &shared, "qk_fwd", args, e));
    TRY(cpu_check_packed(out, "qk_fwd: out", 1 << in->dtype, in->dim[0], tensor_cols(in), e));
    shared.out = out;
    shared.eps = args->eps;
    int64_t rows = in->dim[0] * in->dim[1], d = shared.head_dim;
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *gain = cpu_scratch(b, omp_get_thread_num());
        struct qk a = shared;
        if (args->gain_q) {
            load_span(gain, args->gain_q, 0, d);
            load_span(gain + d, args->gain_k, 0, d);
            a.gain_q = gain;
            a.gain_k = gain + d;
        }
        #pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) forward_row(&a, r, gain + 2 * d);
    }
    return OK;
}

enum status cpu_qk_bwd(struct backend *b, int lane, const struct qk_bwd_args *args,
                       struct err *e) {
    struct qk shared;
    const struct sink *dx = args->dx;
    const struct tensor *in = args->in, *d_out = args->d_out, *gain_q = args->gain_q;
    const struct tensor *d_gain_q = args->d_gain_q, *d_gain_k = args->d_gain_k;
    const struct qk_fwd_args forward = {
        .in = in, .gain_q = gain_q, .gain_k = args->gain_k, .rstd = args->rstd,
        .rope = args->rope, .positions = args->positions, .heads = args->heads,
        .kv_heads = args->kv_heads,
    };
    TRY(qk_check(b, &shared, "qk_bwd", &forward, e));
    int64_t rows = in->dim[0] * in->dim[1], d = shared.head_dim;
    TRY(cpu_check_packed(d_out, "qk_bwd: d_out", 1 << in->dtype, in->dim[0], tensor_cols(in), e));
    TRY(cpu_check_sink(dx, "qk_bwd: dx", rows, shared.width, e));
    if (gain_q) {
        TRY(cpu_check(d_gain_q, "qk_bwd: d_gain_q", IS_ACT, d, 1, e));
        TRY(cpu_check(d_gain_k, "qk_bwd: d_gain_k", IS_ACT, d, 1, e));
    }
    struct tensor value = sink_rows(dx, rows, shared.width);
    shared.out = &value;
    shared.d_out = d_out;
    struct lanes l = lanes_start(b, rows, 2 * d, column_order());
    bool ordered = gain_q && shared.follows;
    if (ordered) add_gains(b, &shared, &l); /* before dx, which may be d_out */
    #pragma omp parallel num_threads(cpu_of(b)->threads)
    {
        float *buffers = lanes_buffers(b, omp_get_thread_num(), &l);
        float *gain = lanes_rows(&l, buffers) + 3 * shared.width, *unused = gain + 2 * d;
        struct qk a = shared;
        if (args->gain_q) {
            load_span(gain, args->gain_q, 0, d);
            load_span(gain + d, args->gain_k, 0, d);
            a.gain_q = gain;
            a.gain_k = gain + d;
        }
        #pragma omp for schedule(static)
        for (int i = 0; i < l.count; i++)
            if (!ordered) lanes_each(&l, i, buffers, backward_row, &a);
            else for (int64_t r = i; r < rows; r += l.count) backward_row(&a, r, unused, buffers);
    }
    if (gain_q) {
        lanes_finish(d_gain_q, &l, 0, d);
        lanes_finish(d_gain_k, &l, d, d);
    }
    cpu_sink_emit(b, dx);
    return OK;
}
