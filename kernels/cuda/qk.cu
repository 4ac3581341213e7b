/* QK-norm and rotary embedding, between the qkv GEMM and attention.
 *
 * Forward, per head of q and k: xh = x * rstd, y = xh * gain. Then the pair (y_i, y_{i+D/2}) is
 * rotated by the angle of its position. Backward rotates back, then goes through the norm.
 *
 * D/16 threads take a head. Each holds eight elements of the first half and the eight that they
 * pair with, in some heads of one row. These heads share their angles: loading 8 bytes of angles
 * for 4 of elements would be too much even for L2. Bound by memory: 4 bytes an element. In place,
 * heads that are only copied are read for the amax alone. Gain gradients: each thread sums over its
 * heads, a block joins its threads in order, a second kernel joins the blocks.
 *
 * Backward without norms makes the codes in the same pass, if they are of whole tiles, need no amax
 * and rotates_tiles: 4 bytes an element instead of 8 through a stored value. */
#include "kernels/cuda/cast_tile.cuh"
#include "kernels/cuda/columns.cuh"

struct qk {
    bf16_bits *out;
    const bf16_bits *in, *d_out; /* d_out: backward only */
    const bf16_bits *gain_q, *gain_k; /* [D] each, or NULL */
    const float *rope;           /* [T, D] or NULL */
    const int32_t *positions;    /* [R] rows of rope, or NULL: row % T */
    float *rstd;                 /* [R, H+G] or NULL */
    float *partial;              /* backward with gains: [2][blocks][D] */
    uint32_t *amax;
    int64_t items;               /* rows * parts */
    int64_t length;
    int heads, kv_heads, head_dim, group; /* group = head_dim / 16 threads */
    int parts; /* of a row: part p has the heads p, p + parts, p + 2 parts, ... */
    float eps;
};

/* The part of a row that one thread computes. */
struct share {
    int64_t row;
    int part, offset; /* of the low eight in a head; the high ones are head_dim / 2 further */
    bool active;
};

/* The thread's part of one head. changed: the head is q or k, and is normalised or rotated. */
struct place { int64_t at; int head; bool active, changed; };

__device__ static struct share share_of(const struct qk &a, int64_t item) {
    struct share s = { item / a.parts, (int)(item % a.parts), (int)(threadIdx.x % a.group) * 8,
                       item < a.items };
    return s;
}

__device__ static struct place place_of(const struct qk &a, const struct share &s, int k) {
    struct place p;
    int all = a.heads + 2 * a.kv_heads;
    p.head = s.part + k * a.parts;
    p.at = (s.row * all + p.head) * a.head_dim + s.offset;
    p.active = s.active && p.head < all;
    p.changed = p.active && p.head < a.heads + a.kv_heads && (a.rope || a.gain_q);
    return p;
}

/* The elements of all heads of a share, packed. */
__device__ static void load_heads(uint4 (&low)[QK_HEADS], uint4 (&high)[QK_HEADS],
                                  const struct qk &a, const struct share &s, const bf16_bits *x) {
#pragma unroll
    for (int k = 0; k < QK_HEADS; k++) {
        struct place p = place_of(a, s, k);
        low[k] = high[k] = make_uint4(0, 0, 0, 0);
        if (p.active) low[k] = *(const uint4 *)(x + p.at);
        if (p.active) high[k] = *(const uint4 *)(x + p.at + a.head_dim / 2);
    }
}

/* Cosines and sines of a share's eight angles. */
struct angles { float c[8], s[8]; };

__device__ static void load_angles(struct angles &t, const struct qk &a, const struct share &s) {
    if (!a.rope || !s.active) return;
    int64_t position = a.positions ? a.positions[s.row] : s.row % a.length;
    const float4 *rope = (const float4 *)(a.rope + position * a.head_dim + s.offset);
    *(float4 *)&t.c[0] = rope[0];
    *(float4 *)&t.c[4] = rope[1];
    *(float4 *)&t.s[0] = rope[a.head_dim / 8];
    *(float4 *)&t.s[4] = rope[a.head_dim / 8 + 1];
}

