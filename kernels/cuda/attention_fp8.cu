/* FP8 attention by BF16 tensor cores. E4M3 and E5M2 codes are BF16 numbers, so operands are widened
 * and products are exact. Probabilities and score gradients are rounded to codes in registers, as
 * the reference does. Only the order of sums and the exponential differ from it; a value near the
 * middle of two codes may then get the other one.
 *
 * Forward takes two passes over the keys. The first finds each row's maximum and sum, the second
 * rounds normalised probabilities. Backward is that of attention_bwd.cu with roundings. Tiles of
 * 64 x 64; a warp takes 16 rows. Runs on every device from sm_80 on. cuDNN's kernels serve instead
 * where attention_rule.h says so. */
#include <stdio.h>

#include "kernels/cuda/attention_choice.cuh"
#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/fp8_inline.h"

enum { ROWS = 64, TILES = ROWS / 8 };
static const float LOG2E = 1.44269504f;

struct fp8_cast {
    const float *multiplier, *factor;
    uint32_t *amax;
    unsigned long long *stats; /* or NULL */
    float max;
    bool e5m2;
};

struct fp8_attention {
    struct attention a;  /* qkv: the codes as BF16, without their factor */
    const float *factor; /* of qkv */
    bf16_bits *o, *d_qkv;
    float *lse, *delta;
    const bf16_bits *d_o;           /* codes as BF16 */
    const float *d_o_factor;
    const void *o_in;               /* [B*T, H*D]: BF16, or E4M3 codes if o_factor is not NULL */
    const float *o_factor;
    int64_t o_stride;               /* of o_in */
    struct fp8_cast p, ds;
};

/* ---- rounding ---- */

/* What a thread found among the values that it rounded. */
struct fp8_tally { uint32_t amax, saturated, flushed; };

__device__ static inline float round_to_code(const struct fp8_cast &c, float multiplier, float x,
                                             struct fp8_tally &t) {
    float y = x * multiplier;
    uint8_t code = c.e5m2 ? e5m2_encode_inline(y) : e4m3_encode_inline(y);
    uint32_t bits = __float_as_uint(x) & 0x7FFFFFFFu;
    t.amax = max(t.amax, bits > 0x7F800000u ? 0x7FC00000u : bits); /* NaN is canonical */
    t.saturated += fabsf(y) > c.max;
    t.flushed += (code & 0x7Fu) == 0 && bits != 0;
    return c.e5m2 ? e5m2_decode_inline(code) : e4m3_decode_inline(code);
}

/* All threads of a warp call it. */
__device__ static inline void tally_into(const struct fp8_cast &c, const struct fp8_tally &t) {
    warp_amax_into(c.amax, t.amax);
    if (!c.stats) return;
    uint64_t saturated = warp_sum_u64(t.saturated), flushed = warp_sum_u64(t.flushed);
    if (threadIdx.x % WARP != 0) return;
    if (saturated) atomicAdd(c.stats, (unsigned long long)saturated);
    if (flushed) atomicAdd(c.stats + 1, (unsigned long long)flushed);
}

/* The factor of a chain of scores. */
__device__ static inline float score_scale(const struct fp8_attention &f) {
    return f.a.scale * (*f.factor * *f.factor);
}

/* ---- where one head of one sequence lies ---- */

struct head_view {
    const bf16_bits *q, *k, *v, *d_o;
    const float *lse, *delta;
};

template <int D>
__device__ static struct head_view view_of(const struct fp8_attention &f, int64_t sequence,
                                           int head) {
    struct head_view view;
    int group = head * f.a.kv_heads / f.a.heads;
    const bf16_bits *base = f.a.qkv + sequence * f.a.length * f.a.width;
    int64_t row = (sequence * f.a.heads + head) * f.a.length;
    view.q = base + (int64_t)head * D;
    view.k = base + (int64_t)(f.a.heads + group) * D;
    view.v = view.k + (int64_t)f.a.kv_heads * D;
    view.d_o = f.d_o + (sequence * f.a.length * f.a.heads + head) * D;
    view.lse = f.lse + row;
    view.delta = f.delta + row;
    return view;
}

/* ---- forward ---- */

