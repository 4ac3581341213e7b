/* SwiGLU and GELU against double loops; gradients against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

enum kind { SWIGLU, GELU };

struct reference {
    enum kind kind;
    int64_t rows, width; /* of h */
    double *x, *h, *dh;
};

static double reference_forward(void *context) {
    struct reference *r = context;
    double sum = 0;
    for (int64_t i = 0; i < r->rows * r->width; i++) {
        int64_t row = i / r->width, at = r->kind == SWIGLU ? i + row * r->width : i;
        const double *x = r->x + at;
        if (r->kind == SWIGLU) r->h[i] = x[0] / (1 + exp(-x[0])) * x[r->width];
        else r->h[i] = 0.5 * x[0] * (1 + tanh(sqrt(2 / M_PI) * (x[0] + 0.044715 * pow(x[0], 3))));
        sum += r->h[i] * r->dh[i];
    }
    return sum;
}

struct run { struct tensor x, h, dx, dh; };

static struct run make(struct ops *o, enum kind kind, int64_t rows, int64_t width, enum dtype t,
                       double x_max) {
    int64_t in = kind == SWIGLU ? 2 * width : width;
    struct run r = { ops_tensor(o, t, rows, in, 1, 1), ops_tensor(o, t, rows, width, 1, 1),
                     ops_tensor(o, t, rows, in, 1, 1), ops_tensor(o, t, rows, width, 1, 1) };
    ops_fill(&r.x, 1, x_max);
    ops_fill(&r.dh, 2, 1);
    return r;
}

static enum status forward(struct ops *o, enum kind kind, struct run *r) {
    struct sink h = sink_value(&r->h, NULL);
    if (kind == SWIGLU) return o->table->swiglu_fwd(o->b, LANE_COMPUTE, &h, &r->x, &o->e);
    return o->table->gelu_fwd(o->b, LANE_COMPUTE, &h, &r->x, &o->e);
}

static enum status backward(struct ops *o, enum kind kind, struct run *r) {
    struct sink dx = sink_value(&r->dx, NULL);
    if (kind == SWIGLU) return o->table->swiglu_bwd(o->b, LANE_COMPUTE, &dx, &r->dh, &r->x, &o->e);
    return o->table->gelu_bwd(o->b, LANE_COMPUTE, &dx, &r->dh, &r->x, &o->e);
}

static const struct {
    int64_t rows, width;
    enum dtype dtype;
    double x_max, nmse_max;
} CASE[] = {
    { 1, 1, DTYPE_F32, 1, 1e-12 },
    { 3, 517, DTYPE_F32, 4, 1e-12 },  /* beyond the span of 512 */
    { 5, 100, DTYPE_F32, 200, 1e-12 }, /* e^-x overflows, tanh saturates */
    { 7, 130, DTYPE_BF16, 4, 4e-6 },  /* one rounding to bf16 */
};
enum { CASES = sizeof CASE / sizeof CASE[0] };

static void test_forward_and_gradient(void **state) {
    for (enum kind kind = SWIGLU; kind <= GELU; kind++)
        for (int i = 0; i < CASES; i++) {
            struct ops *o = ops_open(2);
            struct run r = make(o, kind, CASE[i].rows, CASE[i].width, CASE[i].dtype, CASE[i].x_max);
            OPS_OK(o, forward(o, kind, &r));
            OPS_OK(o, backward(o, kind, &r));
            struct reference ref = { kind, CASE[i].rows, CASE[i].width, ops_doubles(o, &r.x),
                                     ops_doubles(o, &r.h), ops_doubles(o, &r.dh) };
            reference_forward(&ref);
            OPS_BELOW(ops_nmse(&r.h, ref.h), CASE[i].nmse_max, "h");
            /* A finite difference's error from curvature is 1e-8, from f32 1e-7. bf16 rounds each
             * term by 2^-9, at random. */
            double bound = CASE[i].dtype == DTYPE_F32 ? 1e-6 : 3e-3;
            for (uint64_t seed = 20; seed < 24; seed++) {
                double want = ops_difference(reference_forward, &ref, ref.x, tensor_count(&r.x),
                                             seed, 1e-4);
                OPS_BELOW(fabs(ops_along(&r.dx, seed) - want),
                          bound * sqrt((double)tensor_count(&r.x)) * fmax(1, CASE[i].x_max), "dx");
            }
            ops_close(o);
        }
}

static const uint64_t HASH[2] = { 0xACE06F25CBB083CDu, 0xCC2B54FC533E5BAEu };

static void test_bits(void **state) {
    for (enum kind kind = SWIGLU; kind <= GELU; kind++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct run r = make(o, kind, 11, 600, DTYPE_BF16, 5);
            OPS_OK(o, forward(o, kind, &r));
            OPS_OK(o, backward(o, kind, &r));
            uint64_t hash = ops_hash(&r.h) ^ ops_hash(&r.dx) * 3;
            if (hash != HASH[kind])
                fail_msg("kind %d, %d threads: hash 0x%016llX", kind, threads,
                         (unsigned long long)hash);
            ops_close(o);
        }
}

