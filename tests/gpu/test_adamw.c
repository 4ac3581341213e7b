/* AdamW against the reference, to the bit: it has the same draws and expressions. Codes must equal
 * those of quantising the new weights, whether made in the same pass or after it. */
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

static struct twin filled(enum dtype t, int64_t n, uint64_t seed, float scale) {
    struct twin x = pair_tensor(p, t, n, 1, 1, 1);
    pair_fill(p, &x, seed, 2, scale);
    return x;
}

static struct twin state_tensor(enum dtype t, int64_t n) {
    struct twin x = pair_tensor(p, t, n, 1, 1, 1);
    if (t != DTYPE_E4M3) return x;
    struct twin codes = pair_codes(p, t, 1, n, SCALE_1X128);
    for (int s = 0; s < SIDES; s++) x.side[s].scale = codes.side[s].scale;
    return x;
}

/* State and gradients over 200 binary orders of magnitude. Among them are zeros of both signs,
 * values that are not finite, and negative second moments. The fast path for root and quotient
 * cannot handle these. */
static void fill_wide(struct twin *x, uint64_t seed, bool square) {
    static const float SPECIAL[] = {
        0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, 3e38f, -1e-40f,
    };
    const struct tensor *t = &x->side[CPU];
    int64_t n = tensor_count(t);
    uint16_t *half = malloc((size_t)n * 4);
    float *wide = (float *)half;
    assert_non_null(half);
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = rng_bits(seed, (uint64_t)i);
        float v = ldexpf(1.0f + rng_uniform(bits), (int)(bits % 201) - 150);
        if (!square && bits & 256) v = -v;
        if (bits >> 9 & 1) v = ldexpf(v, 50); /* half of them nearer to 1 */
        if (bits % 97 == 0) v = SPECIAL[bits / 97 % 8];
        if (t->dtype == F) wide[i] = v;
        else half[i] = bf16_encode(v);
    }
    pair_set(p, x, half, n * dtype_bytes(t->dtype));
    free(half);
}

/* The scalars that all updates of a call share. */
struct common { struct twin lr, clip, bias1, bias2, step, flag; };

static struct common common(void) {
    struct common c = { pair_f32(p, 1e-3f), pair_f32(p, 0.7f), pair_f32(p, 1.9f), pair_f32(p, 2.3f),
                        pair_i32(p, 0), pair_tensor(p, DTYPE_I32, 2, 1, 1, 1) };
    return c;
}
/* Sets the scalars of step t. flagged: a value that is not finite was found before. */
static void begin_step(struct common *c, int32_t t, bool flagged) {
    int32_t flag[2] = { flagged ? 3 : -1, -1 };
    pair_set(p, &c->step, &t, sizeof t);
    pair_set(p, &c->flag, flag, sizeof flag);
}

/* A parameter with all tensors of its update. */
struct update {
    struct twin_sink w;
    struct twin master, grad, m, v;
    bool has_master;
};

static struct adamw_args args_of(struct update *u, struct common *c, int s) {
    return (struct adamw_args){
        .weight = S(u->w), .master = u->has_master ? S(u->master) : NULL, .m = S(u->m),
        .v = S(u->v), .grad = S(u->grad), .lr = S(c->lr), .clip = S(c->clip), .bias1 = S(c->bias1),
        .bias2 = S(c->bias2), .step = S(c->step), .flag = S(c->flag), .beta1 = 0.9f,
        .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .seed = 5, .tensor_id = 3,
        .element_base = 17,
    };
}

static void same_update(const char *what, const struct update *u) {
    pair_same(p, what, &u->w.value);
    if (u->has_master) pair_same(p, what, &u->master);
    pair_same(p, what, &u->m);
    pair_same(p, what, &u->v);
    pair_same_sink(p, what, &u->w);
}

