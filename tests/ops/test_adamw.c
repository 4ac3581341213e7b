/* AdamW against double loops over 20 steps, for every state and weight format; and the statistics
 * of stochastic rounding. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "kernels/rng_round.h"
#include "tests/support/ops_support.h"

enum { COUNT = 1500, STEPS = 20 }; /* beyond one span of 1024; the last block of 128 is short */
static const double BETA1 = 0.9, BETA2 = 0.95, EPS = 1e-8, DECAY = 0.1, LR = 1e-2;

struct optimiser {
    struct tensor weight, master, m, v, grad, lr, clip, bias1, bias2, step, flag;
    struct sink sink;
    struct adamw_args args;
    int decades; /* orders of magnitude between neighbouring gradients; make() sets 8 */
};

static struct tensor state_tensor(struct ops *o, enum dtype t) {
    struct tensor x = ops_tensor(o, t, COUNT, 1, 1, 1);
    if (t == DTYPE_E4M3) {
        x.scale = scale_make(NULL, SCALE_1X128, 1, COUNT);
        x.scale.data = ops_memory(o, scale_bytes(&x.scale));
    }
    return x;
}

/* *p must outlive the test's calls: args points into it. */
static void make(struct ops *o, struct optimiser *p, enum dtype weight, bool master,
                 enum dtype state) {
    *p = (struct optimiser){
        .weight = ops_tensor(o, weight, COUNT, 1, 1, 1),
        .master = ops_tensor(o, DTYPE_F32, COUNT, 1, 1, 1),
        .m = state_tensor(o, state), .v = state_tensor(o, state),
        .grad = ops_tensor(o, DTYPE_F32, COUNT, 1, 1, 1), .lr = ops_f32(o, (float)LR),
        .clip = ops_f32(o, 0.5f), .bias1 = ops_f32(o, 0), .bias2 = ops_f32(o, 0),
        .step = ops_i32(o, 0), .flag = ops_tensor(o, DTYPE_I32, 2, 1, 1, 1),
    };
    ops_fill(&p->weight, 1, 1);
    for (int64_t i = 0; i < COUNT; i++) ops_set(&p->master, i, ops_get(&p->weight, i));
    ((int32_t *)p->flag.data)[0] = ((int32_t *)p->flag.data)[1] = -1;
    p->sink = sink_value(&p->weight, NULL);
    p->args = (struct adamw_args){
        .weight = &p->sink, .master = master ? &p->master : NULL, .m = &p->m, .v = &p->v,
        .grad = &p->grad, .lr = &p->lr, .clip = &p->clip, .bias1 = &p->bias1, .bias2 = &p->bias2,
        .step = &p->step, .flag = &p->flag, .beta1 = (float)BETA1, .beta2 = (float)BETA2,
        .eps = (float)EPS, .weight_decay = (float)DECAY, .seed = 77, .tensor_id = 5,
        .element_base = 1000,
    };
    p->decades = 8;
}

/* Sets the gradients; some are 0. */
static void set_step(struct optimiser *p, int t) {
    ops_fill(&p->grad, 100 + (uint64_t)t, 1);
    for (int64_t i = 0; i < COUNT; i++) {
        double shrunk = ops_get(&p->grad, i) * pow(10, -(double)(i % p->decades));
        ops_set(&p->grad, i, i % 50 ? shrunk : 0);
    }
    *(int32_t *)p->step.data = t;
    *(float *)p->bias1.data = (float)(1 / (1 - pow(BETA1, t)));
    *(float *)p->bias2.data = (float)(1 / (1 - pow(BETA2, t)));
}

static enum status step(struct ops *o, struct optimiser *p) {
    return o->table->adamw(o->b, LANE_COMPUTE, &p->args, 1, &o->e);
}

/* The difference between the optimiser after STEPS and a run in double, relative to the change. */
static double distance(struct ops *o, struct optimiser *p) {
    static double w[COUNT], m[COUNT], v[COUNT], start[COUNT];
    for (int64_t i = 0; i < COUNT; i++) {
        start[i] = w[i] = ops_get(&p->weight, i);
        m[i] = v[i] = 0;
    }
    for (int t = 1; t <= STEPS; t++) {
        set_step(p, t);
        OPS_OK(o, step(o, p));
        for (int64_t i = 0; i < COUNT; i++) {
            double g = ops_get(&p->grad, i) * 0.5;
            m[i] += (1 - BETA1) * (g - m[i]);
            v[i] += (1 - BETA2) * (g * g - v[i]);
            double m_hat = m[i] / (1 - pow(BETA1, t)), v_hat = v[i] / (1 - pow(BETA2, t));
            w[i] -= LR * (m_hat / (sqrt(v_hat) + EPS) + DECAY * w[i]);
        }
    }
    double miss = 0, moved = 0;
    const struct tensor *held = p->args.master ? &p->master : &p->weight;
    for (int64_t i = 0; i < COUNT; i++) {
        miss += pow(ops_get(held, i) - w[i], 2);
        moved += pow(w[i] - start[i], 2);
    }
    return sqrt(miss / moved);
}