/* A thread's two rows of a warp's 16. */
struct softmax_rows { float max[2], sum[2]; int64_t row[2]; int low[2]; };

/* Whether element i of tile n is of a key that its query sees. */
__device__ static inline bool sees(const struct softmax_rows &r, int64_t key0, int n, int i) {
    int64_t key = key0 + n * 8 + threadIdx.x % 4 * 2 + i % 2;
    return key <= r.row[i / 2] && key >= r.low[i / 2];
}

__device__ static void add_to_sum(struct softmax_rows &r, const float (&s)[1][TILES][4],
                                  int64_t key0, float scale_log2) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = -INFINITY, sum = 0.0f;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++)
                if (sees(r, key0, n, i)) top = fmaxf(top, s[0][n][i]);
        top = fmaxf(r.max[h], quad_max(top));
        float base = top == -INFINITY ? 0.0f : top, shift = base * scale_log2;
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++)
                if (sees(r, key0, n, i)) sum += exp2_fast(fmaf(s[0][n][i], scale_log2, -shift));
        r.sum[h] = fmaf(r.sum[h], exp2_fast((r.max[h] - base) * scale_log2), sum);
        r.max[h] = top;
    }
}

/* Grid: x over query tiles, the longest first; y heads; z sequences. */
template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS) fp8_fwd_kernel(struct fp8_attention f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *q = shared, *k = q + ROWS * STRIDE, *v = k + ROWS * STRIDE;
    int64_t row0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS, sequence = blockIdx.z;
    int64_t length = f.a.length;
    int head = blockIdx.y, lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * 16;
    float scale = score_scale(f), scale_log2 = scale * LOG2E, inverse[2], shift[2];
    float out[1][D / 8][4] = {}, multiplier = *f.p.multiplier;
    struct head_view view = view_of<D>(f, sequence, head);
    struct softmax_rows r = {};
    struct fp8_tally tally = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        r.row[h] = row0 + warp_row + lane / 4 + 8 * h;
        r.low[h] = f.a.first_key ? first_key_of(f.a, sequence, r.row[h]) : 0;
        r.max[h] = -INFINITY;
        if (r.row[h] >= length) r.row[h] = -1; /* sees no key */
    }
    int64_t begin = f.a.first_key ? first_key_of(f.a, sequence, row0) / ROWS * ROWS : 0;
    copy_tile<D, ROWS>(q, view.q + row0 * f.a.width, f.a.width, length - row0);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t key0 = begin; key0 <= row0; key0 += ROWS) {
            float s[1][TILES][4] = {};
            __syncthreads(); /* the tile before has been used */
            copy_tile<D, ROWS>(k, view.k + key0 * f.a.width, f.a.width, length - key0);
            if (pass) copy_tile<D, ROWS>(v, view.v + key0 * f.a.width, f.a.width, length - key0);
            copies_commit();
            copies_wait<0>();
            __syncthreads();
            multiply_rows<D, 1, TILES>(s, q + warp_row * STRIDE, k);
            if (pass == 0) {
                add_to_sum(r, s, key0, scale_log2);
                continue;
            }
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    bool seen = sees(r, key0, n, i);
                    float x = exp2_fast(fmaf(s[0][n][i], scale_log2, -shift[i / 2])) *
                              inverse[i / 2];
                    s[0][n][i] = seen ? round_to_code(f.p, multiplier, x, tally) : 0.0f;
                }
            multiply_columns<D, 1, ROWS>(out, s, v);
        }
#pragma unroll
        for (int h = 0; pass == 0 && h < 2; h++) {
            float sum = quad_sum(r.sum[h]);
            inverse[h] = 1.0f / sum;
            shift[h] = r.max[h] * scale_log2;
            if (r.row[h] >= 0 && lane % 4 == 0)
                f.lse[(sequence * f.a.heads + head) * length + r.row[h]] =
                    f32_canonical(r.max[h] * scale + logf(sum));
        }
    }
    int64_t row = row0 + warp_row, width = (int64_t)f.a.heads * D;
    store_tile<D>(f.o + (sequence * length + row) * width + (int64_t)head * D, width, out[0],
                  *f.p.factor * *f.factor, length - row);
    tally_into(f.p, tally);
}

