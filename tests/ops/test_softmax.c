/* Causal softmax against double loops; the gradient against finite differences. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

struct reference {
    int64_t n, length;
    double factor, *s, *p, *dp;
};

/* Fills p; returns the sum of p * dp. */
static double reference_forward(void *context) {
    struct reference *r = context;
    double all = 0;
    for (int64_t row = 0; row < r->n * r->length; row++) {
        const double *s = r->s + row * r->length, *dp = r->dp + row * r->length;
        double *p = r->p + row * r->length, sum = 0, max = -INFINITY;
        int64_t seen = row % r->length + 1;
        for (int64_t j = 0; j < seen; j++) max = fmax(max, s[j] * r->factor);
        for (int64_t j = 0; j < seen; j++) sum += exp(s[j] * r->factor - max);
        for (int64_t j = 0; j < r->length; j++) {
            p[j] = j < seen ? exp(s[j] * r->factor - max) / sum : 0;
            all += p[j] * dp[j];
        }
    }
    return all;
}

struct run { struct tensor s, p, dp, ds; };

static struct run make(struct ops *o, enum dtype t, int64_t n, int64_t length) {
    struct run r = { ops_tensor(o, t, n, length, length, 1), ops_tensor(o, t, n, length, length, 1),
                     ops_tensor(o, t, n, length, length, 1),
                     ops_tensor(o, t, n, length, length, 1) };
    ops_fill(&r.s, 1, 8);
    ops_fill(&r.dp, 2, 1);
    return r;
}

static enum status forward(struct ops *o, struct run *r, float factor) {
    return o->table->softmax_fwd(o->b, LANE_COMPUTE, &r->p, &r->s, factor, &o->e);
}
static enum status backward(struct ops *o, struct run *r, float factor) {
    return o->table->softmax_bwd(o->b, LANE_COMPUTE, &r->ds, &r->p, &r->dp, factor, &o->e);
}

static void test_forward_and_gradient(void **state) {
    static const struct {
        int64_t n, length;
        enum dtype dtype;
        double factor, nmse, bound;
    } CASE[] = {
        { 1, 1, DTYPE_F32, 1, 1e-12, 1e-6 },
        { 2, 37, DTYPE_F32, 0.125, 1e-12, 1e-6 },
        { 1, 20, DTYPE_F32, 30, 1e-11, 3e-5 }, /* one key has nearly all of the probability */
        { 3, 40, DTYPE_BF16, 0.25, 4e-6, 4e-3 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        struct ops *o = ops_open(2);
        struct run r = make(o, CASE[i].dtype, CASE[i].n, CASE[i].length);
        OPS_OK(o, forward(o, &r, (float)CASE[i].factor));
        OPS_OK(o, backward(o, &r, (float)CASE[i].factor));
        struct reference ref = { CASE[i].n, CASE[i].length, CASE[i].factor, ops_doubles(o, &r.s),
                                 ops_doubles(o, &r.p), ops_doubles(o, &r.dp) };
        reference_forward(&ref);
        OPS_BELOW(ops_nmse(&r.p, ref.p), CASE[i].nmse, "p");
        for (uint64_t seed = 20; seed < 24; seed++) {
            double want = ops_difference(reference_forward, &ref, ref.s, tensor_count(&r.s), seed,
                                         1e-4);
            OPS_BELOW(fabs(ops_along(&r.ds, seed) - want),
                      CASE[i].bound * sqrt((double)tensor_count(&r.s)), "ds");
        }
        ops_close(o);
    }
}

/* In place, and with any number of threads, the bits are the same. */
static void test_bits(void **state) {
    uint64_t first = 0;
    for (int threads = 1; threads <= 3; threads++) {
        struct ops *o = ops_open(threads);
        struct run r = make(o, DTYPE_BF16, 3, 50);
        OPS_OK(o, forward(o, &r, 0.5f));
        OPS_OK(o, backward(o, &r, 0.5f));
        uint64_t hash = ops_hash(&r.p) ^ ops_hash(&r.ds) * 3;
        if (threads == 1) first = hash;
        assert_true(hash == first);
        OPS_OK(o, o->table->softmax_fwd(o->b, LANE_COMPUTE, &r.s, &r.s, 0.5f, &o->e));
        assert_true(ops_hash(&r.s) == ops_hash(&r.p));
        OPS_OK(o, o->table->softmax_bwd(o->b, LANE_COMPUTE, &r.dp, &r.p, &r.dp, 0.5f, &o->e));
        assert_true(ops_hash(&r.dp) == ops_hash(&r.ds));
        ops_close(o);
    }
}

/* A NaN reaches the queries that see its key, and no other; later keys keep +0. */
static void test_nan(void **state) {
    struct ops *o = ops_open(1);
    struct run r = make(o, DTYPE_F32, 1, 6);
    ops_set(&r.s, 3 * 6 + 2, NAN); /* query 3, key 2 */
    ops_set(&r.s, 1 * 6 + 4, NAN); /* query 1 does not see key 4 */
    OPS_OK(o, forward(o, &r, 1));
    for (int64_t i = 0; i < 6; i++)
        for (int64_t j = 0; j < 6; j++) {
            double p = ops_get(&r.p, i * 6 + j);
            if (j > i) assert_true(p == 0);
            else assert_int_equal(isnan(p) != 0, i == 3);
        }
    ops_close(o);
}

static void test_rejects(void **state) {
    struct ops *o = ops_open(1);
    struct run good = make(o, DTYPE_F32, 2, 6), r;
    struct tensor oblong = ops_tensor(o, DTYPE_F32, 2, 6, 5, 1);
    struct tensor other = ops_tensor(o, DTYPE_BF16, 2, 6, 6, 1);
    struct tensor fewer = ops_tensor(o, DTYPE_F32, 1, 6, 6, 1);
    r = good; r.s = oblong;
    OPS_ERR(o, forward(o, &r, 1), ERR_ARG, "softmax_fwd: s is [2, 6, 5, 1], not [N, T, T]");
    r = good; r.p = other; OPS_ERR(o, forward(o, &r, 1), ERR_ARG, "softmax_fwd: p is bf16");
    r = good; r.dp = fewer; OPS_ERR(o, backward(o, &r, 1), ERR_ARG, "softmax_bwd: dp is f32 [1");
    r = good; r.ds = other; OPS_ERR(o, backward(o, &r, 1), ERR_ARG, "softmax_bwd: ds is bf16");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_and_gradient),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_nan),
        cmocka_unit_test(test_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