static const struct {
    const char *name;
    enum dtype weight;
    bool master;
    enum dtype state;
    int decades;
    double distance_max;
} CASE[] = {
    { "f32 weight, f32 state", DTYPE_F32, false, DTYPE_F32, 8, 1e-5 },
    { "f32 master, f32 state", DTYPE_BF16, true, DTYPE_F32, 8, 1e-5 },
    /* m and v each rounded to within 2^-8 a step, unbiased. */
    { "f32 master, bf16 state", DTYPE_BF16, true, DTYPE_BF16, 8, 0.01 },
    /* Codes have 3 bits: 2^-4 a step on m and on sqrt v. */
    { "f32 master, 8-bit state", DTYPE_BF16, true, DTYPE_E4M3, 1, 0.1 },
    /* A block's small values share the scale of its largest. Values 2^-18 below the largest are
     * held at the smallest code, which makes their steps too small. */
    { "f32 master, 8-bit state, wide", DTYPE_BF16, true, DTYPE_E4M3, 8, 0.5 },
    /* A step of 1e-2 is a few ulps of a bf16 weight: rounding is a random walk around the path. */
    { "bf16 weight, stochastic", DTYPE_BF16, false, DTYPE_F32, 8, 0.15 },
};
enum { CASES = sizeof CASE / sizeof CASE[0] };

static void test_twenty_steps(void **state) {
    for (int i = 0; i < CASES; i++) {
        struct ops *o = ops_open(2);
        struct optimiser p;
        make(o, &p, CASE[i].weight, CASE[i].master, CASE[i].state);
        p.decades = CASE[i].decades;
        OPS_BELOW(distance(o, &p), CASE[i].distance_max, CASE[i].name);
        if (CASE[i].master) /* value is the master, rounded to nearest */
            for (int64_t k = 0; k < COUNT; k++)
                assert_int_equal(((uint16_t *)p.weight.data)[k],
                                 bf16_encode(((float *)p.master.data)[k]));
        ops_close(o);
    }
}

static uint64_t optimiser_hash(struct optimiser *p) {
    uint64_t h = ops_hash(&p->weight) ^ ops_hash(&p->master) * 3 ^ ops_hash(&p->m) * 5 ^
                 ops_hash(&p->v) * 7;
    if (p->m.dtype != DTYPE_E4M3) return h;
    struct tensor scales = tensor_1d(p->v.scale.data, DTYPE_F32, p->v.scale.dim[1]);
    return h ^ ops_hash(&scales) * 9;
}

static void test_bits(void **state) {
    static const uint64_t HASH[CASES] = {
        0xDFE9159A0A47DB90u, 0xF7952A8D4BE17AFDu, 0x73ABC0802B015759u,
        0x63982B921DE4DA63u, 0x63982B921DE4DA63u, 0x2139532E020E1F62u,
    };
    int failures = 0;
    for (int i = 0; i < CASES; i++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct optimiser p;
            make(o, &p, CASE[i].weight, CASE[i].master, CASE[i].state);
            for (int t = 1; t <= 3; t++) {
                set_step(&p, t);
                for (int64_t k = 0; k < COUNT; k++) /* without the C library's pow */
                    ops_set(&p.grad, k, (double)((k * 37 + t * 11) % 101 - 50) / 64);
                *(float *)p.bias1.data = 2;
                *(float *)p.bias2.data = 3;
                OPS_OK(o, step(o, &p));
            }
            uint64_t hash = optimiser_hash(&p);
            if (hash != HASH[i]) {
                print_error("%s, %d threads: hash 0x%016llX\n", CASE[i].name, threads,
                            (unsigned long long)hash);
                failures++;
            }
            ops_close(o);
        }
    assert_int_equal(failures, 0);
}

