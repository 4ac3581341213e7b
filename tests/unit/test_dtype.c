/* Number formats against slow arithmetic in double: every code, every tie, every edge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>

#include "kernels/cpu/isa.h"
#include "kernels/dtype.h"

/* The value of a code by the definition of the format, in double; may be NAN or INFINITY. */
static double value_of(enum dtype t, int code) {
    int mantissa_bits = t == DTYPE_E4M3 ? 3 : 2, bias = t == DTYPE_E4M3 ? 7 : 15;
    int exponent = (code & 0x7F) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    double sign = code & 0x80 ? -1.0 : 1.0, step = ldexp(1.0, -mantissa_bits);
    if (t == DTYPE_E4M3 && (code & 0x7F) == 0x7F) return NAN;
    if (t == DTYPE_E5M2 && exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa * step, 1 - bias);
    return sign * ldexp(1.0 + mantissa * step, exponent - bias);
}

static int code_max(enum dtype t) { return t == DTYPE_E4M3 ? 0x7E : 0x7B; }

/* The nearest finite code, found by comparing all of them; a tie rounds to even. */
static int nearest_code(enum dtype t, float x) {
    if (isnan(x)) return 0x7F;
    int best = 0, sign = signbit(x) ? 0x80 : 0;
    double error = INFINITY, abs = fabs((double)x);
    if (abs > value_of(t, code_max(t))) return code_max(t) | sign;
    for (int c = 0; c <= code_max(t); c++) {
        double d = fabs(value_of(t, c) - abs);
        if (d < error || (d == error && c % 2 == 0)) { best = c; error = d; }
    }
    return best | sign;
}

static void check_encode(enum dtype t, float x) {
    int want = nearest_code(t, x), got = fp8_encode(t, x);
    if (want != got)
        fail_msg("%s of %a: code 0x%02X, wanted 0x%02X", dtype_name(t), (double)x, got, want);
}

static const enum dtype FP8[] = { DTYPE_E4M3, DTYPE_E5M2 };

static void test_fp8_decodes_every_code(void **state) {
    for (int f = 0; f < 2; f++)
        for (int code = 0; code < 256; code++) {
            double want = value_of(FP8[f], code);
            uint32_t bits = isnan(want) ? 0x7FC00000u : f32_bits((float)want);
            assert_int_equal(f32_bits(fp8_decode(FP8[f], (uint8_t)code)), bits);
        }
    assert_int_equal(f32_bits(e4m3_decode(0x80)), 0x80000000u);
    assert_true(e4m3_decode(0x7E) == 448.0f && e5m2_decode(0x7B) == 57344.0f);
    assert_true(e5m2_decode(0x7C) == INFINITY && e5m2_decode(0xFC) == -INFINITY);
}

static void test_fp8_encodes_what_it_decodes(void **state) {
    for (int f = 0; f < 2; f++)
        for (int code = 0; code < 256; code++)
            if (isfinite(value_of(FP8[f], code)))
                assert_int_equal(fp8_encode(FP8[f], fp8_decode(FP8[f], (uint8_t)code)), code);
}

static void test_fp8_rounds_every_tie_to_even(void **state) {
    for (int f = 0; f < 2; f++)
        for (int code = 0; code < code_max(FP8[f]); code++) {
            double low = value_of(FP8[f], code), high = value_of(FP8[f], code + 1);
            float middle = (float)((low + high) / 2);
            int even = code % 2 ? code + 1 : code;
            assert_int_equal(fp8_encode(FP8[f], middle), even);
            assert_int_equal(fp8_encode(FP8[f], -middle), even | 0x80);
            assert_int_equal(fp8_encode(FP8[f], nextafterf(middle, 0.0f)), code);
            assert_int_equal(fp8_encode(FP8[f], nextafterf(middle, INFINITY)), code + 1);
        }
}

