/* AdamW: the reference's expressions in the reference's order, so the same bits.
 *
 * A warp takes a span of 128 elements, four a lane: one scale block of 8-bit state. Bound by
 * memory: read and write of weight and state, read of the gradient (BF16 throughout: 14 bytes an
 * element). */
#include "kernels/rng_round.h"
#include "kernels/cuda/quantise.cuh"

enum {
    SPAN = 128,
    EACH = SPAN / WARP,
    ADAMW_THREADS = 256,
    ADAMW_BLOCKS = 5 /* of a multiprocessor: 48 registers a thread, measured: 4 are slower */
};

struct state_view { void *data; float *scale; };

struct adamw {
    bf16_bits *value;
    float *master; /* or NULL */
    struct state_view m, v;
    struct grad_view grad;
    const float *lr, *clip, *bias1, *bias2;
    const int32_t *step, *flag;
    float beta1, beta2, eps, weight_decay;
    uint64_t seed;
    uint32_t tensor_id;
    uint32_t *amax;
    int64_t n, element_base;
};

/* ---- four elements: one access where all of them are there ---- */

__device__ static void load_f32(float (&x)[EACH], const float *from, int count) {
    if (count == EACH) {
        float4 v = *(const float4 *)from;
        x[0] = v.x; x[1] = v.y; x[2] = v.z; x[3] = v.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = i < count ? from[i] : 0.0f;
}
__device__ static void store_f32(float *to, const float (&x)[EACH], int count) {
    if (count == EACH) {
        *(float4 *)to = make_float4(f32_canonical(x[0]), f32_canonical(x[1]), f32_canonical(x[2]),
                                    f32_canonical(x[3]));
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i < count) to[i] = f32_canonical(x[i]);
}
__device__ static void load_half(float (&x)[EACH], const bf16_bits *from, int count) {
    if (count == EACH) {
        uint2 v = *(const uint2 *)from;
        x[0] = bf16_low(v.x); x[1] = bf16_high(v.x);
        x[2] = bf16_low(v.y); x[3] = bf16_high(v.y);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = i < count ? bf16_decode(from[i]) : 0.0f;
}
__device__ static void store_half(bf16_bits *to, const bf16_bits (&x)[EACH], int count) {
    if (count == EACH) {
        *(uint2 *)to = make_uint2(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16);
        return;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (i < count) to[i] = x[i];
}

/* ---- state ---- */

template <int DTYPE>
__device__ static void load_state(float (&x)[EACH], struct state_view s, int64_t at, int count,
                                  bool is_square) {
    if constexpr (DTYPE == DTYPE_F32) load_f32(x, (const float *)s.data + at, count);
    else if constexpr (DTYPE == DTYPE_BF16) load_half(x, (const bf16_bits *)s.data + at, count);
    else {
        const uint8_t *code = (const uint8_t *)s.data + at;
        float scale = count ? s.scale[at / SPAN] : 0.0f;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            x[i] = i < count ? e4m3_decode_inline(code[i]) * scale : 0.0f;
            if (is_square) x[i] = x[i] * x[i];
        }
    }
}

__device__ static void store_codes(struct state_view s, int64_t at, float (&x)[EACH],
                                   const uint32_t (&random)[EACH], int count, bool is_square) {
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (is_square) x[i] = sqrtf(x[i]);
        if (i < count) top = max(top, f32_bits(x[i]) & 0x7FFFFFFFu);
    }
    const struct quant_rule rule = { QUANT_TE, 0.0f, false };
    struct multiplier r = quant_multiplier_of(rule, false, f32_from_bits(warp_max(top)));
    if (threadIdx.x % WARP == 0) s.scale[at / SPAN] = r.factor;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (i >= count) continue;
        uint8_t code = e4m3_round_stochastic(x[i] * r.m, random[i]);
        if (is_square && code == 0 && x[i] > 0.0f) code = 1;
        ((uint8_t *)s.data)[at + i] = code;
    }
}

template <int DTYPE>
__device__ static void store_state(struct state_view s, int64_t at, float (&x)[EACH],
                                   const uint32_t (&random)[EACH], int count, bool is_square) {
    if constexpr (DTYPE == DTYPE_F32) store_f32((float *)s.data + at, x, count);
    else if constexpr (DTYPE == DTYPE_E4M3) store_codes(s, at, x, random, count, is_square);
    else {
        bf16_bits code[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            code[i] = bf16_round_stochastic(x[i], random[i]);
            if (is_square && code[i] == 0 && x[i] > 0.0f) code[i] = 1;
        }
        store_half((bf16_bits *)s.data + at, code, count);
    }
}

/* ---- the update ---- */

struct scalars { float lr, clip, bias1, bias2; uint64_t key_weight, key_state; };

