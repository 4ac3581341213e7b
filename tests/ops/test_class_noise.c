/* The noise by which algorithms of a GEMM are sorted into classes: orders along K that differ must
 * show in its outputs, else an algorithm passes for one that it is not. As many outputs a case as
 * gemm_class.cu samples; one that differs would do, and two must. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/arithmetic.h"
#include "kernels/cuda/class_noise.h"
#include "tests/support/op_tensor.h"

enum { OUTPUTS = 32, MUST_DIFFER = 2 };

struct noise_case {
    enum dtype a, b;
    int64_t k;
    bool fast;
};
static const struct noise_case CASES[] = {
    { DTYPE_E5M2, DTYPE_E4M3, 40000, false }, { DTYPE_E4M3, DTYPE_E4M3, 40000, false },
    { DTYPE_E4M3, DTYPE_E4M3, 4096, false },  { DTYPE_E4M3, DTYPE_E4M3, 1000, false },
    { DTYPE_E4M3, DTYPE_E4M3, 40000, true },  { DTYPE_E5M2, DTYPE_E4M3, 4096, true },
    { DTYPE_BF16, DTYPE_BF16, 40000, false }, { DTYPE_BF16, DTYPE_BF16, 1000, false },
};

static const char *title(const struct noise_case *c) {
    static char text[80];
    snprintf(text, sizeof text, "%s x %s, K %lld, %s", dtype_name(c->a), dtype_name(c->b),
             (long long)c->k, c->fast ? "fast" : "not fast");
    return text;
}

static struct tensor *operand(enum dtype t, const struct noise_case *c, bool turned) {
    struct tensor *x = op_tensor(t, OUTPUTS, c->k, t == DTYPE_BF16 ? SCALE_NONE : SCALE_TENSOR);
    struct cancel_noise n = cancel_noise(t, c->k, c->fast);
    for (int64_t row = 0; row < OUTPUTS; row++)
        for (int64_t i = 0; i < c->k; i++) {
            uint32_t bits = cancel_noise_at(n, turned, row, i);
            if (t == DTYPE_BF16) ((uint16_t *)x->data)[row * x->stride[0] + i] = (uint16_t)bits;
            else ((uint8_t *)x->data)[row * x->stride[0] + i] = (uint8_t)bits;
        }
    if (t != DTYPE_BF16) *(float *)x->scale.data = 1.0f;
    return x;
}

/* Of 2^18 products, at least 8. */
static int64_t sampled(int64_t k) {
    int64_t count = ((int64_t)1 << 18) / k;
    if (count > OUTPUTS) return OUTPUTS;
    return count > 8 ? count : 8;
}

/* Outputs that are not the same in both ways. */
static int differing(const struct mma_way *one, const struct mma_way *other,
                     const struct matmul_args *args) {
    int count = 0;
    for (int64_t i = 0; i < sampled(args->a->dim[1]); i++)
        count += f32_bits(arithmetic_output(one, args, i, i)) !=
                 f32_bits(arithmetic_output(other, args, i, i));
    return count;
}

/* Split-K in every number of parts. */
static void check_parts(const struct noise_case *c, const struct mma_way *way,
                        const struct matmul_args *args) {
    int64_t step = c->a == DTYPE_BF16 ? 64 : 128;
    for (int64_t parts = 2; parts <= 32 && c->k / parts >= 2 * step; parts++) {
        struct mma_way split = *way;
        split.order.part = round_up(ceil_div(c->k, parts), step);
        int found = differing(way, &split, args);
        if (found < MUST_DIFFER)
            fail_msg("%s: in %lld parts %d of %lld outputs differ", title(c), (long long)parts,
                     found, (long long)sampled(c->k));
    }
}

static void orders_are_told_apart(void **state) {
    for (size_t n = 0; n < sizeof CASES / sizeof *CASES; n++) {
        const struct noise_case *c = &CASES[n];
        const struct arithmetic *hopper;
        struct mma_way way;
        struct err e;
        struct tensor *a = operand(c->a, c, false), *b = operand(c->b, c, true);
        struct tensor *out = op_tensor(DTYPE_F32, OUTPUTS, OUTPUTS, SCALE_NONE);
        const struct matmul_args args = { .out = out, .a = a, .b = b, .fast_accumulate = c->fast };
        assert_int_equal(arithmetic_find("hopper", &hopper, &e), OK);
        assert_int_equal(arithmetic_way_as(hopper, &args, true, &way, &e), OK);
        way.order.part = 0;
        check_parts(c, &way, &args);
        struct mma_way other = way;
        other.mma.group = way.mma.group / 2;
        if (differing(&way, &other, &args) < MUST_DIFFER)
            fail_msg("%s: groups of %d do not show", title(c), other.mma.group);
        other = way;
        other.order.chain = way.order.chain ? 0 : 128;
        if (differing(&way, &other, &args) < MUST_DIFFER)
            fail_msg("%s: chains of %lld do not show", title(c), (long long)other.order.chain);
        op_free();
    }
}

/* What makes every order show: an exact sum of 0, of finite numbers. */
static void exact_sums_are_zero(void **state) {
    for (size_t n = 0; n < sizeof CASES / sizeof *CASES; n++) {
        const struct noise_case *c = &CASES[n];
        struct tensor *a = operand(c->a, c, false), *b = operand(c->b, c, true);
        int64_t half = cancel_noise(c->a, c->k, c->fast).half;
        for (int64_t row = 0; row < OUTPUTS; row++)
            for (int64_t i = 0; i < c->k; i++) {
                double x = (double)op_stored(a, row, i) * (double)op_stored(b, row, i);
                int64_t j = i + half;
                double turned = i < half ? op_stored(a, row, j) * (double)op_stored(b, row, j) : 0;
                if (i < half && !(x == -turned))
                    fail_msg("%s: products %lld of row %lld are %g and %g", title(c), (long long)i,
                             (long long)row, x, turned);
                if (i >= 2 * half && x != 0) fail_msg("%s: the rest is not 0", title(c));
            }
        op_free();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(orders_are_told_apart),
                                        cmocka_unit_test(exact_sums_are_zero) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