static void test_fp8_saturates_and_keeps_nan(void **state) {
    static const float BIG[] = { 448.1f,   464.0f,   465.0f, 57345.0f,
                                 61440.0f, 65536.0f, 1e30f,  FLT_MAX };
    for (size_t i = 0; i < sizeof BIG / sizeof *BIG; i++)
        for (int f = 0; f < 2; f++) {
            check_encode(FP8[f], BIG[i]);
            check_encode(FP8[f], -BIG[i]);
        }
    assert_int_equal(e4m3_encode(INFINITY), 0x7E);
    assert_int_equal(e4m3_encode(-INFINITY), 0xFE);
    assert_int_equal(e5m2_encode(INFINITY), 0x7B);
    assert_int_equal(e5m2_encode(-INFINITY), 0xFB);
    static const uint32_t NANS[] = { 0x7F800001u, 0x7FC00000u, 0xFFC00000u, 0xFFFFFFFFu };
    for (size_t i = 0; i < sizeof NANS / sizeof *NANS; i++) {
        assert_int_equal(e4m3_encode(f32_from_bits(NANS[i])), 0x7F);
        assert_int_equal(e5m2_encode(f32_from_bits(NANS[i])), 0x7F);
    }
}

static void test_fp8_encodes_a_sweep_of_floats(void **state) {
    for (int f = 0; f < 2; f++)
        for (uint64_t u = 0; u <= 0xFFFFFFFFu; u += 104729 * 5) /* prime strides through all bits */
            check_encode(FP8[f], f32_from_bits((uint32_t)u));
    check_encode(DTYPE_E4M3, FLT_MIN);
    check_encode(DTYPE_E4M3, -f32_from_bits(1)); /* the smallest subnormal: -0 */
}

static void test_bf16_every_code_and_tie(void **state) {
    for (uint32_t b = 0; b < 65536; b++) {
        float x = bf16_decode((uint16_t)b);
        bool nan = (b & 0x7FFF) > 0x7F80;
        assert_int_equal(f32_bits(x), b << 16);
        assert_int_equal(bf16_encode(x), nan ? 0x7FC0 : b);
        if ((b & 0x7FFF) >= 0x7F80) continue;
        uint32_t middle = b << 16 | 0x8000u;
        assert_int_equal(bf16_encode(f32_from_bits(middle)), b + (b & 1));
        assert_int_equal(bf16_encode(f32_from_bits(middle - 1)), b);
        assert_int_equal(bf16_encode(f32_from_bits(middle + 1)), b + 1); /* may be infinity */
    }
    assert_int_equal(bf16_encode(FLT_MAX), 0x7F80);
    assert_int_equal(bf16_encode(f32_from_bits(0xFF800001u)), 0x7FC0);
}

static void test_e8m0(void **state) {
    for (int e = 0; e < 255; e++) {
        float x = e8m0_decode((uint8_t)e), inverse = e8m0_decode_inverse((uint8_t)e);
        assert_true((double)x == ldexp(1.0, e - 127));
        assert_true((double)inverse == ldexp(1.0, 127 - e));
        assert_int_equal(e8m0_encode_up(x), e);
        assert_int_equal(e8m0_encode_up(nextafterf(x, INFINITY)), e < 254 ? e + 1 : 254);
        assert_int_equal(e8m0_encode_up(nextafterf(x, 0.0f)), e);
    }
    assert_true(isnan(e8m0_decode(0xFF)) && isnan(e8m0_decode_inverse(0xFF)));
    assert_int_equal(e8m0_encode_up(0.0f), 0);
    assert_int_equal(e8m0_encode_up(f32_from_bits(1)), 0);
    assert_int_equal(e8m0_encode_up(f32_from_bits(0x00400000u)), 0); /* 2^-127 */
    assert_int_equal(e8m0_encode_up(f32_from_bits(0x00400001u)), 1); /* just above */
    assert_int_equal(e8m0_encode_up(FLT_MAX), 0xFE);
    assert_int_equal(e8m0_encode_up(INFINITY), 0xFE);
    assert_int_equal(e8m0_encode_up(NAN), 0xFF);
}