static const struct into {
    const char *what;
    enum dtype code;
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
} INTO[] = {
    { "adamw", DTYPE_E4M3, SCALE_NONE, SCALE_SOURCE_NONE, { QUANT_TE, 0, false } },
    { "adamw into known", DTYPE_E4M3, SCALE_TENSOR, SCALE_SOURCE_KNOWN, { QUANT_TE, 0, false } },
    { "adamw into e5m2", DTYPE_E5M2, SCALE_TENSOR, SCALE_SOURCE_KNOWN, { QUANT_TE, 0, false } },
    { "adamw into amax", DTYPE_E4M3, SCALE_TENSOR, SCALE_SOURCE_AMAX, { QUANT_TE, 0, false } },
    { "adamw into 128x128, TE", DTYPE_E4M3, SCALE_128X128, SCALE_SOURCE_BLOCK,
      { QUANT_TE_BLOCK, 0, true } },
    { "adamw into 128x128, DeepSeek", DTYPE_E4M3, SCALE_128X128, SCALE_SOURCE_BLOCK,
      { QUANT_DEEPSEEK, 1e-4f, false } },
    { "adamw into 1x128", DTYPE_E4M3, SCALE_1X128, SCALE_SOURCE_BLOCK,
      { QUANT_TE_BLOCK, 0, true } },
    { "adamw into 32x32", DTYPE_E4M3, SCALE_32X32, SCALE_SOURCE_BLOCK, { QUANT_MX, 0, false } },
};
enum { INTOS = sizeof INTO / sizeof *INTO };

/* Which codes a weight gets: both sides, or one. */
enum wanted { BOTH_SIDES, ROWS, TRANSPOSED, WANTED };

static void sink_into(struct twin_sink *w, const struct into *into, int64_t rows, int64_t cols,
                      enum wanted wanted) {
    pair_sink(p, w, rows, cols, into->code, into->kind, into->source, into->rule, wanted != ROWS);
    if (into->source == SCALE_SOURCE_NONE || wanted != TRANSPOSED) return;
    for (int s = 0; s < SIDES; s++) w->side[s].codes->data = NULL;
}

/* Every combination of state, master and gradient, and every kind of codes, at sizes with tails and
 * at whole tiles. Whole tiles also get extreme values. Three steps, since the first has empty
 * state; then a flagged step, which must write nothing. */
static void test_adamw(void **state) {
    static const enum dtype STATE[] = { F, H, DTYPE_E4M3 };
    enum { STATES = 3 * 2 * 2, FILLS = 3 };
    for (int i = 0; i < STATES * INTOS * FILLS; i++) {
        int which = i / FILLS / INTOS, fill = i % FILLS;
        const struct into *into = &INTO[i / FILLS % INTOS];
        int64_t rows = fill ? 256 : 37, cols = fill ? 384 : 21, n = rows * cols;
        struct common c = common();
        struct update u = { .has_master = which & 1 };
        sink_into(&u.w, into, rows, cols, (enum wanted)((which + i / FILLS % INTOS) % WANTED));
        pair_fill(p, &u.w.value, 1, 2, 0.02f);
        u.master = filled(F, n, 1, 0.02f);
        u.grad = filled(which & 2 ? F : H, n, 2, 0.1f);
        u.m = state_tensor(STATE[which / 4], n);
        u.v = state_tensor(STATE[which / 4], n);
        if (fill == 2) {
            fill_wide(&u.w.value, 1, false);
            fill_wide(&u.master, 2, false);
            fill_wide(&u.grad, 3, false);
        }
        for (int32_t t = 1; t <= 4; t++) {
            begin_step(&c, t, t == 4);
            ON_BOTH(p, ops->adamw(b, LANE_COMPUTE, (struct adamw_args[]){ args_of(&u, &c, s) }, 1,
                                  e));
            if (t == 3) ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(u.w), e));
        }
        same_update(into->what, &u);
        pair_clear(p);
    }
}

/* A few large weights in one call: a block takes several tiles, also of different weights. */
static void test_adamw_many_tiles(void **state) {
    static const struct { int64_t rows, cols; int into; } WEIGHT[] = {
        { 2048, 8192, 1 }, { 1024, 1536, 4 }, { 128, 128, 1 }, /* 1121 tiles; 1056 blocks on H200 */
    };
    enum { WEIGHTS = sizeof WEIGHT / sizeof *WEIGHT };
    struct common c = common();
    struct update u[WEIGHTS];
    struct adamw_args args[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) {
        int64_t n = WEIGHT[i].rows * WEIGHT[i].cols;
        u[i].has_master = false;
        sink_into(&u[i].w, &INTO[WEIGHT[i].into], WEIGHT[i].rows, WEIGHT[i].cols, BOTH_SIDES);
        pair_fill(p, &u[i].w.value, 1, 2, 0.02f);
        u[i].grad = filled(H, n, 2, 0.1f);
        u[i].m = state_tensor(F, n);
        u[i].v = state_tensor(F, n);
    }
    begin_step(&c, 1, false);
    for (int s = 0; s < SIDES; s++) {
        for (int i = 0; i < WEIGHTS; i++) args[i] = args_of(&u[i], &c, s);
        assert_int_equal(p->ops[s]->adamw(p->b[s], LANE_COMPUTE, args, WEIGHTS, &p->e), OK);
    }
    for (int i = 0; i < WEIGHTS; i++) same_update("adamw of many tiles", &u[i]);
    pair_clear(p);
}

