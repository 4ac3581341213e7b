/* The operands of each GEMM of a recipe, against the table of kernels/RECIPES.md: format,
 * granularity and rule. In the resolved recipe, and in the calls of matmul. */
#include "model/trainer.h"
#include "tests/support/must.h"
#include "tests/support/tiny.h"

/* Scale kinds of one GEMM's operands, in the order of its arguments. */
struct pair { enum scale_kind a, b; };

struct operand_case {
    const char *name;
    struct recipe_options o; /* kind, constants, format, pow2 and switches; the rest from tiny.c */
    struct pair fprop, dgrad, wgrad; /* x W, dY W^T, dY^T x^T */
    enum scale_source weight;
    struct quant_rule rule; /* of every operand; DeepSeek's bound does not apply to gradients */
};

#define NONE SCALE_NONE
#define TENSOR SCALE_TENSOR
#define ROW SCALE_ROW
#define B1 SCALE_1X128
#define B2 SCALE_128X128
#define X1 SCALE_1X32
#define X2 SCALE_32X32
#define F1 SCALE_1X16
#define F2 SCALE_16X16
#define KNOWN SCALE_SOURCE_KNOWN
#define AMAX SCALE_SOURCE_AMAX
#define BLOCK SCALE_SOURCE_BLOCK

static const struct operand_case CASES[] = {
    { "delayed", { .kind = RECIPE_DELAYED, .constants = QUANT_TE, .format = FORMAT_HYBRID },
      { TENSOR, TENSOR }, { TENSOR, TENSOR }, { TENSOR, TENSOR }, KNOWN, { QUANT_TE, 0, false } },
    { "delayed, e4m3, FP8 primary weights",
      { .kind = RECIPE_DELAYED, .constants = QUANT_TE, .format = FORMAT_E4M3,
        .param_gather = true },
      { TENSOR, TENSOR }, { TENSOR, TENSOR }, { TENSOR, TENSOR }, KNOWN, { QUANT_TE, 0, false } },
    { "tensorwise",
      { .kind = RECIPE_TENSORWISE, .constants = QUANT_TE, .format = FORMAT_HYBRID, .pow2 = true },
      { TENSOR, TENSOR }, { TENSOR, TENSOR }, { TENSOR, TENSOR }, AMAX, { QUANT_TE, 0, true } },
    { "tensorwise, torchao",
      { .kind = RECIPE_TENSORWISE, .constants = QUANT_TORCHAO, .format = FORMAT_HYBRID },
      { TENSOR, TENSOR }, { TENSOR, TENSOR }, { TENSOR, TENSOR }, AMAX,
      { QUANT_TORCHAO, 1e-12f, false } },
    { "rowwise",
      { .kind = RECIPE_ROWWISE, .constants = QUANT_TORCHAO, .format = FORMAT_E4M3, .pow2 = true },
      { ROW, ROW }, { ROW, ROW }, { ROW, ROW }, BLOCK, { QUANT_TORCHAO, 1e-12f, true } },
    { "rowwise_with_gw_hp",
      { .kind = RECIPE_ROWWISE, .constants = QUANT_TORCHAO, .format = FORMAT_E4M3, .pow2 = true,
        .wgrad_bf16 = true },
      { ROW, ROW }, { ROW, TENSOR }, { NONE, NONE }, BLOCK, { QUANT_TORCHAO, 1e-12f, true } },
    { "blockwise",
      { .kind = RECIPE_BLOCKWISE, .constants = QUANT_TE, .format = FORMAT_HYBRID, .pow2 = true },
      { B1, B2 }, { B1, B2 }, { B1, B1 }, BLOCK, { QUANT_TE_BLOCK, 0, true } },
    { "blockwise, deepseek",
      { .kind = RECIPE_BLOCKWISE, .constants = QUANT_DEEPSEEK, .format = FORMAT_E4M3 },
      { B1, B2 }, { B1, B2 }, { B1, B1 }, BLOCK, { QUANT_DEEPSEEK, 1e-4f, false } },
    { "mxfp8", { .kind = RECIPE_MXFP8, .constants = QUANT_TE, .format = FORMAT_E4M3 },
      { X1, X1 }, { X1, X1 }, { X1, X1 }, BLOCK, { QUANT_MX, 0, false } },
    { "mxfp8, 2-D weights",
      { .kind = RECIPE_MXFP8, .constants = QUANT_TE, .format = FORMAT_E4M3, .weight_2d = true },
      { X1, X2 }, { X1, X2 }, { X1, X1 }, BLOCK, { QUANT_MX, 0, false } },
    { "nvfp4", { .kind = RECIPE_NVFP4, .constants = QUANT_TE },
      { F1, F1 }, { F1, F1 }, { F1, F1 }, AMAX, { QUANT_NVFP4, 0, false } },
    { "tensorwise, dgrad in BF16",
      { .kind = RECIPE_TENSORWISE, .constants = QUANT_TE, .dgrad_bf16 = true },
      { TENSOR, TENSOR }, { NONE, NONE }, { TENSOR, TENSOR }, AMAX, { QUANT_TE, 0, false } },
    { "delayed, backward in BF16",
      { .kind = RECIPE_DELAYED, .constants = QUANT_TE, .dgrad_bf16 = true, .wgrad_bf16 = true },
      { TENSOR, TENSOR }, { NONE, NONE }, { NONE, NONE }, KNOWN, { QUANT_TE, 0, false } },
    { "blockwise, fprop and dgrad in BF16",
      { .kind = RECIPE_BLOCKWISE, .constants = QUANT_TE, .format = FORMAT_E4M3, .pow2 = true,
        .fprop_bf16 = true, .dgrad_bf16 = true },
      { NONE, NONE }, { NONE, NONE }, { B1, B1 }, 0, { QUANT_TE_BLOCK, 0, true } },
    { "rowwise, fprop and wgrad in BF16",
      { .kind = RECIPE_ROWWISE, .constants = QUANT_TORCHAO, .format = FORMAT_E4M3, .pow2 = true,
        .fprop_bf16 = true, .wgrad_bf16 = true },
      { NONE, NONE }, { ROW, TENSOR }, { NONE, NONE }, AMAX, { QUANT_TORCHAO, 1e-12f, true } },
    { "mxfp8, 2-D weights, fprop in BF16",
      { .kind = RECIPE_MXFP8, .constants = QUANT_TE, .format = FORMAT_E4M3, .weight_2d = true,
        .fprop_bf16 = true },
      { NONE, NONE }, { X1, X2 }, { X1, X1 }, BLOCK, { QUANT_MX, 0, false } },
    { "nvfp4, 2-D weights, rotated, stochastic",
      { .kind = RECIPE_NVFP4, .constants = QUANT_TE, .weight_2d = true, .hadamard = true,
        .stochastic = true },
      { F1, F2 }, { F1, F2 }, { F1, F1 }, AMAX, { QUANT_NVFP4, 0, false } },
};

