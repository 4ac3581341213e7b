/* Producers that make FP8 codes themselves. The value is near the reference's. Amax, codes and
 * counts equal, to the bit, those that the reference makes from the value that the GPU stored. They
 * do not change if the GPU stores no value. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

#define H DTYPE_BF16
#define F DTYPE_F32

static const struct {
    enum dtype code;
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
} INTO[] = {
    { DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, { QUANT_TE, 0, false } },
    { DTYPE_E4M3, SCALE_TENSOR, SCALE_SOURCE_KNOWN, { QUANT_TE, 0, false } },
    { DTYPE_E5M2, SCALE_TENSOR, SCALE_SOURCE_KNOWN, { QUANT_TE, 0, false } },
    { DTYPE_E4M3, SCALE_TENSOR, SCALE_SOURCE_AMAX, { QUANT_TE, 0, false } },
    { DTYPE_E4M3, SCALE_ROW, SCALE_SOURCE_BLOCK, { QUANT_TORCHAO, 1e-12f, true } },
    { DTYPE_E4M3, SCALE_1X128, SCALE_SOURCE_BLOCK, { QUANT_TE_BLOCK, 0, true } },
    { DTYPE_E5M2, SCALE_1X128, SCALE_SOURCE_BLOCK, { QUANT_DEEPSEEK, 1e-4f, true } },
    { DTYPE_E4M3, SCALE_128X128, SCALE_SOURCE_BLOCK, { QUANT_TE_BLOCK, 0, false } },
    { DTYPE_E4M3, SCALE_1X32, SCALE_SOURCE_BLOCK, { QUANT_MX, 0, false } },
    { DTYPE_E4M3, SCALE_1X32, SCALE_SOURCE_BLOCK, { QUANT_MX, 0, false } },
    { DTYPE_E5M2, SCALE_32X32, SCALE_SOURCE_BLOCK, { QUANT_MX, 0, false } },
};
/* The last two have untransposed twins. */
enum { INTOS = sizeof INTO / sizeof *INTO, UNTRANSPOSED = INTOS - 2 };

/* A value that is off by d before it is rounded to BF16 has an NMSE of 2^-7 d (test_ops.c). That is
 * 4e-8 for the longest sums here, less for the device's exp. If one value in n becomes its
 * neighbour, the NMSE is 2^-14 / n (for a value twice as large as most). */
static double value_near(const struct twin_sink *out) {
    return fmin(2e-6, 1e-7 + 0x1p-14 / (double)tensor_count(&out->value.side[CPU]));
}

/* Whole tiles of 128, and sizes with edges. */
static const struct { int64_t rows, cols; } SIZE[] = {
    { 1, 13 }, { 33, 77 }, { 130, 256 }, { 200, 1000 }, { 128, 128 }, { 256, 384 }, { 128, 200 },
    { 128, 1024 }, { 128, 2048 }, { 128, 4096 },
};
enum { SIZES = sizeof SIZE / sizeof *SIZE };

static struct twin filled(enum dtype t, int64_t rows, int64_t cols, uint64_t seed) {
    struct twin x = pair_tensor(p, t, rows, cols, 1, 1);
    pair_fill(p, &x, seed, 2, 1);
    return x;
}

static void sink_into(struct twin_sink *out, int i, int64_t rows, int64_t cols) {
    pair_sink(p, out, rows, cols, INTO[i].code, INTO[i].kind, INTO[i].source, INTO[i].rule, true);
    if (i >= UNTRANSPOSED) pair_untranspose(p, out, false);
}

/* Gives the GPU's value to the reference to quantise, and compares. */
static void finish_made(struct twin_sink *out, const char *what) {
    struct tensor *value = &out->value.side[CPU];
    int64_t bytes = tensor_count(value) * 2;
    uint64_t none[2] = { 0, 0 };
    struct sink *cpu = &out->side[CPU];
    assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, value->data,
                                           out->value.side[GPU].data, bytes, &p->e), OK);
    memcpy(cpu->amax->data, none, 4);
    if (cpu->stats) memcpy(cpu->stats->data, none, sizeof none);
    if (cpu->sums) memset(cpu->sums->data, 0, (size_t)tensor_count(cpu->sums) * 4);
    assert_int_equal(p->ops[CPU]->quantise(p->b[CPU], LANE_COMPUTE, cpu, value, &p->e), OK);
    ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(*out), e));
    pair_same_sink(p, what, out);
}
static void finish_near(struct twin_sink *out, const char *what, double nmse_max) {
    pair_near(p, what, &out->value, nmse_max);
    finish_made(out, what);
}
static void finish(struct twin_sink *out, const char *what) {
    finish_near(out, what, value_near(out));
}

