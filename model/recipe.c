#include "model/recipe.h"

#include <stdio.h>
#include <string.h>

const char *const RECIPE_FORMAT_NAMES[] = { "hybrid", "e4m3", NULL };
const char *const RECIPE_CONSTANTS_NAMES[] = { "te", "torchao", "deepseek", NULL };
const char *const RECIPE_ALGO_NAMES[] = { "max", "most_recent", NULL };
const char *const RECIPE_ROLL_NAMES[] = { "microbatch", "step", NULL };

#define KIND_NAME(kind, name) [RECIPE_##kind] = name,
const char *const RECIPE_KIND_NAMES[RECIPE_KIND_COUNT + 1] = {
    [RECIPE_F32] = "f32", [RECIPE_BF16] = "bf16", RECIPE_FP8_KINDS(KIND_NAME) };

/* ---- descriptors ---- */

enum { ACCUMULATE_split, ACCUMULATE_fast };
#define OPTION(field, value, text) .field = (value),
#define ACCUMULATE(fprop, dgrad, wgrad)                                                       \
    .fprop_fast = ACCUMULATE_##fprop, .dgrad_fast = ACCUMULATE_##dgrad,                       \
    .wgrad_fast = ACCUMULATE_##wgrad,
#define DEFAULTS(kind_) { .kind = RECIPE_##kind_, RECIPE_OPTIONS_##kind_(OPTION, ACCUMULATE) }

enum { BOTH_FORMATS = 1u << FORMAT_HYBRID | 1u << FORMAT_E4M3, E4M3_ONLY = 1u << FORMAT_E4M3 };
#define TENSOR_TOLERANCE 0.005
#define FP4_TOLERANCE 0.015 /* published runs lose up to 1 % of the loss (arXiv 2509.25149) */
#define BLOCK_TOLERANCE 0.0025 /* scales follow each 128 values, so the loss must be nearer */

static const struct recipe_info INFO[RECIPE_KIND_COUNT] = {
    [RECIPE_F32] = { .defaults = { .kind = RECIPE_F32 }, .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_BF16] = { .defaults = { .kind = RECIPE_BF16 }, .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_DELAYED] = {
        .defaults = DEFAULTS(DELAYED),
        .scale_x = SCALE_TENSOR, .scale_w = SCALE_TENSOR, .delayed = true, .formats = BOTH_FORMATS,
        .constants = 1u << QUANT_TE,
        .why_constants = "only TransformerEngine defines delayed scaling",
        .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_TENSORWISE] = {
        .defaults = DEFAULTS(TENSORWISE),
        .scale_x = SCALE_TENSOR, .scale_w = SCALE_TENSOR, .formats = BOTH_FORMATS,
        .constants = 1u << QUANT_TE | 1u << QUANT_TORCHAO,
        .why_constants = "DeepSeek's constants are per block; fp8.blockwise takes them",
        .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_ROWWISE] = {
        .defaults = DEFAULTS(ROWWISE),
        .scale_x = SCALE_ROW, .scale_w = SCALE_ROW, .formats = E4M3_ONLY,
        .constants = 1u << QUANT_TORCHAO,
        .why_constants = "torchao alone defines rowwise scaling",
        .why_formats = "torchao's rowwise recipe uses E4M3 for every operand",
        .why_no_gather = "rowwise scaling casts each weight along two axes, so no FP8 weight can "
                         "be gathered; leave param_gather out, or use fp8.tensorwise",
        .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_BLOCKWISE] = {
        .defaults = DEFAULTS(BLOCKWISE),
        .scale_x = SCALE_1X128, .scale_w = SCALE_128X128, .formats = BOTH_FORMATS,
        .constants = 1u << QUANT_TE | 1u << QUANT_DEEPSEEK,
        .why_constants = "torchao's constants are for whole tensors and rows; fp8.tensorwise and "
                         "fp8.rowwise take them",
        .why_no_fast = "blockwise scaling applies a scale every 128 products, so its accumulation "
                       "is always \"split\"",
        .pow2_follows = true, .loss_tolerance = BLOCK_TOLERANCE },
    [RECIPE_MXFP8] = {
        .defaults = DEFAULTS(MXFP8),
        .scale_x = SCALE_1X32, .scale_w = SCALE_1X32, .formats = E4M3_ONLY,
        .constants = 1u << QUANT_TE | 1u << QUANT_MX,
        .why_constants = "MXFP8's scales have no other constants than the E8M0 rounding",
        .why_formats = "MXFP8 is E4M3 forward and backward (E5M2 gradients were found to be worse)",
        .loss_tolerance = TENSOR_TOLERANCE },
    [RECIPE_NVFP4] = {
        .defaults = DEFAULTS(NVFP4),
        .scale_x = SCALE_1X16, .scale_w = SCALE_1X16, .constants = 1u << QUANT_TE,
        .why_no_fast = "NVFP4 applies a scale every 16 products, so its accumulation is always "
                       "\"split\"",
        .loss_tolerance = FP4_TOLERANCE },
};

