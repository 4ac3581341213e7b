/* AdamW of eight elements a lane: the reference's expressions in the reference's order, so the same
 * bits. adamw.cu walks weights by spans, adamw_tile.cu by tiles that also become codes.
 *
 * Bound by memory if an element takes at most about 70 instructions at the clock of a whole step.
 * Bytes moved: weight and state read and written, gradient read (BF16 throughout: 14 bytes an
 * element). Hence one draw serves all roundings (rng_round.h). Root and quotient are the device's
 * approximations with one correction each. There is no branch, and one test for elements that are
 * not finite or that the approximations cannot handle: their warp takes the slow path. */
#ifndef FP8LAB_KERNELS_CUDA_ADAMW_CUH
#define FP8LAB_KERNELS_CUDA_ADAMW_CUH

#include "kernels/rng_round.h"
#include "kernels/cuda/quantise.cuh"

enum {
    PER_LANE = 8, /* elements of a lane */
    HALF = PER_LANE / 2,
    STATE_BLOCK = 128, /* elements of 8-bit state with one scale: the elements of half a warp */
    ADAMW_THREADS = 256,
    ADAMW_WAVES = 4, /* blocks, in multiples of those that fit at once, since their speeds differ */
    ADAMW_TENSORS = 32, /* of a launch: their table fits into a kernel's parameters of 4 KB */
    ADAMW_TILE_TENSORS = 15 /* the same for adamw_tile.cu, whose table also has codes */
};

struct adamw_tensor {
    bf16_bits *value;
    float *master; /* or NULL */
    void *m, *v;
    float *m_scale, *v_scale; /* of 8-bit state */
    const void *grad;
    uint32_t *amax;
    int64_t n, element_base;
    float weight_decay;
    uint32_t tensor_id;
};

/* The values that all tensors of a launch share. */
struct adamw_step {
    const float *lr, *clip, *bias1, *bias2;
    const int32_t *step, *flag;
    float beta1, beta2, eps;
    uint64_t seed;
};

/* ---- reading ---- */

struct float8 { float4 half[2]; };

template <int DTYPE> struct stored;
template <> struct stored<DTYPE_F32> { typedef float element; typedef struct float8 eight; };
template <> struct stored<DTYPE_BF16> { typedef bf16_bits element; typedef uint4 eight; };
template <> struct stored<DTYPE_E4M3> { typedef uint8_t element; typedef uint2 eight; };

/* A lane's elements; count is 8 except at the end of a tensor. */
struct place { int64_t at; int count; };

template <int DTYPE>
__device__ static typename stored<DTYPE>::eight load_eight(const void *from, int64_t at) {
    typedef typename stored<DTYPE>::element element;
    return *(const typename stored<DTYPE>::eight *)((const element *)from + at);
}
/* Elements after the first p.count are zero. */
template <int DTYPE>
__device__ static typename stored<DTYPE>::eight load_some(const void *from, struct place p) {
    union {
        typename stored<DTYPE>::eight all;
        typename stored<DTYPE>::element each[PER_LANE];
    } x = {};
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
        if (i < p.count) x.each[i] = ((const typename stored<DTYPE>::element *)from)[p.at + i];
    return x.all;
}

/* Elements 4 h to 4 h + 3. */
__device__ static inline void decode_half(float (&x)[HALF], struct float8 v, int h) {
    x[0] = v.half[h].x; x[1] = v.half[h].y; x[2] = v.half[h].z; x[3] = v.half[h].w;
}
__device__ static inline void decode_half(float (&x)[HALF], uint4 v, int h) {
    uint32_t low = h ? v.z : v.x, high = h ? v.w : v.y;
    x[0] = bf16_low(low); x[1] = bf16_high(low);
    x[2] = bf16_low(high); x[3] = bf16_high(high);
}
__device__ static inline void decode_half(float (&x)[HALF], uint2 v, int h) {
    uint32_t word = h ? v.y : v.x;
#pragma unroll
    for (int i = 0; i < HALF; i++) x[i] = e4m3_decode_inline((uint8_t)(word >> 8 * i));
}

/* A lane's elements, as stored. */
template <int STATE, bool MASTER, int GRAD> struct raw_values {
    enum { HELD = MASTER ? DTYPE_F32 : DTYPE_BF16 };
    typename stored<HELD>::eight w;
    typename stored<GRAD>::eight g;
    typename stored<STATE>::eight m, v;
    float m_scale, v_scale;
};

