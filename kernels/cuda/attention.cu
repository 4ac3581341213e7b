/* Causal attention with grouped key/value heads, forward: an online softmax over key tiles, as in
 * FlashAttention-2 (arXiv:2307.08691). It uses mma.sync, which every device from sm_80 on has.
 *
 * A block takes 128 query rows of one head, 32 for each of its four warps. Keys come 64 at a time;
 * the next tile is loaded while this one is multiplied. Probabilities are rounded to BF16 before
 * they are multiplied by V. The reference does not round them; the tests state the distance. Bound
 * by the tensor cores. */
#include <stdio.h>

#include "kernels/cuda/attention_choice.cuh"
#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/cuda/attention_hopper.cuh"

enum { QUERY_ROWS = ATTENTION_QUERIES, KEY_ROWS = ATTENTION_MMA_KEYS,
       M_TILES = QUERY_ROWS / ATTENTION_WARPS / 16, KEY_TILES = KEY_ROWS / 8 };

/* Running maximum and sum of a thread's rows: g and g + 8 of each tile. */
template <int D> struct row_state {
    float out[M_TILES][D / 8][4];
    float max[M_TILES][2], sum[M_TILES][2];
};

/* Masks keys after the query. first_row: first query of the warp; first_key: first key of the
 * tile. */
__device__ static void mask_tile(float (&s)[M_TILES][KEY_TILES][4], int64_t first_row,
                                 int64_t first_key) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int64_t row = first_row + m * 16 + lane / 4 + i / 2 * 8;
                int64_t key = first_key + n * 8 + lane % 4 * 2 + i % 2;
                if (key > row) s[m][n][i] = -INFINITY;
            }
}

/* Keys before the first that a query sees are masked. */
__device__ static void mask_before(float (&s)[M_TILES][KEY_TILES][4], const struct attention &a,
                                   int64_t sequence, int64_t first_row, int64_t first_key) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t low = first_key_of(a, sequence, first_row + m * 16 + lane / 4 + h * 8);
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++)
                    if (first_key + n * 8 + lane % 4 * 2 + i % 2 < low) s[m][n][i] = -INFINITY;
        }
}

/* Scores to probabilities under the new maximum; earlier sums are rescaled to it. RANGED: a row may
 * have seen no key yet. */
template <int D, bool RANGED, bool EXACT>
__device__ static void softmax_tile(float (&s)[M_TILES][KEY_TILES][4], struct row_state<D> &r,
                                    float scale_log2) {
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = -INFINITY;
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
                top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            top = fmaxf(r.max[m][h], quad_max(top));
            float base = RANGED && top == -INFINITY ? 0.0f : top;
            float keep = attention_exp2<EXACT>((r.max[m][h] - base) * scale_log2);
            float shift = base * scale_log2, sum = 0.0f;
#pragma unroll
            for (int n = 0; n < KEY_TILES; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++) {
                    s[m][n][i] = attention_exp2<EXACT>(fmaf(s[m][n][i], scale_log2, -shift));
                    sum += s[m][n][i];
                }
            r.max[m][h] = top;
            r.sum[m][h] = fmaf(r.sum[m][h], keep, sum);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                r.out[m][n][2 * h] *= keep;
                r.out[m][n][2 * h + 1] *= keep;
            }
        }
}

template <int D, bool EXACT>
__device__ static void store_rows(const struct forward &f, struct row_state<D> &r, int64_t sequence,
                                  int head, int64_t first_row) {
    int lane = threadIdx.x % WARP;
    uint32_t top = 0;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t row = first_row + m * 16 + h * 8 + lane / 4;
            float sum = quad_sum(r.sum[m][h]), inverse = 1.0f / sum;
            if (row >= f.a.length) continue;
            if (lane % 4 == 0)
                f.lse[(sequence * f.a.heads + head) * f.a.length + row] =
                    f32_canonical(r.max[m][h] * f.a.scale + attention_log<EXACT>(sum));
            bf16_bits *o = f.o + ((sequence * f.a.length + row) * f.a.heads + head) * D;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                uint32_t pair = bf16x2_encode(r.out[m][n][2 * h] * inverse,
                                              r.out[m][n][2 * h + 1] * inverse);
                *(uint32_t *)(o + n * 8 + lane % 4 * 2) = pair;
                top = max(top, max(pair << 16 & 0x7FFF0000u, pair & 0x7FFF0000u));
            }
        }
    warp_amax_into(f.amax, top);
}

