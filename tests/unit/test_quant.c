/* The rule that turns an amax into a multiplier and a stored factor: cases worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "kernels/quant.h"

#define INF 0x7F800000u
#define NOT_A_NUMBER 0x7FC00000u

struct quant_case {
    enum quant_constants constants;
    float amax_min;
    bool pow2;
    enum dtype code;
    uint32_t amax, multiplier, stored; /* f32 bits */
};

static const struct quant_case CASES[] = {
    /* TE: 448/3.5 = 128 and 57344/7 = 8192 are exact */
    { QUANT_TE, 0, false, DTYPE_E4M3, 0x40600000u, 0x43000000u, 0x3C000000u },
    { QUANT_TE, 0, false, DTYPE_E5M2, 0x40E00000u, 0x46000000u, 0x39000000u },
    { QUANT_TE, 0, false, DTYPE_E4M3, 0x40400000u, 0x43155555u, 0x3BDB6DB7u }, /* 448/3 */
    { QUANT_TE, 0, true, DTYPE_E4M3, 0x40400000u, 0x43000000u, 0x3C000000u },  /* down: 128 */
    { QUANT_TE, 0, true, DTYPE_E4M3, 0x3F800000u, 0x43800000u, 0x3B800000u },  /* 448 -> 256 */
    { QUANT_TE, 0, true, DTYPE_E4M3, 0x43E00000u, 0x3F800000u, 0x3F800000u },  /* 448 -> 1 */
    { QUANT_TE, 0, false, DTYPE_E4M3, 0, 0x3F800000u, 0x3F800000u },           /* zero -> 1 */
    { QUANT_TE, 0, false, DTYPE_E4M3, INF, 0x3F800000u, 0x3F800000u },
    { QUANT_TE, 0, false, DTYPE_E4M3, NOT_A_NUMBER, 0x3F800000u, 0x3F800000u },
    { QUANT_TE, 0, true, DTYPE_E4M3, INF, 0x3F800000u, 0x3F800000u },
    { QUANT_TE, 3.5f, false, DTYPE_E4M3, 0x3F800000u, 0x43000000u, 0x3C000000u }, /* 1 -> 3.5 */
    { QUANT_TE, 3.5f, false, DTYPE_E4M3, 0, 0x43000000u, 0x3C000000u },           /* 0 -> 3.5 */
    { QUANT_TE, 3.5f, false, DTYPE_E4M3, NOT_A_NUMBER, 0x3F800000u, 0x3F800000u },
    /* 448 / 2^-126 is infinite -> FLT_MAX, 1/FLT_MAX = 2^-128; with pow2 2^127 and 2^-127 */
    { QUANT_TE, 0, false, DTYPE_E4M3, 0x00800000u, 0x7F7FFFFFu, 0x00200000u },
    { QUANT_TE, 0, true, DTYPE_E4M3, 0x00800000u, 0x7F000000u, 0x00400000u },
    { QUANT_TE, 0, false, DTYPE_E4M3, 1, 0x7F7FFFFFu, 0x00200000u }, /* smallest subnormal */
    /* TE's blocks differ there only: the largest BF16, and with pow2 not even that */
    { QUANT_TE_BLOCK, 0, false, DTYPE_E4M3, 0x00800000u, 0x7F7F0000u, 0x00202020u },
    { QUANT_TE_BLOCK, 0, true, DTYPE_E4M3, 0x00800000u, 0x7F000000u, 0x00400000u },
    { QUANT_TE_BLOCK, 0, false, DTYPE_E4M3, 0x40400000u, 0x43155555u, 0x3BDB6DB7u },
    { QUANT_TE_BLOCK, 0, false, DTYPE_E4M3, 0, 0x3F800000u, 0x3F800000u },
    { QUANT_TE_BLOCK, 0, true, DTYPE_E4M3, NOT_A_NUMBER, 0x3F800000u, 0x3F800000u },

    /* torchao: f64 division; a zero tensor has 448/1e-12 = 4.48e14, 2^48 with pow2 */
    { QUANT_TORCHAO, 1e-12f, false, DTYPE_E4M3, 0, 0x57CBBA10u, 0x2720D7C5u },
    { QUANT_TORCHAO, 1e-12f, true, DTYPE_E4M3, 0, 0x57800000u, 0x27800000u },
    { QUANT_TORCHAO, 1e-12f, false, DTYPE_E5M2, 0, 0x5B4BBA10u, 0x23A0D7C5u },
    { QUANT_TORCHAO, 1e-12f, false, DTYPE_E4M3, 0x40400000u, 0x43155555u, 0x3BDB6DB7u },
    { QUANT_TORCHAO, 1e-12f, true, DTYPE_E4M3, 0x40400000u, 0x43000000u, 0x3C000000u },
    { QUANT_TORCHAO, 1e-12f, true, DTYPE_E4M3, 0x40600000u, 0x43000000u, 0x3C000000u },
    { QUANT_TORCHAO, 1e-12f, false, DTYPE_E4M3, INF, 0, INF },
    { QUANT_TORCHAO, 1e-12f, true, DTYPE_E4M3, INF, 0, INF },
    { QUANT_TORCHAO, 1e-12f, false, DTYPE_E4M3, 0xFFC00000u, NOT_A_NUMBER, NOT_A_NUMBER },
    { QUANT_TORCHAO, 1e-12f, true, DTYPE_E4M3, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER },

    /* DeepSeek: the factor is rounded, and with pow2 upwards */
    { QUANT_DEEPSEEK, 1e-4f, false, DTYPE_E4M3, 0x43E00000u, 0x3F800000u, 0x3F800000u },
    { QUANT_DEEPSEEK, 1e-4f, false, DTYPE_E4M3, 0x40400000u, 0x43155555u, 0x3BDB6DB7u },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, 0x40400000u, 0x43000000u, 0x3C000000u },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, 0x43E10000u, 0x3F000000u, 0x40000000u }, /* 450 */
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, 0x43E00000u, 0x3F800000u, 0x3F800000u }, /* 448 */
    { QUANT_DEEPSEEK, 1e-4f, false, DTYPE_E4M3, 0, 0x4A88B800u, 0x346FACADu },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, 0, 0x4A800000u, 0x34800000u },
    /* the floor of gradients: s is the smallest normal number */
    { QUANT_DEEPSEEK, 448 * 0x1p-126f, false, DTYPE_E4M3, 0, 0x7E800000u, 0x00800000u },
    { QUANT_DEEPSEEK, 448 * 0x1p-126f, true, DTYPE_E4M3, 0, 0x7E800000u, 0x00800000u },
    { QUANT_DEEPSEEK, 448 * 0x1p-126f, true, DTYPE_E4M3, 0x2EDBE6FFu, 0x54800000u, 0x2A800000u },
    { QUANT_DEEPSEEK, 1e-4f, false, DTYPE_E4M3, INF, 0, INF },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, INF, 0, INF },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER },
    { QUANT_DEEPSEEK, 1e-4f, true, DTYPE_E4M3, 0x7F7FFFFFu, 0x03800000u, 0x7B800000u },

    /* MX: up to the next power of two of amax/448 */
    { QUANT_MX, 0, false, DTYPE_E4M3, 0x43E00000u, 0x3F800000u, 0x3F800000u }, /* 448 -> 1 */
    { QUANT_MX, 0, false, DTYPE_E4M3, 0x43E00001u, 0x3F000000u, 0x40000000u }, /* above -> 2 */
    { QUANT_MX, 0, false, DTYPE_E4M3, 0x3F800000u, 0x43800000u, 0x3B800000u }, /* 1 -> 2^-8 */
    { QUANT_MX, 0, false, DTYPE_E4M3, 0, 0x7F000000u, 0x00400000u },           /* 2^127, 2^-127 */
    /* amax/448 = 2^-127 is code 0; 1.76 * 2^-119 / 448 is above it: code 1 */
    { QUANT_MX, 0, false, DTYPE_E4M3, 0x04600000u, 0x7F000000u, 0x00400000u },
    { QUANT_MX, 0, false, DTYPE_E4M3, 0x046147AEu, 0x7E800000u, 0x00800000u },
    { QUANT_MX, 0, false, DTYPE_E4M3, INF, 0x00400000u, 0x7F000000u },
    { QUANT_MX, 0, false, DTYPE_E4M3, NOT_A_NUMBER, NOT_A_NUMBER, NOT_A_NUMBER },
};

