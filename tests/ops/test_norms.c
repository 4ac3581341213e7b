/* RMSNorm and LayerNorm against double loops; gradients against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

enum kind { RMS, LAYER };
static const float EPS = 1e-5f;

/* ---- the definition in double ---- */

struct reference {
    enum kind kind;
    int64_t rows, cols;
    double *x, *gain, *bias, *dy, *residual;
    double *y;
};

/* sum of y * dy (+ x * residual, whose gradient is the residual that backward adds). */
static double reference_forward(void *context) {
    struct reference *r = context;
    double sum = 0;
    for (int64_t i = 0; i < r->rows; i++) {
        const double *x = r->x + i * r->cols;
        double mean = 0, square = 0;
        for (int64_t c = 0; c < r->cols; c++) mean += x[c] / (double)r->cols;
        if (r->kind == RMS) mean = 0;
        for (int64_t c = 0; c < r->cols; c++) square += (x[c] - mean) * (x[c] - mean);
        double rstd = 1 / sqrt(square / (double)r->cols + (double)EPS);
        for (int64_t c = 0; c < r->cols; c++) {
            int64_t at = i * r->cols + c;
            r->y[at] = (x[c] - mean) * rstd * r->gain[c] + (r->kind == LAYER ? r->bias[c] : 0);
            sum += r->y[at] * r->dy[at] + x[c] * r->residual[at];
        }
    }
    return sum;
}

/* ---- one case on the backend ---- */

struct run { struct tensor x, y, gain, bias, mean, rstd, dy, dx, d_gain, d_bias, residual; };

static struct run make(struct ops *o, int64_t rows, int64_t cols, enum dtype t, double x_max) {
    struct run r = {
        .x = ops_tensor(o, t, rows, cols, 1, 1), .y = ops_tensor(o, t, rows, cols, 1, 1),
        .gain = ops_tensor(o, t, cols, 1, 1, 1), .bias = ops_tensor(o, t, cols, 1, 1, 1),
        .mean = ops_tensor(o, DTYPE_F32, rows, 1, 1, 1),
        .rstd = ops_tensor(o, DTYPE_F32, rows, 1, 1, 1),
        .dy = ops_tensor(o, t, rows, cols, 1, 1), .dx = ops_tensor(o, t, rows, cols, 1, 1),
        .d_gain = ops_tensor(o, DTYPE_F32, cols, 1, 1, 1),
        .d_bias = ops_tensor(o, DTYPE_F32, cols, 1, 1, 1),
        .residual = ops_tensor(o, t, rows, cols, 1, 1),
    };
    ops_fill(&r.x, 1, x_max);
    ops_fill(&r.gain, 2, 2);
    ops_fill(&r.bias, 3, 1);
    ops_fill(&r.dy, 4, 1);
    ops_fill(&r.residual, 5, 1 / x_max);
    return r;
}

static enum status forward(struct ops *o, enum kind kind, const struct run *r) {
    struct sink y = sink_value((struct tensor *)&r->y, NULL);
    if (kind == RMS)
        return o->table->rmsnorm_fwd(o->b, LANE_COMPUTE, &(struct norm_fwd_args){
                .y = &y, .rstd = &r->rstd, .x = &r->x, .gain = &r->gain, .eps = EPS }, &o->e);
    return o->table->layernorm_fwd(o->b, LANE_COMPUTE, &(struct norm_fwd_args){
            .y = &y, .mean = &r->mean, .rstd = &r->rstd, .x = &r->x, .gain = &r->gain,
            .bias = &r->bias, .eps = EPS }, &o->e);
}

static enum status backward(struct ops *o, enum kind kind, const struct run *r,
                            struct tensor *dx) {
    struct sink s = sink_value(dx, NULL);
    if (kind == RMS)
        return o->table->rmsnorm_bwd(o->b, LANE_COMPUTE, &(struct norm_bwd_args){
                .dx = &s, .d_gain = &r->d_gain, .dy = &r->dy, .x = &r->x, .gain = &r->gain,
                .rstd = &r->rstd, .residual = &r->residual }, &o->e);
    return o->table->layernorm_bwd(o->b, LANE_COMPUTE, &(struct norm_bwd_args){
            .dx = &s, .d_gain = &r->d_gain, .d_bias = &r->d_bias, .dy = &r->dy, .x = &r->x,
            .gain = &r->gain, .mean = &r->mean, .rstd = &r->rstd,
            .residual = &r->residual }, &o->e);
}

static struct reference reference_of(struct ops *o, enum kind kind, const struct run *r) {
    struct reference ref = {
        kind, r->x.dim[0], r->x.dim[1], ops_doubles(o, &r->x), ops_doubles(o, &r->gain),
        ops_doubles(o, &r->bias), ops_doubles(o, &r->dy), ops_doubles(o, &r->residual),
        ops_doubles(o, &r->y),
    };
    return ref;
}