/* With a raised flag no bit changes: weights, state, codes and amax stay. */
static void test_flag_gates(void **state) {
    for (int i = 0; i < CASES; i++) {
        struct ops *o = ops_open(2);
        struct optimiser p;
        make(o, &p, CASE[i].weight, CASE[i].master, CASE[i].state);
        struct tensor amax = ops_tensor(o, DTYPE_U32, 1, 1, 1, 1);
        p.sink.amax = &amax;
        set_step(&p, 1);
        OPS_OK(o, step(o, &p));
        uint64_t before = optimiser_hash(&p);
        assert_true(*(uint32_t *)amax.data > 0);
        *(uint32_t *)amax.data = 0;
        set_step(&p, 2);
        ((int32_t *)p.flag.data)[0] = 0; /* step 0 is a step */
        OPS_OK(o, step(o, &p));
        assert_int_equal(optimiser_hash(&p), before);
        assert_int_equal(*(uint32_t *)amax.data, 0);
        ops_close(o);
    }
}

/* A shard has the bits of the whole tensor, draws included: the second half alone, from its
 * element_base. */
static void test_sharding(void **state) {
    struct ops *o = ops_open(2);
    struct optimiser whole, half;
    make(o, &whole, DTYPE_BF16, false, DTYPE_BF16);
    make(o, &half, DTYPE_BF16, false, DTYPE_BF16);
    set_step(&whole, 1);
    set_step(&half, 1);
    struct tensor *part[] = { &half.weight, &half.m, &half.v, &half.grad };
    for (int i = 0; i < 4; i++) {
        part[i]->dim[0] = COUNT - 700;
        part[i]->data = (char *)part[i]->data + 700 * dtype_bytes(part[i]->dtype);
    }
    half.args.element_base += 700;
    OPS_OK(o, step(o, &whole));
    OPS_OK(o, step(o, &half));
    assert_memory_equal(half.weight.data, (uint16_t *)whole.weight.data + 700, (COUNT - 700) * 2);
    assert_memory_equal(half.v.data, (uint16_t *)whole.v.data + 700, (COUNT - 700) * 2);
    ops_close(o);
}

/* 8-bit state: every value within one code of the exact value, the block's largest exact to 2^-4.
 * A positive v never becomes 0, and an all-zero block stays 0. */
static void test_8bit_round_trip(void **state) {
    struct ops *o = ops_open(1);
    struct optimiser p;
    make(o, &p, DTYPE_F32, false, DTYPE_E4M3);
    set_step(&p, 1);
    for (int64_t i = 0; i < COUNT; i++) ops_set(&p.grad, i, i < 128 ? 0 : i == 200 ? 8 : 1e-5);
    OPS_OK(o, step(o, &p));
    const uint8_t *m = p.m.data, *v = p.v.data;
    const float *m_scale = p.m.scale.data, *v_scale = p.v.scale.data;
    for (int i = 0; i < 128; i++) assert_true(m[i] == 0 && v[i] == 0);
    assert_int_equal(m[200], 0x7E); /* the block's largest is 448 */
    assert_true(fabs(m_scale[1] * 448 / 0.4 - 1) < 1e-6);
    for (int i = 128; i < 256; i++) {
        assert_true(v[i] > 0);
        double want = i == 200 ? 4.0 * sqrt(0.05) : 0.5e-5 * sqrt(0.05);
        assert_true(fabs(e4m3_decode(v[i]) * v_scale[1] - want) <= want / 8 + v_scale[1] / 512);
    }
    for (int i = 256; i < COUNT; i++) /* uniform blocks: each element is the largest */
        assert_true(m[i] >= 0x7D && v[i] >= 0x7D);
    ops_close(o);
}

/* Stochastic rounding, exhaustively over its random bits. The share of the 2^k draws that round up
 * is exactly the value's distance from the lower neighbour, in steps. */
/* A second moment of 0 would divide a first moment that is not 0 by epsilon alone. */
static void test_bf16_square_is_above_0(void **state) {
    struct ops *o = ops_open(1);
    struct optimiser p;
    make(o, &p, DTYPE_F32, false, DTYPE_BF16);
    set_step(&p, 1);
    for (int64_t i = 0; i < COUNT; i++) ops_set(&p.grad, i, i % 2 ? 1e-21 : 0);
    OPS_OK(o, step(o, &p));
    const uint16_t *v = p.v.data; /* 0.05e-42: far below BF16's smallest, 9e-41 */
    for (int i = 0; i < COUNT; i++) assert_int_equal(v[i], i % 2);
    ops_close(o);
}