/* ---- backward ---- */

/* A warp for each row and head. */
__global__ void fp8_delta_kernel(struct fp8_attention f) {
    int64_t item = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / WARP;
    int d = f.a.head_dim, lane = threadIdx.x % WARP;
    if (item >= f.a.batch * f.a.length * f.a.heads) return;
    int64_t row = item / f.a.heads, head = item % f.a.heads, t = row % f.a.length;
    float sum = 0.0f, factor = *f.d_o_factor * (f.o_factor ? *f.o_factor : 1.0f);
    for (int i = lane; i < d; i += WARP) {
        int64_t at = row * f.o_stride + head * d + i;
        float o = f.o_factor ? e4m3_decode_inline(((const uint8_t *)f.o_in)[at])
                             : bf16_decode(((const bf16_bits *)f.o_in)[at]);
        sum += bf16_decode(f.d_o[item * d + i]) * o;
    }
    sum = warp_sum(sum);
    if (lane == 0)
        f.delta[(row / f.a.length * f.a.heads + head) * f.a.length + t] = sum * factor;
}

/* What both passes of backward compute of one pair, from the chains of its score and of dP. */
struct pair_scales { float score_log2, dp, p, ds; };
__device__ static inline struct pair_scales pair_scales_of(const struct fp8_attention &f) {
    struct pair_scales s = { score_scale(f) * LOG2E, *f.d_o_factor * *f.factor, *f.p.multiplier,
                             *f.ds.multiplier };
    return s;
}
/* lse: times log2 e. The codes of P and dS replace the chains; a hidden pair has zeros. */
__device__ static inline void round_pair(const struct fp8_attention &f,
                                         const struct pair_scales &m, bool hidden, float lse,
                                         float delta, float &s, float &dp, struct fp8_tally &t) {
    struct fp8_tally unused = {};
    float p = exp2_fast(fmaf(s, m.score_log2, -lse));
    float ds = (p * (dp * m.dp - delta)) * f.a.scale;
    s = hidden ? 0.0f : round_to_code(f.p, m.p, p, unused);
    dp = hidden ? 0.0f : round_to_code(f.ds, m.ds, ds, t);
}

/* Keys and values: a warp's rows are keys, its columns queries. */
template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS) fp8_dkv_kernel(struct fp8_attention f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *k = shared, *v = k + ROWS * STRIDE, *q = v + ROWS * STRIDE, *d_o = q + ROWS * STRIDE;
    float *lse = (float *)(d_o + ROWS * STRIDE), *delta = lse + ROWS;
    int *low = (int *)(delta + ROWS); /* the first key that each query sees */
    int64_t key0 = (int64_t)blockIdx.x * ROWS, sequence = blockIdx.z, length = f.a.length;
    int64_t o_stride = (int64_t)f.a.heads * D;
    int group = blockIdx.y, share = f.a.heads / f.a.kv_heads, lane = threadIdx.x % WARP;
    int warp_row = threadIdx.x / WARP * 16;
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    struct pair_scales scales = pair_scales_of(f);
    struct fp8_tally unused = {}; /* the other pass counts */
    struct head_view view = view_of<D>(f, sequence, group * share);
    copy_tile<D, ROWS>(k, view.k + key0 * f.a.width, f.a.width, length - key0);
    copy_tile<D, ROWS>(v, view.v + key0 * f.a.width, f.a.width, length - key0);
    for (int h = 0; h < share; h++) {
        view = view_of<D>(f, sequence, group * share + h);
        for (int64_t row0 = key0; row0 < length; row0 += ROWS) {
            /* Later queries begin no earlier: none of them sees these keys. */
            if (f.a.first_key && first_key_of(f.a, sequence, row0) >= key0 + ROWS) break;
            __syncthreads(); /* the tile before has been used */
            copy_tile<D, ROWS>(q, view.q + row0 * f.a.width, f.a.width, length - row0);
            copy_tile<D, ROWS>(d_o, view.d_o + row0 * o_stride, o_stride, length - row0);
            copies_commit();
            if (threadIdx.x < ROWS) {
                int64_t row = row0 + threadIdx.x;
                bool there = row < length;
                lse[threadIdx.x] = there ? view.lse[row] * LOG2E : INFINITY;
                delta[threadIdx.x] = there ? view.delta[row] : 0.0f;
                /* rows behind the last see no key */
                low[threadIdx.x] = !there ? INT32_MAX
                                 : f.a.first_key ? first_key_of(f.a, sequence, row) : 0;
            }
            copies_wait<0>();
            __syncthreads();
            float p[1][TILES][4] = {}, ds[1][TILES][4] = {};
            multiply_rows<D, 1, TILES>(p, k + warp_row * STRIDE, q);
            multiply_rows<D, 1, TILES>(ds, v + warp_row * STRIDE, d_o);
#pragma unroll
            for (int n = 0; n < TILES; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int row = n * 8 + lane % 4 * 2 + i % 2, key = warp_row + lane / 4 + i / 2 * 8;
                    bool hidden = key0 + key > row0 + row || key0 + key < low[row];
                    round_pair(f, scales, hidden, lse[row], delta[row], p[0][n][i], ds[0][n][i],
                               unused);
                }
            multiply_columns<D, 1, ROWS>(dv, p, d_o);
            multiply_columns<D, 1, ROWS>(dk, ds, q);
        }
    }
    int64_t row = key0 + warp_row;
    bf16_bits *to = f.d_qkv + (sequence * length + row) * f.a.width +
                    (int64_t)(f.a.heads + group) * D;
    store_tile<D>(to, f.a.width, dk[0], *f.ds.factor * *f.factor, length - row);
    store_tile<D>(to + (int64_t)f.a.kv_heads * D, f.a.width, dv[0], *f.p.factor * *f.d_o_factor,
                  length - row);
}