__device__ static struct scalars read_scalars(const struct adamw &a) {
    uint64_t step = (uint64_t)*a.step;
    struct scalars s = { *a.lr, *a.clip, *a.bias1, *a.bias2,
                         rng_key(a.seed, RNG_ROUND_WEIGHT, step, a.tensor_id),
                         rng_key(a.seed, RNG_ROUND_STATE, step, a.tensor_id) };
    return s;
}

/* rng_bits(key, element .. element+3): its Weyl sequence is stepped by addition. */
__device__ static void draw(uint64_t (&bits)[EACH], uint64_t key, int64_t element) {
    const uint64_t golden = 0x9E3779B97F4A7C15u;
    uint64_t x = key + golden * (uint64_t)(element + 1);
#pragma unroll
    for (int i = 0; i < EACH; i++) bits[i] = rng_mix(x + (uint64_t)i * golden);
}

/* Stores the new weight; returns the |bits| of the largest stored value. */
template <bool MASTER>
__device__ static uint32_t store_weight(const struct adamw &a, const struct scalars &s, int64_t at,
                                        const float (&w)[EACH], int count) {
    bf16_bits code[EACH];
    uint32_t top = 0;
    uint64_t bits[EACH];
    if constexpr (!MASTER) draw(bits, s.key_weight, a.element_base + at);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if constexpr (MASTER) code[i] = bf16_encode(w[i]);
        else code[i] = bf16_round_stochastic(w[i], (uint32_t)bits[i]);
        if (i < count) top = max(top, (uint32_t)(code[i] & 0x7FFFu) << 16);
    }
    if constexpr (MASTER) store_f32(a.master + at, w, count);
    store_half(a.value + at, code, count);
    return top;
}

/* M, V: dtypes of the two moments. */
template <int M, int V, bool MASTER>
__global__ void __launch_bounds__(ADAMW_THREADS, ADAMW_BLOCKS) adamw_kernel(struct adamw a) {
    if (*a.flag >= 0) return;
    const struct scalars s = read_scalars(a);
    float c1 = 1.0f - a.beta1, c2 = 1.0f - a.beta2;
    int64_t warp = (blockIdx.x * (int64_t)ADAMW_THREADS + threadIdx.x) / WARP;
    int64_t step = (int64_t)gridDim.x * (ADAMW_THREADS / WARP), spans = (a.n + SPAN - 1) / SPAN;
    uint32_t top = 0;
    for (int64_t span = warp; span < spans; span += step) {
        int64_t at = span * SPAN + threadIdx.x % WARP * EACH;
        int count = (int)max((int64_t)0, min((int64_t)EACH, a.n - at));
        float w[EACH], m[EACH], v[EACH], g[EACH];
        uint32_t random_m[EACH] = {}, random_v[EACH] = {};
        if constexpr (MASTER) load_f32(w, a.master + at, count);
        else load_half(w, a.value + at, count);
        if (a.grad.is_bf16) load_half(g, (const bf16_bits *)a.grad.data + at, count);
        else load_f32(g, (const float *)a.grad.data + at, count);
        load_state<M>(m, a.m, at, count, false);
        load_state<V>(v, a.v, at, count, true);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            float gi = g[i] * s.clip;
            m[i] = m[i] + c1 * (gi - m[i]);
            v[i] = v[i] + c2 * (gi * gi - v[i]);
            float move = (m[i] * s.bias1) / (sqrtf(v[i] * s.bias2) + a.eps);
            w[i] = w[i] - s.lr * (move + a.weight_decay * w[i]);
        }
        if constexpr (M != DTYPE_F32 || V != DTYPE_F32) {
            uint64_t bits[EACH];
            draw(bits, s.key_state, a.element_base + at);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                random_m[i] = (uint32_t)bits[i];
                random_v[i] = (uint32_t)(bits[i] >> 32);
            }
        }
        store_state<M>(a.m, at, m, random_m, count, false);
        store_state<V>(a.v, at, v, random_v, count, true);
        top = max(top, store_weight<MASTER>(a, s, at, w, count));
    }
    warp_amax_into(a.amax, top);
}

/* ---- arguments ---- */

static enum status check_state(const struct tensor *x, const char *what, int64_t n, struct err *e) {
    TRY(cuda_check_packed(x, what, IS_GRAD | IS_E4M3, -1, -1, e));
    if (x->dtype == DTYPE_E4M3 &&
        (x->scale.kind != SCALE_1X128 || !x->scale.data || x->scale.dtype != DTYPE_F32 ||
         x->scale.dim[0] != 1 || x->scale.dim[1] != ceil_div(n, SPAN)))
        return FAIL(e, ERR_ARG, "%s is e4m3 without a 1x128 scale over [1, %lld]", what,
                    (long long)n);
    if (tensor_count(x) != n)
        return FAIL(e, ERR_ARG, "%s has %lld elements, not %lld", what, (long long)tensor_count(x),
                    (long long)n);
    return OK;
}

