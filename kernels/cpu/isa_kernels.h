/* The source of all vector kernels. An isa_<name>.c defines, before including it:
 *   ISA_TARGET       function attribute that allows the instructions
 *   VEC, VEC_FLOATS  a vector of f32 and its length
 *   VEC_LOAD(p) VEC_STORE(p, v) VEC_SPLAT(x) VEC_MUL(a, b) VEC_FMA(a, b, c)   fused: one rounding
 *   MR, NV           the micro-tile: MR rows of A by NV vectors of rows of B
 *   MMA_...          see isa_mma.h
 * and afterwards fills a struct isa from the static functions below. The loops over elements are
 * plain C that the compiler vectorises for the target (-O3, see the Makefile). IEEE 754 defines
 * every operation in them to the bit, so the bits do not depend on the target. */
#include "kernels/cpu/isa.h"
#include "kernels/fp8_inline.h"
#include "kernels/nvfp4.h"

enum { NR = NV * VEC_FLOATS };

_Static_assert((int)MR <= (int)GEMM_MR_MAX && (int)NR <= (int)GEMM_NR_MAX, "the bounds in isa.h");

/* The chains of one micro-tile stay in MR*NV registers; each k costs NV loads, MR broadcasts and
 * MR*NV fused multiply-adds. */
#define CHAINS(k, a, b, acc)                                                        \
    for (int64_t kk = 0; kk < (k); kk++) {                                          \
        VEC bv[NV];                                                                 \
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++)                       \
            bv[j] = VEC_LOAD((b) + kk * NR + j * VEC_FLOATS);                       \
        _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++) {                     \
            VEC av = VEC_SPLAT((a)[kk * MR + i]);                                   \
            _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++)                   \
                acc[i][j] = VEC_FMA(av, bv[j], acc[i][j]);                          \
        }                                                                           \
    }

ISA_TARGET static void isa_gemm(int64_t k, const float *a, const float *b, float *c) {
    VEC acc[MR][NV];
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++)
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++)
            acc[i][j] = VEC_LOAD(c + i * NR + j * VEC_FLOATS);
    CHAINS(k, a, b, acc)
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++)
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++)
            VEC_STORE(c + i * NR + j * VEC_FLOATS, acc[i][j]);
}

ISA_TARGET static void isa_gemm_scaled(int64_t k, const float *a, const float *b, const float *sa,
                                       const float *sb, float *c) {
    VEC acc[MR][NV];
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++)
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++) acc[i][j] = VEC_SPLAT(0.0f);
    CHAINS(k, a, b, acc)
    _Pragma("GCC unroll 16") for (int i = 0; i < MR; i++) {
        VEC si = VEC_SPLAT(sa[i]);
        _Pragma("GCC unroll 16") for (int j = 0; j < NV; j++) {
            float *at = c + i * NR + j * VEC_FLOATS;
            VEC s = VEC_MUL(si, VEC_LOAD(sb + j * VEC_FLOATS));
            VEC_STORE(at, VEC_FMA(acc[i][j], s, VEC_LOAD(at)));
        }
    }
}

ISA_TARGET static void isa_fp8_decode(enum dtype t, float *out, const uint8_t *codes, int64_t n) {
    if (t == DTYPE_E4M3)
        for (int64_t i = 0; i < n; i++) out[i] = e4m3_decode_inline(codes[i]);
    else if (t == DTYPE_E2M1)
        for (int64_t i = 0; i < n; i++) out[i] = e2m1_decode_inline(codes[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = e5m2_decode_inline(codes[i]);
}

ISA_TARGET static void isa_fp8_encode(enum dtype t, uint8_t *out, const float *x, const float *m,
                                      int64_t n) {
    if (t == DTYPE_E4M3)
        for (int64_t i = 0; i < n; i++) out[i] = e4m3_encode_inline(x[i] * m[i]);
    else if (t == DTYPE_E2M1)
        for (int64_t i = 0; i < n; i++) out[i] = e2m1_encode_inline(x[i] * m[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = e5m2_encode_inline(x[i] * m[i]);
}

ISA_TARGET static void isa_fp8_stats(enum dtype t, const uint8_t *codes, const float *x,
                                     const float *m, int64_t n, uint32_t count[2]) {
    /* Compared as integers, which order like magnitudes. NaN counts as neither. */
    int32_t max = t == DTYPE_E4M3 ? 0x43E00000 : 0x47600000; /* 448, 57344 */
    int32_t infinity = 0x7F800000, code_bits = t == DTYPE_E2M1 ? 7 : 0x7F;
    if (t == DTYPE_E2M1) max = 0x40C00000; /* 6 */
    uint32_t saturated = 0, flushed = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t before = (int32_t)(f32_bits(x[i]) & 0x7FFFFFFFu);
        int32_t after = (int32_t)(f32_bits(x[i] * m[i]) & 0x7FFFFFFFu);
        saturated += (uint32_t)((after > max) & (after <= infinity));
        flushed += (uint32_t)((before != 0) & ((codes[i] & code_bits) == 0));
    }
    count[0] += saturated;
    count[1] += flushed;
}

ISA_TARGET static void isa_bf16_decode(float *out, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = bf16_decode(x[i]);
}

ISA_TARGET static void isa_bf16_encode(uint16_t *out, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = bf16_encode(x[i]);
}

ISA_TARGET static uint32_t isa_amax(const float *x, int64_t n) {
    uint32_t max = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        max = max > bits ? max : bits;
    }
    return max;
}

ISA_TARGET static void isa_amax_each(uint32_t *max, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = f32_bits(x[i]) & 0x7FFFFFFFu;
        max[i] = max[i] > bits ? max[i] : bits;
    }
}

ISA_TARGET static void isa_e2m1_round(uint8_t *out, const float *x, const float *m,
                                      const uint8_t *random, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = e2m1_round_stochastic(x[i] * m[i], random[i]);
}

ISA_TARGET static void isa_rotate(float *x, int64_t stride, int64_t n) {
    for (int r = 0; r < NVFP4_BLOCK; r++)
        for (int64_t i = 0; i < n; i++) x[r * stride + i] = x[r * stride + i] * nvfp4_sign(r);
    for (int apart = 1; apart < NVFP4_BLOCK; apart *= 2)
        for (int r = 0; r < NVFP4_BLOCK; r++) {
            if (r & apart) continue;
            float *low = x + r * stride, *high = x + (r + apart) * stride;
            for (int64_t i = 0; i < n; i++) {
                float a = low[i], b = high[i];
                low[i] = a + b;
                high[i] = a - b;
            }
        }
    for (int r = 0; r < NVFP4_BLOCK; r++)
        for (int64_t i = 0; i < n; i++)
            x[r * stride + i] = bf16_decode(bf16_encode(x[r * stride + i]));
}

#include "kernels/cpu/isa_mma.h"

#define ISA_KERNELS                                                                          \
    .mr = MR, .nr = NR, .gemm = isa_gemm, .gemm_scaled = isa_gemm_scaled,                    \
    .fp8_decode = isa_fp8_decode, .fp8_encode = isa_fp8_encode,                              \
    .fp8_stats = isa_fp8_stats, .bf16_decode = isa_bf16_decode,                              \
    .bf16_encode = isa_bf16_encode, .amax = isa_amax, .amax_each = isa_amax_each,         \
    .e2m1_round = isa_e2m1_round, .rotate = isa_rotate, ISA_MMA