/* The sinks of a model that keeps no values; they follow one that keeps its value. The amax is
 * final when the producer ends. In training codes go both ways; in evaluation there are no
 * transposed codes and no counts. */
enum unkept { IN_TRAINING, IN_EVALUATION, UNKEPT };

static void keep_nothing(struct twin_sink *out, enum unkept which) {
    for (int s = 0; s < SIDES; s++) {
        out->side[s].keep_value = false;
        out->side[s].own_amax = true;
        if (which == IN_TRAINING) continue;
        out->side[s].codes->transposed = NULL;
        out->side[s].stats = NULL;
    }
    pair_poison_sink(p, out);
}

/* Compares codes, factors, amax and counts of a kept value with those that the reference makes from
 * it; then the same without keeping the value. `ready` restores inputs that the output
 * overwrote. */
#define PRODUCED(out, what, nmse_max, ready, call)                                          \
    do {                                                                                    \
        ON_BOTH(p, call);                                                                   \
        finish_near(out, what, nmse_max);                                                   \
        for (int u = 0; (out)->side[CPU].codes && u < UNKEPT; u++) {                        \
            keep_nothing(out, (enum unkept)u);                                              \
            ready;                                                                          \
            ON_GPU(p, call);                                                                \
            ON_GPU(p, ops->quantise_finish(b, LANE_COMPUTE, S(*(out)), e));                 \
            pair_same_sink(p, u == IN_TRAINING ? what ", not kept, in training"             \
                                               : what ", not kept, in evaluation", out);    \
        }                                                                                   \
    } while (0)
#define FRESH (void)0 /* no input is overwritten */

static void test_activations(void **state) {
    for (int i = 0; i < INTOS * SIZES; i++) {
        int64_t r = SIZE[i % SIZES].rows, c = SIZE[i % SIZES].cols;
        struct twin gate_up = filled(H, r, 2 * c, 1), dh = filled(H, r, c, 2);
        struct twin x = filled(H, r, c, 3);
        struct twin_sink out[4];
        for (int k = 0; k < 4; k++) sink_into(&out[k], i / SIZES, r, k == 1 ? 2 * c : c);
        PRODUCED(&out[0], "swiglu_fwd", value_near(&out[0]), FRESH,
                 ops->swiglu_fwd(b, LANE_COMPUTE, S(out[0]), S(gate_up), e));
        PRODUCED(&out[1], "swiglu_bwd", value_near(&out[1]), FRESH,
                 ops->swiglu_bwd(b, LANE_COMPUTE, S(out[1]), S(dh), S(gate_up), e));
        PRODUCED(&out[2], "gelu_fwd", value_near(&out[2]), FRESH,
                 ops->gelu_fwd(b, LANE_COMPUTE, S(out[2]), S(x), e));
        PRODUCED(&out[3], "gelu_bwd", value_near(&out[3]), FRESH,
                 ops->gelu_bwd(b, LANE_COMPUTE, S(out[3]), S(dh), S(x), e));
        pair_clear(p);
    }
}

/* Values that a tile's tests for rare cases must find: NaN, infinity, zeros, values that saturate
 * or vanish under the multiplier; in patches of their own and beside ordinary values. */