static enum dtype forward_code(const struct operand_case *c) {
    return c->o.kind == RECIPE_NVFP4 ? DTYPE_E2M1 : DTYPE_E4M3;
}

static enum dtype gradient_code(const struct operand_case *c) {
    if (c->o.kind == RECIPE_NVFP4) return DTYPE_E2M1;
    return c->o.format == FORMAT_HYBRID ? DTYPE_E5M2 : DTYPE_E4M3;
}

static void assert_spec(const struct operand_case *c, const struct operand_spec *s,
                        enum dtype code, enum scale_kind kind, float amax_min, const char *what) {
    if (kind == SCALE_NONE && s->kind == SCALE_NONE) return; /* a value has no rule */
    if (s->code != code || s->kind != kind || s->rule.constants != c->rule.constants ||
        s->rule.amax_min != amax_min || s->rule.pow2 != c->rule.pow2)
        fail_msg("%s: %s is %s, kind %d, constants %d, floor %g, pow2 %d", c->name, what,
                 dtype_name(s->code), s->kind, s->rule.constants, (double)s->rule.amax_min,
                 s->rule.pow2);
}

static void recipes_resolve_to_their_table(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct operand_case *c = &CASES[i];
        struct gemm_spec s;
        gemm_spec_resolve(&s, &c->o);
        float floor = c->rule.amax_min;
        float of_dy = c->rule.constants == QUANT_DEEPSEEK ? 448 * 0x1p-126f : floor;
        bool fprop = c->fprop.a != NONE, dgrad = c->dgrad.a != NONE;
        assert_spec(c, &s.x, forward_code(c), fprop ? c->fprop.a : c->wgrad.b, floor, "x");
        assert_spec(c, &s.w, forward_code(c), fprop ? c->fprop.b : c->dgrad.b, floor, "W");
        assert_spec(c, &s.w_dgrad, forward_code(c), c->dgrad.b, floor, "W of dgrad");
        assert_spec(c, &s.dy, gradient_code(c), dgrad ? c->dgrad.a : c->wgrad.a, of_dy, "dY");
        assert_int_equal(s.w.source, c->weight);
        assert_true(s.fprop_fp8 == fprop && s.dgrad_fp8 == dgrad);
        assert_int_equal(s.wgrad_fp8, c->wgrad.a != NONE);
        /* Both operands of wgrad are rotated, no weight is; gradients alone are stochastic. */
        assert_true(s.x.rotate == c->o.hadamard && s.dy.rotate == c->o.hadamard && !s.w.rotate);
        assert_true(s.dy.stochastic == c->o.stochastic && !s.x.stochastic && !s.w.stochastic);
    }
}