/* Queries: a warp's rows are queries, its columns keys. Each pair is here once, and is counted. */
template <int D>
__global__ void __launch_bounds__(ATTENTION_THREADS) fp8_dq_kernel(struct fp8_attention f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *q = shared, *d_o = q + ROWS * STRIDE, *k = d_o + ROWS * STRIDE;
    bf16_bits *v = k + ROWS * STRIDE;
    int64_t row0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * ROWS, sequence = blockIdx.z;
    int64_t length = f.a.length, o_stride = (int64_t)f.a.heads * D;
    int head = blockIdx.y, lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * 16;
    float dq[1][D / 8][4] = {}, lse[2], delta[2];
    struct pair_scales scales = pair_scales_of(f);
    struct fp8_tally tally = {};
    struct softmax_rows r = {};
    struct head_view view = view_of<D>(f, sequence, head);
    copy_tile<D, ROWS>(q, view.q + row0 * f.a.width, f.a.width, length - row0);
    copy_tile<D, ROWS>(d_o, view.d_o + row0 * o_stride, o_stride, length - row0);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = row0 + warp_row + lane / 4 + 8 * h;
        bool there = row < length;
        lse[h] = there ? view.lse[row] * LOG2E : INFINITY;
        delta[h] = there ? view.delta[row] : 0.0f;
        r.low[h] = f.a.first_key ? first_key_of(f.a, sequence, row) : 0;
        r.row[h] = there ? row : -1;
    }
    int64_t begin = f.a.first_key ? first_key_of(f.a, sequence, row0) / ROWS * ROWS : 0;
    for (int64_t key0 = begin; key0 <= row0; key0 += ROWS) {
        __syncthreads(); /* the tile before has been used */
        copy_tile<D, ROWS>(k, view.k + key0 * f.a.width, f.a.width, length - key0);
        copy_tile<D, ROWS>(v, view.v + key0 * f.a.width, f.a.width, length - key0);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        float p[1][TILES][4] = {}, ds[1][TILES][4] = {};
        multiply_rows<D, 1, TILES>(p, q + warp_row * STRIDE, k);
        multiply_rows<D, 1, TILES>(ds, d_o + warp_row * STRIDE, v);
#pragma unroll
        for (int n = 0; n < TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                round_pair(f, scales, !sees(r, key0, n, i), lse[i / 2], delta[i / 2], p[0][n][i],
                           ds[0][n][i], tally);
        multiply_columns<D, 1, ROWS>(dq, ds, k);
    }
    int64_t row = row0 + warp_row;
    store_tile<D>(f.d_qkv + (sequence * length + row) * f.a.width + (int64_t)head * D, f.a.width,
                  dq[0], *f.ds.factor * *f.factor, length - row);
    tally_into(f.ds, tally);
}

