/* Cross-entropy: loss and gradient against double loops, masks, padded vocabulary. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/support/ops_support.h"

struct run { struct tensor loss, d_logits, logits, targets, scale; };

static struct run make(struct ops *o, int64_t rows, int64_t width, int64_t vocab, enum dtype t,
                       double x_max) {
    struct run r = { ops_tensor(o, DTYPE_F32, rows, 1, 1, 1), ops_tensor(o, t, rows, width, 1, 1),
                     ops_tensor(o, t, rows, width, 1, 1), ops_tensor(o, DTYPE_I32, rows, 1, 1, 1),
                     ops_f32(o, 0.125f) };
    ops_fill(&r.logits, 1, x_max);
    for (int64_t i = 0; i < rows * width; i++) /* values in the padding must not matter */
        if (i % width >= vocab) ops_set(&r.logits, i, i % 2 ? NAN : 1e30);
    for (int64_t i = 0; i < rows; i++)
        ops_set(&r.targets, i, rng_below(rng_bits(2, (uint64_t)i), (uint32_t)vocab));
    return r;
}

static enum status run(struct ops *o, struct run *r, int64_t vocab) {
    struct sink d = sink_value(&r->d_logits, NULL);
    return o->table->cross_entropy(o->b, LANE_COMPUTE, &(struct cross_entropy_args){
            .loss = &r->loss, .d_logits = &d, .logits = &r->logits, .targets = &r->targets,
            .vocab = vocab, .grad_scale = &r->scale }, &o->e);
}

static const struct {
    int64_t rows, width, vocab;
    enum dtype dtype;
    double x_max, nmse_max;
} CASE[] = {
    { 1, 1, 1, DTYPE_F32, 1, 1e-12 },      /* one word: loss 0, gradient 0 */
    { 3, 17, 17, DTYPE_F32, 2, 1e-12 },
    { 5, 272, 257, DTYPE_F32, 30, 1e-11 }, /* padded; a peaked softmax */
    { 2, 5008, 5000, DTYPE_BF16, 10, 5e-6 }, /* one rounding to bf16 */
};

static void test_loss_and_gradient(void **state) {
    for (size_t i = 0; i < sizeof CASE / sizeof CASE[0]; i++) {
        struct ops *o = ops_open(2);
        int64_t width = CASE[i].width, vocab = CASE[i].vocab;
        struct run r = make(o, CASE[i].rows, width, vocab, CASE[i].dtype, CASE[i].x_max);
        OPS_OK(o, run(o, &r, width)); /* its NaN stay in the scratch memory, and must not matter */
        OPS_OK(o, run(o, &r, vocab));
        double *want = ops_memory(o, CASE[i].rows * width * 8);
        for (int64_t row = 0; row < CASE[i].rows; row++) {
            int64_t at = row * width, target = (int64_t)ops_get(&r.targets, row);
            double total = 0;
            for (int64_t c = 0; c < vocab; c++) total += exp(ops_get(&r.logits, at + c));
            double loss = log(total) - ops_get(&r.logits, at + target);
            OPS_BELOW(fabs(ops_get(&r.loss, row) - loss), 2e-6 * fmax(1, loss), "loss");
            for (int64_t c = 0; c < vocab; c++)
                want[at + c] = 0.125 * (exp(ops_get(&r.logits, at + c)) / total - (c == target));
            for (int64_t c = vocab; c < width; c++) {
                assert_true(ops_get(&r.d_logits, at + c) == 0.0);
                assert_false(signbit(ops_get(&r.d_logits, at + c)));
            }
        }
        OPS_BELOW(ops_nmse(&r.d_logits, want), CASE[i].nmse_max, "d_logits");
        ops_close(o);
    }
}

/* A masked row has loss and gradient 0 for any logits. Evaluation (no gradient) has the same
 * losses. The gradient may overwrite the logits. */
static void test_masks_and_aliases(void **state) {
    struct ops *o = ops_open(2);
    struct run r = make(o, 4, 24, 20, DTYPE_BF16, 3);
    ops_set(&r.targets, 1, -1);
    ops_set(&r.logits, 24 + 3, NAN);
    OPS_OK(o, run(o, &r, 20));
    assert_true(ops_get(&r.loss, 1) == 0 && ops_get(&r.loss, 0) > 0);
    for (int64_t c = 0; c < 24; c++) assert_true(ops_get(&r.d_logits, 24 + c) == 0);
    struct tensor loss = ops_tensor(o, DTYPE_F32, 4, 1, 1, 1);
    OPS_OK(o, o->table->cross_entropy(o->b, 0, &(struct cross_entropy_args){
            .loss = &loss, .logits = &r.logits, .targets = &r.targets, .vocab = 20 }, &o->e));
    assert_int_equal(ops_hash(&loss), ops_hash(&r.loss));
    struct sink in_place = sink_value(&r.logits, NULL);
    OPS_OK(o, o->table->cross_entropy(o->b, 0, &(struct cross_entropy_args){
            .loss = &loss, .d_logits = &in_place, .logits = &r.logits, .targets = &r.targets,
            .vocab = 20, .grad_scale = &r.scale }, &o->e));
    assert_int_equal(ops_hash(&r.logits), ops_hash(&r.d_logits));
    ops_close(o);
}