/* (x1, x2) -> (x1 c - x2 s, x2 c + x1 s); the inverse with s negated. */
__device__ static void rotate(const struct angles &t, float sign, float (&low)[8],
                              float (&high)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float c = t.c[i], s = sign * t.s[i], x1 = low[i], x2 = high[i];
        low[i] = x1 * c - x2 * s;
        high[i] = x2 * c + x1 * s;
    }
}

/* Sum over the threads of a head; the whole warp calls it. */
__device__ static float group_sum(float x, int group) {
    for (int step = group / 2; step; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
    return x;
}

/* Normalises one head; its first thread stores rstd. */
__device__ static void normalise(const struct qk &a, const struct share &s, const struct place &p,
                                 float (&low)[8], float (&high)[8]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += low[i] * low[i] + high[i] * high[i];
    float r = 1.0f / sqrtf(group_sum(sum, a.group) / (float)a.head_dim + a.eps);
    if (!p.changed) return;
    const bf16_bits *gain = (p.head < a.heads ? a.gain_q : a.gain_k) + s.offset;
    float g1[8], g2[8];
    load_bf16(g1, gain);
    load_bf16(g2, gain + a.head_dim / 2);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        low[i] = (low[i] * r) * g1[i];
        high[i] = (high[i] * r) * g2[i];
    }
    if (s.offset == 0) a.rstd[s.row * (a.heads + a.kv_heads) + p.head] = f32_canonical(r);
}

__global__ void __launch_bounds__(QK_THREADS) qk_fwd_kernel(struct qk a) {
    int64_t per_block = QK_THREADS / a.group, step = per_block * gridDim.x;
    int64_t item = blockIdx.x * per_block + threadIdx.x / a.group;
    int64_t rounds = (a.items + step - 1) / step;
    for (int64_t round = 0; round < rounds; round++, item += step) {
        struct share s = share_of(a, item);
        struct angles t;
        uint4 held_low[QK_HEADS], held_high[QK_HEADS];
        load_heads(held_low, held_high, a, s, a.in);
        load_angles(t, a, s);
#pragma unroll
        for (int k = 0; k < QK_HEADS; k++) {
            struct place p = place_of(a, s, k);
            float low[8], high[8];
            bf16x8_decode(low, held_low[k]);
            bf16x8_decode(high, held_high[k]);
            if (a.gain_q) normalise(a, s, p, low, high);
            if (p.changed && a.rope) rotate(t, 1.0f, low, high);
            if (!p.active || (!p.changed && a.out == a.in)) continue;
            store_bf16(a.out + p.at, low);
            store_bf16(a.out + p.at + a.head_dim / 2, high);
        }
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

/* A thread's sums of the gains' gradients: of q's gain, then k's. */
struct gain_sums { float low[2][8], high[2][8]; };

/* Backward through the norm of one head. */
__device__ static void normalise_back(const struct qk &a, const struct share &s,
                                      const struct place &p, struct gain_sums &sums,
                                      float (&low)[8], float (&high)[8]) {
    float x1[8] = {}, x2[8] = {}, g1[8] = {}, g2[8] = {}, r = 0.0f, dot = 0.0f;
    if (p.changed) {
        const bf16_bits *gain = (p.head < a.heads ? a.gain_q : a.gain_k) + s.offset;
        load_bf16(x1, a.in + p.at);
        load_bf16(x2, a.in + p.at + a.head_dim / 2);
        load_bf16(g1, gain);
        load_bf16(g2, gain + a.head_dim / 2);
        r = a.rstd[s.row * (a.heads + a.kv_heads) + p.head];
    }
    bool q = p.changed && p.head < a.heads, k = p.changed && !q;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x1[i] *= r;
        x2[i] *= r;
        if (q) {
            sums.low[0][i] += low[i] * x1[i];
            sums.high[0][i] += high[i] * x2[i];
        } else if (k) {
            sums.low[1][i] += low[i] * x1[i];
            sums.high[1][i] += high[i] * x2[i];
        }
        dot += (low[i] * g1[i]) * x1[i] + (high[i] * g2[i]) * x2[i];
    }
    float mean = group_sum(dot, a.group) / (float)a.head_dim;
    if (!p.changed) return;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        low[i] = r * (low[i] * g1[i] - x1[i] * mean);
        high[i] = r * (high[i] * g2[i] - x2[i] * mean);
    }
}