/* WHOLE: all lanes have eight elements. */
template <bool WHOLE, int STATE, bool MASTER, int GRAD>
__device__ static void load(struct raw_values<STATE, MASTER, GRAD> &x, const struct adamw_tensor &t,
                            struct place p) {
    constexpr int HELD = raw_values<STATE, MASTER, GRAD>::HELD;
    const void *held = MASTER ? (const void *)t.master : t.value;
    if constexpr (WHOLE) {
        x.w = load_eight<HELD>(held, p.at);
        x.g = load_eight<GRAD>(t.grad, p.at);
        x.m = load_eight<STATE>(t.m, p.at);
        x.v = load_eight<STATE>(t.v, p.at);
    } else {
        x.w = load_some<HELD>(held, p);
        x.g = load_some<GRAD>(t.grad, p);
        x.m = load_some<STATE>(t.m, p);
        x.v = load_some<STATE>(t.v, p);
    }
    if constexpr (STATE == DTYPE_E4M3) {
        x.m_scale = WHOLE || p.count ? t.m_scale[p.at / STATE_BLOCK] : 0.0f;
        x.v_scale = WHOLE || p.count ? t.v_scale[p.at / STATE_BLOCK] : 0.0f;
    }
}

struct four { float w[HALF], m[HALF], v[HALF], g[HALF]; };

template <int STATE, bool MASTER, int GRAD>
__device__ static void decode(struct four &x, const struct raw_values<STATE, MASTER, GRAD> &raw,
                              int h) {
    decode_half(x.w, raw.w, h);
    decode_half(x.g, raw.g, h);
    decode_half(x.m, raw.m, h);
    decode_half(x.v, raw.v, h);
    if constexpr (STATE == DTYPE_E4M3)
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            x.m[i] = x.m[i] * raw.m_scale;
            x.v[i] = (x.v[i] * raw.v_scale) * (x.v[i] * raw.v_scale);
        }
}

/* ---- the update ---- */

/* Values that all elements of a step share. They are in shared memory, since the compiler would
 * otherwise recompute them for each group of eight. */
struct scalars {
    float lr, clip, bias1, bias2, c1, c2, eps;
    bool fast; /* eps is within what fast_weights() assumes */
};

__device__ static inline void read_scalars(struct scalars &s, const struct adamw_step &a) {
    s.lr = *a.lr;
    s.clip = *a.clip;
    s.bias1 = *a.bias1;
    s.bias2 = *a.bias2;
    s.c1 = 1.0f - a.beta1;
    s.c2 = 1.0f - a.beta2;
    s.eps = a.eps;
    s.fast = a.eps >= 0x1p-39f && a.eps <= 0x1p60f;
}

/* Scalars and every tensor's key, made once a block. Contains a block barrier. */
template <int TENSORS>
__device__ static inline void adamw_begin(struct scalars &s, uint64_t (&key)[TENSORS],
                                          const struct adamw_step &a,
                                          const struct adamw_tensor (&tensor)[TENSORS],
                                          int count) {
    if (threadIdx.x == 0) read_scalars(s, a);
    if ((int)threadIdx.x < count)
        key[threadIdx.x] = rng_key(a.seed, RNG_ROUND, (uint64_t)*a.step,
                                   tensor[threadIdx.x].tensor_id);
    __syncthreads();
}

__device__ static inline void update_moments(struct four &x, const struct scalars &s) {
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float g = x.g[i] * s.clip;
        x.m[i] = x.m[i] + s.c1 * (g - x.m[i]);
        x.v[i] = x.v[i] + s.c2 * (g * g - x.v[i]);
    }
}

__device__ static inline void update_weights(struct four &x, const struct scalars &s, float decay) {
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float move = (x.m[i] * s.bias1) / (sqrtf(x.v[i] * s.bias2) + s.eps);
        x.w[i] = x.w[i] - s.lr * (move + decay * x.w[i]);
    }
}

/* Computes what update_weights computes, with the same bits, and returns true. On false the values
 * in w are invalid. True only if all new values are finite, too.
 *
 * Root and quotient are an approximation and one correction from the exact remainder, as in the
 * compiler's own code. This is exact unless an intermediate value is subnormal. So the root is
 * taken of 2^32 v and the quotient of 2^24 m; the sum that follows removes these powers at no cost.
 * A root below 2^-63 has no effect in the sum with eps, so 2^-96 replaces all smaller squares. The
 * replacement compares integers, so negative values and NaN stay. */