static struct twin with_special(int64_t rows, int64_t cols, uint64_t seed) {
    static const uint16_t BITS[] = { 0x7FC0, 0xFFC1, 0x7F80, 0xFF80, 0x0000, 0x8000,
                                     0x0001, 0x3000, 0x7E00, 0xD000, 0x1000 };
    enum { COUNT = sizeof BITS / sizeof *BITS };
    struct twin x = filled(H, rows, cols, seed);
    int64_t bytes = rows * cols * 2;
    uint16_t *host = malloc((size_t)bytes);
    assert_non_null(host);
    memcpy(host, x.side[CPU].data, (size_t)bytes);
    for (int i = 0; i < 4 * COUNT; i++)
        host[rng_below(rng_bits(seed, (uint64_t)i), (uint32_t)(rows * cols))] = BITS[i % COUNT];
    for (int i = 0; i < 8 * cols; i++) /* rows of zeros and of tiny values */
        host[(int64_t)(64 + i / cols) * cols + i % cols] = i / cols < 4 ? 0 : 0x2C00;
    pair_set(p, &x, host, bytes);
    free(host);
    return x;
}

static void same_from_special(struct twin_sink *out, const char *what) {
    finish_made(out, what);
    const uint16_t *value = out->value.side[CPU].data; /* the GPU's */
    for (int64_t i = 0; i < tensor_count(&out->value.side[CPU]); i++)
        if ((value[i] & 0x7FFF) > 0x7F80 && value[i] != 0x7FC0)
            fail_msg("%s: element %lld is NaN 0x%04X", what, (long long)i, value[i]);
}

static void test_special(void **state) {
    int64_t r = 256, c = 384;
    for (int i = 0; i < INTOS; i++) {
        struct twin heads;
        struct twin gate_up = with_special(r, 2 * c, 1), dh = with_special(r, c, 2);
        struct twin x = with_special(r, c, 3), gain = filled(H, c, 1, 4);
        struct twin rstd = pair_tensor(p, F, r, 1, 1, 1), angles = filled(F, r / 2, 64, 5);
        struct twin_sink out[6];
        for (int k = 0; k < 6; k++) sink_into(&out[k], i, r, k == 1 ? 2 * c : c);
        ON_BOTH(p, ops->swiglu_fwd(b, LANE_COMPUTE, S(out[0]), S(gate_up), e));
        ON_BOTH(p, ops->swiglu_bwd(b, LANE_COMPUTE, S(out[1]), S(dh), S(gate_up), e));
        ON_BOTH(p, ops->gelu_fwd(b, LANE_COMPUTE, S(out[2]), S(x), e));
        ON_BOTH(p, ops->gelu_bwd(b, LANE_COMPUTE, S(out[3]), S(dh), S(x), e));
        ON_BOTH(p, ops->rmsnorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                .y = S(out[4]), .rstd = S(rstd), .x = S(x), .gain = S(gain), .eps = 1e-5f }, e));
        for (int s = 0; s < SIDES; s++)
            heads.side[s] = tensor_make(dh.side[s].data, H, 2, r / 2, c / 64, 64);
        ON_BOTH(p, ops->qk_bwd(b, LANE_COMPUTE, &(struct qk_bwd_args){
                .dx = S(out[5]), .d_out = S(heads), .in = S(heads), .rope = S(angles), .heads = 2,
                .kv_heads = 2 }, e));
        pair_same(p, "qk_bwd", &out[5].value);
        static const char *const NAME[] = { "swiglu_fwd", "swiglu_bwd", "gelu_fwd", "gelu_bwd",
                                            "rmsnorm_fwd", "qk_bwd" };
        for (int k = 0; k < 6; k++) same_from_special(&out[k], NAME[k]);
        pair_clear(p);
    }
}

/* Backward of the rotation, into codes; d_out may alias the value. Its bits are the reference's.
 * The third and fourth store the value first: they rotate a part of a tile, and a patch has rows of
 * several sequences. */
