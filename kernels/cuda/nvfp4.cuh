/* NVFP4's codes of a patch of 16 rows by 8 columns, which a thread holds in registers. The
 * arithmetic is that of kernels/nvfp4.h, equal to the bit, in fewer instructions.
 *
 * |x| is rounded; the sign comes last. E2M1's grid has the step 1/2 below 2, 1 from 2 to 4, and 2
 * above. Let e be 1, 2 or 4 there: the step is an ulp of e * 2^22. So the sum of e and |x| / 2^22
 * is rounded to the grid, and its difference to e is exact. Times 2^-6, a value of the grid has an
 * E4M3 code that is its E2M1 code shifted by 2, so the device converts. All values are scaled by
 * 2^16: then e needs no multiplication.
 *
 * This serves products below 7, which become 6 at most. A block with a larger one is rare: its
 * scale is subnormal or zero, or it has NaN or infinity. fp4_rare_code() then makes its codes. */
#ifndef FP8LAB_KERNELS_CUDA_NVFP4_CUH
#define FP8LAB_KERNELS_CUDA_NVFP4_CUH

#include "kernels/cuda/quantise.cuh"
#include "kernels/nvfp4.h"

enum {
    FP4_TILE = 128,                        /* rows and columns of a tile */
    FP4_THREADS = 128,
    FP4_COLS = 8,                          /* of a thread's patch; its rows are a block's 16 */
    FP4_WORDS = FP4_COLS / 2,              /* of two values */
    FP4_DOWN = FP4_TILE / NVFP4_BLOCK,     /* patches of a warp: 8 down, 4 across */
    FP4_ACROSS = WARP / FP4_DOWN,
    FP4_SCALES = 128,                      /* codes of a block's scale */
    FP4_ZEROS = FP4_SCALES,                /* a table's entry for a block of zeros */
    FP4_ENTRIES
};
static_assert(FP4_ACROSS * FP4_COLS * (FP4_THREADS / WARP) == FP4_TILE, "warps cover a tile");

/* ---- scales of blocks ---- */

/* What a tensor's multiplier makes of each block's scale. most: twice the largest BF16 whose
 * product does not exceed 6. */
struct fp4_table { float m[FP4_ENTRIES]; uint32_t most[FP4_ENTRIES]; };

/* A table, and the tensor's multiplier / 6. */
struct fp4_rule { const struct fp4_table *table; float sixth; };

/* A block: its scale's code, and its table's entry. near_m: m twice, in BF16. over: negative if the
 * block is rare. */
struct fp4_block { float m; uint32_t near_m, d, most; int32_t over; };

/* Entry `d` of a table: NaN if the multiplier * 2^16 is no f32, which makes a block rare. Zeros
 * need only their signs, unless the tensor has NaN. */
template <bool COUNT>
__device__ static inline void fp4_fill_table(struct fp4_table &t, float tensor, int d) {
    float m = nvfp4_block_multiplier(tensor, (uint8_t)d) * 65536.0f;
    if (!(m <= 3.402823466e+38f)) m = f32_from_bits(0x7FC00000u);
    t.m[d] = m;
    if (d == 0) t.m[FP4_ZEROS] = tensor == tensor ? 1.0f : tensor;
    if (!COUNT) return;
    const float six = 6.0f * 65536.0f;
    uint32_t most = f32_bits(six / m) >> 16; /* the quotient is rounded, and so is the product */
    if (f32_from_bits(most << 16) * m > six) most--;
    else if (f32_from_bits((most + 1) << 16) * m <= six) most++;
    t.most[d] = most * 0x10001u;
    if (d == 0) t.most[FP4_ZEROS] = 0;
}

__device__ static inline __nv_bfloat162 fp4_pair(uint32_t word) {
    return *(const __nv_bfloat162 *)&word;
}
__device__ static inline uint32_t fp4_word(__nv_bfloat162 pair) { return *(const uint32_t *)&pair; }