__device__ static inline bool fast_weights(struct four &x, const struct scalars &s, float decay) {
    float bias1 = s.bias1 * 0x1p24f, bias2 = s.bias2 * 0x1p32f, finite = 0.0f;
    uint32_t least = 0xFFFFFFFFu;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float square = f32_from_bits(max(f32_bits(x.v[i] * bias2), 0x0F800000u)), inverse;
        asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(square));
        float root = square * inverse;
        root = __fmaf_rn(__fmaf_rn(-root, root, square), 0.5f * inverse, root);
        float above = x.m[i] * bias1, below = __fmaf_rn(root, 0x1p-16f, s.eps);
        inverse = fast_inverse(below);
        inverse = __fmaf_rn(inverse, __fmaf_rn(-below, inverse, 1.0f), inverse);
        float quotient = above * inverse;
        quotient = __fmaf_rn(-inverse, __fmaf_rn(below, quotient, -above), quotient);
        /* 0 wraps round to the largest: a quotient of 0 is exact, or too small to matter. */
        least = min(least, (f32_bits(quotient) << 1) - 1);
        x.w[i] = x.w[i] - s.lr * __fmaf_rn(quotient, 0x1p-24f, decay * x.w[i]);
        finite = __fmaf_rn(x.w[i], 0.0f, finite); /* becomes NaN if m or v is not finite */
    }
    return least >= 2 * 0x20800000u - 1 && s.fast && finite == 0.0f; /* 2^-62 */
}

/* rng_bits(key, element .. element+3): its Weyl sequence is stepped by addition. */
__device__ static inline void draw(uint64_t (&bits)[HALF], uint64_t key, int64_t element) {
    const uint64_t weyl_step = 0x9E3779B97F4A7C15u;
    uint64_t x = key + weyl_step * (uint64_t)(element + 1);
#pragma unroll
    for (int i = 0; i < HALF; i++) bits[i] = rng_mix(x + (uint64_t)i * weyl_step);
}

/* ---- rounding ---- */

/* Adds a draw of 16 bits to the f32 bits of each of two finite values; the upper halves are then
 * BF16. A dot product with 1 and 0 masks and adds in one instruction. */
template <enum round_part PART> __device__ static uint32_t round_up(float x, uint64_t bits) {
    uint32_t u = f32_bits(x);
    if constexpr (PART == ROUND_WEIGHT) return u + (uint32_t)(bits >> 48);
    uint32_t up = __dp2a_lo((uint32_t)(PART == ROUND_M ? bits : bits >> 24), 1u, u);
    if constexpr (PART == ROUND_V) /* positive values stay positive */
        asm("{ .reg .pred p; setp.gt.s32 p, %1, 0; @p max.u32 %0, %0, 0x10000; }"
            : "+r"(up) : "r"(u));
    return up;
}

/* Four values rounded stochastically into BF16. PLAIN: all of them are finite. */
template <bool PLAIN, enum round_part PART>
__device__ static uint2 round_four(const float (&x)[HALF], const uint64_t (&bits)[HALF]) {
    if constexpr (PLAIN) {
        uint32_t up[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) up[i] = round_up<PART>(x[i], bits[i]);
        return make_uint2(__byte_perm(up[0], up[1], 0x7632), __byte_perm(up[2], up[3], 0x7632));
    } else {
        uint32_t code[HALF];
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            code[i] = bf16_round_stochastic(x[i], round_random(bits[i], PART));
            if (PART == ROUND_V && code[i] == 0 && x[i] > 0.0f) code[i] = 1;
        }
        return make_uint2(code[0] | code[1] << 16, code[2] | code[3] << 16);
    }
}

/* ---- storing the first p.count of eight ---- */

template <bool WHOLE>
__device__ static void store_f32(float *to, struct place p, const float (&x)[2][HALF]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float *from = x[h];
        if (WHOLE)
            __stwb((float4 *)(to + p.at) + h,
                   make_float4(f32_canonical(from[0]), f32_canonical(from[1]),
                               f32_canonical(from[2]), f32_canonical(from[3])));
        else
#pragma unroll
            for (int i = 0; i < HALF; i++)
                if (h * HALF + i < p.count) to[p.at + h * HALF + i] = f32_canonical(from[i]);
    }
}

