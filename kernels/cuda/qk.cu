/* QK-norm and rotary embedding, between the qkv GEMM and attention.
 *
 * Forward, per head of q and k: xh = x * rstd, y = xh * gain, then the pair (y_i, y_{i+D/2}) is
 * rotated by the angle of its position. Backward runs the rotation the other way, then the norm's
 * backward.
 *
 * D/16 threads a head: each holds eight elements of the first half and the eight they pair with.
 * Bound by memory: 4 bytes an element. Gain gradients: each thread sums its elements over the
 * heads it meets, a block joins its threads in order, a second kernel the blocks. */
#include "kernels/cuda/columns.cuh"

enum { QK_THREADS = 256, QK_BLOCKS_MAX = 1024 };

struct qk {
    bf16_bits *out;
    const bf16_bits *in, *d_out; /* d_out: backward only */
    const bf16_bits *gain_q, *gain_k; /* [D] each, or NULL */
    const float *rope;           /* [T, D] or NULL */
    float *rstd;                 /* [R, H+G] or NULL */
    float *partial;              /* backward with gains: [2][blocks][D] */
    uint32_t *amax;
    int64_t items;               /* rows * (H + 2G) */
    int64_t length;
    int heads, kv_heads, head_dim, group; /* group = head_dim / 16 threads */
    float eps;
};

/* One thread's share of a head, and where it stands. */
struct share {
    int64_t at;       /* of the low eight, in the tensor; the high eight are head_dim / 2 further */
    int64_t row;
    int head, offset; /* offset of the low eight in the head */
    bool active, turned; /* turned: q or k */
};

__device__ static struct share share_of(const struct qk &a, int64_t item) {
    struct share s;
    int all = a.heads + 2 * a.kv_heads;
    s.active = item < a.items;
    s.row = item / all;
    s.head = (int)(item % all);
    s.offset = (int)(threadIdx.x % a.group) * 8;
    s.at = item * a.head_dim + s.offset;
    s.turned = s.active && s.head < a.heads + a.kv_heads;
    return s;
}

/* Sum over the threads of a head; the whole warp calls it. */
__device__ static float group_sum(float x, int group) {
    for (int step = group / 2; step; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* (x1, x2) -> (x1 c - x2 s, x2 c + x1 s); the inverse with s negated. */
__device__ static void rotate(const struct qk &a, const struct share &s, float sign,
                              float (&low)[8], float (&high)[8]) {
    const float *rope = a.rope + s.row % a.length * a.head_dim + s.offset;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float c = rope[i], t = sign * rope[a.head_dim / 2 + i], x1 = low[i], x2 = high[i];
        low[i] = x1 * c - x2 * t;
        high[i] = x2 * c + x1 * t;
    }
}

__global__ void __launch_bounds__(QK_THREADS) qk_fwd_kernel(struct qk a) {
    int64_t per_block = QK_THREADS / a.group, step = per_block * gridDim.x;
    int64_t item = blockIdx.x * per_block + threadIdx.x / a.group;
    int64_t rounds = (a.items + step - 1) / step;
    for (int64_t round = 0; round < rounds; round++, item += step) {
        struct share s = share_of(a, item);
        float low[8] = {}, high[8] = {}, sum = 0.0f;
        if (s.active) {
            load_bf16(low, a.in + s.at);
            load_bf16(high, a.in + s.at + a.head_dim / 2);
        }
        if (a.gain_q) {
#pragma unroll
            for (int i = 0; i < 8; i++) sum += low[i] * low[i] + high[i] * high[i];
            float r = 1.0f / sqrtf(group_sum(sum, a.group) / (float)a.head_dim + a.eps);
            if (s.turned) {
                const bf16_bits *gain = (s.head < a.heads ? a.gain_q : a.gain_k) + s.offset;
                float g1[8], g2[8];
                load_bf16(g1, gain);
                load_bf16(g2, gain + a.head_dim / 2);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    low[i] = (low[i] * r) * g1[i];
                    high[i] = (high[i] * r) * g2[i];
                }
                if (s.offset == 0)
                    a.rstd[s.row * (a.heads + a.kv_heads) + s.head] = f32_canonical(r);
            }
        }
        if (s.turned && a.rope) rotate(a, s, 1.0f, low, high);
        if (!s.active || (!s.turned && a.out == a.in)) continue;
        store_bf16(a.out + s.at, low);
        store_bf16(a.out + s.at + a.head_dim / 2, high);
    }
}