/* ---- arguments ---- */

static enum status cast_of(struct fp8_cast *out, const struct attention_cast *c, const char *what,
                           struct err *e) {
    if (!c) return FAIL(e, ERR_ARG, "%s is missing", what);
    if (c->code != DTYPE_E4M3 && c->code != DTYPE_E5M2)
        return FAIL(e, ERR_ARG, "%s: rounded to %s", what, dtype_name(c->code));
    TRY(cuda_check(c->multiplier, what, IS_F32, 1, 1, e));
    TRY(cuda_check(c->factor, what, IS_F32, 1, 1, e));
    TRY(cuda_check(c->amax, what, IS_U32, 1, 1, e));
    if (c->stats) TRY(cuda_check(c->stats, what, IS_U64, 2, 1, e));
    *out = { (const float *)c->multiplier->data, (const float *)c->factor->data,
             (uint32_t *)c->amax->data, c->stats ? (unsigned long long *)c->stats->data : NULL,
             dtype_max(c->code), c->code == DTYPE_E5M2 };
    return OK;
}

static enum status check_codes(const struct tensor *x, const char *what, int dtypes, int64_t rows,
                               int64_t cols, struct err *e) {
    TRY(cuda_check(x, what, dtypes, rows, cols, e));
    if (x->scale.kind != SCALE_TENSOR)
        return FAIL(e, ERR_ARG, "%s: its codes do not have one scale", what);
    return cuda_check_scale(x, what, rows, cols, e);
}

/* The 4-D view of qkv's codes as rows. */
static struct tensor rows_of(const struct tensor *qkv) {
    struct tensor x = *qkv;
    x.dim[0] = qkv->dim[0] * qkv->dim[1];
    x.dim[1] = qkv->dim[2] * qkv->dim[3];
    x.dim[2] = x.dim[3] = x.stride[1] = x.stride[2] = x.stride[3] = 1;
    x.stride[0] = qkv->stride[1];
    return x;
}

/* Codes as BF16, without their factor, at `data`. */
static enum status widen(struct backend *b, int lane, const struct tensor *codes, bf16_bits *data,
                         struct err *e) {
    struct tensor wide = tensor_2d(data, DTYPE_BF16, codes->dim[0], codes->dim[1]), plain = *codes;
    plain.scale.kind = SCALE_NONE;
    return cuda_dequantise(b, lane, &wide, &plain, e);
}

/* Checks qkv and fills what both directions share, but for f->a.qkv. */
static enum status setup(const char *what, const struct tensor *qkv, int64_t heads,
                         int64_t kv_heads, const struct tensor *first_key,
                         struct fp8_attention *f, struct err *e) {
    if (!qkv || !qkv->data) return FAIL(e, ERR_ARG, "%s: qkv is missing", what);
    struct tensor codes = rows_of(qkv);
    struct tensor view = tensor_make(qkv->data, DTYPE_BF16, qkv->dim[0], qkv->dim[1], qkv->dim[2],
                                     qkv->dim[3]);
    TRY(check_codes(&codes, what, IS_E4M3, -1, -1, e));
    if (qkv->stride[0] != qkv->dim[1] * qkv->stride[1] || qkv->stride[2] != qkv->dim[3] ||
        qkv->stride[3] != 1)
        return FAIL(e, ERR_ARG, "%s: qkv: its rows of codes are not contiguous", what);
    f->factor = (const float *)qkv->scale.data;
    return attention_setup(&f->a, what, &view, heads, kv_heads, first_key, e);
}

