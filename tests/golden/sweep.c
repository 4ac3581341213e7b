/* Hashes of the results of every exact function and every number format over a sweep of inputs,
 * with NaN, infinities and subnormals. Each is one line, compared with sweep.txt on every
 * architecture. Links kernels only and uses no test library, so that it runs under an emulator. */
#include <inttypes.h>
#include <stdio.h>

#include "kernels/exactmath.h"
#include "kernels/exactmath_f32.h"
#include "kernels/rng.h"

enum { DRAWS = 1 << 18 };

/* FNV-1a over the eight bytes of v. */
static uint64_t hash_add(uint64_t h, uint64_t v) {
    for (int i = 0; i < 64; i += 8) h = (h ^ (v >> i & 0xFF)) * 0x100000001B3u;
    return h;
}

static const uint64_t HASH_START = 0xCBF29CE484222325u;

static uint64_t f64_bits(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Any 64 bits, the same on every machine. */
static uint64_t draw(uint64_t i) { return rng_bits(rng_key(1, RNG_INIT, 0, 0), i); }

/* A double in (0, top). */
static double between(uint64_t i, double top) {
    return ((double)(draw(i) >> 11) + 0.5) * 0x1p-53 * top;
}

/* Functions of any f32 bit pattern. */
static float f_exp(float x) { return exact_expf(x); }
static float f_tanh(float x) { return exact_tanhf(x); }
static float f_sigmoid(float x) { return exact_sigmoidf(x); }
static float f_bf16(float x) { return bf16_decode(bf16_encode(x)); }
static float f_e4m3(float x) { return e4m3_decode(e4m3_encode(x)); }
static float f_e5m2(float x) { return e5m2_decode(e5m2_encode(x)); }
static float f_e8m0(float x) { return e8m0_decode(e8m0_encode_up(x < 0 ? -x : x)); }
static float f_log(float x) { return exact_logf(x > 0 ? x : 1.0f); }

static const struct {
    const char *name;
    float (*f)(float);
} F32[] = {
    { "expf", f_exp },  { "logf", f_log },  { "tanhf", f_tanh }, { "sigmoidf", f_sigmoid },
    { "bf16", f_bf16 }, { "e4m3", f_e4m3 }, { "e5m2", f_e5m2 },  { "e8m0", f_e8m0 },
};

/* Functions of a double within their range of definition. */
static double d_exp(uint64_t i) { return exact_exp(between(i, 1400) - 700); }
static double d_log(uint64_t i) { return exact_log(between(i, 1e6)); }
static double d_pow(uint64_t i) { return exact_pow(between(i, 10), between(i + DRAWS, 20) - 10); }
static double d_sin(uint64_t i) { return exact_sin(between(i, 0x1p21) - 0x1p20); }
static double d_cos(uint64_t i) { return exact_cos(between(i, 0x1p21) - 0x1p20); }
static double d_normal(uint64_t i) { return exact_normalf(draw(i)); }

static const struct {
    const char *name;
    double (*f)(uint64_t);
} F64[] = {
    { "exp", d_exp }, { "log", d_log }, { "pow", d_pow },
    { "sin", d_sin }, { "cos", d_cos }, { "normal", d_normal },
};

int main(void) {
    for (size_t k = 0; k < sizeof F32 / sizeof *F32; k++) {
        uint64_t h = HASH_START;
        /* Half of the draws are arbitrary bit patterns, half are moderate: |x| < 128. */
        for (uint64_t i = 0; i < DRAWS; i++) {
            float any = f32_from_bits((uint32_t)draw(i));
            float x = i % 2 ? any : (float)(between(i, 256) - 128);
            h = hash_add(h, f32_bits(f32_canonical(F32[k].f(x))));
        }
        printf("%-8s %016" PRIx64 "\n", F32[k].name, h);
    }
    for (size_t k = 0; k < sizeof F64 / sizeof *F64; k++) {
        uint64_t h = HASH_START;
        for (uint64_t i = 0; i < DRAWS; i++) h = hash_add(h, f64_bits(F64[k].f(i)));
        printf("%-8s %016" PRIx64 "\n", F64[k].name, h);
    }
    return 0;
}
