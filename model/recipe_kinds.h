/* The FP8 and FP4 recipe kinds: the one list of their names, options and defaults. model/recipe.c
 * makes the descriptors from these lists, runner/script/schema_recipe.c the keys of a script.
 *
 * Defaults are TransformerEngine's (transformer_engine/common/recipe; accumulators from
 * pytorch/module/base.py), and torchao's (torchao/float8/config.py) for rowwise, which
 * TransformerEngine lacks. */
#ifndef FP8LAB_MODEL_RECIPE_KINDS_H
#define FP8LAB_MODEL_RECIPE_KINDS_H

/* X(KIND, NAME): enum recipe_kind has RECIPE_KIND, in this order. */
#define RECIPE_FP8_KINDS(X)                                                                   \
    X(DELAYED, "fp8.delayed")                                                                 \
    X(TENSORWISE, "fp8.tensorwise")                                                           \
    X(ROWWISE, "fp8.rowwise")                                                                 \
    X(BLOCKWISE, "fp8.blockwise")                                                             \
    X(MXFP8, "fp8.mxfp8")                                                                     \
    X(NVFP4, "fp4.nvfp4")

/* RECIPE_OPTIONS_KIND(O, A): the options of a kind, in the order in which error texts list them.
 * O(FIELD, DEFAULT, TEXT): a field of struct recipe_options, its default, and the default as an
 * override writes it. TEXT is NULL if the default is absent or follows from another key.
 * A(FPROP, DGRAD, WGRAD): the accumulator of each GEMM, `fast` (the tensor core's own) or `split`
 * (partial sums promoted to f32). */
/* RECIPE_OPTIONS_BF16(O): which of the three GEMMs read BF16 values. */
#define RECIPE_OPTIONS_BF16(O)                                                                \
    O(fprop_bf16, false, NULL)                                                                \
    O(dgrad_bf16, false, NULL)                                                                \
    O(wgrad_bf16, false, NULL)
#define RECIPE_OPTIONS_DELAYED(O, A)                                                          \
    O(format, FORMAT_HYBRID, "hybrid")                                                        \
    O(constants, QUANT_TE, "te")                                                              \
    O(margin, 0, "0")                                                                         \
    O(history, 1024, "1024")                                                                  \
    O(algo, AMAX_MAX, "max")                                                                  \
    O(roll, ROLL_MICROBATCH, "microbatch")                                                    \
    A(fast, split, split)                                                                     \
    RECIPE_OPTIONS_BF16(O)                                                                    \
    O(param_gather, false, "false")                                                           \
    O(fall_back, false, NULL)
#define RECIPE_OPTIONS_TENSORWISE(O, A)                                                       \
    O(format, FORMAT_HYBRID, "hybrid")                                                        \
    O(constants, QUANT_TE, "te")                                                              \
    O(pow2, false, "false")                                                                   \
    A(fast, split, split)                                                                     \
    RECIPE_OPTIONS_BF16(O)                                                                    \
    O(param_gather, false, "false")                                                           \
    O(fall_back, false, NULL)
#define RECIPE_OPTIONS_ROWWISE(O, A)                                                          \
    O(format, FORMAT_E4M3, "e4m3")                                                            \
    O(constants, QUANT_TORCHAO, "torchao")                                                    \
    O(pow2, true, "true")                                                                     \
    A(fast, fast, fast)                                                                       \
    O(fprop_bf16, false, NULL)                                                                \
    O(dgrad_bf16, false, NULL)                                                                \
    O(wgrad_bf16, false, "fp8")                                                               \
    O(param_gather, false, "false")                                                           \
    O(fall_back, false, NULL)
#define RECIPE_OPTIONS_BLOCKWISE(O, A)                                                        \
    O(format, FORMAT_E4M3, "e4m3")                                                            \
    O(constants, QUANT_TE, "te")                                                              \
    O(pow2, true, NULL) /* recipe_info.pow2_follows */                                             \
    A(split, split, split)                                                                    \
    RECIPE_OPTIONS_BF16(O)                                                                    \
    O(param_gather, false, "false")                                                           \
    O(fall_back, false, NULL)
#define RECIPE_OPTIONS_MXFP8(O, A)                                                            \
    O(format, FORMAT_E4M3, "e4m3")                                                            \
    O(constants, QUANT_TE, "te")                                                              \
    O(weight_2d, false, "false")                                                              \
    A(fast, split, split)                                                                     \
    RECIPE_OPTIONS_BF16(O)                                                                    \
    O(param_gather, false, "false")                                                           \
    O(fall_back, false, NULL)
#define RECIPE_OPTIONS_NVFP4(O, A)                                                            \
    O(weight_2d, true, "true")                                                                \
    O(hadamard, true, "true")                                                                 \
    O(stochastic, true, "true")                                                               \
    O(forward_bf16_after, 0, "0")                                                             \
    A(split, split, split)                                                                    \
    RECIPE_OPTIONS_BF16(O)                                                                    \
    O(fall_back, false, NULL)

#endif