const struct recipe_info *recipe_info(enum recipe_kind kind) { return &INFO[kind]; }

const struct recipe_info *recipe_info_named(const char *name) {
    for (int i = 0; i < RECIPE_KIND_COUNT; i++)
        if (strcmp(RECIPE_KIND_NAMES[i], name) == 0) return &INFO[i];
    return NULL;
}

/* ---- checks ---- */

static const char *constants_name(enum quant_constants c) {
    return c <= QUANT_DEEPSEEK ? RECIPE_CONSTANTS_NAMES[c] : "mx";
}

static enum status check_site(const struct recipe_options *o, bool f32, const char *where,
                              struct err *e) {
    const struct recipe_info *info = recipe_info(o->kind);
    const char *kind = RECIPE_KIND_NAMES[o->kind];
    if (f32 != (o->kind == RECIPE_F32))
        return FAIL(e, ERR_CONFIG, "%s: the f32 recipe is for a whole run, found %s in %s run",
                    where, kind, f32 ? "an f32" : "another");
    if (!recipe_is_fp8(o->kind)) return OK;
    if (!(info->constants >> o->constants & 1))
        return FAIL(e, ERR_CONFIG, "%s: no project defines %s with the constants of %s", where,
                    kind, constants_name(o->constants));
    bool e4m3_only = info->formats == E4M3_ONLY || o->constants == QUANT_DEEPSEEK;
    if (e4m3_only && o->format != FORMAT_E4M3)
        return FAIL(e, ERR_CONFIG, "%s: %s%s is defined with format \"e4m3\" only", where, kind,
                    o->constants == QUANT_DEEPSEEK ? " with DeepSeek's constants" : "");
    if (o->fprop_bf16 && o->dgrad_bf16 && o->wgrad_bf16)
        return FAIL(e, ERR_CONFIG, "%s: fprop, dgrad and wgrad of %s are all in BF16; the recipe "
                    "\"bf16\" is that", where, kind);
    if (o->param_gather && (o->fprop_bf16 || o->dgrad_bf16))
        return FAIL(e, ERR_CONFIG, "%s: param_gather gathers codes only, and %s in BF16 reads "
                    "the values of the weights", where, o->fprop_bf16 ? "fprop" : "dgrad");
    if (o->forward_bf16_after > 0 && o->fprop_bf16)
        return FAIL(e, ERR_CONFIG, "%s: fprop is in BF16, so forward_bf16_after has no effect",
                    where);
    if (!info->delayed) return OK;
    if (o->history < 1 || o->history > 65536)
        return FAIL(e, ERR_CONFIG, "%s: history is %d; it must be between 1 and 65536", where,
                    o->history);
    if (o->margin < -16 || o->margin > 16)
        return FAIL(e, ERR_CONFIG, "%s: margin is %d; it must be between -16 and 16", where,
                    o->margin);
    return OK;
}

/* A layer that fell back to BF16 has lost its FP8 attention too. */
static enum status check_attention(const struct recipe *r, struct err *e) {
    bool found = !r->attention_fp8;
    for (int64_t l = 0; l < r->layers && !found; l++) {
        struct attention_spec spec;
        attention_spec_resolve(&spec, r, l);
        found = spec.fp8 || recipe_at(r, l, GEMM_QKV)->fell_back;
    }
    if (found) return OK;
    return FAIL(e, ERR_CONFIG, "attention.precision is \"fp8\", which fp8.delayed and "
                "fp8.tensorwise define; no layer's qkv has one of them");
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
    TRY(check_attention(r, e));
    return check_site(&r->head, r->f32, "recipe of the head", e);
}

void recipe_untranspose(struct recipe *r) {
    for (int64_t i = 0; i < r->layers * GEMM_SITE_COUNT; i++) r->site[i].untransposed = true;
    r->head.untransposed = true;
}

/* ---- one GEMM's operands ---- */

/* DeepSeek's lower bound of amax is for activations and weights. A gradient is divided by the
 * tokens of the global batch, so a bound of 1e-4 would lose more of it with larger batches. The
 * bound for gradients only keeps the factor of a zero block, amax/448, a normal number. */
static const float DEEPSEEK_AMAX_MIN = 1e-4f, DEEPSEEK_GRADIENT_AMAX_MIN = 448 * 0x1p-126f;

/* The amax of the tensor comes before the blocks' scales, so all codes wait for it. */
static struct operand_spec nvfp4_spec(const struct recipe_options *o, enum scale_kind kind,
                                      bool gradient) {
    return (struct operand_spec){ .code = DTYPE_E2M1, .kind = kind, .source = SCALE_SOURCE_AMAX,
                                  .rule = { .constants = QUANT_NVFP4 },
                                  .stochastic = gradient && o->stochastic };
}