static const struct {
    int64_t rows, cols;
    enum dtype dtype;
    double x_max, nmse_max;
} CASE[] = {
    { 1, 1, DTYPE_F32, 1, 1e-12 },
    { 3, 17, DTYPE_F32, 1, 1e-12 },      /* one beyond the 16 lanes */
    { 37, 64, DTYPE_F32, 5, 1e-12 },     /* rows beyond the 16 lanes of d_gain */
    { 2, 1000, DTYPE_F32, 1e4, 1e-11 },  /* sums near 1e11 */
    { 33, 96, DTYPE_BF16, 1, 4e-6 },     /* one rounding to bf16: (2^-9)^2 / 3 at worst 1.3e-6 */
    { 2, 4096, DTYPE_BF16, 1e4, 4e-6 },  /* x^2 near 1e8; 4096 terms would stall a bf16 sum */
};
enum { CASES = sizeof CASE / sizeof CASE[0] };

static void test_forward(void **state) {
    for (int i = 0; i < CASES; i++)
        for (enum kind kind = RMS; kind <= LAYER; kind++) {
            if (kind == LAYER && CASE[i].cols == 1) continue; /* x - mean is 0: only bias is left */
            struct ops *o = ops_open(2);
            struct run r = make(o, CASE[i].rows, CASE[i].cols, CASE[i].dtype, CASE[i].x_max);
            OPS_OK(o, forward(o, kind, &r));
            struct reference ref = reference_of(o, kind, &r);
            reference_forward(&ref);
            OPS_BELOW(ops_nmse(&r.y, ref.y), CASE[i].nmse_max, kind == RMS ? "rms y" : "layer y");
            ops_close(o);
        }
}

/* Every operand's gradient, in f32: rounding leaves at most 1e-4 of the largest derivative. With x
 * of 1e4 the derivative itself is a difference of nearly equal numbers. */
static void test_gradient(void **state) {
    for (int i = 0; i < CASES; i++)
        for (enum kind kind = RMS; kind <= LAYER; kind++) {
            if (CASE[i].dtype != DTYPE_F32 || CASE[i].cols == 1) continue;
            struct ops *o = ops_open(2);
            struct run r = make(o, CASE[i].rows, CASE[i].cols, DTYPE_F32, CASE[i].x_max);
            OPS_OK(o, forward(o, kind, &r));
            OPS_OK(o, backward(o, kind, &r, &r.dx));
            struct reference ref = reference_of(o, kind, &r);
            struct { const struct tensor *gradient; double *x, step; } part[] = {
                { &r.dx, ref.x, 1e-4 * CASE[i].x_max },
                { &r.d_gain, ref.gain, 1e-3 },
                { &r.d_bias, ref.bias, 1e-3 },
            };
            for (int p = 0; p < (kind == LAYER ? 3 : 2); p++) {
                double size = 0, miss = 0;
                for (uint64_t seed = 50; seed < 54; seed++) {
                    double want = ops_difference(reference_forward, &ref, part[p].x,
                                                 tensor_count(part[p].gradient), seed,
                                                 part[p].step);
                    miss = fmax(miss, fabs(ops_along(part[p].gradient, seed) - want));
                    size = fmax(size, fabs(want));
                }
                OPS_BELOW(miss, 1e-4 * size, "directional derivative");
            }
            ops_close(o);
        }
}

/* d_gain and d_bias accumulate. dx may alias the residual or dy. bf16 gradients are rounded
 * once. */
static void test_accumulation_and_aliases(void **state) {
    for (enum kind kind = RMS; kind <= LAYER; kind++) {
        struct ops *o = ops_open(2);
        struct run r = make(o, 40, 24, DTYPE_BF16, 1);
        OPS_OK(o, forward(o, kind, &r));
        OPS_OK(o, backward(o, kind, &r, &r.dx));
        struct tensor once = ops_copy(o, &r.d_gain, DTYPE_F32);
        struct run narrow = r;
        narrow.d_gain = ops_tensor(o, DTYPE_BF16, 24, 1, 1, 1);
        narrow.residual = ops_copy(o, &r.residual, DTYPE_BF16);
        OPS_OK(o, backward(o, kind, &narrow, &narrow.residual));
        for (int64_t c = 0; c < 24; c++)
            assert_true(ops_get(&narrow.d_gain, c) ==
                        bf16_decode(bf16_encode((float)ops_get(&once, c))));
        assert_int_equal(ops_hash(&narrow.residual), ops_hash(&r.dx));
        OPS_OK(o, backward(o, kind, &r, &r.dy));
        assert_int_equal(ops_hash(&r.dy), ops_hash(&r.dx));
        for (int64_t c = 0; c < 24; c++)
            assert_true(ops_get(&r.d_gain, c) == 2 * ops_get(&once, c)); /* doubling is exact */
        ops_close(o);
    }
}

static const uint64_t HASH[2] = { 0x694FC6E3EB914AE1u, 0x034806DFEA0D7F48u };