/* Grid: x over query tiles, last first since they see most keys; y heads; z sequences. */
template <int D, bool RANGED, bool EXACT>
__global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_fwd_kernel(struct forward f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *q = shared, *k = q + QUERY_ROWS * STRIDE, *v = k + 2 * KEY_ROWS * STRIDE;
    int64_t tile = gridDim.x - 1 - blockIdx.x, row0 = tile * QUERY_ROWS, sequence = blockIdx.z;
    int head = blockIdx.y, group = head * f.a.kv_heads / f.a.heads;
    const bf16_bits *base = f.a.qkv + sequence * f.a.length * f.a.width;
    const bf16_bits *q_from = base + (int64_t)head * D;
    const bf16_bits *k_from = base + (int64_t)(f.a.heads + group) * D;
    const bf16_bits *v_from = k_from + (int64_t)f.a.kv_heads * D;
    int64_t length = f.a.length, width = f.a.width;
    int64_t keys = row0 + QUERY_ROWS < length ? row0 + QUERY_ROWS : length;
    int64_t key_tiles = (keys + KEY_ROWS - 1) / KEY_ROWS, first_tile = 0, low = 0;
    int64_t warp_row = row0 + threadIdx.x / WARP * (M_TILES * 16);
    if constexpr (RANGED) { /* low: the largest first key of the warp's rows */
        first_tile = first_key_of(f.a, sequence, row0) / KEY_ROWS;
        low = first_key_of(f.a, sequence, min(warp_row + M_TILES * 16, length) - 1);
    }
    float scale_log2 = f.a.scale * ATTENTION_LOG2_E;

    struct row_state<D> r = {};
#pragma unroll
    for (int m = 0; m < M_TILES; m++) r.max[m][0] = r.max[m][1] = -INFINITY;
    copy_tile<D, QUERY_ROWS>(q, q_from + row0 * width, width, length - row0);
    copy_tile<D, KEY_ROWS>(k + first_tile % 2 * KEY_ROWS * STRIDE,
                           k_from + first_tile * KEY_ROWS * width, width,
                           length - first_tile * KEY_ROWS);
    copies_commit();
    for (int64_t j = first_tile; j < key_tiles; j++) {
        int64_t key0 = j * KEY_ROWS;
        bf16_bits *k_now = k + j % 2 * KEY_ROWS * STRIDE;
        __syncthreads(); /* V of the previous tile has been used */
        copy_tile<D, KEY_ROWS>(v, v_from + key0 * width, width, length - key0);
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        float s[M_TILES][KEY_TILES][4] = {};
        multiply_rows<D, M_TILES, KEY_TILES>(s, q + (warp_row - row0) * STRIDE, k_now);
        if (j + 1 < key_tiles)
            copy_tile<D, KEY_ROWS>(k + (j + 1) % 2 * KEY_ROWS * STRIDE,
                                   k_from + (key0 + KEY_ROWS) * width, width,
                                   length - key0 - KEY_ROWS);
        copies_commit();
        if (key0 + KEY_ROWS > warp_row) mask_tile(s, warp_row, key0);
        if (RANGED && key0 < low) mask_before(s, f.a, sequence, warp_row, key0);
        softmax_tile<D, RANGED, EXACT>(s, r, scale_log2);
        copies_wait<1>();
        __syncthreads();
        multiply_columns<D, M_TILES, KEY_ROWS>(r.out, s, v);
    }
    store_rows<D, EXACT>(f, r, sequence, head, warp_row);
}

static int shared_bytes(int d) { return (QUERY_ROWS + 3 * KEY_ROWS) * (d + 8) * 2; }

enum status attention_setup(struct attention *a, const char *what, const struct tensor *qkv,
                            int64_t heads, int64_t kv_heads, const struct tensor *first_key,
                            struct err *e) {
    char name[2][64];
    snprintf(name[0], sizeof name[0], "%s: qkv", what);
    snprintf(name[1], sizeof name[1], "%s: first_key", what);
    TRY(cuda_check_packed(qkv, name[0], IS_BF16, -1, -1, e));
    int64_t d = qkv->dim[3];
    if (heads < 1 || kv_heads < 1 || heads % kv_heads || qkv->dim[2] != heads + 2 * kv_heads)
        return FAIL(e, ERR_ARG, "%s: %lld heads in the tensor, %lld + 2*%lld in the call", name[0],
                    (long long)qkv->dim[2], (long long)heads, (long long)kv_heads);
    if (d != 16 && d != 32 && d != 64 && d != 128)
        return FAIL(e, ERR_UNSUPPORTED, "%s: head_dim %lld: 16, 32, 64 or 128 on a GPU", name[0],
                    (long long)d);
    if ((uintptr_t)qkv->data % 16) return FAIL(e, ERR_ARG, "%s is not 16-byte aligned", name[0]);
    if (qkv->dim[0] > 65535 || heads > 65535)
        return FAIL(e, ERR_ARG, "%s: more than 65535 sequences or heads", name[0]);
    if (first_key)
        TRY(cuda_check_packed(first_key, name[1], IS_I32, qkv->dim[0], qkv->dim[1], e));
    a->qkv = (const bf16_bits *)qkv->data;
    a->first_key = first_key ? (const int32_t *)first_key->data : NULL;
    a->batch = qkv->dim[0];
    a->length = qkv->dim[1];
    a->width = qkv->dim[2] * d;
    a->heads = (int)heads;
    a->kv_heads = (int)kv_heads;
    a->head_dim = (int)d;
    a->scale = 1.0f / sqrtf((float)d);
    return OK;
}