/* ---- the operands of matmul ---- */

enum { FPROP, DGRAD, WGRAD, GEMM_COUNT };

static struct {
    const struct backend_ops *real;
    int64_t wide; /* the width of ffn_in's output only */
    struct { enum dtype a, b; struct pair kind; bool fast; int calls; } gemm[GEMM_COUNT];
} seen; /* of this test program only */

static enum status watching_matmul(struct backend *b, int lane, const struct matmul_args *args,
                                   struct err *e) {
    const struct tensor *out = args->out, *x = args->a, *y = args->b;
    int which = out->dim[1] == seen.wide ? FPROP : x->dim[1] == seen.wide ? DGRAD
              : out->dim[0] == seen.wide ? WGRAD : GEMM_COUNT;
    if (which < GEMM_COUNT) {
        seen.gemm[which].a = x->dtype;
        seen.gemm[which].b = y->dtype;
        seen.gemm[which].kind = (struct pair){ x->scale.kind, y->scale.kind };
        seen.gemm[which].fast = args->fast_accumulate;
        seen.gemm[which].calls++;
    }
    return seen.real->matmul(b, lane, args, e);
}

static void watch_a_step(const struct recipe_options *o) {
    struct tiny_run r;
    struct step_result s;
    tiny_run_init(&r, o->kind, 5);
    r.model.layers = 1;
    tiny_run_recipe(&r, o);
    r.train.micro_batch = 4;
    MUST(tiny_run_open(&r, E));
    memset(&seen, 0, sizeof seen);
    seen.real = r.backend->ops;
    seen.wide = model_ffn_in_width(&r.model);
    struct backend_ops ops = *r.backend->ops;
    ops.matmul = watching_matmul;
    r.backend->ops = &ops;
    MUST(trainer_step(r.trainer, false, &s, E));
    r.backend->ops = seen.real;
    tiny_run_close(&r);
}

static void gemms_read_what_the_table_says(void **state) {
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct operand_case *c = &CASES[i];
        const struct pair *wanted[GEMM_COUNT] = { &c->fprop, &c->dgrad, &c->wgrad };
        struct recipe_options o = c->o;
        o.history = 4;
        o.fprop_fast = i % 3 == 0; /* one switch for each GEMM */
        o.dgrad_fast = i % 3 == 1;
        o.wgrad_fast = i % 3 == 2;
        watch_a_step(&o);
        for (int g = 0; g < GEMM_COUNT; g++) {
            bool fp8 = wanted[g]->a != SCALE_NONE;
            enum dtype a = !fp8 ? DTYPE_BF16 : g == FPROP ? forward_code(c) : gradient_code(c);
            enum dtype b = fp8 ? forward_code(c) : DTYPE_BF16;
            if (seen.gemm[g].calls != 1 || seen.gemm[g].a != a || seen.gemm[g].b != b ||
                seen.gemm[g].kind.a != wanted[g]->a || seen.gemm[g].kind.b != wanted[g]->b ||
                seen.gemm[g].fast != ((int)i % 3 == g))
                fail_msg("%s: GEMM %d, %d calls: %s kind %d, %s kind %d, fast %d", c->name, g,
                         seen.gemm[g].calls, dtype_name(seen.gemm[g].a), seen.gemm[g].kind.a,
                         dtype_name(seen.gemm[g].b), seen.gemm[g].kind.b, seen.gemm[g].fast);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recipes_resolve_to_their_table),
        cmocka_unit_test(gemms_read_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
