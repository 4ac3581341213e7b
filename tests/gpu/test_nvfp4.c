/* NVFP4's codes, to the bit those of the reference: every form of a sink, with rotation and
 * stochastic rounding, of whole strips and others; and their errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "tests/gpu/pair.h"

static struct pair *p;
static int setup(void **state) { p = pair_open(); return 0; }
static int teardown(void **state) { pair_close(p); return 0; }

static const struct nvfp4_case {
    int64_t rows, cols;
    enum scale_kind kind;
    bool codes, twin, rotate, stochastic, special; /* special: zeros, NaN, infinity, tiny values */
    int32_t sequence;
    bool wide; /* blocks of very different sizes: some have a subnormal scale, or none */
} CASES[] = {
    { 16, 128, SCALE_1X16, true, true, false, false, false, 0, false },
    { 512, 1024, SCALE_1X16, true, true, false, false, false, 0, false },
    { 512, 1024, SCALE_1X16, true, true, true, false, false, 0, false },
    { 512, 1024, SCALE_1X16, true, true, true, true, false, 3, false },
    { 150, 300, SCALE_1X16, true, true, true, true, false, 1, false },
    { 150, 300, SCALE_1X16, true, true, true, true, true, 1, false },
    { 150, 300, SCALE_1X16, false, true, true, true, false, 5, false },
    { 150, 300, SCALE_1X16, true, false, false, false, true, 0, false },
    { 7, 5, SCALE_1X16, true, true, true, true, false, 2, false },
    { 1, 1, SCALE_1X16, true, true, false, false, false, 0, false },
    { 512, 256, SCALE_16X16, true, true, false, false, false, 0, false },
    { 150, 300, SCALE_16X16, true, true, false, false, true, 0, false },
    { 150, 300, SCALE_16X16, false, true, false, false, false, 0, false },
    { 256, 384, SCALE_1X16, true, true, false, false, false, 0, true },
    { 256, 384, SCALE_1X16, true, true, true, true, false, 4, true },
    { 256, 384, SCALE_1X16, false, true, true, false, false, 0, true },
    { 256, 384, SCALE_1X16, true, false, false, true, true, 8, false },
    { 150, 300, SCALE_1X16, true, true, true, true, false, 4, true },
    { 256, 384, SCALE_16X16, true, true, false, false, false, 0, true },
    { 150, 300, SCALE_16X16, true, true, false, false, false, 0, true },
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES, SEQUENCE_ROWS = 13 };

static void fill(struct twin *x, const struct nvfp4_case *c) {
    pair_fill(p, x, 7, 6, 1.0f);
    uint16_t *host = x->side[CPU].data;
    for (int64_t i = 0; c->wide && i < c->rows * c->cols; i++) {
        int64_t down = i / c->cols / 16, across = i % c->cols / 16;
        int size = (int)((down * 7 + across * 5) % 60);
        host[i] = bf16_encode(ldexpf(bf16_decode(host[i]), -size));
    }
    if (c->wide) pair_set(p, x, host, c->rows * c->cols * 2);
    if (!c->special) return;
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->cols; j++) {
            if (j / 16 == 1 || i == 40) host[i * c->cols + j] = 0;
            if (i / 16 == 3) host[i * c->cols + j] = bf16_encode(ldexpf(1.0f, -(int)(j % 100)));
        }
    host[2 * c->cols + 3] = bf16_encode(NAN);
    host[50 * c->cols + 10] = bf16_encode(-INFINITY);
    host[60 * c->cols + 11] = bf16_encode(-0.0f);
    pair_set(p, x, host, c->rows * c->cols * 2);
}

/* The sink of a case; the draws are the caller's. */
static void sink_of(struct twin_sink *out, struct round_draws draws[SIDES], struct twin scalar[2],
                    const struct nvfp4_case *c) {
    pair_sink(p, out, c->rows, c->cols, DTYPE_E2M1, c->kind, SCALE_SOURCE_AMAX,
              (struct quant_rule){ .constants = QUANT_NVFP4 }, c->twin);
    scalar[0] = pair_i32(p, 17);
    scalar[1] = pair_i32(p, c->sequence);
    for (int s = 0; s < SIDES; s++) {
        draws[s] = (struct round_draws){ .step = &scalar[0].side[s], .sequence = &scalar[1].side[s],
                                         .sequence_rows = SEQUENCE_ROWS, .row = 3, .seed = 99,
                                         .tensor = 4 };
        if (!c->codes) out->side[s].codes->data = NULL;
        out->side[s].rotate = c->rotate;
        out->side[s].draws = c->stochastic ? &draws[s] : NULL;
    }
}

static void test_quantise(void **state) {
    for (size_t i = 0; i < CASE_COUNT; i++) {
        struct twin_sink out;
        struct round_draws draws[SIDES];
        struct twin scalar[2], x = pair_tensor(p, DTYPE_BF16, CASES[i].rows, CASES[i].cols, 1, 1);
        fill(&x, &CASES[i]);
        sink_of(&out, draws, scalar, &CASES[i]);
        for (int s = 0; s < SIDES; s++) out.side[s].own_amax = i % 2;
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, S(out), S(x), e));
        ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(out), e));
        char what[64];
        snprintf(what, sizeof what, "nvfp4 row %zu", i);
        pair_same_sink(p, what, &out);
        pair_clear(p);
    }
}

static void test_quant_error(void **state) {
    for (size_t i = 0; i < CASE_COUNT; i++) {
        if (!CASES[i].codes || CASES[i].special) continue;
        struct twin_sink out;
        struct round_draws draws[SIDES];
        struct twin scalar[2], x = pair_tensor(p, DTYPE_BF16, CASES[i].rows, CASES[i].cols, 1, 1);
        struct twin sums = pair_tensor(p, DTYPE_F32, 2, 1, 1, 1);
        fill(&x, &CASES[i]);
        sink_of(&out, draws, scalar, &CASES[i]);
        ON_BOTH(p, ops->quantise(b, LANE_COMPUTE, S(out), S(x), e));
        ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(out), e));
        ON_BOTH(p, ops->quant_error(b, LANE_COMPUTE, S(sums), S(x), out.side[s].codes, e));
        char what[64];
        snprintf(what, sizeof what, "quant_error of nvfp4 row %zu", i);
        pair_same(p, what, &sums);
        pair_clear(p);
    }
}

/* Sinks that the reference refuses, with the same words. */
static void test_refuses(void **state) {
    static const char *const TEXT[] = { "must be used together", "for 1x16 scales", "step is" };
    for (int k = 0; k < 3; k++) {
        static const struct nvfp4_case GOOD = { 32, 48, SCALE_1X16, true, true, true, true, false,
                                                0, false };
        struct nvfp4_case c = GOOD;
        struct twin_sink out;
        struct round_draws draws[SIDES];
        struct twin scalar[2], x = pair_tensor(p, DTYPE_BF16, 32, 48, 1, 1);
        if (k == 1) c.kind = SCALE_16X16;
        sink_of(&out, draws, scalar, &c);
        for (int s = 0; s < SIDES; s++) {
            if (k == 0) out.side[s].rule.constants = QUANT_TE;
            if (k == 2) draws[s].step = &x.side[s];
            p->e.text[0] = 0;
            if (p->ops[s]->quantise(p->b[s], LANE_COMPUTE, S(out), S(x), &p->e) != ERR_ARG ||
                !strstr(p->e.text, TEXT[k]))
                fail_msg("side %d, row %d: %s", s, k, p->e.text);
        }
        pair_clear(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantise),
        cmocka_unit_test(test_quant_error),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