/* Widens qkv and, unless NULL, d_o. */
static enum status widen_operands(struct cuda_backend *b, int lane, const struct tensor *qkv,
                                  const struct tensor *d_o, struct fp8_attention *f,
                                  struct err *e) {
    const struct attention_size size = { f->a.batch, f->a.length, f->a.heads, f->a.kv_heads,
                                         f->a.head_dim };
    struct tensor codes = rows_of(qkv);
    void *memory;
    TRY(cuda_scratch(&b->base, lane, SCRATCH_ATTENTION, attention_wide_bytes(&size), &memory, e));
    f->a.qkv = (const bf16_bits *)memory;
    f->d_o = (const bf16_bits *)((char *)memory + attention_qkv_wide_bytes(&size));
    if (d_o) TRY(widen(&b->base, lane, d_o, (bf16_bits *)f->d_o, e));
    return widen(&b->base, lane, &codes, (bf16_bits *)memory, e);
}

/* ---- cuDNN ---- */

__global__ void fp8_begin_kernel(float *scalars) {
    for (int i = 0; i < CUDNN_FP8_SCALARS; i++) scalars[i] = i < CUDNN_FP8_P_AMAX ? 1.0f : 0.0f;
}
__global__ void fp8_end_kernel(const float *found, uint32_t *amax) {
    raise_amax(amax, __float_as_uint(f32_canonical(*found)) & 0x7FFFFFFFu);
}

/* What both directions hand to a plan: its workspace and, behind it, its scalars, which are set. */
static enum status begin_plan(struct cuda_backend *b, int lane, const struct cudnn_plan *plan,
                              const struct attention *codes, const struct fp8_attention *f,
                              const struct tensor *qkv, struct cudnn_fp8_call *c,
                              void **workspace, struct err *e) {
    int64_t bytes = round_up(plan->workspace_bytes, 256);
    TRY(cuda_scratch(&b->base, lane, SCRATCH_ATTENTION, bytes + CUDNN_FP8_SCALARS * 4, workspace,
                     e));
    c->a = codes;
    c->codes = (const uint8_t *)qkv->data;
    c->factor = f->factor;
    c->p_factor = f->p.factor;
    c->p_multiplier = f->p.multiplier;
    c->lse = f->lse;
    c->scalars = (float *)((char *)*workspace + bytes);
    fp8_begin_kernel<<<1, 1, 0, b->lane[lane]>>>(c->scalars);
    return cuda_launched("attention by cuDNN in FP8", e);
}

static enum status end_plan(struct cuda_backend *b, int lane, const struct cudnn_fp8_call *c,
                            int found, const struct fp8_cast *cast, struct err *e) {
    fp8_end_kernel<<<1, 1, 0, b->lane[lane]>>>(c->scalars + found, cast->amax);
    return cuda_launched("attention by cuDNN in FP8", e);
}

/* Its plan rounds P too, but does not count what it lost: stats stay as they are. */
static enum status forward_by_cudnn(struct cuda_backend *b, int lane,
                                    const struct cudnn_plan *plan, const struct attention *codes,
                                    const struct fp8_attention *f, const struct tensor *qkv,
                                    struct err *e) {
    struct cudnn_fp8_call c = {};
    void *workspace;
    TRY(begin_plan(b, lane, plan, codes, f, qkv, &c, &workspace, e));
    c.o = f->o;
    TRY(cudnn_plan_run_fp8_fwd(b, plan, &c, workspace, b->lane[lane], e));
    return end_plan(b, lane, &c, CUDNN_FP8_P_AMAX, &f->p, e);
}

/* The same for dS. delta stays as it is. */
static enum status backward_by_cudnn(struct cuda_backend *b, int lane,
                                     const struct cudnn_plan *plan, const struct attention *codes,
                                     const struct fp8_attention *f,
                                     const struct attention_bwd_args *args, struct err *e) {
    struct cudnn_fp8_call c = {};
    void *workspace;
    TRY(begin_plan(b, lane, plan, codes, f, args->qkv, &c, &workspace, e));
    c.o = (void *)f->o_in;
    c.o_factor = f->o_factor;
    c.d_o = (const uint8_t *)args->d_o->data;
    c.d_o_factor = f->d_o_factor;
    c.ds_factor = f->ds.factor;
    c.ds_multiplier = f->ds.multiplier;
    c.d_qkv = f->d_qkv;
    TRY(cudnn_plan_run_fp8_bwd(b, plan, &c, workspace, b->lane[lane], e));
    return end_plan(b, lane, &c, CUDNN_FP8_DS_AMAX, &f->ds, e);
}