/* Joins one gain's sums over the threads of the block, in thread order. */
__device__ static void join_gain(const struct qk &a, float *partial, float (*shared)[16],
                                 const float (&low)[8], const float (&high)[8]) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        shared[threadIdx.x][i] = low[i];
        shared[threadIdx.x][8 + i] = high[i];
    }
    __syncthreads();
    int d = threadIdx.x;
    if (d >= a.head_dim) return;
    int half = d / (a.head_dim / 2), in_half = d % (a.head_dim / 2);
    float total = 0.0f;
    for (int t = in_half / 8; t < QK_THREADS; t += a.group)
        total += shared[t][half * 8 + in_half % 8];
    partial[(int64_t)blockIdx.x * a.head_dim + d] = total;
}

__global__ void __launch_bounds__(QK_THREADS) qk_bwd_kernel(struct qk a) {
    __shared__ float shared[QK_THREADS][16];
    float sum_low[2][8] = {}, sum_high[2][8] = {}; /* of q's gain, then k's */
    int64_t per_block = QK_THREADS / a.group, step = per_block * gridDim.x;
    int64_t item = blockIdx.x * per_block + threadIdx.x / a.group;
    int64_t rounds = (a.items + step - 1) / step;
    uint32_t top = 0;
    for (int64_t round = 0; round < rounds; round++, item += step) {
        struct share s = share_of(a, item);
        float low[8] = {}, high[8] = {};
        if (s.active) {
            load_bf16(low, a.d_out + s.at);
            load_bf16(high, a.d_out + s.at + a.head_dim / 2);
        }
        if (s.turned && a.rope) rotate(a, s, -1.0f, low, high);
        if (a.gain_q) {
            float x1[8] = {}, x2[8] = {}, g1[8] = {}, g2[8] = {}, r = 0.0f, dot = 0.0f;
            if (s.turned) {
                const bf16_bits *gain = (s.head < a.heads ? a.gain_q : a.gain_k) + s.offset;
                load_bf16(x1, a.in + s.at);
                load_bf16(x2, a.in + s.at + a.head_dim / 2);
                load_bf16(g1, gain);
                load_bf16(g2, gain + a.head_dim / 2);
                r = a.rstd[s.row * (a.heads + a.kv_heads) + s.head];
            }
            float q = s.turned && s.head < a.heads ? 1.0f : 0.0f, k = s.turned ? 1.0f - q : 0.0f;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                x1[i] *= r;
                x2[i] *= r;
                if (q != 0.0f) {
                    sum_low[0][i] += low[i] * x1[i];
                    sum_high[0][i] += high[i] * x2[i];
                } else if (k != 0.0f) {
                    sum_low[1][i] += low[i] * x1[i];
                    sum_high[1][i] += high[i] * x2[i];
                }
                dot += (low[i] * g1[i]) * x1[i] + (high[i] * g2[i]) * x2[i];
            }
            float mean = group_sum(dot, a.group) / (float)a.head_dim;
            if (s.turned)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    low[i] = r * (low[i] * g1[i] - x1[i] * mean);
                    high[i] = r * (high[i] * g2[i] - x2[i] * mean);
                }
        }
        if (!s.active) continue;
        top = max(top, store_bf16(a.out + s.at, low));
        top = max(top, store_bf16(a.out + s.at + a.head_dim / 2, high));
    }
    warp_amax_into(a.amax, top);
    if (!a.partial) return;
    join_gain(a, a.partial, shared, sum_low[0], sum_high[0]);
    join_gain(a, a.partial + (int64_t)gridDim.x * a.head_dim, shared, sum_low[1], sum_high[1]);
}

/* ---- launchers ---- */

