/* Our elementary functions: accuracy against the C library in a wider format, special values, and
 * the bits themselves. The bits are a hash over a dense sweep: equal on every machine. */
#include <math.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

#include "kernels/exactmath.h"
#include "kernels/exactmath_f32.h"
#include "kernels/rng.h"

/* Every STRIDE-th f32 bit pattern: 2.1 million values, both signs, subnormals, infinities, NaNs. */
enum { STRIDE = 2039 };

static double exp_reference(double x) { return exp(x); }
static double log_reference(double x) { return log(x); }
static double tanh_reference(double x) { return tanh(x); }
static double sigmoid_reference(double x) {
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static const struct {
    const char *name;
    float (*ours)(float);
    double (*reference)(double);
    float low, high;   /* the range over which the accuracy is claimed */
    double ulp_max;
    uint64_t hash;     /* of the sweep's output bits; changes only with the definition */
} F32[] = {
    { "exp", exact_expf, exp_reference, -103.9f, 88.7f, 1.5, 0xC31DC53900D172F7ull },
    { "log", exact_logf, log_reference, 1e-45f, 3.4e38f, 1.5, 0x586D12BCE05546FDull },
    { "tanh", exact_tanhf, tanh_reference, -3.4e38f, 3.4e38f, 2.0, 0x91CBE648EDFB25C8ull },
    { "sigmoid", exact_sigmoidf, sigmoid_reference, -103.0f, 3.4e38f, 2.5, 0x16EF74FE27F0BE7Full },
};

/* |got - want| in units of the last place of an f32 of that size. */
static double ulps_f32(float got, double want) {
    int e;
    frexp(want, &e);
    if (e < -125) e = -125;
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

static void test_f32_accuracy_and_bits(void **state) {
    int failures = 0;
    for (size_t f = 0; f < sizeof F32 / sizeof F32[0]; f++) {
        double worst = 0;
        float worst_at = 0;
        uint64_t hash = 0;
        for (uint64_t u = 0; u < 0x100000000u; u += STRIDE) {
            float x = f32_from_bits((uint32_t)u);
            float y = F32[f].ours(x);
            hash = rng_mix(hash ^ f32_bits(y));
            if (x != x) assert_int_equal(f32_bits(y), 0x7FC00000u);
            if (!(x >= F32[f].low && x <= F32[f].high)) continue;
            double ulps = ulps_f32(y, F32[f].reference(x));
            if (ulps > worst) { worst = ulps; worst_at = x; }
        }
        if (worst <= F32[f].ulp_max && hash == F32[f].hash) continue;
        failures++;
        print_error("%s: worst %.3f ulp at %a (allowed %.1f), "
                    "hash 0x%016llX (expected 0x%016llX)\n",
                    F32[f].name, worst, worst_at, F32[f].ulp_max, (unsigned long long)hash,
                    (unsigned long long)F32[f].hash);
    }
    assert_int_equal(failures, 0);
}

static void test_f32_special_values(void **state) {
    static const struct { float (*f)(float); float x; uint32_t want; } CASE[] = {
        { exact_expf, 0.0f, 0x3F800000u },      { exact_expf, -104.0f, 0 },
        { exact_expf, -INFINITY, 0 },           { exact_expf, 88.8f, 0x7F800000u },
        { exact_expf, INFINITY, 0x7F800000u },  { exact_expf, -103.5f, 1 }, /* least subnormal */
        { exact_logf, 1.0f, 0 },                { exact_logf, 0.0f, 0xFF800000u },
        { exact_logf, INFINITY, 0x7F800000u },  { exact_logf, -1.0f, 0x7FC00000u },
        { exact_tanhf, 0.0f, 0 },               { exact_tanhf, -0.0f, 0x80000000u },
        { exact_tanhf, INFINITY, 0x3F800000u }, { exact_tanhf, -INFINITY, 0xBF800000u },
        { exact_sigmoidf, 0.0f, 0x3F000000u },  { exact_sigmoidf, -INFINITY, 0 },
        { exact_sigmoidf, INFINITY, 0x3F800000u },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof CASE[0]; i++)
        assert_int_equal(f32_bits(CASE[i].f(CASE[i].x)), CASE[i].want);
}

static double pow_ours_bias(double t) { return exact_pow(0.95, t); }
static long double pow_reference_bias(long double t) { return powl(0.95, t); }
static double pow_ours_rope(double t) { return exact_pow(500000.0, -t); }
static long double pow_reference_rope(long double t) { return powl(500000.0L, -t); }

static const struct {
    const char *name;
    double (*ours)(double);
    long double (*reference)(long double);
    double low, high;
    double ulp_max;
    uint64_t hash;
} F64[] = {
    { "exp", exact_exp, expl, -745.0, 709.7, 2.0, 0x2CBC5604E31B588Dull },
    { "log", exact_log, logl, 1e-300, 1e300, 1.0, 0xD86293F0722AD294ull },
    { "log near 1", exact_log, logl, 0.7, 1.4, 1.0, 0x84C7F55494B39E63ull },
    { "sin", exact_sin, sinl, -1048576.0, 1048576.0, 1.5, 0xF7F6FA0F303AC466ull },
    { "cos", exact_cos, cosl, -1048576.0, 1048576.0, 1.5, 0xFA3E5056B552208Aull },
    { "sin, one turn", exact_sin, sinl, -6.3, 6.3, 1.5, 0x5B768D60FF37D147ull },
    { "pow(0.95, t)", pow_ours_bias, pow_reference_bias, 0.0, 13000.0, 2.0, 0x5484E0A0B870692Bull },
    { "pow(500000, -t)", pow_ours_rope, pow_reference_rope, 0.0, 1.0, 2.0, 0xC17605EE4AACCC9Eull },
};

static double ulps_f64(double got, long double want) {
    int e;
    frexpl(want, &e);
    if (e < -1021) e = -1021;
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, e - 53));
}

