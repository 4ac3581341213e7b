/* Recipes: which GEMMs run in FP8, and with which formats, scales and constants. Semantics to the
 * constant: kernels/RECIPES.md. */
#ifndef FP8LAB_MODEL_RECIPE_H
#define FP8LAB_MODEL_RECIPE_H

#include "kernels/quant.h"
#include "model/config.h"
#include "model/recipe_kinds.h"

enum recipe_kind {
    RECIPE_F32, /* CPU only: for tests */
    RECIPE_BF16,
#define RECIPE_ENUM(kind, name) RECIPE_##kind,
    RECIPE_FP8_KINDS(RECIPE_ENUM)
#undef RECIPE_ENUM
    RECIPE_KIND_COUNT
};

enum recipe_format { FORMAT_HYBRID /* E4M3, E5M2 gradients */, FORMAT_E4M3 };
enum amax_algo { AMAX_MAX, AMAX_MOST_RECENT };
enum roll_kind { ROLL_MICROBATCH, ROLL_STEP };

/* The words of scripts for these enums, in their order, NULL-terminated. RECIPE_CONSTANTS_NAMES has
 * the sets that a script may name: enum quant_constants up to QUANT_DEEPSEEK. */
extern const char *const RECIPE_FORMAT_NAMES[], *const RECIPE_CONSTANTS_NAMES[],
    *const RECIPE_ALGO_NAMES[], *const RECIPE_ROLL_NAMES[];

/* One recipe's options. A kind reads those that model/recipe_kinds.h lists for it; the others are
 * zero. */
struct recipe_options {
    enum recipe_kind kind;
    enum recipe_format format;
    enum quant_constants constants;
    bool pow2;
    int margin, history;
    enum amax_algo algo;
    enum roll_kind roll;
    bool fprop_fast, dgrad_fast, wgrad_fast; /* fast accumulation per GEMM */
    /* These GEMMs read BF16 values. Rowwise with wgrad_bf16 is torchao's rowwise_with_gw_hp:
     * dgrad's weight is scaled tensor-wide. */
    bool fprop_bf16, dgrad_bf16, wgrad_bf16;
    bool weight_2d;    /* square weight scales: 32x32 of MXFP8, 16x16 of NVFP4 */
    bool hadamard;     /* NVFP4: the twins of x and dy, both operands of wgrad, are rotated */
    bool stochastic;   /* NVFP4: gradients are rounded stochastically */
    int64_t forward_bf16_after; /* steps after this one multiply forward in BF16; 0: none */
    bool fall_back;    /* use BF16 where the device would emulate the FP8 GEMMs */
    bool fell_back;    /* set by recipe_fall_back, with kind RECIPE_BF16 */
    bool untransposed; /* set by recipe_untranspose */
    bool param_gather; /* ranks gather FP8 codes of weights instead of values: the same bits */
};

/* The descriptor of a kind. Every reader of recipe kinds takes its facts from here. */
struct recipe_info {
    struct recipe_options defaults; /* kind included */
    /* Scales of activations and gradients, and of weights; SCALE_NONE: the kind is not FP8. They
     * decide what a device multiplies natively (runner/plan/recipe_table.c). */
    enum scale_kind scale_x, scale_w;
    bool delayed;                   /* scales come from a history of amax */
    unsigned formats, constants;    /* bit i: some project defines enum value i for the kind */
    const char *why_formats;        /* for an error text: why there are no others */
    const char *why_constants;
    const char *why_no_fast;        /* NULL: each GEMM may accumulate fast */
    const char *why_no_gather;      /* NULL: param_gather is allowed */
    bool pow2_follows;              /* the default of pow2: false with DeepSeek's constants */
    double loss_tolerance;          /* `compare`: how far above BF16's loss still "holds" */
};

/* Borrowed for ever. `kind` is below RECIPE_KIND_COUNT. */
const struct recipe_info *recipe_info(enum recipe_kind kind);
/* The descriptor of that name, or NULL. */
const struct recipe_info *recipe_info_named(const char *name);
/* The names in the order of enum recipe_kind, NULL-terminated. */
extern const char *const RECIPE_KIND_NAMES[RECIPE_KIND_COUNT + 1];

static inline bool recipe_is_fp8(enum recipe_kind kind) {
    return recipe_info(kind)->scale_x != SCALE_NONE;
}

/* The recipe of a run, per layer and site plus the head, resolved before anything runs. */
struct recipe {
    struct recipe_options *site; /* [layers * GEMM_SITE_COUNT], layer-major; owned by the caller */
    struct recipe_options head;  /* kind BF16 (or F32) unless lm_head = "fp8" */
    int64_t layers;
    bool attention_fp8;          /* in the layers whose qkv has a recipe that defines it */
    bool f32;                    /* the whole run is f32: every site's kind is RECIPE_F32 */
};

static inline const struct recipe_options *recipe_at(const struct recipe *r, int64_t layer,
                                                     enum gemm_site site) {
    return &r->site[layer * GEMM_SITE_COUNT + site];
}

/* ERR_CONFIG naming layer, GEMM and the combination that no project defines. */
NODISCARD enum status recipe_check(const struct recipe *r, const struct model_config *c,
                                   struct err *e);

/* For a device that multiplies them so: twins with MXFP8's scales are untransposed (tensor.h). The
 * same codes in another order, so no definition changes. */
void recipe_untranspose(struct recipe *r);

/* ---- one GEMM site ---- */

/* How one operand is stored. kind SCALE_NONE: high precision, in the act dtype. */
struct operand_spec {
    enum dtype code; /* DTYPE_E4M3, DTYPE_E5M2 or DTYPE_E2M1 */
    enum scale_kind kind;
    enum scale_source source;
    struct quant_rule rule;
    bool rotate, stochastic; /* as in struct sink, with draws */
    bool untransposed;       /* its twin (tensor.h) */
};

/* A recipe at one GEMM site. An operand that no GEMM reads as codes has kind SCALE_NONE. w is the
 * weight of fprop, or of dgrad if fprop is BF16. With split_weight, dgrad reads the weight with
 * another scale (rowwise with BF16 wgrad), and w_dgrad is an operand of its own. */
struct gemm_spec {
    bool fp8; /* one of the three GEMMs is */
    bool fprop_fp8, dgrad_fp8, wgrad_fp8, split_weight;
    bool fprop_fast, dgrad_fast, wgrad_fast;
    bool late_bf16; /* fprop in this step: forward_bf16_after has passed */
    struct operand_spec x, w, w_dgrad, dy;
    const struct recipe_options *options; /* borrowed from the recipe */
    const char *name;                     /* of the weight, borrowed; NULL: no name */
};

/* FP8 attention of a layer, as TransformerEngine's fp8_dpa: queries, keys and values are quantised
 * as one tensor. The probabilities p and the score gradients ds are never stored, so they always
 * have delayed scales: the recipe's, or of the last micro-batch where the others are current. */
struct attention_spec {
    bool fp8;
    bool o_codes; /* backward reads the codes of attention's output, the input of attn_out */
    struct operand_spec qkv, d_o, p, ds;
    const struct recipe_options *options, *inner; /* of qkv and d_o; of p and ds. Borrowed */
};
/* Without FP8 attention in the layer, all is zero. */
void attention_spec_resolve(struct attention_spec *out, const struct recipe *r, int64_t layer);

/* Resolves a site's options. Never fails on options that recipe_check passed. */
void gemm_spec_resolve(struct gemm_spec *out, const struct recipe_options *options);

#endif