static enum status qk_setup(struct qk *a, const char *what, const struct tensor *in,
                            const struct tensor *gain_q, const struct tensor *gain_k,
                            const struct tensor *rstd, const struct tensor *rope, int64_t heads,
                            int64_t kv_heads, struct err *e) {
    TRY(cuda_check_packed(in, what, IS_BF16, -1, -1, e));
    int64_t batch = in->dim[0], length = in->dim[1], d = in->dim[3];
    if (heads < 1 || kv_heads < 1 || in->dim[2] != heads + 2 * kv_heads)
        return FAIL(e, ERR_ARG, "%s: %lld heads in the tensor, %lld + 2*%lld in the call", what,
                    (long long)in->dim[2], (long long)heads, (long long)kv_heads);
    if (d != 16 && d != 32 && d != 64 && d != 128)
        return FAIL(e, ERR_UNSUPPORTED, "%s: head_dim %lld: 16, 32, 64 or 128 on a GPU", what,
                    (long long)d);
    if (!gain_q != !gain_k) return FAIL(e, ERR_ARG, "%s: a gain for q or for k alone", what);
    if (gain_q) {
        TRY(cuda_check(gain_q, what, IS_BF16, d, 1, e));
        TRY(cuda_check(gain_k, what, IS_BF16, d, 1, e));
        TRY(cuda_check_packed(rstd, what, IS_F32, batch, length * (heads + kv_heads), e));
    }
    if (rope) TRY(cuda_check_packed(rope, what, IS_F32, length, d, e));
    *a = {};
    a->in = (const bf16_bits *)in->data;
    a->gain_q = gain_q ? (const bf16_bits *)gain_q->data : NULL;
    a->gain_k = gain_k ? (const bf16_bits *)gain_k->data : NULL;
    a->rope = rope ? (const float *)rope->data : NULL;
    a->rstd = gain_q ? (float *)rstd->data : NULL;
    a->items = batch * length * (heads + 2 * kv_heads);
    a->length = length;
    a->heads = (int)heads;
    a->kv_heads = (int)kv_heads;
    a->head_dim = (int)d;
    a->group = (int)d / 16;
    return OK;
}

static unsigned blocks_of(const struct qk *a) {
    return (unsigned)max_i64(1, min_i64(ceil_div(a->items * a->group, QK_THREADS), QK_BLOCKS_MAX));
}

enum status cuda_qk_fwd(struct backend *b, int lane, const struct tensor *out,
                        const struct tensor *rstd, const struct tensor *in,
                        const struct tensor *gain_q, const struct tensor *gain_k,
                        const struct tensor *rope, int64_t heads, int64_t kv_heads, float eps,
                        struct err *e) {
    struct qk a;
    TRY(qk_setup(&a, "qk_fwd", in, gain_q, gain_k, rstd, rope, heads, kv_heads, e));
    TRY(cuda_check_packed(out, "qk_fwd: out", IS_BF16, in->dim[0], tensor_cols(in), e));
    a.out = (bf16_bits *)out->data;
    a.eps = eps;
    qk_fwd_kernel<<<blocks_of(&a), QK_THREADS, 0, cuda_lane(b, lane)>>>(a);
    return cuda_launched("qk_fwd", e);
}

enum status cuda_qk_bwd(struct backend *b, int lane, const struct sink *dx,
                        const struct tensor *d_gain_q, const struct tensor *d_gain_k,
                        const struct tensor *d_out, const struct tensor *in,
                        const struct tensor *gain_q, const struct tensor *gain_k,
                        const struct tensor *rstd, const struct tensor *rope, int64_t heads,
                        int64_t kv_heads, struct err *e) {
    struct qk a;
    TRY(qk_setup(&a, "qk_bwd", in, gain_q, gain_k, rstd, rope, heads, kv_heads, e));
    int64_t rows = in->dim[0] * in->dim[1], d = a.head_dim;
    TRY(cuda_check_packed(d_out, "qk_bwd: d_out", IS_BF16, in->dim[0], tensor_cols(in), e));
    TRY(cuda_check_sink(dx, "qk_bwd: dx", rows, in->dim[2] * d, e));
    a.out = sink_value_of(dx);
    a.d_out = (const bf16_bits *)d_out->data;
    a.amax = sink_amax(dx);
    unsigned blocks = blocks_of(&a);
    if (gain_q) {
        TRY(cuda_check(d_gain_q, "qk_bwd: d_gain_q", IS_GRAD, d, 1, e));
        TRY(cuda_check(d_gain_k, "qk_bwd: d_gain_k", IS_GRAD, d, 1, e));
        void *partial;
        TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, 2 * blocks * d * 4, &partial, e));
        a.partial = (float *)partial;
    }
    qk_bwd_kernel<<<blocks, QK_THREADS, 0, cuda_lane(b, lane)>>>(a);
    if (gain_q) {
        column_join_kernel<0><<<1, 128, 0, cuda_lane(b, lane)>>>(grad_of(d_gain_q), a.partial,
                                                                 blocks, d);
        column_join_kernel<0><<<1, 128, 0, cuda_lane(b, lane)>>>(
            grad_of(d_gain_k), a.partial + blocks * d, blocks, d);
    }
    TRY(cuda_launched("qk_bwd", e));
    return cuda_sink_emit(b, lane, dx, true, e);
}