enum status attention_decided(struct cuda_backend *b, const struct attention *a,
                              const char *direction, const char *way, const char *why,
                              struct err *e) {
    struct decision d = {};
    snprintf(d.section, sizeof d.section, "attention");
    snprintf(d.name, sizeof d.name, "%lldx%lld, heads %d/%d of %d", (long long)a->batch,
             (long long)a->length, a->heads, a->kv_heads, a->head_dim);
    snprintf(d.direction, sizeof d.direction, "%s", direction);
    snprintf(d.way, sizeof d.way, "%s", way);
    snprintf(d.detail, sizeof d.detail, "%s", why);
    return cuda_decided(b, &d, e);
}

typedef void (*forward_kernel)(struct forward);
template <bool RANGED> static forward_kernel kernel_with(int d) {
    switch (d) {
    case 16: return attention_fwd_kernel<16, RANGED, false>;
    case 32: return attention_fwd_kernel<32, RANGED, false>;
    case 64: return attention_fwd_kernel<64, RANGED, false>;
    default: return attention_fwd_kernel<128, RANGED, false>;
    }
}
/* Only on Hopper, where other heads have wgmma. */
template <bool RANGED> static forward_kernel exact_kernel_with(int d) {
    if (d == 16) return attention_fwd_kernel<16, RANGED, true>;
    return attention_fwd_kernel<32, RANGED, true>;
}
static forward_kernel kernel_for(int d, bool ranged, bool exact) {
    if (exact) return ranged ? exact_kernel_with<true>(d) : exact_kernel_with<false>(d);
    return ranged ? kernel_with<true>(d) : kernel_with<false>(d);
}

enum status cuda_attention_bwd_open(struct cuda_backend *b, struct err *e);

enum status cuda_attention_open(struct cuda_backend *b, struct err *e) {
    for (int d = 16; d <= 128; d *= 2)
        for (int i = 0; i < (d < 64 ? 4 : 2); i++)
            CUDA_TRY(e, cudaFuncSetAttribute(kernel_for(d, i % 2, i / 2),
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             shared_bytes(d)));
    TRY(attention_fp8_open(e));
    if (b->cc == 90) {
        TRY(hopper_attention_fwd_open(e));
        TRY(hopper_attention_bwd_open(e));
    }
    return cuda_attention_bwd_open(b, e);
}

const char *attention_own_name(const struct cuda_backend *b, const struct attention *a) {
    return hopper_attention_serves(b, a) ? "wgmma" : "mma";
}

enum status attention_own_fwd(struct cuda_backend *b, const struct forward *f, cudaStream_t stream,
                              struct err *e) {
    const struct attention *a = &f->a;
    dim3 grid((unsigned)ceil_div(a->length, QUERY_ROWS), (unsigned)a->heads, (unsigned)a->batch);
    int bytes = shared_bytes(a->head_dim);
    if (hopper_attention_serves(b, a)) TRY(hopper_attention_fwd(b, f, stream, e));
    else
        kernel_for(a->head_dim, a->first_key, a->exact)<<<grid, ATTENTION_THREADS, bytes, stream>>>(
            *f);
    return cuda_launched("attention_fwd", e);
}

enum status cuda_attention_fwd(struct backend *b, int lane, const struct attention_fwd_args *args,
                               struct err *e) {
    struct cuda_backend *cb = cuda_of(b);
    struct forward f = {};
    const struct sink *o = args->o;
    const struct tensor *lse = args->lse;
    int64_t heads = args->heads;
    if (args->p) return attention_fp8_fwd(cb, lane, args, e);
    TRY(attention_setup(&f.a, "attention_fwd", args->qkv, heads, args->kv_heads, args->first_key,
                        e));
    f.a.exact = cb->exact;
    TRY(cuda_check_sink(o, "attention_fwd: o", f.a.batch * f.a.length, heads * f.a.head_dim, e));
    TRY(cuda_check_packed(lse, "attention_fwd: lse", IS_F32, f.a.batch, heads * f.a.length, e));
    f.o = sink_value_of(o);
    f.lse = (float *)lse->data;
    f.amax = sink_amax(o);
    struct attention_way way;
    TRY(attention_choose(cb, &f, &way, e));
    TRY(attention_decided(cb, &f.a, "forward", way.plan ? "cudnn" : attention_own_name(cb, &f.a),
                          way.why, e));
    if (f.a.batch == 0 || f.a.length == 0) return cuda_sink_emit(b, lane, o, true, e);
    if (way.plan) {
        void *workspace;
        TRY(cuda_scratch(b, lane, SCRATCH_ATTENTION, max_i64(way.plan->workspace_bytes, 1),
                         &workspace, e));
        TRY(cudnn_plan_run(cb, way.plan, &f, workspace, cb->lane[lane], e));
    } else {
        TRY(attention_own_fwd(cb, &f, cb->lane[lane], e));
    }
    return cuda_sink_emit(b, lane, o, !way.plan, e);
}