/* ---- launchers ---- */

typedef void (*fp8_kernel)(struct fp8_attention);
struct kernels { fp8_kernel fwd, dkv, dq; };

static struct kernels kernels_for(int d) {
    switch (d) {
    case 16: return { fp8_fwd_kernel<16>, fp8_dkv_kernel<16>, fp8_dq_kernel<16> };
    case 32: return { fp8_fwd_kernel<32>, fp8_dkv_kernel<32>, fp8_dq_kernel<32> };
    case 64: return { fp8_fwd_kernel<64>, fp8_dkv_kernel<64>, fp8_dq_kernel<64> };
    default: return { fp8_fwd_kernel<128>, fp8_dkv_kernel<128>, fp8_dq_kernel<128> };
    }
}
static int shared_bytes(int d) { return 4 * ROWS * (d + 8) * 2 + 3 * ROWS * 4; }

enum status attention_fp8_open(struct err *e) {
    for (int d = 16; d <= 128; d *= 2) {
        struct kernels k = kernels_for(d);
        const fp8_kernel each[] = { k.fwd, k.dkv, k.dq };
        for (int i = 0; i < 3; i++)
            CUDA_TRY(e, cudaFuncSetAttribute(each[i], cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             shared_bytes(d)));
    }
    return OK;
}

static enum status emulate_forward(struct cuda_backend *b, int lane, const struct tensor *qkv,
                                   struct fp8_attention *f, struct err *e) {
    TRY(widen_operands(b, lane, qkv, NULL, f, e));
    dim3 grid((unsigned)ceil_div(f->a.length, ROWS), (unsigned)f->a.heads, (unsigned)f->a.batch);
    kernels_for(f->a.head_dim).fwd<<<grid, ATTENTION_THREADS, shared_bytes(f->a.head_dim),
                                     b->lane[lane]>>>(*f);
    return cuda_launched("attention_fwd in FP8", e);
}

enum status attention_fp8_fwd(struct cuda_backend *b, int lane,
                              const struct attention_fwd_args *args, struct err *e) {
    static const struct cudnn_spec spec = { CUDNN_FP8_FORWARD, false, false, false, false };
    struct fp8_attention f = {};
    const struct tensor *qkv = args->qkv;
    struct attention_way way;
    TRY(setup("attention_fwd", qkv, args->heads, args->kv_heads, args->first_key, &f, e));
    int64_t rows = f.a.batch * f.a.length;
    TRY(cuda_check_sink(args->o, "attention_fwd: o", rows, args->heads * f.a.head_dim, e));
    TRY(cuda_check_packed(args->lse, "attention_fwd: lse", IS_F32, f.a.batch,
                          args->heads * f.a.length, e));
    TRY(cast_of(&f.p, args->p, "attention_fwd: p", e));
    f.o = sink_value_of(args->o);
    f.lse = (float *)args->lse->data;
    struct attention codes = f.a;
    codes.width = qkv->stride[1];
    TRY(attention_choose_fp8(b, &codes, &spec, true, &way, e));
    TRY(attention_decided(b, &f.a, "forward", way.plan ? "cudnn" : "emulated", way.why, e));
    if (rows > 0 && way.plan) TRY(forward_by_cudnn(b, lane, way.plan, &codes, &f, qkv, e));
    else if (rows > 0) TRY(emulate_forward(b, lane, qkv, &f, e));
    return cuda_sink_emit(&b->base, lane, args->o, false, e);
}