static enum status check_args(const struct adamw_args *a, struct err *e) {
    const struct tensor *value = a->weight->value;
    TRY(cuda_check_packed(value, "adamw: weight", IS_BF16, -1, -1, e));
    int64_t n = tensor_count(value);
    TRY(cuda_check_sink(a->weight, "adamw: weight", tensor_rows(value), tensor_cols(value), e));
    TRY(check_state(a->m, "adamw: m", n, e));
    TRY(check_state(a->v, "adamw: v", n, e));
    TRY(cuda_check_packed(a->grad, "adamw: grad", IS_GRAD, -1, -1, e));
    if (a->master) TRY(cuda_check_packed(a->master, "adamw: master", IS_F32, -1, -1, e));
    if (tensor_count(a->grad) != n || (a->master && tensor_count(a->master) != n))
        return FAIL(e, ERR_ARG, "adamw: grad or master does not have the weight's %lld elements",
                    (long long)n);
    const void *data[5] = { value->data, a->m->data, a->v->data, a->grad->data,
                            a->master ? a->master->data : NULL };
    for (int i = 0; i < 5; i++)
        if ((uintptr_t)data[i] % 16)
            return FAIL(e, ERR_ARG, "adamw: tensors start on 16-byte boundaries");
    TRY(cuda_check(a->lr, "adamw: lr", IS_F32, 1, 1, e));
    TRY(cuda_check(a->clip, "adamw: clip", IS_F32, 1, 1, e));
    TRY(cuda_check(a->bias1, "adamw: bias1", IS_F32, 1, 1, e));
    TRY(cuda_check(a->bias2, "adamw: bias2", IS_F32, 1, 1, e));
    TRY(cuda_check(a->step, "adamw: step", IS_I32, 1, 1, e));
    TRY(cuda_check(a->flag, "adamw: flag", IS_I32, 2, 1, e));
    if (a->element_base < 0)
        return FAIL(e, ERR_ARG, "adamw: element_base %lld", (long long)a->element_base);
    return OK;
}

static struct state_view state_of(const struct tensor *x) {
    struct state_view s = { x->data, (float *)x->scale.data };
    return s;
}

typedef void (*adamw_function)(struct adamw);

template <int M, bool MASTER> static adamw_function kernel_for_v(int v) {
    if (v == DTYPE_F32) return adamw_kernel<M, DTYPE_F32, MASTER>;
    if (v == DTYPE_BF16) return adamw_kernel<M, DTYPE_BF16, MASTER>;
    return adamw_kernel<M, DTYPE_E4M3, MASTER>;
}
template <bool MASTER> static adamw_function kernel_for(int m, int v) {
    if (m == DTYPE_F32) return kernel_for_v<DTYPE_F32, MASTER>(v);
    if (m == DTYPE_BF16) return kernel_for_v<DTYPE_BF16, MASTER>(v);
    return kernel_for_v<DTYPE_E4M3, MASTER>(v);
}

enum status cuda_adamw(struct backend *b, int lane, const struct adamw_args *args, struct err *e) {
    TRY(check_args(args, e));
    struct adamw a = {};
    a.value = sink_value_of(args->weight);
    a.master = args->master ? (float *)args->master->data : NULL;
    a.m = state_of(args->m);
    a.v = state_of(args->v);
    a.grad = grad_of(args->grad);
    a.lr = (const float *)args->lr->data;
    a.clip = (const float *)args->clip->data;
    a.bias1 = (const float *)args->bias1->data;
    a.bias2 = (const float *)args->bias2->data;
    a.step = (const int32_t *)args->step->data;
    a.flag = (const int32_t *)args->flag->data;
    a.beta1 = args->beta1;
    a.beta2 = args->beta2;
    a.eps = args->eps;
    a.weight_decay = args->weight_decay;
    a.seed = args->seed;
    a.tensor_id = args->tensor_id;
    a.amax = sink_amax(args->weight);
    a.n = tensor_count(args->weight->value);
    a.element_base = args->element_base;
    int m = args->m->dtype, v = args->v->dtype;
    adamw_function kernel = a.master ? kernel_for<true>(m, v) : kernel_for<false>(m, v);
    kernel<<<grid_for(b, a.n, SPAN * (ADAMW_THREADS / WARP)), ADAMW_THREADS, 0,
             cuda_lane(b, lane)>>>(a);
    TRY(cuda_launched("adamw", e));
    return cuda_sink_emit_gated(b, lane, args->weight, a.flag, e);
}