/* Returns the stored values; elements after the first p.count are zero. */
template <bool WHOLE>
__device__ static uint4 store_bf16(bf16_bits *to, struct place p, const uint2 (&x)[2]) {
    uint4 v = make_uint4(x[0].x, x[0].y, x[1].x, x[1].y);
    if constexpr (WHOLE) {
        store_words(to + p.at, v);
        return v;
    }
    const uint32_t word[4] = { v.x, v.y, v.z, v.w };
    uint32_t kept[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        uint32_t code = word[i / 2] >> (i % 2 * 16) & 0xFFFFu;
        if (i >= p.count) continue;
        to[p.at + i] = (bf16_bits)code;
        kept[i / 2] |= code << (i % 2 * 16);
    }
    return make_uint4(kept[0], kept[1], kept[2], kept[3]);
}

/* 8-bit state: half a warp stores its block. */
template <bool WHOLE>
__device__ static void store_codes(void *codes, float *scale, struct place p, float (&x)[2][HALF],
                                   const uint64_t (&bits)[2][HALF], enum round_part part) {
    uint32_t top = 0, packed[2] = { 0, 0 };
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        float &v = x[i / HALF][i % HALF];
        if (part == ROUND_V) v = sqrtf(v);
        if (WHOLE || i < p.count) top = max(top, f32_bits(v) & 0x7FFFFFFFu);
    }
    top = __reduce_max_sync(0xFFFFu << (threadIdx.x & 16), top);
    const struct quant_rule rule = { QUANT_TE, 0.0f, false };
    struct multiplier r = quant_multiplier_of(rule, false, f32_from_bits(top));
    if (threadIdx.x % 16 == 0 && (WHOLE || p.count)) scale[p.at / STATE_BLOCK] = r.factor;
    uint8_t *to = (uint8_t *)codes + p.at;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
        float v = x[i / HALF][i % HALF];
        uint8_t code = e4m3_round_stochastic(v * r.m, round_random(bits[i / HALF][i % HALF], part));
        if (part == ROUND_V && code == 0 && v > 0.0f) code = 1;
        packed[i / HALF] |= (uint32_t)code << 8 * (i % HALF);
        if (!WHOLE && i < p.count) to[i] = code;
    }
    if (WHOLE) *(uint2 *)to = make_uint2(packed[0], packed[1]);
}

/* The new values of a lane's elements. Either codes or values of m and v are used; the compiler
 * drops the others. */
struct new_values {
    float master[2][HALF], m[2][HALF], v[2][HALF];
    uint2 w_code[2], m_code[2], v_code[2];
    uint64_t bits[2][HALF];
};

/* FAST: without branches; returns false if an element needs the slow path. */
template <bool FAST, int STATE, bool MASTER, int GRAD>
__device__ static bool updated_values(struct new_values &to, const struct adamw_tensor &t,
                                      const struct scalars &s, uint64_t key, struct place p,
                                      const struct raw_values<STATE, MASTER, GRAD> &raw) {
    bool fine = true;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct four x;
        decode(x, raw, h);
        update_moments(x, s);
        if constexpr (FAST) fine &= fast_weights(x, s, t.weight_decay);
        else update_weights(x, s, t.weight_decay);
        if constexpr (STATE != DTYPE_F32 || !MASTER)
            draw(to.bits[h], key, t.element_base + p.at + h * HALF);
        if constexpr (STATE == DTYPE_BF16) {
            to.m_code[h] = round_four<FAST, ROUND_M>(x.m, to.bits[h]);
            to.v_code[h] = round_four<FAST, ROUND_V>(x.v, to.bits[h]);
        }
        if constexpr (MASTER)
            to.w_code[h] = make_uint2(bf16x2_encode(x.w[0], x.w[1]), bf16x2_encode(x.w[2], x.w[3]));
        else
            to.w_code[h] = round_four<FAST, ROUND_WEIGHT>(x.w, to.bits[h]);
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            to.master[h][i] = x.w[i];
            to.m[h][i] = x.m[i];
            to.v[h][i] = x.v[i];
        }
    }
    return fine;
}

/* Returns the new weights. */
template <bool WHOLE, int STATE, bool MASTER, int GRAD>
__device__ static uint4 store(const struct adamw_tensor &t, struct place p,
                              struct new_values &x) {
    if constexpr (STATE == DTYPE_F32) {
        store_f32<WHOLE>((float *)t.m, p, x.m);
        store_f32<WHOLE>((float *)t.v, p, x.v);
    } else if constexpr (STATE == DTYPE_BF16) {
        store_bf16<WHOLE>((bf16_bits *)t.m, p, x.m_code);
        store_bf16<WHOLE>((bf16_bits *)t.v, p, x.v_code);
    } else {
        store_codes<WHOLE>(t.m, t.m_scale, p, x.m, x.bits, ROUND_M);
        store_codes<WHOLE>(t.v, t.v_scale, p, x.v, x.bits, ROUND_V);
    }
    if constexpr (MASTER) store_f32<WHOLE>(t.master, p, x.master);
    return store_bf16<WHOLE>(t.value, p, x.w_code);
}