static void test_rope(void **state) {
    static const struct { int64_t batch, time, heads, kv, dim; bool placed; } ROPE[] = {
        { 2, 64, 2, 1, 128, false }, { 1, 128, 6, 2, 64, false }, { 4, 96, 4, 2, 16, false },
        { 32, 4, 4, 4, 32, false }, { 2, 64, 8, 8, 16, false }, { 32, 4, 6, 2, 64, true },
        { 1, 50, 2, 1, 128, true }, { 1, 128, 2, 2, 128, true }, { 2, 64, 4, 4, 32, false },
    };
    enum { ROPES = sizeof ROPE / sizeof *ROPE };
    for (int i = 0; i < INTOS * ROPES * 2; i++) {
        int64_t n = ROPE[i / 2 % ROPES].batch, t = ROPE[i / 2 % ROPES].time;
        int64_t h = ROPE[i / 2 % ROPES].heads, g = ROPE[i / 2 % ROPES].kv;
        int64_t d = ROPE[i / 2 % ROPES].dim, all = h + 2 * g;
        struct twin d_out = pair_tensor(p, H, n, t, all, d), in = pair_tensor(p, H, n, t, all, d);
        struct twin rope = filled(F, t, d, 7), places = pair_tensor(p, DTYPE_I32, n, t, 1, 1);
        struct twin_sink out;
        int32_t at[384]; /* positions that are not those of the rows */
        assert_true(n * t <= 384);
        for (int64_t row = 0; row < n * t; row++)
            at[row] = (int32_t)rng_below(rng_bits(9, (uint64_t)row), (uint32_t)t);
        pair_set(p, &places, at, n * t * 4);
        pair_fill(p, &d_out, 1, 2, 1);
        sink_into(&out, i / 2 / ROPES, n * t, all * d);
        if (i % 2) {
            for (int s = 0; s < SIDES; s++) {
                out.value.side[s] = tensor_2d(d_out.side[s].data, H, n * t, all * d);
                out.side[s].value = S(out.value);
            }
        }
        PRODUCED(&out, "qk_bwd", 0.0, pair_fill(p, &d_out, 1, 2, 1),
                 ops->qk_bwd(b, LANE_COMPUTE, &(struct qk_bwd_args){
                     .dx = S(out), .d_out = S(d_out), .in = S(in), .rope = S(rope),
                     .positions = ROPE[i / 2 % ROPES].placed ? S(places) : NULL, .heads = h,
                     .kv_heads = g }, e));
        pair_clear(p);
    }
}

/* Attention's outputs into codes. cuDNN, where it is faster, leaves the amax to another pass. wgmma
 * and mma take the amax themselves. Then attention's gradients: only wgmma takes their amax itself.
 * test_attention.c explains the bounds. */
static void test_attention(void **state) {
    static const struct { int64_t batch, time, heads, kv, dim; } CASE[] = {
        { 1, 256, 2, 1, 128 }, { 2, 128, 2, 1, 64 }, { 2, 200, 4, 2, 128 }, { 1, 130, 4, 2, 32 },
    };
    enum { CASES = sizeof CASE / sizeof *CASE };
    for (int i = 0; i < INTOS * CASES; i++) {
        int64_t n = CASE[i % CASES].batch, t = CASE[i % CASES].time, h = CASE[i % CASES].heads;
        int64_t g = CASE[i % CASES].kv, d = CASE[i % CASES].dim;
        struct twin qkv = pair_tensor(p, H, n, t, h + 2 * g, d);
        struct twin lse = pair_tensor(p, F, n, h, t, 1);
        struct twin_sink out;
        pair_fill(p, &qkv, 1, 2, 0.5f);
        sink_into(&out, i / CASES, n * t, h * d);
        PRODUCED(&out, "attention_fwd", 1e-5, FRESH,
                 ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
                     .o = S(out), .lse = S(lse), .qkv = S(qkv), .heads = h, .kv_heads = g }, e));
        struct twin o = pair_tensor(p, H, n * t, h * d, 1, 1), d_o = filled(H, n * t, h * d, 2);
        struct twin delta = pair_tensor(p, F, n, h, t, 1);
        struct twin_sink d_qkv;
        sink_into(&d_qkv, i / CASES, n * t, (h + 2 * g) * d);
        ON_BOTH(p, ops->attention_fwd(b, LANE_COMPUTE, &(struct attention_fwd_args){
                .o = &(struct sink){ .value = S(o), .keep_value = true }, .lse = S(lse),
                .qkv = S(qkv), .heads = h, .kv_heads = g }, e));
        PRODUCED(&d_qkv, "attention_bwd", 1e-4, FRESH,
                 ops->attention_bwd(b, LANE_COMPUTE, &(struct attention_bwd_args){
                     .d_qkv = S(d_qkv), .delta = S(delta), .d_o = S(d_o), .o = S(o), .qkv = S(qkv),
                     .lse = S(lse), .heads = h, .kv_heads = g }, e));
        pair_clear(p);
    }
}

