/* Which kernel serves attention in FP8, as a function of device, library, shape and what a run asks
 * for; and the names of cuDNN's graphs in a choice table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/cuda/attention_rule.h"

#define FWD CUDNN_FP8_FORWARD
#define BWD CUDNN_FP8_BACKWARD

/* ---- may cuDNN be asked ---- */

static void test_shapes(void **state) {
    static const struct {
        int cc;
        enum cudnn_pass pass;
        int64_t batch, length, head_dim;
        bool masked, may;
    } CASE[] = {
        { 90, FWD, 1, 256, 128, false, true },   { 90, BWD, 1, 256, 128, false, true },
        { 90, FWD, 1, 256, 64, false, true },    { 90, BWD, 1, 256, 64, false, false },
        { 100, FWD, 1, 256, 64, false, true },   { 100, BWD, 1, 256, 64, false, true },
        { 100, BWD, 4, 8192, 128, false, true }, { 100, BWD, 1, 8192, 128, true, false },
        { 100, FWD, 1, 8192, 128, true, false }, { 90, FWD, 1, 8192, 128, true, false },
        { 100, FWD, 1, 128, 128, false, false }, { 100, FWD, 1, 8191, 128, false, false },
        { 100, BWD, 1, 320, 128, false, false }, { 100, FWD, 0, 256, 128, false, false },
        { 100, FWD, 1, 256, 32, false, false },  { 100, FWD, 1, 256, 256, false, false },
        { 80, FWD, 1, 256, 128, false, false },  { 89, FWD, 1, 256, 128, false, false },
        { 103, BWD, 1, 256, 128, false, false }, { 120, FWD, 1, 256, 128, false, false },
        { 121, BWD, 1, 256, 128, false, false },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        const struct attention_size s = { CASE[i].batch, CASE[i].length, 8, 2, CASE[i].head_dim };
        if (cudnn_fp8_may_serve(CASE[i].cc, &s, CASE[i].pass, CASE[i].masked) !=
            CASE[i].may)
            fail_msg("case %d: %s", (int)i, CASE[i].may ? "refused" : "allowed");
    }
}

static void test_versions(void **state) {
    static const struct { int cc; enum cudnn_pass pass; int64_t length, least; } CASE[] = {
        { 90, CUDNN_BF16_FORWARD, 256, 91100 },  { 90, CUDNN_BF16_FORWARD, 257, 91501 },
        { 100, CUDNN_BF16_FORWARD, 256, 91100 }, { 90, FWD, 256, 91100 },
        { 90, BWD, 256, 91100 },                 { 100, FWD, 256, 91300 },
        { 100, BWD, 256, 91900 },                { 100, BWD, 300, 91900 },
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++)
        assert_int_equal(cudnn_version_for(CASE[i].cc, CASE[i].pass, CASE[i].length),
                         CASE[i].least);
}

/* ---- the rule ---- */

static void test_rule(void **state) {
    static const struct {
        enum attention_backend asked;
        enum cudnn_pass pass;
        bool has_plan;
        enum attention_server by;
    } CASE[] = {
        { ATTENTION_AUTO, FWD, true, SERVED_BY_CUDNN },
        { ATTENTION_AUTO, BWD, true, SERVED_BY_CUDNN },
        { ATTENTION_AUTO, FWD, false, SERVED_BY_OWN },
        { ATTENTION_AUTO, BWD, false, SERVED_BY_OWN },
        { ATTENTION_OWN, FWD, true, SERVED_BY_OWN },
        { ATTENTION_OWN, BWD, true, SERVED_BY_OWN },
        { ATTENTION_OWN, FWD, false, SERVED_BY_OWN },
        { ATTENTION_OWN, BWD, false, SERVED_BY_OWN },
        { ATTENTION_CUDNN, FWD, true, SERVED_BY_CUDNN },
        { ATTENTION_CUDNN, BWD, true, SERVED_BY_CUDNN },
        { ATTENTION_CUDNN, FWD, false, SERVED_BY_NONE },
        { ATTENTION_CUDNN, BWD, false, SERVED_BY_OWN }, /* the forward alone is demanded */
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++)
        if (attention_fp8_rule(CASE[i].asked, CASE[i].pass, CASE[i].has_plan) != CASE[i].by)
            fail_msg("case %d", (int)i);
}

/* ---- in the choice table ---- */

static void test_keys(void **state) {
    struct cudnn_spec s = { 0 };
    for (int64_t key = 0; key < CUDNN_KEYS; key++) {
        assert_int_equal(cudnn_spec_of_key(key, &s), key != 1);
        if (key == 1) continue;
        assert_int_equal(cudnn_spec_key(&s), key);
        assert_int_equal(s.pass, key == 0 ? CUDNN_BF16_FORWARD : key == 2 ? FWD : BWD);
        assert_false(s.codes_out || s.any_order); /* a table cannot ask for these */
    }
    assert_true(cudnn_spec_of_key(4, &s) && s.gradient_e5m2 && !s.o_codes);
    assert_true(cudnn_spec_of_key(5, &s) && !s.gradient_e5m2 && s.o_codes);
    assert_false(cudnn_spec_of_key(-1, &s));
    assert_false(cudnn_spec_of_key(CUDNN_KEYS, &s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