static void test_every_rule(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct quant_case *c = &CASES[i];
        struct quant_rule rule = { c->constants, c->amax_min, c->pow2 };
        float stored, m = quant_multiplier(&rule, c->code, f32_from_bits(c->amax), &stored);
        if (f32_bits(m) != c->multiplier || f32_bits(stored) != c->stored)
            fail_msg("row %zu: multiplier %08X, factor %08X; wanted %08X, %08X", i, f32_bits(m),
                     f32_bits(stored), c->multiplier, c->stored);
    }
}

/* For every finite amax the scaled value is within the format, except for one ulp of rounding,
 * which encoding removes. With a power-of-two multiplier there is no exception. */
static void test_the_largest_element_fits(void **state) {
    static const struct quant_rule RULES[] = {
        { QUANT_TE, 0, false },          { QUANT_TE, 0, true },
        { QUANT_TORCHAO, 1e-12f, false }, { QUANT_TORCHAO, 1e-12f, true },
        { QUANT_DEEPSEEK, 1e-4f, false }, { QUANT_DEEPSEEK, 1e-4f, true },
        { QUANT_MX, 0, false },
    };
    for (size_t r = 0; r < sizeof RULES / sizeof *RULES; r++)
        for (uint32_t u = 0x30000000u; u < 0x7F000000u; u += 99991) {
            float amax = f32_from_bits(u), stored;
            float m = quant_multiplier(&RULES[r], DTYPE_E4M3, amax, &stored);
            float top = RULES[r].pow2 ? 448.0f : 448.0f * (1 + 3 * FLT_EPSILON);
            if (!(amax * m <= top)) fail_msg("rule %zu, amax %a: %a", r, (double)amax, (double)m);
            assert_true(fabs((double)m * (double)stored - 1.0) < 1e-6);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule),
        cmocka_unit_test(test_the_largest_element_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