/* swiglu_bwd's value may alias its input. */
static void test_swiglu_in_place(void **state) {
    for (int i = 0; i < INTOS * 2; i++) {
        int64_t r = 256, c = i % 2 ? 384 : 200;
        struct twin gate_up = filled(H, r, 2 * c, 1), dh = filled(H, r, c, 2);
        struct twin_sink out;
        sink_into(&out, i / 2, r, 2 * c);
        out.value = gate_up;
        for (int s = 0; s < SIDES; s++) out.side[s].value = S(out.value);
        PRODUCED(&out, "swiglu_bwd in place", value_near(&out), pair_fill(p, &gate_up, 1, 2, 1),
                 ops->swiglu_bwd(b, LANE_COMPUTE, S(out), S(dh), S(out.value), e));
        pair_clear(p);
    }
}

static void test_norms(void **state) {
    static const struct { int64_t rows, cols; } NORM[] = {
        { 130, 256 }, { 128, 200 }, { 128, 128 }, { 384, 768 }, { 256, 2048 }, { 128, 4096 },
        { 128, 8320 },
    };
    enum { NORMS = sizeof NORM / sizeof *NORM };
    for (int i = 0; i < INTOS * NORMS; i++) {
        int64_t r = NORM[i % NORMS].rows, c = NORM[i % NORMS].cols;
        struct twin x = filled(H, r, c, 1), gain = filled(H, c, 1, 2), bias = filled(H, c, 1, 3);
        struct twin dy = filled(H, r, c, 4), residual = filled(H, r, c, 5);
        struct twin mean = pair_tensor(p, F, r, 1, 1, 1), rstd = pair_tensor(p, F, r, 1, 1, 1);
        struct twin d_gain = filled(F, c, 1, 6), d_bias = filled(F, c, 1, 7);
        struct twin_sink out[4];
        for (int k = 0; k < 4; k++) sink_into(&out[k], i / NORMS, r, c);
        PRODUCED(&out[0], "rmsnorm_fwd", value_near(&out[0]), FRESH,
                 ops->rmsnorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                     .y = S(out[0]), .rstd = S(rstd), .x = S(x), .gain = S(gain),
                     .eps = 1e-5f }, e));
        PRODUCED(&out[1], "rmsnorm_bwd", value_near(&out[1]), FRESH,
                 ops->rmsnorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                     .dx = S(out[1]), .d_gain = S(d_gain), .dy = S(dy), .x = S(x), .gain = S(gain),
                     .rstd = S(rstd), .residual = S(residual) }, e));
        PRODUCED(&out[2], "layernorm_fwd", value_near(&out[2]), FRESH,
                 ops->layernorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                     .y = S(out[2]), .mean = S(mean), .rstd = S(rstd), .x = S(x), .gain = S(gain),
                     .bias = i % 2 ? S(bias) : NULL, .eps = 1e-5f }, e));
        PRODUCED(&out[3], "layernorm_bwd", value_near(&out[3]), FRESH,
                 ops->layernorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                     .dx = S(out[3]), .d_gain = S(d_gain), .d_bias = i % 2 ? S(d_bias) : NULL,
                     .dy = S(dy), .x = S(x), .gain = S(gain), .mean = S(mean), .rstd = S(rstd),
                     .residual = S(residual) }, e));
        pair_clear(p);
    }
}

