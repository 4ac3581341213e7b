#include "kernels/quant.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "kernels/nvfp4.h"

static const float BF16_MAX = 0x1.fep127f;
enum { EXPONENT_MASK = 0x7F800000, MANTISSA_MASK = 0x007FFFFF };

/* Down to a power of two: the mantissa cleared. Zero, infinity and subnormals (to 0) included; NaN
 * must not come here, since it would turn into infinity. */
static float pow2_down(float x) { return f32_from_bits(f32_bits(x) & EXPONENT_MASK); }
/* Up to a power of two; what exceeds 2^127 becomes infinity. NaN must not come here. */
static float pow2_up(float x) {
    return f32_from_bits((f32_bits(x) + MANTISSA_MASK) & EXPONENT_MASK);
}

/* Not fmaxf: that hides NaN. */
static float raise_to(float amax, float amax_min) { return amax < amax_min ? amax_min : amax; }

static float multiplier_te(const struct quant_rule *rule, enum dtype code, float amax,
                           float *stored) {
    float a = raise_to(amax, rule->amax_min), m = 1.0f;
    if (a > 0 && a <= FLT_MAX) {
        m = dtype_max(code) / a;
        if (m > FLT_MAX) m = rule->constants == QUANT_TE_BLOCK ? BF16_MAX : FLT_MAX;
        if (rule->pow2) m = pow2_down(m);
    }
    *stored = 1.0f / m;
    return m;
}

static float multiplier_torchao(const struct quant_rule *rule, enum dtype code, float amax,
                                float *stored) {
    float a = raise_to(amax, rule->amax_min);
    float m = (float)((double)dtype_max(code) / (double)a);
    if (rule->pow2 && m == m) m = pow2_down(m);
    *stored = f32_canonical(1.0f / m);
    return f32_canonical(m);
}

/* DeepGEMM knows E4M3 only: 448 is part of the rule, whatever the format. */
static float multiplier_deepseek(const struct quant_rule *rule, float amax, float *stored) {
    float s = raise_to(amax, rule->amax_min) / 448.0f;
    if (rule->pow2 && s == s) s = pow2_up(s);
    *stored = f32_canonical(s);
    return f32_canonical(1.0f / s);
}

static float multiplier_mx(enum dtype code, float amax, float *stored) {
    uint8_t e = e8m0_encode_up(amax * (1.0f / dtype_max(code)));
    *stored = e8m0_decode(e);
    return e8m0_decode_inverse(e);
}

float quant_multiplier(const struct quant_rule *rule, enum dtype code, float amax, float *stored) {
    assert(dtype_is_fp8(code));
    switch (rule->constants) {
    case QUANT_TE:
    case QUANT_TE_BLOCK: return multiplier_te(rule, code, amax, stored);
    case QUANT_TORCHAO: return multiplier_torchao(rule, code, amax, stored);
    case QUANT_DEEPSEEK: return multiplier_deepseek(rule, amax, stored);
    case QUANT_MX: return multiplier_mx(code, amax, stored);
    case QUANT_NVFP4:
        *stored = nvfp4_tensor_factor(amax);
        return nvfp4_tensor_multiplier(amax);
    }
    assert(!"unknown constants");
    return NAN;
}