/* One operand: its format, the granularity of its scales, and the rule from amax to scale. */
static struct operand_spec spec_of(const struct recipe_options *o, enum scale_kind kind,
                                   bool gradient) {
    struct operand_spec s;
    if (scale_is_nvfp4(kind)) return nvfp4_spec(o, kind, gradient);
    memset(&s, 0, sizeof s);
    s.code = gradient && o->format == FORMAT_HYBRID ? DTYPE_E5M2 : DTYPE_E4M3;
    s.kind = kind;
    s.source = kind == SCALE_TENSOR ? SCALE_SOURCE_AMAX : SCALE_SOURCE_BLOCK;
    s.rule.constants = o->constants;
    if (scale_is_mxfp8(kind)) s.rule.constants = QUANT_MX;
    if ((kind == SCALE_1X128 || kind == SCALE_128X128) && o->constants == QUANT_TE)
        s.rule.constants = QUANT_TE_BLOCK;
    if (o->constants == QUANT_TORCHAO) s.rule.amax_min = 1e-12f;
    if (o->constants == QUANT_DEEPSEEK)
        s.rule.amax_min = gradient ? DEEPSEEK_GRADIENT_AMAX_MIN : DEEPSEEK_AMAX_MIN;
    s.rule.pow2 = o->pow2;
    s.untransposed = o->untransposed && scale_is_mxfp8(kind);
    return s;
}

static const struct operand_spec VALUE = { .kind = SCALE_NONE };

void gemm_spec_resolve(struct gemm_spec *out, const struct recipe_options *o) {
    memset(out, 0, sizeof *out);
    out->options = o;
    const struct recipe_info *info = recipe_info(o->kind);
    if (!recipe_is_fp8(o->kind)) return;
    out->fp8 = true;
    out->fprop_fp8 = !o->fprop_bf16;
    out->dgrad_fp8 = !o->dgrad_bf16;
    out->wgrad_fp8 = !o->wgrad_bf16;
    out->fprop_fast = o->fprop_fast;
    out->dgrad_fast = o->dgrad_fast;
    out->wgrad_fast = o->wgrad_fast;
    enum scale_kind w = info->scale_w;
    if (o->weight_2d && w == SCALE_1X32) w = SCALE_32X32;
    if (o->weight_2d && w == SCALE_1X16) w = SCALE_16X16;
    out->x = spec_of(o, info->scale_x, false);
    out->w = out->w_dgrad = spec_of(o, w, false);
    out->dy = spec_of(o, info->scale_x, true);
    out->x.rotate = out->dy.rotate = o->hadamard;
    if (info->delayed) {
        /* Weights too, with or without param_gather: TransformerEngine casts FP8 primary weights
         * with the lagged scale, and their amax enters the history
         * (pytorch/tensor/utils.py, _cast_master_weights_to_fp8_delayed_scaling). */
        out->x.source = out->dy.source = SCALE_SOURCE_KNOWN;
        out->w.source = out->w_dgrad.source = SCALE_SOURCE_KNOWN;
    }
    if (w == SCALE_ROW && o->wgrad_bf16) { /* torchao's rowwise_with_gw_hp */
        out->w_dgrad = spec_of(o, SCALE_TENSOR, false);
        out->split_weight = out->fprop_fp8 && out->dgrad_fp8;
    }
    if (!out->dgrad_fp8) out->w_dgrad = VALUE;
    if (!out->fprop_fp8) out->w = out->w_dgrad;
    if (!out->fprop_fp8 && !out->wgrad_fp8) out->x = VALUE;
    if (!out->dgrad_fp8 && !out->wgrad_fp8) out->dy = VALUE;
}

/* ---- attention ---- */

/* TransformerEngine's defaults for p and ds where the other scales are current
 * (NVTE_DPA_FP8DS_AMAX_ALGO, NVTE_DPA_FP8DS_AMAX_HISTLEN). */
static const struct recipe_options MOST_RECENT = {
    .kind = RECIPE_DELAYED, .history = 1, .algo = AMAX_MOST_RECENT, .roll = ROLL_MICROBATCH };

void attention_spec_resolve(struct attention_spec *out, const struct recipe *r, int64_t layer) {
    const struct recipe_options *o = recipe_at(r, layer, GEMM_QKV);
    const struct recipe_info *info = recipe_info(o->kind);
    memset(out, 0, sizeof *out);
    if (!r->attention_fp8 || info->scale_x != SCALE_TENSOR) return;
    out->fp8 = true;
    const struct recipe_options *next = recipe_at(r, layer, GEMM_ATTN_OUT);
    out->o_codes = info->delayed && next->kind == o->kind && !next->fprop_bf16;
    out->options = o;
    out->inner = info->delayed ? o : &MOST_RECENT;
    out->qkv = out->p = spec_of(o, SCALE_TENSOR, false);
    out->d_o = out->ds = spec_of(o, SCALE_TENSOR, true);
    out->p.source = out->ds.source = SCALE_SOURCE_KNOWN;
    if (info->delayed) out->qkv.source = out->d_o.source = SCALE_SOURCE_KNOWN;
}