static void test_rounding_is_unbiased(void **state) {
    static const uint32_t LOW[] = { 0, 1, 0x1234, 0x8000, 0xFFFF };
    for (size_t i = 0; i < sizeof LOW / sizeof LOW[0]; i++) {
        float x = f32_from_bits(0xBF810000u | LOW[i]);
        uint32_t ups = 0;
        for (uint32_t random = 0; random < 0x10000; random++) {
            uint16_t code = bf16_round_stochastic(x, random ^ 0xABC00000u);
            assert_true(code == 0xBF81 || code == 0xBF82);
            ups += code == 0xBF82;
        }
        assert_int_equal(ups, LOW[i]);
    }
    static const struct { float x; uint8_t low; uint32_t ups; } CASE8[] = {
        { 1.0f, 0x38, 0 },              { 1.0625f, 0x38, 1u << 19 }, /* half of the way to 1.125 */
        { -417.0f, 0xFD, 1u << 15 },    /* 416 + 1/32 of a step of 32 */
        { 0x1p-9f, 0x01, 0 },           { 0x1.8p-9f, 0x01, 1u << 19 }, /* subnormals */
        { 0x1p-12f, 0x00, 1u << 17 },   { 0x1.fp-7f, 0x07, 3u << 18 }, /* into the normals */
        { 448.0f, 0x7E, 0 },            { 1e30f, 0x7E, 0 },
    };
    for (size_t i = 0; i < sizeof CASE8 / sizeof CASE8[0]; i++) {
        uint32_t ups = 0;
        for (uint32_t random = 0; random < 1u << 20; random++) {
            uint8_t code = e4m3_round_stochastic(CASE8[i].x, random | 0xFFF00000u);
            assert_true(code == CASE8[i].low || code == CASE8[i].low + 1);
            ups += code != CASE8[i].low;
        }
        assert_int_equal(ups, CASE8[i].ups);
    }
}

static void test_rounding_special_values(void **state) {
    assert_int_equal(bf16_round_stochastic(NAN, 0xFFFF), 0x7FC0);
    assert_int_equal(bf16_round_stochastic(-INFINITY, 0xFFFF), 0xFF80);
    assert_int_equal(bf16_round_stochastic(3.4028235e38f, 1), 0x7F80);
    assert_int_equal(bf16_round_stochastic(-0.0f, 0xFFFF), 0x8000);
    assert_int_equal(e4m3_round_stochastic(-NAN, 7), 0x7F);
    assert_int_equal(e4m3_round_stochastic(-INFINITY, 0xFFFFF), 0xFE);
    assert_int_equal(e4m3_round_stochastic(0.0f, 0xFFFFF), 0x00);
    assert_int_equal(e4m3_round_stochastic(1e-30f, 0xFFFFF), 0x00);
}

/* The optimiser's own draws, with a fixed seed. A bf16 weight of 1 that moves by a hundredth of an
 * ulp goes down in 1 of 100 draws. Of 10,500 draws: within 5 sigma, then the exact count. */
static void test_small_steps_add_up(void **state) {
    struct ops *o = ops_open(2);
    struct optimiser p;
    make(o, &p, DTYPE_BF16, false, DTYPE_F32);
    p.args.weight_decay = 1;
    *(float *)p.lr.data = 0x1p-8f / 100; /* ulp below 1 */
    *(float *)p.bias1.data = *(float *)p.bias2.data = 1;
    int downs = 0, draws = 0;
    for (int t = 1; t <= 7; t++) {
        *(int32_t *)p.step.data = t;
        for (int64_t i = 0; i < COUNT; i++) ops_set(&p.weight, i, 1);
        OPS_OK(o, step(o, &p));
        for (int64_t i = 0; i < COUNT; i++, draws++) downs += ops_get(&p.weight, i) < 1;
    }
    assert_true(fabs(downs - draws / 100.0) < 5 * sqrt(draws / 100.0));
    assert_int_equal(downs, 92);
    ops_close(o);
}

/* The three parts of the draws. No bit is 1 more often than 0. No bit correlates with a bit of its
 * neighbours: other parts of the element, the same part of the next element, step and tensor. Of
 * 2^16 draws, a count is within 5 sigma, 640, of half. */