static void test_bits(void **state) {
    for (enum kind kind = RMS; kind <= LAYER; kind++)
        for (int threads = 1; threads <= 3; threads++) {
            struct ops *o = ops_open(threads);
            struct run r = make(o, 45, 77, DTYPE_BF16, 3);
            OPS_OK(o, forward(o, kind, &r));
            OPS_OK(o, backward(o, kind, &r, &r.dx));
            uint64_t hash = ops_hash(&r.y) ^ ops_hash(&r.rstd) * 3 ^ ops_hash(&r.dx) * 5 ^
                            ops_hash(&r.d_gain) * 7 ^ ops_hash(&r.d_bias) * 9;
            if (hash != HASH[kind])
                fail_msg("kind %d, %d threads: hash 0x%016llX", kind, threads,
                         (unsigned long long)hash);
            ops_close(o);
        }
}

/* A NaN reaches its own row and the sums over rows, nothing else; the sink's amax shows it. */
static void test_nan_kept(void **state) {
    for (enum kind kind = RMS; kind <= LAYER; kind++) {
        struct ops *o = ops_open(2);
        struct run r = make(o, 5, 20, DTYPE_BF16, 1);
        ops_set(&r.x, 2 * 20 + 7, NAN);
        OPS_OK(o, forward(o, kind, &r));
        for (int64_t i = 0; i < 100; i++)
            assert_int_equal(isnan(ops_get(&r.y, i)) != 0, i / 20 == 2);
        assert_int_equal(((uint16_t *)r.y.data)[47], 0x7FC0);
        struct tensor amax = ops_tensor(o, DTYPE_U32, 1, 1, 1, 1);
        struct sink dx = sink_value(&r.dx, &amax);
        if (kind == RMS)
            OPS_OK(o, o->table->rmsnorm_bwd(o->b, 0, &(struct norm_bwd_args){
                    .dx = &dx, .d_gain = &r.d_gain, .dy = &r.dy, .x = &r.x, .gain = &r.gain,
                    .rstd = &r.rstd }, &o->e));
        else
            OPS_OK(o, o->table->layernorm_bwd(o->b, 0, &(struct norm_bwd_args){
                    .dx = &dx, .d_gain = &r.d_gain, .d_bias = &r.d_bias, .dy = &r.dy, .x = &r.x,
                    .gain = &r.gain, .mean = &r.mean, .rstd = &r.rstd }, &o->e));
        for (int64_t i = 0; i < 100; i++)
            assert_int_equal(isnan(ops_get(&r.dx, i)) != 0, i / 20 == 2);
        for (int64_t c = 0; c < 20; c++) assert_true(isnan(ops_get(&r.d_gain, c)));
        assert_true(*(uint32_t *)amax.data > 0x7F800000u);
        ops_close(o);
    }
}

static void test_arguments(void **state) {
    for (enum kind kind = RMS; kind <= LAYER; kind++) {
        struct ops *o = ops_open(1);
        const struct run good = make(o, 4, 8, DTYPE_BF16, 1);
        struct tensor i32 = ops_tensor(o, DTYPE_I32, 4, 8, 1, 1);
        struct tensor wide = ops_tensor(o, DTYPE_BF16, 4, 9, 1, 1);
        struct tensor f32 = ops_tensor(o, DTYPE_F32, 8, 1, 1, 1);
        struct run r = good;
        r.x = i32; OPS_ERR(o, forward(o, kind, &r), ERR_ARG, "x is i32");
        r = good; r.gain = f32; OPS_ERR(o, forward(o, kind, &r), ERR_ARG, "gain is f32");
        r = good; r.rstd = f32; OPS_ERR(o, forward(o, kind, &r), ERR_ARG, "rstd is [8, 1]");
        r = good; r.y = wide; OPS_ERR(o, forward(o, kind, &r), ERR_ARG, "y");
        r = good; r.dy = wide; OPS_ERR(o, backward(o, kind, &r, &r.dx), ERR_ARG, "dy is [4, 9]");
        r = good; r.residual = wide;
        OPS_ERR(o, backward(o, kind, &r, &r.dx), ERR_ARG, "residual");
        r = good; r.d_gain = wide; OPS_ERR(o, backward(o, kind, &r, &r.dx), ERR_ARG, "d_gain");
        r = good; OPS_ERR(o, backward(o, kind, &r, &wide), ERR_ARG, "dx");
        ops_close(o);
    }
    struct ops *o = ops_open(1);
    struct run r = make(o, 4, 8, DTYPE_BF16, 1);
    struct sink s = sink_value(&r.y, NULL);
    OPS_ERR(o, o->table->rmsnorm_fwd(o->b, LANE_COMPUTE, &(struct norm_fwd_args){
            .y = &s, .rstd = &r.rstd, .x = &r.x, .gain = &r.gain, .bias = &r.bias }, &o->e),
            ERR_ARG, "neither mean nor bias");
    OPS_ERR(o, o->table->rmsnorm_bwd(o->b, LANE_COMPUTE, &(struct norm_bwd_args){
            .dx = &s, .d_gain = &r.d_gain, .d_bias = &r.d_bias, .dy = &r.dy, .x = &r.x,
            .gain = &r.gain, .rstd = &r.rstd }, &o->e), ERR_ARG, "neither mean nor d_bias");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward),  cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_accumulation_and_aliases), cmocka_unit_test(test_bits),
        cmocka_unit_test(test_nan_kept), cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