/* Producers that also sum the columns of their value: as the reference does from that value. */
static void test_sums(void **state) {
    static const struct { int64_t rows, cols; } SUMS[] = {
        { 1, 13 }, { 130, 200 }, { 256, 768 }, { 384, 2048 }, { 128, 4096 }, { 100, 8200 },
    };
    enum { SHAPES = sizeof SUMS / sizeof *SUMS };
    for (int i = 0; i < INTOS * SHAPES; i++) {
        int64_t r = SUMS[i % SHAPES].rows, c = SUMS[i % SHAPES].cols;
        struct twin x = filled(H, r, c, 1), dy = filled(H, r, c, 2), gain = filled(H, c, 1, 3);
        struct twin gate_up = filled(H, r, 2 * c, 4), residual = filled(H, r, c, 5);
        struct twin mean = filled(F, r, 1, 6), rstd = filled(F, r, 1, 7);
        struct twin d_gain = filled(F, c, 1, 8), d_bias = filled(F, c, 1, 9), sums[5];
        struct twin_sink out[5];
        for (int k = 0; k < 5; k++) {
            int64_t n = k == 1 ? 2 * c : c;
            sink_into(&out[k], i / SHAPES, r, n);
            sums[k] = pair_tensor(p, F, n, 1, 1, 1);
            for (int s = 0; s < SIDES; s++) out[k].side[s].sums = S(sums[k]);
        }
        ON_BOTH(p, ops->gelu_bwd(b, LANE_COMPUTE, S(out[0]), S(dy), S(x), e));
        ON_BOTH(p, ops->swiglu_bwd(b, LANE_COMPUTE, S(out[1]), S(dy), S(gate_up), e));
        ON_BOTH(p, ops->rmsnorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                .dx = S(out[2]), .d_gain = S(d_gain), .dy = S(dy), .x = S(x), .gain = S(gain),
                .rstd = S(rstd) }, e));
        ON_BOTH(p, ops->layernorm_bwd(b, LANE_COMPUTE, &(struct norm_bwd_args){
                .dx = S(out[3]), .d_gain = S(d_gain), .d_bias = i % 2 ? S(d_bias) : NULL,
                .dy = S(dy), .x = S(x), .gain = S(gain), .mean = S(mean), .rstd = S(rstd),
                .residual = S(residual) }, e));
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, S(out[4]), S(x), e));
        for (int k = 0; k < 5; k++) {
            finish(&out[k], "sums");
            pair_near(p, "sums", &sums[k], 1e-11); /* (sqrt(384) 2^-24)^2 is 1.4e-12 */
        }
        pair_clear(p);
    }
}

/* The sums of a producer that makes codes have the bits of those that it takes from a stored value:
 * an odd number of tiles down, special values, and a value that is not kept. */
static void test_sums_beside_codes(void **state) {
    static const struct { int64_t rows, cols; } SUMS[] = {
        { 128, 128 }, { 640, 384 }, { 130, 256 },
    };
    enum { SHAPES = sizeof SUMS / sizeof *SUMS };
    for (int i = 0; i < INTOS * SHAPES * 2; i++) {
        int64_t r = SUMS[i / 2 % SHAPES].rows, c = SUMS[i / 2 % SHAPES].cols;
        bool special = i % 2;
        struct twin x = special ? with_special(r, c, 1) : filled(H, r, c, 1);
        struct twin dy = special ? with_special(r, c, 2) : filled(H, r, c, 2);
        struct twin value = pair_tensor(p, H, r, c, 1, 1);
        struct twin sums[3];
        struct twin_sink out;
        for (int k = 0; k < 3; k++) sums[k] = filled(F, c, 1, 3);
        ON_GPU(p, ops->gelu_bwd(b, LANE_COMPUTE, &(struct sink){
                .value = S(value), .keep_value = true, .sums = S(sums[0]) }, S(dy), S(x), e));
        sink_into(&out, i / 2 / SHAPES, r, c);
        for (int k = 1; k < 3; k++) {
            if (k == 2 && out.side[CPU].codes) keep_nothing(&out, IN_TRAINING);
            for (int s = 0; s < SIDES; s++) out.side[s].sums = S(sums[k]);
            ON_GPU(p, ops->gelu_bwd(b, LANE_COMPUTE, S(out), S(dy), S(x), e));
            pair_same_on_gpu(p, &sums[k], &sums[0]);
        }
        pair_clear(p);
    }
}