/* NORM: with gains. */
template <bool NORM> __global__ void __launch_bounds__(QK_THREADS) qk_bwd_kernel(struct qk a) {
    __shared__ float shared[NORM ? QK_THREADS : 1][16];
    struct gain_sums sums = {};
    int64_t per_block = QK_THREADS / a.group, step = per_block * gridDim.x;
    int64_t item = blockIdx.x * per_block + threadIdx.x / a.group;
    int64_t rounds = (a.items + step - 1) / step;
    uint32_t top = 0;
    for (int64_t round = 0; round < rounds; round++, item += step) {
        struct share s = share_of(a, item);
        struct angles t;
        uint4 held_low[QK_HEADS], held_high[QK_HEADS];
        load_heads(held_low, held_high, a, s, a.d_out);
        load_angles(t, a, s);
#pragma unroll
        for (int k = 0; k < QK_HEADS; k++) {
            struct place p = place_of(a, s, k);
            float low[8], high[8];
            bf16x8_decode(low, held_low[k]);
            bf16x8_decode(high, held_high[k]);
            if (p.changed && a.rope) rotate(t, -1.0f, low, high);
            if (NORM) normalise_back(a, s, p, sums, low, high);
            if (!p.active) continue;
            uint4 v1 = bf16x8_encode(low), v2 = bf16x8_encode(high);
            uint32_t pair = __vmaxu2(bf16x8_largest(v1), bf16x8_largest(v2));
            top = max(top, max(pair << 16, pair & 0xFFFF0000u));
            if (!p.changed && a.out == a.d_out) continue;
            *(uint4 *)(a.out + p.at) = v1;
            *(uint4 *)(a.out + p.at + a.head_dim / 2) = v2;
        }
    }
    block_amax_into(a.amax, top);
    if constexpr (NORM) {
        join_gain(a, a.partial, shared, sums.low[0], sums.high[0]);
        join_gain(a, a.partial + (int64_t)gridDim.x * a.head_dim, shared, sums.low[1],
                  sums.high[1]);
    }
}

/* ---- backward of the rotation into codes ---- */

/* Gradients for the tiles of cast_tile_kernel. Heads of 16 to 128 columns never cross a tile, and a
 * row of a tile belongs to 16 lanes of a warp. So a lane gets the values that pair with its own
 * from another lane, and each value is loaded once. A tile is rotated as a whole or not at all, and
 * a patch's rows are consecutive positions, unless these are given (rotates_tiles). */