static void test_names_and_sizes(void **state) {
    static const struct { const char *name; int64_t bytes; float max; } ROW[DTYPE_COUNT] = {
        { "f32", 4, 0 },  { "bf16", 2, 0 }, { "e4m3", 1, 448 }, { "e5m2", 1, 57344 },
        { "e8m0", 1, 0 }, { "i32", 4, 0 },  { "u32", 4, 0 },    { "u64", 8, 0 },
        { "e2m1", 1, 6 },
    };
    for (int t = 0; t < DTYPE_COUNT; t++) {
        assert_string_equal(dtype_name(t), ROW[t].name);
        assert_int_equal(dtype_bytes(t), ROW[t].bytes);
        assert_true(dtype_max(t) == ROW[t].max);
    }
    assert_string_equal(dtype_name(DTYPE_COUNT), "unknown");
}

/* ---- vector loops equal scalars ---- */

enum { SWEEP = 4099 }; /* not a multiple of any vector length */

static void check_loops(const struct isa *isa, const float *x, const float *m) {
    static uint8_t codes[SWEEP];
    static uint16_t halves[SWEEP];
    static float back[SWEEP];
    for (int f = 0; f < 2; f++) {
        uint32_t count[2] = { 0, 0 }, want[2] = { 0, 0 };
        isa->fp8_encode(FP8[f], codes, x, m, SWEEP);
        isa->fp8_stats(FP8[f], codes, x, m, SWEEP, count);
        isa->fp8_decode(FP8[f], back, codes, SWEEP);
        for (int i = 0; i < SWEEP; i++) {
            assert_int_equal(codes[i], fp8_encode(FP8[f], x[i] * m[i]));
            assert_int_equal(f32_bits(back[i]), f32_bits(fp8_decode(FP8[f], codes[i])));
            want[0] += fabsf(x[i] * m[i]) > dtype_max(FP8[f]);
            want[1] += x[i] != 0 && !isnan(x[i]) && (codes[i] & 0x7F) == 0;
        }
        assert_int_equal(count[0], want[0]);
        assert_int_equal(count[1], want[1]);
    }
    isa->bf16_encode(halves, x, SWEEP);
    isa->bf16_decode(back, halves, SWEEP);
    uint32_t max = 0;
    for (int i = 0; i < SWEEP; i++) {
        assert_int_equal(halves[i], bf16_encode(x[i]));
        assert_int_equal(f32_bits(back[i]), (uint32_t)halves[i] << 16);
        if ((f32_bits(x[i]) & 0x7FFFFFFFu) > max) max = f32_bits(x[i]) & 0x7FFFFFFFu;
    }
    assert_int_equal(isa->amax(x, SWEEP), max);
}

static void test_vector_loops_equal_scalars(void **state) {
    static const char *const NAMES[] = { "avx512", "avx2", "neon", "portable" };
    static float x[SWEEP], m[SWEEP];
    for (int i = 0; i < SWEEP; i++) {
        x[i] = f32_from_bits((uint32_t)i * 2654435761u); /* all exponents, NaN and infinity too */
        m[i] = ldexpf(1.0f + (float)(i % 7), i % 9 - 4);
    }
    for (size_t n = 0; n < sizeof NAMES / sizeof *NAMES; n++) {
        const struct isa *isa = isa_find(NAMES[n]);
        if (isa) check_loops(isa, x, m);
    }
    assert_non_null(isa_find("portable"));
    assert_null(isa_find("mmx"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp8_decodes_every_code),
        cmocka_unit_test(test_fp8_encodes_what_it_decodes),
        cmocka_unit_test(test_fp8_rounds_every_tie_to_even),
        cmocka_unit_test(test_fp8_saturates_and_keeps_nan),
        cmocka_unit_test(test_fp8_encodes_a_sweep_of_floats),
        cmocka_unit_test(test_bf16_every_code_and_tie),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_names_and_sizes),
        cmocka_unit_test(test_vector_loops_equal_scalars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
