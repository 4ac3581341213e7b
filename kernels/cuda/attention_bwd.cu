/* Causal attention, backward, without atomics. One block owns the gradients of a key tile, one
 * block those of a query tile. Each recomputes the probabilities that it needs from the forward's
 * log-sum-exp. This costs seven products instead of five and gives the same bits in every run.
 *
 *   p = exp(s * scale - lse),  delta = sum over D of dO * O,  dS = p * (dO v^T - delta)
 *   dV = p^T dO,   dK = scale * dS^T q,   dQ = scale * dS k
 *
 * Tiles of 64 x 64; a warp takes 16 rows of its own side. p and dS are rounded to BF16 before they
 * are multiplied; the reference does not round them. */
#include "kernels/cuda/attention_fp8.cuh"
#include "kernels/cuda/attention_hopper.cuh"

enum { ROWS = ATTENTION_MMA_TILE, TILES = ROWS / 8 };

/* ---- delta: a warp for each row and head ---- */

__global__ void delta_kernel(struct backward f) {
    int64_t item = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / WARP;
    int d = f.a.head_dim, lane = threadIdx.x % WARP;
    if (item >= f.a.batch * f.a.length * f.a.heads) return;
    float sum = 0.0f;
    for (int i = lane * 2; i < d; i += 2 * WARP) {
        uint32_t x = *(const uint32_t *)(f.d_o + item * d + i);
        uint32_t y = *(const uint32_t *)(f.o + item * d + i);
        sum += bf16_low(x) * bf16_low(y) + bf16_high(x) * bf16_high(y);
    }
    sum = warp_sum(sum);
    int64_t row = item / f.a.heads, head = item % f.a.heads, t = row % f.a.length;
    if (lane == 0) f.delta[(row / f.a.length * f.a.heads + head) * f.a.length + t] = sum;
}

/* ---- shared by both passes ---- */

/* The position of one head of one sequence. */
struct head_view {
    const bf16_bits *q, *k, *v, *d_o;
    const float *lse, *delta;
};

template <int D>
__device__ static struct head_view view_of(const struct backward &f, int64_t sequence, int head) {
    struct head_view view;
    int group = head * f.a.kv_heads / f.a.heads;
    const bf16_bits *base = f.a.qkv + sequence * f.a.length * f.a.width;
    view.q = base + (int64_t)head * D;
    view.k = base + (int64_t)(f.a.heads + group) * D;
    view.v = view.k + (int64_t)f.a.kv_heads * D;
    view.d_o = f.d_o + (sequence * f.a.length * f.a.heads + head) * D;
    view.lse = f.lse + (sequence * f.a.heads + head) * f.a.length;
    view.delta = f.delta + (sequence * f.a.heads + head) * f.a.length;
    return view;
}

/* ---- keys and values: a warp's rows are keys, its columns queries ---- */

template <int D, bool RANGED, bool EXACT>
__global__ void __launch_bounds__(ATTENTION_THREADS) attention_dkv_kernel(struct backward f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *k = shared, *v = k + ROWS * STRIDE, *q = v + ROWS * STRIDE, *d_o = q + ROWS * STRIDE;
    float *lse = (float *)(d_o + ROWS * STRIDE), *delta = lse + ROWS;
    int *low = (int *)(delta + ROWS); /* the first key that each query sees */
    int64_t key0 = (int64_t)blockIdx.x * ROWS, sequence = blockIdx.z, length = f.a.length;
    int group = blockIdx.y, share = f.a.heads / f.a.kv_heads, lane = threadIdx.x % WARP;
    int warp_row = threadIdx.x / WARP * 16;
    float scale_log2 = f.a.scale * ATTENTION_LOG2_E;
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    struct head_view view = view_of<D>(f, sequence, group * share);
    copy_tile<D, ROWS>(k, view.k + key0 * f.a.width, f.a.width, length - key0);
    copy_tile<D, ROWS>(v, view.v + key0 * f.a.width, f.a.width, length - key0);
    for (int h = 0; h < share; h++) {
        view = view_of<D>(f, sequence, group * share + h);
        for (int64_t row0 = key0; row0 < length; row0 += ROWS) {
            /* Later queries begin no earlier: none of them sees these keys. */
            if (RANGED && first_key_of(f.a, sequence, row0) >= key0 + ROWS) break;
            __syncthreads(); /* the tile before has been used */
            int64_t o_stride = (int64_t)f.a.heads * D;
            copy_tile<D, ROWS>(q, view.q + row0 * f.a.width, f.a.width, length - row0);
            copy_tile<D, ROWS>(d_o, view.d_o + row0 * o_stride, o_stride, length - row0);
            copies_commit();
            if (threadIdx.x < ROWS) {
                bool there = row0 + threadIdx.x < length; /* other rows get probability 0 */
                float log2_sum = there ? view.lse[row0 + threadIdx.x] * ATTENTION_LOG2_E : INFINITY;
                lse[threadIdx.x] = log2_sum;
                delta[threadIdx.x] = there ? view.delta[row0 + threadIdx.x] : 0.0f;
                if (RANGED) low[threadIdx.x] = first_key_of(f.a, sequence, row0 + threadIdx.x);
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
                    float x = attention_exp2<EXACT>(fmaf(p[0][n][i], scale_log2, -lse[row]));
                    bool hidden = key0 + key > row0 + row || (RANGED && key0 + key < low[row]);
                    p[0][n][i] = hidden ? 0.0f : x;
                    ds[0][n][i] = p[0][n][i] * (ds[0][n][i] - delta[row]);
                }
            multiply_columns<D, 1, ROWS>(dv, p, d_o);
            multiply_columns<D, 1, ROWS>(dk, ds, q);
        }
    }
    int64_t row = key0 + warp_row;
    bf16_bits *to = f.d_qkv + (sequence * length + row) * f.a.width +
                    (int64_t)(f.a.heads + group) * D;
    store_tile<D>(to, f.a.width, dk[0], f.a.scale, length - row);
    store_tile<D>(to + (int64_t)f.a.kv_heads * D, f.a.width, dv[0], 1.0f, length - row);
}