template <bool GIVEN> struct qk_grads {
    enum { MADE = 1, BLOCKS = 2 };
    struct raw { uint4 v; };
    const bf16_bits *d_out;
    bf16_bits *value; /* NULL: not kept */
    const float *rope;
    const int32_t *positions; /* GIVEN: of each row */
    uint32_t length, head_dim; /* head_dim: a power of two */
    int64_t width, rotated;    /* columns; of these the first ones are of queries and keys */
    __device__ struct raw load(int64_t row, int64_t col) const {
        return { *(const uint4 *)(d_out + row * width + col) };
    }
    __device__ void make(uint4 (&v)[PATCH], const struct raw (&r)[PATCH], int64_t row,
                         int64_t col) const {
        const uint32_t half = head_dim / 2, place = (uint32_t)col & (head_dim - 1);
        uint32_t first = GIVEN ? 0 : (uint32_t)row % length;
        /* rotate() by -1: a low value adds its pair times the sine, a high one subtracts it. */
        const uint32_t flip = place < half ? 0 : 0x80008000u;
#pragma unroll
        for (int j = 0; j < PATCH; j++) v[j] = r[j].v;
        if (col / TILE * TILE >= rotated) return;
#pragma unroll
        for (int j = 0; j < PATCH; j++) {
            uint4 pair;
            pair.x = __shfl_xor_sync(0xFFFFFFFFu, v[j].x, half / PATCH) ^ flip;
            pair.y = __shfl_xor_sync(0xFFFFFFFFu, v[j].y, half / PATCH) ^ flip;
            pair.z = __shfl_xor_sync(0xFFFFFFFFu, v[j].z, half / PATCH) ^ flip;
            pair.w = __shfl_xor_sync(0xFFFFFFFFu, v[j].w, half / PATCH) ^ flip;
            uint32_t position = GIVEN ? (uint32_t)__ldg(positions + row + j) : first + j;
            const float *angles = rope + (int64_t)position * head_dim + (place & (half - 1));
            float x[8], y[8], c[8], s[8];
            bf16x8_decode(x, v[j]);
            bf16x8_decode(y, pair);
            load_eight(c, angles);
            load_eight(s, angles + half);
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] = x[i] * c[i] + y[i] * s[i];
            v[j] = bf16x8_pack(x);
        }
    }
    __device__ void keep(uint4 v, int64_t row, int64_t col) const {
        if (value) store_words(value + row * width + col, v);
    }
    __device__ static void load_eight(float (&out)[8], const float *from) {
        *(float4 *)&out[0] = __ldg((const float4 *)from);
        *(float4 *)&out[4] = __ldg((const float4 *)from + 1);
    }
};

/* Whether qk_grads can serve a backward: without norms, with a rotation; queries and keys are whole
 * tiles; and eight rows are consecutive positions, or positions are given. */
static bool rotates_tiles(const struct qk *a, int64_t rows) {
    int64_t rotated = (int64_t)(a->heads + a->kv_heads) * a->head_dim;
    return a->rope && !a->gain_q && rows <= INT32_MAX && rotated % TILE == 0 &&
           (a->positions || a->length % PATCH == 0);
}

/* Codes of whole tiles, for a backward that rotates_tiles. */
template <bool GIVEN>
static enum status qk_bwd_codes(struct backend *b, int lane, const struct sink *dx,
                                const struct qk *a, struct err *e) {
    int64_t width = (int64_t)(a->heads + 2 * a->kv_heads) * a->head_dim;
    struct qk_grads<GIVEN> from = {
        a->d_out, dx->keep_value ? a->out : NULL, a->rope, a->positions, (uint32_t)a->length,
        (uint32_t)a->head_dim, width, (int64_t)(a->heads + a->kv_heads) * a->head_dim
    };
    return cast_tiles<true>(b, lane, dx, tile_args_of(dx, a->amax), from, e);
}

/* ---- launchers ---- */

/* The inputs that forward and backward share. */
static enum status qk_setup(struct qk *a, const char *what, const struct qk_fwd_args *args,
                            struct err *e) {
    const struct tensor *in = args->in, *rope = args->rope, *rstd = args->rstd;
    const struct tensor *gain_q = args->gain_q, *gain_k = args->gain_k;
    int64_t heads = args->heads, kv_heads = args->kv_heads;
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
    if (rope && args->positions)
        TRY(cuda_check_indices(args->positions, what, batch * length, e));
    uintptr_t gains = gain_q ? (uintptr_t)gain_q->data | (uintptr_t)gain_k->data : 0;
    if (((uintptr_t)in->data | gains) % 16)
        return FAIL(e, ERR_ARG, "%s: heads and gains must be 16-byte aligned", what);
    *a = {};
    a->in = (const bf16_bits *)in->data;
    a->gain_q = gain_q ? (const bf16_bits *)gain_q->data : NULL;
    a->gain_k = gain_k ? (const bf16_bits *)gain_k->data : NULL;
    a->rope = rope ? (const float *)rope->data : NULL;
    a->positions = rope && args->positions ? (const int32_t *)args->positions->data : NULL;
    a->rstd = gain_q ? (float *)rstd->data : NULL;
    a->parts = (int)qk_parts(heads + 2 * kv_heads);
    a->items = batch * length * a->parts;
    a->length = length;
    a->heads = (int)heads;
    a->kv_heads = (int)kv_heads;
    a->head_dim = (int)d;
    a->group = (int)d / 16;
    return OK;
}