static void test_f64_accuracy_and_bits(void **state) {
    enum { COUNT = 60000 };
    int failures = 0;
    for (size_t f = 0; f < sizeof F64 / sizeof F64[0]; f++) {
        double worst = 0, worst_at = 0;
        uint64_t hash = 0;
        bool logarithmic = F64[f].low > 0 && F64[f].high / F64[f].low > 1e3;
        for (int i = 0; i < COUNT; i++) {
            double u = (double)(rng_bits(7, (uint64_t)i) >> 11) * 0x1p-53;
            double x = F64[f].low + u * (F64[f].high - F64[f].low);
            if (logarithmic)
                x = exact_exp(exact_log(F64[f].low) * (1 - u) + exact_log(F64[f].high) * u);
            double y = F64[f].ours(x);
            uint64_t bits;
            memcpy(&bits, &y, 8);
            hash = rng_mix(hash ^ bits);
            double ulps = ulps_f64(y, F64[f].reference(x));
            if (ulps > worst) { worst = ulps; worst_at = x; }
        }
        if (worst <= F64[f].ulp_max && hash == F64[f].hash) continue;
        failures++;
        print_error("%s: worst %.3f ulp at %a (allowed %.1f), "
                    "hash 0x%016llX (expected 0x%016llX)\n",
                    F64[f].name, worst, worst_at, F64[f].ulp_max, (unsigned long long)hash,
                    (unsigned long long)F64[f].hash);
    }
    assert_int_equal(failures, 0);
}