/* ---- queries: a warp's rows are queries, its columns keys ---- */

template <int D, bool RANGED, bool EXACT>
__global__ void __launch_bounds__(ATTENTION_THREADS) attention_dq_kernel(struct backward f) {
    extern __shared__ __align__(16) bf16_bits shared[];
    constexpr int STRIDE = padded_tile<D>::STRIDE;
    bf16_bits *q = shared, *d_o = q + ROWS * STRIDE, *k = d_o + ROWS * STRIDE;
    bf16_bits *v = k + ROWS * STRIDE;
    int64_t tile = gridDim.x - 1 - blockIdx.x, row0 = tile * ROWS; /* the longest rows first */
    int64_t sequence = blockIdx.z, length = f.a.length, o_stride = (int64_t)f.a.heads * D;
    int head = blockIdx.y, lane = threadIdx.x % WARP, warp_row = threadIdx.x / WARP * 16;
    float scale_log2 = f.a.scale * ATTENTION_LOG2_E, dq[1][D / 8][4] = {}, lse[2], delta[2];
    int low[2] = { 0, 0 };
    struct head_view view = view_of<D>(f, sequence, head);
    copy_tile<D, ROWS>(q, view.q + row0 * f.a.width, f.a.width, length - row0);
    copy_tile<D, ROWS>(d_o, view.d_o + row0 * o_stride, o_stride, length - row0);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = row0 + warp_row + lane / 4 + 8 * h;
        lse[h] = row < length ? view.lse[row] * ATTENTION_LOG2_E : INFINITY;
        delta[h] = row < length ? view.delta[row] : 0.0f;
        if (RANGED) low[h] = first_key_of(f.a, sequence, row);
    }
    int64_t begin = RANGED ? first_key_of(f.a, sequence, row0) / ROWS * ROWS : 0;
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
            for (int i = 0; i < 4; i++) {
                int key = n * 8 + lane % 4 * 2 + i % 2, row = warp_row + lane / 4 + i / 2 * 8;
                float x = attention_exp2<EXACT>(fmaf(p[0][n][i], scale_log2, -lse[i / 2]));
                bool hidden = key0 + key > row0 + row || (RANGED && key0 + key < low[i / 2]);
                x = hidden ? 0.0f : x;
                ds[0][n][i] = x * (ds[0][n][i] - delta[i / 2]);
            }
        multiply_columns<D, 1, ROWS>(dq, ds, k);
    }
    int64_t row = row0 + warp_row;
    store_tile<D>(f.d_qkv + (sequence * length + row) * f.a.width + (int64_t)head * D, f.a.width,
                  dq[0], f.a.scale, length - row);
}

/* ---- launchers ---- */

typedef void (*backward_kernel)(struct backward);
struct kernels { backward_kernel dkv, dq; };