static unsigned blocks_of(const struct qk *a) {
    return (unsigned)qk_blocks(a->items, a->head_dim);
}

enum status cuda_qk_fwd(struct backend *b, int lane, const struct qk_fwd_args *args,
                        struct err *e) {
    struct qk a;
    const struct tensor *in = args->in;
    TRY(qk_setup(&a, "qk_fwd", args, e));
    TRY(cuda_check_packed(args->out, "qk_fwd: out", IS_BF16, in->dim[0], tensor_cols(in), e));
    a.out = (bf16_bits *)args->out->data;
    a.eps = args->eps;
    qk_fwd_kernel<<<blocks_of(&a), QK_THREADS, 0, cuda_lane(b, lane)>>>(a);
    return cuda_launched("qk_fwd", e);
}

enum status cuda_qk_bwd(struct backend *b, int lane, const struct qk_bwd_args *args,
                        struct err *e) {
    struct qk a;
    const struct sink *dx = args->dx;
    const struct tensor *in = args->in, *d_out = args->d_out, *gain_q = args->gain_q;
    const struct tensor *d_gain_q = args->d_gain_q, *d_gain_k = args->d_gain_k;
    struct qk_fwd_args forward = {};
    forward.in = in;
    forward.gain_q = gain_q;
    forward.gain_k = args->gain_k;
    forward.rstd = args->rstd;
    forward.rope = args->rope;
    forward.positions = args->positions;
    forward.heads = args->heads;
    forward.kv_heads = args->kv_heads;
    TRY(qk_setup(&a, "qk_bwd", &forward, e));
    int64_t rows = in->dim[0] * in->dim[1], d = a.head_dim;
    TRY(cuda_check_packed(d_out, "qk_bwd: d_out", IS_BF16, in->dim[0], tensor_cols(in), e));
    TRY(cuda_check_sink(dx, "qk_bwd: dx", rows, in->dim[2] * d, e));
    a.out = sink_value_of(dx);
    a.d_out = (const bf16_bits *)d_out->data;
    a.amax = sink_amax(dx);
    if (rotates_tiles(&a, rows) && cast_fuses(dx))
        return a.positions ? qk_bwd_codes<true>(b, lane, dx, &a, e)
                           : qk_bwd_codes<false>(b, lane, dx, &a, e);
    unsigned blocks = blocks_of(&a);
    if (gain_q) {
        TRY(cuda_check(d_gain_q, "qk_bwd: d_gain_q", IS_GRAD, d, 1, e));
        TRY(cuda_check(d_gain_k, "qk_bwd: d_gain_k", IS_GRAD, d, 1, e));
        void *partial;
        TRY(cuda_scratch(b, lane, SCRATCH_PARTIAL, 2 * blocks * d * 4, &partial, e));
        a.partial = (float *)partial;
    }
    cudaStream_t stream = cuda_lane(b, lane);
    auto kernel = gain_q ? qk_bwd_kernel<true> : qk_bwd_kernel<false>;
    kernel<<<blocks, QK_THREADS, 0, stream>>>(a);
    TRY(cuda_launched("qk_bwd", e));
    if (gain_q) {
        struct column_join join = { { grad_of(d_gain_q), grad_of(d_gain_k) },
                                    a.partial, blocks, d };
        launch_column_join(join, 2, stream);
    }
    TRY(cuda_launched("qk_bwd: gains", e));
    return cuda_sink_emit(b, lane, dx, true, e);
}