static void test_parts_are_independent(void **state) {
    enum { DRAWS = 1 << 16, BITS = 16, SIGMA = 128 /* of a count: sqrt(DRAWS) / 2 */ };
    static const struct { int element, step, tensor, part; } NEIGHBOUR[] = {
        { 0, 0, 0, 1 }, { 0, 0, 0, 2 }, { 1, 0, 0, 0 }, { 0, 1, 0, 0 }, { 0, 0, 1, 0 },
    };
    enum { NEIGHBOURS = sizeof NEIGHBOUR / sizeof *NEIGHBOUR };
    for (int part = 0; part < 3; part++) {
        int32_t ones[BITS] = { 0 };
        static int32_t alike[NEIGHBOURS][BITS][BITS];
        memset(alike, 0, sizeof alike);
        for (uint64_t i = 0; i < DRAWS; i++) {
            uint32_t own = round_random(rng_bits(rng_key(7, RNG_ROUND, 3, 5), i), part);
            for (int b = 0; b < BITS; b++) ones[b] += own >> b & 1;
            for (int n = 0; n < NEIGHBOURS; n++) {
                uint64_t key = rng_key(7, RNG_ROUND, (uint64_t)(3 + NEIGHBOUR[n].step),
                                       (uint64_t)(5 + NEIGHBOUR[n].tensor));
                uint64_t bits = rng_bits(key, i + (uint64_t)NEIGHBOUR[n].element);
                uint32_t other = round_random(bits, (part + NEIGHBOUR[n].part) % 3);
                for (int b = 0; b < BITS; b++)
                    for (int c = 0; c < BITS; c++)
                        alike[n][b][c] += !((own >> b ^ other >> c) & 1);
            }
        }
        for (int b = 0; b < BITS; b++) assert_true(abs(ones[b] - DRAWS / 2) < 5 * SIGMA);
        for (int n = 0; n < NEIGHBOURS; n++)
            for (int b = 0; b < BITS; b++)
                for (int c = 0; c < BITS; c++)
                    assert_true(abs(alike[n][b][c] - DRAWS / 2) < 5 * SIGMA);
    }
}

static void test_nan_kept(void **state) {
    for (int i = 0; i < CASES; i++) {
        struct ops *o = ops_open(1);
        struct optimiser p;
        make(o, &p, CASE[i].weight, CASE[i].master, CASE[i].state);
        set_step(&p, 1);
        ops_set(&p.grad, 3, NAN);
        OPS_OK(o, step(o, &p));
        assert_true(isnan(ops_get(&p.weight, 3)) && !isnan(ops_get(&p.weight, 200)));
        if (p.m.dtype == DTYPE_E4M3) assert_int_equal(((uint8_t *)p.m.data)[3], 0x7F);
        else assert_true(isnan(ops_get(&p.m, 3)));
        ops_close(o);
    }
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    struct tensor i32 = ops_tensor(o, DTYPE_I32, COUNT, 1, 1, 1);
    struct tensor few = ops_tensor(o, DTYPE_F32, 9, 1, 1, 1);
    struct optimiser p;
#define REFUSED(change, words)                        \
    do {                                              \
        make(o, &p, DTYPE_BF16, true, DTYPE_E4M3);    \
        change;                                       \
        OPS_ERR(o, step(o, &p), ERR_ARG, words);      \
    } while (0)
    REFUSED(p.args.grad = &few, "grad or master");
    REFUSED(p.args.grad = &i32, "grad is i32");
    REFUSED(p.args.master = &few, "grad or master");
    REFUSED(p.args.m = &few, "m has 9 elements");
    REFUSED(p.args.m = &i32, "m is i32");
    REFUSED(p.args.m = &p.grad, "m in f32, v in e4m3");
    REFUSED(p.v.scale.kind = SCALE_TENSOR, "v is e4m3 without a 1x128 scale");
    REFUSED(p.v.scale.dim[1]--, "v is e4m3 without a 1x128 scale");
    REFUSED(p.sink.value = &i32, "weight is i32");
    REFUSED(p.args.lr = &i32, "lr is i32");
    REFUSED(p.args.step = &p.lr, "step is f32");
    REFUSED(p.args.flag = &p.step, "flag is [1, 1]");
    REFUSED(p.args.element_base = -1, "element_base -1");
#undef REFUSED
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_twenty_steps), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_flag_gates), cmocka_unit_test(test_sharding),
        cmocka_unit_test(test_8bit_round_trip), cmocka_unit_test(test_bf16_square_is_above_0),
        cmocka_unit_test(test_rounding_is_unbiased),
        cmocka_unit_test(test_rounding_special_values), cmocka_unit_test(test_small_steps_add_up),
        cmocka_unit_test(test_parts_are_independent), cmocka_unit_test(test_nan_kept),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
