/* Device versions of kernels/quant.c and of the codecs in dtype.c, equal to the bit. */
#ifndef FP8LAB_KERNELS_CUDA_QUANTISE_CUH
#define FP8LAB_KERNELS_CUDA_QUANTISE_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/cuda_common.cuh"
#include "kernels/fp8_inline.h"

__device__ static inline float fp8_max_of(bool e5m2) { return e5m2 ? 57344.0f : 448.0f; }

/* Two codes in one word, low first: nearest even, saturating, NaN -> 0x7F. */
__device__ static inline uint32_t fp8x2_encode(bool e5m2, float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t packed;
    if (e5m2) asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    else asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
#else
    if (e5m2) return (uint32_t)e5m2_encode_inline(low) | (uint32_t)e5m2_encode_inline(high) << 8;
    return (uint32_t)e4m3_encode_inline(low) | (uint32_t)e4m3_encode_inline(high) << 8;
#endif
}
__device__ static inline float fp8_decode_of(bool e5m2, uint8_t code) {
    return e5m2 ? e5m2_decode_inline(code) : e4m3_decode_inline(code);
}
/* Of E2M1 too. */
__device__ static inline float code_decode_of(enum dtype t, uint8_t code) {
    return t == DTYPE_E2M1 ? e2m1_decode_inline(code) : fp8_decode_of(t == DTYPE_E5M2, code);
}

/* out[i] = byte i of a, b, c, d. */
__device__ static inline void transpose_4x4(uint32_t (&out)[4], uint32_t a, uint32_t b, uint32_t c,
                                        uint32_t d) {
    uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
    uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
    out[0] = __byte_perm(ab_low, cd_low, 0x5410);
    out[1] = __byte_perm(ab_low, cd_low, 0x7632);
    out[2] = __byte_perm(ab_high, cd_high, 0x5410);
    out[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

/* quant_multiplier of kernels/quant.c. `factor`: what the GEMM multiplies by; `e8m0`: its stored
 * byte, if the rule is QUANT_MX. */
struct multiplier { float m, factor; uint8_t e8m0; };

__device__ static inline struct multiplier quant_multiplier_of(const struct quant_rule &rule,
                                                               bool e5m2, float amax) {
    struct multiplier r = { 1.0f, 1.0f, 127 };
    float raised = amax < rule.amax_min ? rule.amax_min : amax, max = fp8_max_of(e5m2);
    const float largest = 3.402823466e+38f;
    const uint32_t exponent_mask = 0x7F800000u;
    if (rule.constants == QUANT_TE || rule.constants == QUANT_TE_BLOCK) {
        if (raised > 0.0f && raised <= largest) {
            r.m = max / raised;
            if (r.m > largest)
                r.m = rule.constants == QUANT_TE ? largest : f32_from_bits(0x7F7F0000u); /* BF16 */
            if (rule.pow2) r.m = f32_from_bits(f32_bits(r.m) & exponent_mask);
        }
        r.factor = 1.0f / r.m;
    } else if (rule.constants == QUANT_TORCHAO) {
        r.m = (float)((double)max / (double)raised);
        if (rule.pow2 && r.m == r.m) r.m = f32_from_bits(f32_bits(r.m) & exponent_mask);
        r.factor = f32_canonical(1.0f / r.m);
        r.m = f32_canonical(r.m);
    } else if (rule.constants == QUANT_DEEPSEEK) {
        float s = raised / 448.0f;
        if (rule.pow2 && s == s) s = f32_from_bits((f32_bits(s) + 0x7FFFFFu) & exponent_mask);
        r.factor = f32_canonical(s);
        r.m = f32_canonical(1.0f / s);
    } else {
        r.e8m0 = e8m0_encode_up_inline(amax * (1.0f / max));
        r.factor = e8m0_decode_inline(r.e8m0);
        r.m = e8m0_decode_inverse_inline(r.e8m0);
    }
    return r;
}

#endif