/* How a kernel visits a weight, Visit: `at` is the place of a lane's eight elements; `from_weights`
 * is the result that it needs from their new weights. Both are called inside update(). Outside,
 * the compiler computed the draws after the loads had arrived: three layers of 8B by spans took 1 %
 * longer (H200). */

/* The slow path: for elements that need it, and for a tensor's end, where lanes have eight
 * elements, fewer or none. */
template <class Visit, bool WHOLE, int STATE, bool MASTER, int GRAD>
__device__ static __noinline__ auto update_slow_path(const struct adamw_tensor &t,
                                                     const struct scalars &s, uint64_t key,
                                                     int64_t where) {
    struct raw_values<STATE, MASTER, GRAD> raw;
    struct new_values to;
    struct place p = { Visit::at(where), PER_LANE };
    int64_t left = t.n - p.at;
    if (left < PER_LANE) p.count = left > 0 ? (int)left : 0;
    load<WHOLE>(raw, t, p);
    updated_values<false>(to, t, s, key, p, raw);
    return Visit::from_weights(store<WHOLE, STATE, MASTER, GRAD>(t, p, to));
}

/* Eight elements of every lane of a warp. Half a warp has 128 elements in a row, from a multiple of
 * 128 on. Nothing is stored before all lanes are known to be finite. */
template <class Visit, int STATE, bool MASTER, int GRAD>
__device__ static auto update(const struct adamw_tensor &t, const struct scalars &s, uint64_t key,
                              int64_t where) {
    struct raw_values<STATE, MASTER, GRAD> raw;
    struct new_values to;
    struct place p = { Visit::at(where), PER_LANE };
    load<true>(raw, t, p);
    __syncwarp(); /* all four loads are issued before the first wait */
    if (__all_sync(0xFFFFFFFFu, updated_values<true>(to, t, s, key, p, raw)))
        return Visit::from_weights(store<true, STATE, MASTER, GRAD>(t, p, to));
    return update_slow_path<Visit, true, STATE, MASTER, GRAD>(t, s, key, where);
}

/* ---- launching ---- */

/* Blocks per multiprocessor. For BF16 spans 2 and 4 are slower (measured). */
static constexpr int adamw_blocks(int state, bool master) {
    return state == DTYPE_F32 || master ? 2 : 3;
}

/* Kernels::of<STATE, MASTER, GRAD>() for the state's dtype, whether the weights have masters, and
 * the gradient's dtype. */
template <class Kernels, int STATE, bool MASTER> static auto adamw_for_grad(int grad) {
    return grad == DTYPE_F32 ? Kernels::template of<STATE, MASTER, DTYPE_F32>()
                             : Kernels::template of<STATE, MASTER, DTYPE_BF16>();
}
template <class Kernels, bool MASTER> static auto adamw_for_state(int state, int grad) {
    if (state == DTYPE_F32) return adamw_for_grad<Kernels, DTYPE_F32, MASTER>(grad);
    if (state == DTYPE_BF16) return adamw_for_grad<Kernels, DTYPE_BF16, MASTER>(grad);
    return adamw_for_grad<Kernels, DTYPE_E4M3, MASTER>(grad);
}
template <class Kernels> static auto adamw_kernel_for(const struct adamw_args *a) {
    return a->master ? adamw_for_state<Kernels, true>(a->m->dtype, a->grad->dtype)
                     : adamw_for_state<Kernels, false>(a->m->dtype, a->grad->dtype);
}

/* Tensors of one call that share dtypes, scalars and kernel. */
struct adamw_group {
    const struct adamw_args *of[ADAMW_TENSORS];
    int count; /* at least 1 */
};

struct adamw_tensor adamw_tensor_of(const struct adamw_args *args);
struct adamw_step adamw_step_of(const struct adamw_args *args);
/* Blocks for `items` items, one item a block at a time, of a kernel for these tensors. */
unsigned adamw_grid(struct backend *b, const struct adamw_args *args, int64_t items);

/* ---- adamw_tile.cu ---- */

/* Whether the codes are made in the same pass: E4M3 of whole tiles, with a scale that is known or
 * depends on one tile. */
bool adamw_fuses(const struct adamw_args *args);
void adamw_launch_tiles(struct backend *b, int lane, const struct adamw_group *group);

#endif