/* Right: nothing in the vocabulary is larger. A larger value in the padding does not count, a tie
 * is right, and a row without a target is not. */
static void test_right(void **state) {
    struct ops *o = ops_open(2);
    struct run r = make(o, 6, 40, 33, DTYPE_BF16, 3);
    struct tensor right = ops_tensor(o, DTYPE_F32, 6, 1, 1, 1);
    for (int64_t row = 0; row < 6; row++) {
        ops_set(&r.targets, row, 5);
        ops_set(&r.logits, row * 40 + 5, row == 1 ? -4 : 4);
    }
    ops_set(&r.logits, 2 * 40 + 32, 4);
    ops_set(&r.targets, 3, -1);
    ops_set(&r.logits, 4 * 40 + 5, NAN);
    ops_set(&r.logits, 5 * 40 + 6, NAN);
    OPS_OK(o, o->table->cross_entropy(o->b, 0, &(struct cross_entropy_args){
            .loss = &r.loss, .right = &right, .logits = &r.logits, .targets = &r.targets,
            .vocab = 33 }, &o->e));
    static const float WANTED[] = { 1, 0, 1, 0, 0, 1 };
    for (int64_t row = 0; row < 6; row++)
        if (ops_get(&right, row) != (double)WANTED[row]) fail_msg("row %d", (int)row);
    right.dim[0] = 5;
    OPS_ERR(o, o->table->cross_entropy(o->b, 0, &(struct cross_entropy_args){
            .loss = &r.loss, .right = &right, .logits = &r.logits, .targets = &r.targets,
            .vocab = 33 }, &o->e), ERR_ARG, "cross_entropy: right");
    ops_close(o);
}

static void test_nan_and_infinity_kept(void **state) {
    static const float BAD[] = { NAN, INFINITY };
    for (int i = 0; i < 2; i++) {
        struct ops *o = ops_open(2);
        struct run r = make(o, 2, 20, 20, DTYPE_F32, 1);
        ops_set(&r.targets, 0, 3);
        ops_set(&r.logits, 7, BAD[i]);
        OPS_OK(o, run(o, &r, 20));
        assert_int_equal(f32_bits(((float *)r.loss.data)[0]), 0x7FC00000);
        assert_true(isnan(ops_get(&r.d_logits, 7)) && !isnan(ops_get(&r.loss, 1)));
        ops_close(o);
    }
    struct ops *o = ops_open(1); /* -infinity is a probability of 0: masks use it */
    struct run r = make(o, 1, 20, 20, DTYPE_F32, 1);
    ops_set(&r.targets, 0, 3);
    ops_set(&r.logits, 7, -INFINITY);
    OPS_OK(o, run(o, &r, 20));
    assert_true(isfinite(ops_get(&r.loss, 0)) && ops_get(&r.d_logits, 7) == 0);
    ops_close(o);
}

static void test_bits(void **state) {
    for (int threads = 1; threads <= 3; threads++) {
        struct ops *o = ops_open(threads);
        struct run r = make(o, 7, 1003, 1000, DTYPE_BF16, 6);
        OPS_OK(o, run(o, &r, 1000));
        uint64_t hash = ops_hash(&r.loss) ^ ops_hash(&r.d_logits) * 3;
        if (hash != 0x735E7E986CAF252Eu)
            fail_msg("%d threads: hash 0x%016llX", threads, (unsigned long long)hash);
        ops_close(o);
    }
}

static void test_arguments(void **state) {
    struct ops *o = ops_open(1);
    const struct run good = make(o, 4, 24, 20, DTYPE_F32, 1);
    struct tensor wrong = ops_tensor(o, DTYPE_F32, 4, 23, 1, 1);
    struct run r = good;
    r.loss = wrong; OPS_ERR(o, run(o, &r, 20), ERR_ARG, "loss is [4, 23]");
    r = good; r.targets = good.loss; OPS_ERR(o, run(o, &r, 20), ERR_ARG, "targets is f32");
    r = good; r.scale = wrong; OPS_ERR(o, run(o, &r, 20), ERR_ARG, "grad_scale");
    r = good; r.d_logits = wrong; OPS_ERR(o, run(o, &r, 20), ERR_ARG, "d_logits");
    r = good; r.logits = good.targets; OPS_ERR(o, run(o, &r, 20), ERR_ARG, "logits is i32");
    r = good;
    OPS_ERR(o, run(o, &r, 25), ERR_ARG, "vocabulary 25 of 24 columns");
    OPS_ERR(o, run(o, &r, 0), ERR_ARG, "vocabulary 0");
    ops_set(&r.targets, 2, 20);
    OPS_ERR(o, run(o, &r, 20), ERR_ARG, "target 20 at row 2 is not below 20");
    ops_close(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_and_gradient), cmocka_unit_test(test_masks_and_aliases),
        cmocka_unit_test(test_right), cmocka_unit_test(test_nan_and_infinity_kept),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