/* The operands that backward alone has. */
static enum status take_backward(struct fp8_attention *f, const struct attention_bwd_args *args,
                                 struct err *e) {
    int64_t rows = f->a.batch * f->a.length, row = args->heads * f->a.head_dim;
    int64_t per = args->heads * f->a.length;
    const struct tensor *o = args->o;
    TRY(cuda_check_sink(args->d_qkv, "attention_bwd: d_qkv", rows, f->a.width, e));
    TRY(cuda_check(o, "attention_bwd: o", IS_BF16 | IS_E4M3, rows, row, e));
    bool codes = o->dtype == DTYPE_E4M3;
    if (codes) TRY(check_codes(o, "attention_bwd: o", IS_E4M3, rows, row, e));
    TRY(cuda_check_packed(args->lse, "attention_bwd: lse", IS_F32, f->a.batch, per, e));
    TRY(cuda_check_packed(args->delta, "attention_bwd: delta", IS_F32, f->a.batch, per, e));
    TRY(cast_of(&f->p, args->p, "attention_bwd: p", e));
    TRY(cast_of(&f->ds, args->ds, "attention_bwd: ds", e));
    f->d_qkv = sink_value_of(args->d_qkv);
    f->d_o_factor = (const float *)args->d_o->scale.data;
    f->o_in = o->data;
    f->o_factor = codes ? (const float *)o->scale.data : NULL;
    f->o_stride = o->stride[0];
    f->lse = (float *)args->lse->data;
    f->delta = (float *)args->delta->data;
    return OK;
}

static enum status emulate_backward(struct cuda_backend *b, int lane,
                                    const struct attention_bwd_args *args,
                                    struct fp8_attention *f, struct err *e) {
    cudaStream_t stream = b->lane[lane];
    int64_t items = f->a.batch * f->a.length * f->a.heads;
    TRY(widen_operands(b, lane, args->qkv, args->d_o, f, e));
    fp8_delta_kernel<<<(unsigned)ceil_div(items, 256 / WARP), 256, 0, stream>>>(*f);
    TRY(cuda_launched("attention_bwd in FP8: delta", e));
    unsigned tiles = (unsigned)ceil_div(f->a.length, ROWS), batch = (unsigned)f->a.batch;
    struct kernels k = kernels_for(f->a.head_dim);
    int bytes = shared_bytes(f->a.head_dim);
    k.dkv<<<dim3(tiles, (unsigned)f->a.kv_heads, batch), ATTENTION_THREADS, bytes, stream>>>(*f);
    TRY(cuda_launched("attention_bwd in FP8: keys and values", e));
    k.dq<<<dim3(tiles, (unsigned)f->a.heads, batch), ATTENTION_THREADS, bytes, stream>>>(*f);
    return cuda_launched("attention_bwd in FP8: queries", e);
}

/* What cuDNN would be asked for, and whether d_o and o lie as its graph has them. */
static struct cudnn_spec backward_spec(const struct attention_bwd_args *args, bool *packed) {
    struct cudnn_spec spec = {};
    spec.pass = CUDNN_FP8_BACKWARD;
    spec.gradient_e5m2 = args->ds->code == DTYPE_E5M2;
    spec.o_codes = args->o->dtype == DTYPE_E4M3;
    *packed = args->d_o->dtype == args->ds->code && args->p->code == DTYPE_E4M3 &&
              args->d_o->stride[0] == args->d_o->dim[1] && args->o->stride[0] == args->o->dim[1];
    return spec;
}

enum status attention_fp8_bwd(struct cuda_backend *b, int lane,
                              const struct attention_bwd_args *args, struct err *e) {
    struct fp8_attention f = {};
    struct attention_way way;
    const struct tensor *qkv = args->qkv;
    bool packed;
    if (!qkv || !qkv->data) return FAIL(e, ERR_ARG, "attention_bwd: qkv is missing");
    TRY(check_codes(args->d_o, "attention_bwd: d_o", IS_E4M3 | IS_E5M2, qkv->dim[0] * qkv->dim[1],
                    args->heads * qkv->dim[3], e));
    TRY(setup("attention_bwd", qkv, args->heads, args->kv_heads, args->first_key, &f, e));
    TRY(take_backward(&f, args, e));
    if (f.a.batch == 0 || f.a.length == 0) return OK;
    struct attention codes = f.a;
    codes.width = qkv->stride[1];
    const struct cudnn_spec spec = backward_spec(args, &packed);
    TRY(attention_choose_fp8(b, &codes, &spec, packed, &way, e));
    TRY(attention_decided(b, &f.a, "backward", way.plan ? "cudnn" : "emulated", way.why, e));
    if (way.plan) TRY(backward_by_cudnn(b, lane, way.plan, &codes, &f, args, e));
    else TRY(emulate_backward(b, lane, args, &f, e));
    return cuda_sink_emit(&b->base, lane, args->d_qkv, false, e);
}
