/* The tiny models and runs of the training tests and the golden program. No test library, no runner. */
#ifndef FP8LAB_TESTS_TINY_H
#define FP8LAB_TESTS_TINY_H

#include "model/train.h"

/* Llama-like: RMSNorm, SwiGLU, RoPE, grouped heads, untied. vocab 96, T 32, C 64, 2 layers. */
struct model_config tiny_model(void);

/* Defaults of a kind as the schema gives them. */
struct recipe_options tiny_recipe_options(enum recipe_kind kind);
/* A recipe with `options` at every site of `layers` layers and a head in BF16 (or F32). `site` is
 * the caller's array of layers * GEMM_SITE_COUNT. */
struct recipe tiny_recipe(const struct recipe_options *options, struct recipe_options *site,
                          int64_t layers);

/* steps steps of 4 sequences in micro-batches of 2, AdamW with f32 state and masters, clip 1. */
struct train_options tiny_train(int64_t steps);

const char *tiny_kind_name(enum recipe_kind kind);

#endif