/* The block whose largest |x| this is. */
template <bool COUNT>
__device__ static inline struct fp4_block fp4_block_of(const struct fp4_rule &r, float largest) {
    const int32_t seven = 0x48E00000; /* times 2^16 */
    struct fp4_block b;
    b.d = fp8x2_encode(false, largest * r.sixth, 0.0f) & 0xFFu;
    uint32_t entry = f32_bits(largest) ? b.d : (uint32_t)FP4_ZEROS;
    b.m = r.table->m[entry];
    b.near_m = fp4_word(__float2bfloat162_rn(b.m));
    b.over = seven - 1 - (int32_t)f32_bits(largest * b.m); /* NaN is larger than any number */
    b.most = COUNT ? r.table->most[entry] : 0;
    return b;
}

/* ---- codes ---- */

/* p >= 0, times 2^16, rounded to the grid, times 2^-6. Near 2 and 4 the grids of both steps round
 * alike: e is right from 1.75 e to 2.25 e, and any even bits below its first may be set. */
__device__ static inline float fp4_nearest(float p, float e) {
    return __fmaf_rn(p, 0x1p-22f, e) - e;
}

/* The same with a byte of 256 parts of a step added, rounded down. draw: bits of 2^23 + byte. */
__device__ static inline float fp4_stochastic(float p, uint32_t draw) {
    float part = __fmaf_rn(f32_from_bits(draw), 0x1p-9f, -0x1p14f); /* a step is e / 2 */
    float e = fmaxf(f32_from_bits(f32_bits(p) & 0x7F800000u), 65536.0f);
    return __fmaf_rd(__fmaf_rn(part, e, p), 0x1p-22f, e) - e;
}

/* Both values of a word on the grid: their e come from products in BF16. */
__device__ static inline uint32_t fp4_pair_nearest(uint32_t word, float m, uint32_t near_m) {
    uint32_t near = fp4_word(__hmul2(fp4_pair(word), fp4_pair(near_m)));
    uint32_t e = __vmaxu2(near & 0x7F807F80u, 0x47804780u); /* 2^16 */
    return fp8x2_encode(false, fp4_nearest(fabsf(bf16_low(word)) * m, bf16_low(e)),
                        fp4_nearest(fabsf(bf16_high(word)) * m, f32_from_bits(e)));
}
__device__ static inline uint32_t fp4_pair_stochastic(uint32_t word, float m, uint32_t random,
                                                      int byte) {
    uint32_t low = __byte_perm(random, 0x4B000000u, 0x7440 + byte);
    uint32_t high = __byte_perm(random, 0x4B000000u, 0x7441 + byte);
    return fp8x2_encode(false, fp4_stochastic(fabsf(bf16_low(word)) * m, low),
                        fp4_stochastic(fabsf(bf16_high(word)) * m, high));
}

/* Four codes, a byte each, of two words of values. random: a byte of draws for each. */
template <bool STOCHASTIC>
__device__ static inline uint32_t fp4_codes(uint32_t low, uint32_t high,
                                            const struct fp4_block &b, uint32_t random) {
    uint32_t w;
    if (STOCHASTIC) {
        w = fp4_pair_stochastic(low, b.m, random, 0) |
            fp4_pair_stochastic(high, b.m, random, 2) << 16;
        w >>= 2;
        w -= w >> 3 & 0x01010101u; /* 8 becomes 6 */
    } else {
        w = fp4_pair_nearest(low, b.m, b.near_m) | fp4_pair_nearest(high, b.m, b.near_m) << 16;
        w >>= 2;
    }
    return w | (__byte_perm(low, high, 0x7531) >> 4 & 0x08080808u);
}

/* ---- counts ---- */

/* Of blocks that are not rare. over: values whose product exceeds 6. zero: zeros. Both have two
 * halves. coded: eight times the codes other than zero. flushed: all values. Rare blocks add what
 * they saturate and flush to the last two. */
struct fp4_counts { __nv_bfloat162 over, zero; uint32_t coded, saturated, flushed; };

