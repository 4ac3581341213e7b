/* What is FP8 and how: the recipe as the user states it, and its resolution to one quantisation
 * per GEMM operand. Semantics to the constant: kernels/README.md, "Recipes". */
#ifndef FP8LAB_MODEL_RECIPE_H
#define FP8LAB_MODEL_RECIPE_H

#include "kernels/quant.h"
#include "model/config.h"

enum recipe_kind {
    RECIPE_F32, /* CPU only: for tests */
    RECIPE_BF16,
    RECIPE_DELAYED,
    RECIPE_TENSORWISE,
    RECIPE_ROWWISE,
    RECIPE_BLOCKWISE,
    RECIPE_MXFP8
};

enum recipe_format { FORMAT_HYBRID /* E4M3, E5M2 gradients */, FORMAT_E4M3 };
enum amax_algo { AMAX_MAX, AMAX_MOST_RECENT };
enum roll_kind { ROLL_MICROBATCH, ROLL_STEP };

/* One recipe's options; which kinds read one is stated beside it. Defaults and refused combinations
 * are the schema's (runner); recipe_check repeats what the numerics cannot do without. */
struct recipe_options {
    enum recipe_kind kind;
    enum recipe_format format;
    enum quant_constants constants;
    bool pow2;                               /* tensorwise, rowwise, blockwise */
    int margin, history;                     /* delayed */
    enum amax_algo algo;                     /* delayed */
    enum roll_kind roll;                     /* delayed */
    bool fprop_fast, dgrad_fast, wgrad_fast; /* fast accumulation per GEMM */
    bool wgrad_bf16;   /* rowwise_with_gw_hp: wgrad in BF16, dgrad's weight scaled tensor-wide */
    bool weight_2d;    /* mxfp8: 32x32 weight scales */
    bool fall_back;    /* in BF16 where the device has no native FP8 for it, rather than emulated */
    bool fell_back;    /* and so it is: set by recipe_fall_back, kind is RECIPE_BF16 then */
    bool param_gather; /* ranks gather FP8 codes of weights, not values: the same bits */
};

/* The recipe of a run, per layer and site plus the head, resolved before anything runs. */
struct recipe {
    struct recipe_options *site; /* [layers * GEMM_SITE_COUNT], layer-major; owned by the caller */
    struct recipe_options head;  /* kind BF16 (or F32) unless lm_head = "fp8" */
    int64_t layers;
    bool f32;                    /* the whole run is f32: every site's kind is RECIPE_F32 */
};

static inline const struct recipe_options *recipe_at(const struct recipe *r, int64_t layer,
                                                     enum gemm_site site) {
    return &r->site[layer * GEMM_SITE_COUNT + site];
}

/* ERR_CONFIG naming layer, GEMM and the combination that no project defines. */
NODISCARD enum status recipe_check(const struct recipe *r, const struct model_config *c,
                                   struct err *e);

#endif
