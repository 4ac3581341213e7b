#include "model/recipe.h"

#include <stdio.h>

#include "model/operand.h"

static const char *const KIND_NAME[] = { "f32", "bf16", "fp8.delayed", "fp8.tensorwise",
                                         "fp8.rowwise", "fp8.blockwise", "fp8.mxfp8" };
static const char *const CONSTANTS_NAME[] = { "te", "torchao", "deepseek", "mx", "te's blocks" };

/* Which projects define a kind: bit i is enum quant_constants i. */
static const unsigned DEFINED_BY[] = {
    [RECIPE_F32] = 15, [RECIPE_BF16] = 15,
    [RECIPE_DELAYED] = 1u << QUANT_TE,
    [RECIPE_TENSORWISE] = 1u << QUANT_TE | 1u << QUANT_TORCHAO,
    [RECIPE_ROWWISE] = 1u << QUANT_TORCHAO,
    [RECIPE_BLOCKWISE] = 1u << QUANT_TE | 1u << QUANT_DEEPSEEK,
    [RECIPE_MXFP8] = 1u << QUANT_TE | 1u << QUANT_MX,
};

static enum status check_site(const struct recipe_options *o, bool f32, const char *where,
                              struct err *e) {
    const char *kind = KIND_NAME[o->kind];
    if (f32 != (o->kind == RECIPE_F32))
        return FAIL(e, ERR_CONFIG, "%s: the f32 recipe is for a whole run, found %s in %s run",
                    where, kind, f32 ? "an f32" : "another");
    if (o->kind == RECIPE_F32 || o->kind == RECIPE_BF16) return OK;
    if (!(DEFINED_BY[o->kind] >> o->constants & 1))
        return FAIL(e, ERR_CONFIG, "%s: no project defines %s with the constants of %s", where,
                    kind, CONSTANTS_NAME[o->constants]);
    bool e4m3_only = o->kind == RECIPE_ROWWISE || o->kind == RECIPE_MXFP8 ||
                     o->constants == QUANT_DEEPSEEK;
    if (e4m3_only && o->format != FORMAT_E4M3)
        return FAIL(e, ERR_CONFIG, "%s: %s%s is defined with format \"e4m3\" only", where, kind,
                    o->constants == QUANT_DEEPSEEK ? " with DeepSeek's constants" : "");
    if (o->wgrad_bf16 && o->kind != RECIPE_ROWWISE)
        return FAIL(e, ERR_CONFIG, "%s: wgrad in BF16 is defined for fp8.rowwise only, not %s",
                    where, kind);
    if (o->kind != RECIPE_DELAYED) return OK;
    if (o->history < 1 || o->history > 65536)
        return FAIL(e, ERR_CONFIG, "%s: history is %d; it must be between 1 and 65536", where,
                    o->history);
    if (o->margin < -16 || o->margin > 16)
        return FAIL(e, ERR_CONFIG, "%s: margin is %d; it must be between -16 and 16", where,
                    o->margin);
    return OK;
}

enum status recipe_check(const struct recipe *r, const struct model_config *c, struct err *e) {
    if (r->layers != c->layers)
        return FAIL(e, ERR_CONFIG, "the recipe has %lld layers, the model %lld",
                    (long long)r->layers, (long long)c->layers);
    for (int64_t l = 0; l < r->layers; l++)
        for (int s = 0; s < GEMM_SITE_COUNT; s++) {
            char where[64];
            snprintf(where, sizeof where, "recipe of layer %lld, %s", (long long)l,
                     GEMM_SITE_NAMES[s]);
            TRY(check_site(recipe_at(r, l, (enum gemm_site)s), r->f32, where, e));
        }
    return check_site(&r->head, r->f32, "recipe of the head", e);
}

/* DeepSeek's floor under amax is for activations and weights. A gradient is divided by the tokens
 * of the global batch, so a floor of 1e-4 would lose more of it the larger the batch is. A
 * gradient's floor only keeps the factor of a zero block, amax/448, a normal number. */
static const float DEEPSEEK_AMAX_MIN = 1e-4f, DEEPSEEK_GRADIENT_AMAX_MIN = 448 * 0x1p-126f;

/* One operand: its format, the granularity of its scales, and the rule from amax to scale. */
static struct operand_spec spec_of(const struct recipe_options *o, enum scale_kind kind,
                                   bool gradient) {
    struct operand_spec s;
    memset(&s, 0, sizeof s);
    s.code = gradient && o->format == FORMAT_HYBRID ? DTYPE_E5M2 : DTYPE_E4M3;
    s.kind = kind;
    s.source = kind == SCALE_TENSOR ? SCALE_SOURCE_AMAX : SCALE_SOURCE_BLOCK;
    s.rule.constants = o->constants;
    if (o->kind == RECIPE_MXFP8) s.rule.constants = QUANT_MX;
    if (o->kind == RECIPE_BLOCKWISE && o->constants == QUANT_TE) s.rule.constants = QUANT_TE_BLOCK;
    if (o->constants == QUANT_TORCHAO) s.rule.amax_min = 1e-12f;
    if (o->constants == QUANT_DEEPSEEK)
        s.rule.amax_min = gradient ? DEEPSEEK_GRADIENT_AMAX_MIN : DEEPSEEK_AMAX_MIN;
    s.rule.pow2 = o->pow2;
    return s;
}

void gemm_spec_resolve(struct gemm_spec *out, const struct recipe_options *o) {
    memset(out, 0, sizeof *out);
    out->options = o;
    if (o->kind == RECIPE_F32 || o->kind == RECIPE_BF16) return;
    out->fp8 = true;
    out->wgrad_fp8 = !o->wgrad_bf16;
    out->fprop_fast = o->fprop_fast;
    out->dgrad_fast = o->dgrad_fast;
    out->wgrad_fast = o->wgrad_fast;
    enum scale_kind x = SCALE_TENSOR, w = SCALE_TENSOR;
    if (o->kind == RECIPE_ROWWISE) x = w = SCALE_ROW;
    if (o->kind == RECIPE_BLOCKWISE) { x = SCALE_1X128; w = SCALE_128X128; }
    if (o->kind == RECIPE_MXFP8) { x = SCALE_1X32; w = o->weight_2d ? SCALE_32X32 : SCALE_1X32; }
    out->x = spec_of(o, x, false);
    out->w = out->w_dgrad = spec_of(o, w, false);
    out->dy = spec_of(o, x, true);
    if (o->kind == RECIPE_DELAYED) {
        /* Weights too, with param_gather as without: TransformerEngine casts FP8 primary weights
         * with the lagged scale, and their amax enters the history
         * (pytorch/tensor/utils.py, _cast_master_weights_to_fp8_delayed_scaling). */
        out->x.source = out->dy.source = SCALE_SOURCE_KNOWN;
        out->w.source = out->w_dgrad.source = SCALE_SOURCE_KNOWN;
    }
    if (o->wgrad_bf16) { /* torchao's rowwise_with_gw_hp */
        out->split_weight = true;
        out->w_dgrad = spec_of(o, SCALE_TENSOR, false);
    }
}