/* GELU at the ends: large x passes, large -x gives 0, never 0 * infinity; NaN stays NaN. */
static void test_extremes(void **state) {
    struct ops *o = ops_open(1);
    struct run r = make(o, GELU, 1, 5, DTYPE_F32, 1);
    static const float X[5] = { 1e30f, -1e30f, 0, NAN, -0.0f };
    memcpy(r.x.data, X, sizeof X);
    for (int i = 0; i < 5; i++) ops_set(&r.dh, i, 1);
    OPS_OK(o, forward(o, GELU, &r));
    OPS_OK(o, backward(o, GELU, &r));
    const float *h = r.h.data, *dx = r.dx.data;
    assert_true(h[0] == 1e30f && h[1] == 0 && h[2] == 0 && h[4] == 0);
    assert_int_equal(f32_bits(h[3]), 0x7FC00000);
    assert_true(dx[0] == 1 && dx[1] == 0 && dx[2] == 0.5f);
    assert_int_equal(f32_bits(dx[3]), 0x7FC00000);
    struct run s = make(o, SWIGLU, 1, 2, DTYPE_F32, 1);
    ops_set(&s.x, 1, NAN);
    OPS_OK(o, forward(o, SWIGLU, &s));
    OPS_OK(o, backward(o, SWIGLU, &s));
    assert_int_equal(f32_bits(((float *)s.h.data)[1]), 0x7FC00000);
    assert_true(!isnan(ops_get(&s.h, 0)) && isnan(ops_get(&s.dx, 1)) && isnan(ops_get(&s.dx, 3)));
    ops_close(o);
}

/* The gradient may overwrite the input. The sink makes codes and amax from the rounded value. */
static void test_alias_and_sink(void **state) {
    struct ops *o = ops_open(2);
    struct run r = make(o, SWIGLU, 4, 32, DTYPE_BF16, 2);
    OPS_OK(o, backward(o, SWIGLU, &r));
    struct tensor copy = ops_copy(o, &r.x, DTYPE_BF16);
    struct sink in_place = sink_value(&copy, NULL);
    OPS_OK(o, o->table->swiglu_bwd(o->b, 0, &in_place, &r.dh, &copy, &o->e));
    assert_int_equal(ops_hash(&copy), ops_hash(&r.dx));

    struct tensor codes = tensor_fp8(ops_memory(o, tensor_fp8_bytes(4, 32)), DTYPE_E4M3, 4, 32);
    struct tensor amax = ops_tensor(o, DTYPE_U32, 1, 1, 1, 1);
    codes.scale = scale_make(ops_memory(o, 16), SCALE_TENSOR, 4, 32);
    struct sink h = sink_value(&r.h, &amax);
    h.codes = &codes;
    h.source = SCALE_SOURCE_AMAX;
    OPS_OK(o, o->table->swiglu_fwd(o->b, 0, &h, &r.x, &o->e));
    OPS_OK(o, o->table->quantise_finish(o->b, 0, &h, &o->e));
    float largest = 0;
    for (int64_t i = 0; i < 128; i++) largest = fmaxf(largest, fabsf((float)ops_get(&r.h, i)));
    assert_true(f32_from_bits(*(uint32_t *)amax.data) == largest);
    float factor = *(float *)codes.scale.data;
    for (int64_t i = 0; i < 128; i++)
        assert_true(fabs(e4m3_decode(((uint8_t *)codes.data)[i]) * factor - ops_get(&r.h, i)) <=
                    fabs(ops_get(&r.h, i)) / 16 + factor / 512);
    ops_close(o);
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    struct run swiglu = make(o, SWIGLU, 4, 6, DTYPE_F32, 1);
    struct run gelu = make(o, GELU, 4, 6, DTYPE_F32, 1), r;
    struct tensor i32 = ops_tensor(o, DTYPE_I32, 4, 6, 1, 1);
    struct tensor odd = ops_tensor(o, DTYPE_F32, 4, 5, 1, 1);
    r = swiglu; r.x = odd; OPS_ERR(o, forward(o, SWIGLU, &r), ERR_ARG, "5 columns, which is odd");
    r = swiglu; r.x = i32; OPS_ERR(o, forward(o, SWIGLU, &r), ERR_ARG, "gate_up is i32");
    r = swiglu; r.h = odd; OPS_ERR(o, forward(o, SWIGLU, &r), ERR_ARG, "swiglu_fwd: h");
    r = swiglu; r.dh = odd; OPS_ERR(o, backward(o, SWIGLU, &r), ERR_ARG, "gate_up");
    r = swiglu; r.dx = odd; OPS_ERR(o, backward(o, SWIGLU, &r), ERR_ARG, "d_gate_up");
    r = gelu; r.x = i32; OPS_ERR(o, forward(o, GELU, &r), ERR_ARG, "x is i32");
    r = gelu; r.h = odd; OPS_ERR(o, forward(o, GELU, &r), ERR_ARG, "gelu_fwd: h");
    r = gelu; r.dh = odd; OPS_ERR(o, backward(o, GELU, &r), ERR_ARG, "dh is [4, 5]");
    r = gelu; r.dx = odd; OPS_ERR(o, backward(o, GELU, &r), ERR_ARG, "dx");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_and_gradient), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_alias_and_sink),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