template <int D, bool RANGED, bool EXACT> static struct kernels kernels_of() {
    return { attention_dkv_kernel<D, RANGED, EXACT>, attention_dq_kernel<D, RANGED, EXACT> };
}
template <bool RANGED> static struct kernels kernels_with(int d) {
    if (d == 16) return kernels_of<16, RANGED, false>();
    if (d == 32) return kernels_of<32, RANGED, false>();
    return d == 64 ? kernels_of<64, RANGED, false>() : kernels_of<128, RANGED, false>();
}
/* Only on Hopper, where other heads have wgmma. */
template <bool RANGED> static struct kernels exact_kernels_with(int d) {
    return d == 16 ? kernels_of<16, RANGED, true>() : kernels_of<32, RANGED, true>();
}
static struct kernels kernels_for(int d, bool ranged, bool exact) {
    if (exact) return ranged ? exact_kernels_with<true>(d) : exact_kernels_with<false>(d);
    return ranged ? kernels_with<true>(d) : kernels_with<false>(d);
}
static int shared_bytes(int d) { return 4 * ROWS * (d + 8) * 2 + 3 * ROWS * 4; }

enum status cuda_attention_bwd_open(struct cuda_backend *b, struct err *e) {
    for (int i = 0; i < 12; i++) {
        int d = i < 8 ? 16 << i / 2 : 16 << i / 2 % 2;
        struct kernels k = kernels_for(d, i % 2, i >= 8);
        CUDA_TRY(e, cudaFuncSetAttribute(k.dkv, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         shared_bytes(d)));
        CUDA_TRY(e, cudaFuncSetAttribute(k.dq, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         shared_bytes(d)));
    }
    return OK;
}

enum status cuda_attention_bwd(struct backend *b, int lane, const struct attention_bwd_args *args,
                               struct err *e) {
    struct backward f = {};
    const struct sink *d_qkv = args->d_qkv;
    const struct tensor *delta = args->delta, *d_o = args->d_o, *o = args->o, *lse = args->lse;
    int64_t heads = args->heads, kv_heads = args->kv_heads;
    if (args->p) return attention_fp8_bwd(cuda_of(b), lane, args, e);
    TRY(attention_setup(&f.a, "attention_bwd", args->qkv, heads, kv_heads, args->first_key, e));
    int64_t rows = f.a.batch * f.a.length, row = heads * f.a.head_dim, per = heads * f.a.length;
    TRY(cuda_check_sink(d_qkv, "attention_bwd: d_qkv", rows, f.a.width, e));
    TRY(cuda_check_packed(d_o, "attention_bwd: d_o", IS_BF16, rows, row, e));
    TRY(cuda_check_packed(o, "attention_bwd: o", IS_BF16, rows, row, e));
    TRY(cuda_check_packed(lse, "attention_bwd: lse", IS_F32, f.a.batch, per, e));
    TRY(cuda_check_packed(delta, "attention_bwd: delta", IS_F32, f.a.batch, per, e));
    f.d_qkv = sink_value_of(d_qkv);
    f.d_o = (const bf16_bits *)d_o->data;
    f.o = (const bf16_bits *)o->data;
    f.lse = (const float *)lse->data;
    f.delta = (float *)delta->data;
    f.amax = sink_amax(d_qkv);
    f.a.exact = cuda_of(b)->exact;
    if (rows == 0) return OK;
    bool wgmma = hopper_attention_serves(cuda_of(b), &f.a);
    TRY(attention_decided(cuda_of(b), &f.a, "backward", wgmma ? "wgmma" : "mma",
                          f.a.exact ? "exact" : "", e));
    if (wgmma) {
        struct sink rest = *d_qkv;
        if (!f.a.exact) rest.sums = NULL; /* the exact order is that of other sinks */
        TRY(hopper_attention_bwd(cuda_of(b), lane, &f, f.a.exact ? NULL : d_qkv->sums, e));
        return cuda_sink_emit(b, lane, &rest, true, e);
    }
    cudaStream_t stream = cuda_lane(b, lane);
    delta_kernel<<<(unsigned)ceil_div(rows * heads, 256 / WARP), 256, 0, stream>>>(f);
    TRY(cuda_launched("attention_bwd: delta", e));
    unsigned tiles = (unsigned)ceil_div(f.a.length, ROWS), batch = (unsigned)f.a.batch;
    struct kernels k = kernels_for(f.a.head_dim, f.a.first_key, f.a.exact);
    int bytes = shared_bytes(f.a.head_dim);
    k.dkv<<<dim3(tiles, (unsigned)kv_heads, batch), ATTENTION_THREADS, bytes, stream>>>(f);
    TRY(cuda_launched("attention_bwd: keys and values", e));
    k.dq<<<dim3(tiles, (unsigned)heads, batch), ATTENTION_THREADS, bytes, stream>>>(f);
    TRY(cuda_launched("attention_bwd: queries", e));
    return cuda_sink_emit(b, lane, d_qkv, false, e);
}