/* Values that the fast path cannot handle, in state too, and other values of eps. */
static void test_adamw_extremes(void **state) {
    static const float EPS[] = { 1e-8f, 1e-8f, 0.0f, 1e-15f };
    for (int i = 0; i < 16; i++) {
        int64_t n = 100003;
        enum dtype kept = i & 1 ? F : H, grads = i & 2 ? F : H;
        struct common c = common();
        struct update u = { .has_master = i & 4 };
        sink_into(&u.w, &INTO[0], n, 1, BOTH_SIDES);
        u.master = pair_tensor(p, F, n, 1, 1, 1);
        u.grad = pair_tensor(p, grads, n, 1, 1, 1);
        u.m = state_tensor(kept, n);
        u.v = state_tensor(kept, n);
        fill_wide(&u.w.value, 1, false);
        fill_wide(&u.master, 2, false);
        fill_wide(&u.grad, 3, false);
        fill_wide(&u.m, 4, false);
        fill_wide(&u.v, 5, true);
        begin_step(&c, 9, false);
        for (int s = 0; s < SIDES; s++) {
            struct adamw_args args = args_of(&u, &c, s);
            args.eps = EPS[i / 4];
            args.weight_decay = i & 8 ? 0.1f : 0.0f;
            args.element_base = 0;
            assert_int_equal(p->ops[s]->adamw(p->b[s], LANE_COMPUTE, &args, 1, &p->e), OK);
        }
        same_update("adamw of extremes", &u);
        pair_clear(p);
    }
}

/* Many tensors in one call, of all sizes and kinds of codes, more than one launch takes: the result
 * must equal that of separate calls. */
static void test_adamw_together(void **state) {
    enum { TENSORS = 72 };
    static const int WAY[8] = { 1, 4, 5, 3, 1, 4, 1, 7 };
    struct common c = common();
    struct update u[TENSORS];
    struct adamw_args args[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        bool tiles = i % 3 == 0;
        int64_t rows = tiles ? 128 * (1 + i % 4) : i == 40 ? 3000001 : i % 5 ? 1 + i * i : 128 * i;
        int64_t cols = tiles ? 256 : 1, n = rows * cols;
        u[i].has_master = false;
        sink_into(&u[i].w, &INTO[tiles ? WAY[i / 3 % 8] : 0], rows, cols, BOTH_SIDES);
        pair_fill(p, &u[i].w.value, 10 + (uint64_t)i, 2, 0.02f);
        u[i].grad = filled(i < 66 ? H : F, n, 100 + (uint64_t)i, 0.1f);
        u[i].m = filled(H, n, 200 + (uint64_t)i, 0.01f);
        u[i].v = pair_tensor(p, H, n, 1, 1, 1);
    }
    begin_step(&c, 9, false);
    for (int s = 0; s < SIDES; s++) {
        for (int i = 0; i < TENSORS; i++) {
            args[i] = args_of(&u[i], &c, s);
            args[i].weight_decay = i % 2 ? 0.1f : 0.0f;
            args[i].tensor_id = (uint32_t)(3 * i);
            args[i].element_base = i % 7;
        }
        assert_int_equal(p->ops[s]->adamw(p->b[s], LANE_COMPUTE, args, TENSORS, &p->e), OK);
    }
    for (int i = 0; i < TENSORS; i++) {
        ON_BOTH(p, ops->quantise_finish(b, LANE_COMPUTE, S(u[i].w), e));
        same_update("adamw of many", &u[i]);
    }
    pair_clear(p);
}

/* test_adamw [PATTERN]: runs the tests of that name. */
int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw), cmocka_unit_test(test_adamw_many_tiles),
        cmocka_unit_test(test_adamw_extremes), cmocka_unit_test(test_adamw_together),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