static void test_f64_special_values(void **state) {
    assert_true(exact_exp(0.0) == 1.0 && exact_exp(-800.0) == 0.0 && exact_exp(800.0) == INFINITY);
    assert_true(exact_log(1.0) == 0.0 && exact_log(0.0) == -INFINITY && exact_log(-1.0) != 0.0);
    assert_true(isnan(exact_log(-1.0)) && isnan(exact_exp(NAN)) && isnan(exact_pow(-2.0, 0.5)));
    assert_true(exact_sin(0.0) == 0.0 && exact_cos(0.0) == 1.0 && signbit(exact_sin(-0.0)));
    assert_true(exact_pow(0.9, 1.0) == 0.9 && exact_pow(10000.0, 0.5) == 100.0);
    assert_true(exact_pow(2.0, -1074.0) == 0x1p-1074 && exact_pow(2.0, 1024.0) == INFINITY);
    assert_true(isnan(exact_sin(1e9)));
}

/* Moments of 2^20 draws: mean 0 +- 5/sqrt n, variance 1 +- 5 sqrt(2/n), no draw beyond sqrt(48
 * ln 2). */
static void test_normal_moments(void **state) {
    enum { COUNT = 1 << 20 };
    double sum = 0, squares = 0, fourth = 0, largest = 0;
    uint64_t key = rng_key(1234, RNG_INIT, 0, 5), hash = 0;
    for (int i = 0; i < COUNT; i++) {
        float z = exact_normalf(rng_bits(key, (uint64_t)i));
        hash = rng_mix(hash ^ f32_bits(z));
        double q = (double)z * z;
        sum += z; squares += q; fourth += q * q;
        if (fabs(z) > largest) largest = fabs(z);
    }
    assert_true(fabs(sum / COUNT) < 5.0 / 1024);
    assert_true(fabs(squares / COUNT - 1) < 5.0 * sqrt(2.0) / 1024);
    assert_true(fabs(fourth / COUNT - 3) < 5.0 * sqrt(96.0) / 1024);
    assert_true(largest > 4.0 && largest < 5.78);
    if (hash != 0xBA825DA02569CFF4ull)
        fail_msg("hash of the draws 0x%016llX", (unsigned long long)hash);
}

/* The whole range of the angle, against the C library: 3 ulp of 1, because near a zero the function
 * guarantees no more. */
/* exact_exp2f leaves a NaN's bits open, so the hash has none. */
static void test_exp2(void **state) {
    double worst = 0;
    uint64_t hash = 0;
    for (uint64_t u = 0; u < 0x100000000u; u += 4 * STRIDE) {
        float x = f32_from_bits((uint32_t)u), y = exact_exp2f(x);
        if (x != x) assert_true(y != y);
        else if (y == y) hash = rng_mix(hash ^ f32_bits(y));
        if (!(x > -126.0f && x <= 127.0f)) continue;
        double miss = fabs((double)y / exp2(x) - 1);
        if (miss > worst) worst = miss;
    }
    if (worst > 0x1p-18 || hash != 0xCA83193657D0E299ull)
        fail_msg("%.2f * 2^-18, hash 0x%016llX", worst * 0x1p18, (unsigned long long)hash);
    assert_true(exact_exp2f(0.0f) == 1.0f && exact_exp2f(-3.0f) == 0.125f);
    assert_true(exact_exp2f(-INFINITY) == 0.0f && exact_exp2f(-126.6f) == 0.0f);
}

static void test_cos_turns(void **state) {
    double worst = 0;
    for (uint32_t t = 0; t < 1u << 24; t += 61) {
        double want = cos(2 * 3.14159265358979323846 * t / 16777216.0);
        double miss = fabs((double)exact_cos_turns(t) - want);
        if (miss > worst) worst = miss;
    }
    assert_true(worst < 3 * 0x1p-24);
    assert_true(exact_cos_turns(0) == 1.0f && exact_cos_turns(1u << 23) == -1.0f);
    assert_true(exact_cos_turns(1u << 22) == 0.0f && exact_cos_turns(3u << 22) == 0.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32_accuracy_and_bits), cmocka_unit_test(test_f32_special_values),
        cmocka_unit_test(test_f64_accuracy_and_bits), cmocka_unit_test(test_f64_special_values),
        cmocka_unit_test(test_normal_moments),        cmocka_unit_test(test_cos_turns),
        cmocka_unit_test(test_exp2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