/* The content of a sink on the GPU after one call of a producer. */
static uint8_t *left_by(struct twin_sink *out, int64_t *bytes) {
    const struct tensor *part[] = { &out->codes.side[GPU], &out->transposed.side[GPU] };
    int64_t n[2];
    for (int i = 0; i < 2; i++) n[i] = part[i]->dim[0] * part[i]->stride[0];
    uint8_t *all = malloc((size_t)(n[0] + n[1] + 24));
    assert_non_null(all);
    const void *from[] = { part[0]->data, part[1]->data, out->stats.side[GPU].data,
                           out->amax.side[GPU].data, part[0]->scale.data };
    int64_t size[] = { n[0], n[1], 16, 4, 4 }, at = 0;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(p->ops[GPU]->download(p->b[GPU], LANE_COMPUTE, all + at, from[i], size[i],
                                               &p->e), OK);
        at += size[i];
    }
    *bytes = at;
    return all;
}

/* If no other rank shares the amax, a producer makes the codes, and may compute a value that is not
 * kept twice. The bits must be those of value, then amax, then codes. */
static void test_own_amax(void **state) {
    static const struct { int64_t rows, cols; } OWN[] = {
        { 128, 256 }, { 256, 768 }, { 130, 256 },
    };
    struct backend *b = p->b[GPU];
    const struct backend_ops *ops = p->ops[GPU];
    struct err *e = &p->e;
    for (int i = 0; i < 3 * 7; i++) {
        int64_t r = OWN[i % 3].rows, c = OWN[i % 3].cols;
        struct twin x = filled(H, r, 2 * c, 1), dy = filled(H, r, c, 2), gain = filled(H, c, 1, 3);
        struct twin mean = pair_tensor(p, F, r, 1, 1, 1), rstd = pair_tensor(p, F, r, 1, 1, 1);
        struct twin rope = filled(F, r / 2, 64, 4);
        uint8_t *left[2];
        int64_t bytes;
        for (int own = 0; own < 2; own++) {
            struct twin_sink out;
            sink_into(&out, 3, r, i / 3 == 1 ? 2 * c : c);
            struct sink *s = &out.side[GPU];
            s->own_amax = own;
            s->keep_value = !own;
            struct tensor narrow = tensor_2d(x.side[GPU].data, H, r, c);
            struct tensor heads = tensor_make(x.side[GPU].data, H, 2, r / 2, c / 64, 64);
            enum status st;
            switch (i / 3) {
            case 0: st = ops->swiglu_fwd(b, LANE_COMPUTE, s, &x.side[GPU], e); break;
            case 1: st = ops->swiglu_bwd(b, LANE_COMPUTE, s, &dy.side[GPU], &x.side[GPU], e);
                    break;
            case 2: st = ops->gelu_bwd(b, LANE_COMPUTE, s, &dy.side[GPU], &narrow, e); break;
            case 3: st = ops->rmsnorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                    .y = s, .rstd = &rstd.side[GPU], .x = &narrow, .gain = &gain.side[GPU],
                    .eps = 1e-5f }, e); break;
            case 6: st = ops->qk_bwd(b, LANE_COMPUTE, &(struct qk_bwd_args){
                    .dx = s, .d_out = &heads, .in = &heads, .rope = &rope.side[GPU],
                    .heads = c / 64 - 2, .kv_heads = 1 }, e); break;
            case 4: st = ops->layernorm_fwd(b, LANE_COMPUTE, &(struct norm_fwd_args){
                    .y = s, .mean = &mean.side[GPU], .rstd = &rstd.side[GPU], .x = &narrow,
                    .gain = &gain.side[GPU], .bias = &gain.side[GPU], .eps = 1e-5f }, e); break;
            default: st = ops->quantise(b, LANE_COMPUTE, s, &narrow, e);
            }
            assert_int_equal(st, OK);
            assert_int_equal(ops->quantise_finish(b, LANE_COMPUTE, s, e), OK);
            left[own] = left_by(&out, &bytes);
        }
        assert_memory_equal(left[0], left[1], (size_t)bytes);
        free(left[0]);
        free(left[1]);
        pair_clear(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_activations), cmocka_unit_test(test_special),
        cmocka_unit_test(test_swiglu_in_place),
        cmocka_unit_test(test_rope), cmocka_unit_test(test_norms),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_sums), cmocka_unit_test(test_sums_beside_codes),
        cmocka_unit_test(test_own_amax),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