/* Counts four values in two words and their codes; of a rare block nothing. */
__device__ static inline void fp4_count(struct fp4_counts &n, uint32_t low, uint32_t high,
                                        uint32_t codes, const struct fp4_block &b) {
    const uint32_t magnitude = 0x7FFF7FFFu, nan = 0x7FFF7FFFu; /* NaN equals nothing */
    const uint32_t infinity = 0x7F807F80u, rare = (uint32_t)(b.over >> 31);
    __nv_bfloat162 x = fp4_pair(low & magnitude), y = fp4_pair(high & magnitude);
    __nv_bfloat162 most = fp4_pair(b.most | (rare & infinity)), zero = fp4_pair(rare & nan);
    n.over = __hadd2(__hadd2(n.over, __hgt2(x, most)), __hgt2(y, most));
    n.zero = __hadd2(__hadd2(n.zero, __heq2(x, zero)), __heq2(y, zero));
    uint32_t coded = ((codes & 0x07070707u) + 0x07070707u) & 0x08080808u & ~rare;
    n.coded = (uint32_t)__dp4a(coded, 0x01010101u, n.coded);
}

/* Of a thread: values that saturate, and those whose code is zero though they are not. */
__device__ static inline uint32_t fp4_saturated(const struct fp4_counts &n) {
    return n.saturated + (uint32_t)(__low2float(n.over) + __high2float(n.over));
}
__device__ static inline uint32_t fp4_flushed(const struct fp4_counts &n) {
    return n.flushed - n.coded / 8 - (uint32_t)(__low2float(n.zero) + __high2float(n.zero));
}

/* A code of a rare block, as nvfp4.h has it. m: its multiplier. */
template <bool STOCHASTIC>
__device__ static inline uint32_t fp4_rare_code(float x, float m, uint32_t random,
                                                struct fp4_counts &n) {
    float product = x * m;
    uint32_t code = STOCHASTIC ? e2m1_round_stochastic(product, random)
                               : e2m1_encode_inline(product);
    uint32_t size = f32_bits(product) & 0x7FFFFFFFu;
    n.saturated += size > 0x40C00000u && size <= 0x7F800000u; /* 6 */
    n.flushed += (f32_bits(x) & 0x7FFFFFFFu) != 0 && (code & 7) == 0;
    return code;
}

/* ---- maxima ---- */

/* The larger of both halves' |x|, as f32. */
__device__ static inline float fp4_larger(uint32_t tops) {
    return f32_from_bits(max(tops << 16, tops & 0xFFFF0000u));
}

/* Largest |x| bits of 16 values, in two halves. */
__device__ static inline uint32_t fp4_tops(const uint32_t (&w)[NVFP4_BLOCK / 2]) {
    const uint32_t magnitude = 0x7FFF7FFFu;
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK / 2; i += 2)
        top = __vimax3_u16x2(top, w[i] & magnitude, w[i + 1] & magnitude);
    return top;
}

/* ---- columns ---- */

/* nvfp4.h's rotation. A product with +-1/4 is exact, so the first sums may take it in. */
__device__ static inline void fp4_rotate(float (&x)[NVFP4_BLOCK]) {
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i += 2) {
        float a = x[i] * nvfp4_sign(i), b = x[i + 1];
        x[i] = __fmaf_rn(b, nvfp4_sign(i + 1), a);
        x[i + 1] = __fmaf_rn(b, -nvfp4_sign(i + 1), a);
    }
#pragma unroll
    for (int apart = 2; apart < NVFP4_BLOCK; apart *= 2)
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i++) {
            if (i & apart) continue;
            float a = x[i], b = x[i + apart];
            x[i] = a + b;
            x[i + apart] = a - b;
        }
}

/* Column `col` of a patch, two rows a word; rotated or not. A NaN of the rotation is 0x7FFF. */
__device__ static inline void fp4_column(uint32_t (&w)[NVFP4_BLOCK / 2],
                                         const uint32_t (&v)[NVFP4_BLOCK][FP4_WORDS], int col,
                                         bool rotated) {
    bool high = col % 2;
    if (!rotated) {
#pragma unroll
        for (int i = 0; i < NVFP4_BLOCK; i += 2)
            w[i / 2] = __byte_perm(v[i][col / 2], v[i + 1][col / 2], high ? 0x7632 : 0x5410);
        return;
    }
    float x[NVFP4_BLOCK];
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i++)
        x[i] = high ? bf16_high(v[i][col / 2]) : bf16_low(v[i][col / 2]);
    fp4_rotate(x);
#pragma unroll
    for (int i = 0; i < NVFP4_BLOCK; i += 2)
        w[i / 2] = fp4_word(__floats2bfloat162_rn(x[i], x[i + 1]));
}

#endif
