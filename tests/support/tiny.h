/* The tiny models and runs of the training tests and the golden program. No test library, no
 * runner. */
#ifndef FP8LAB_TESTS_TINY_H
#define FP8LAB_TESTS_TINY_H

#include "kernels/arguments.h"
#include "model/train.h"

/* Llama-like: RMSNorm, SwiGLU, RoPE, grouped heads, untied. vocab 96, T 32, C 64, 2 layers. */
struct model_config tiny_model(void);

/* Defaults of a kind as the schema gives them. */
struct recipe_options tiny_recipe_options(enum recipe_kind kind);
/* The GEMMs in `gemms` read BF16 values. */
enum { FPROP_BF16 = 1 << GEMM_FPROP, DGRAD_BF16 = 1 << GEMM_DGRAD, WGRAD_BF16 = 1 << GEMM_WGRAD };
void tiny_gemms_bf16(struct recipe_options *o, unsigned gemms);
/* A recipe with `options` at every site of `layers` layers and a head in BF16 (or F32). `site` is
 * the caller's array of layers * GEMM_SITE_COUNT. */
struct recipe tiny_recipe(const struct recipe_options *options, struct recipe_options *site,
                          int64_t layers);

/* `steps` steps of 4 sequences in micro-batches of 2, AdamW with f32 state and masters, clip 1. */
struct train_options tiny_train(int64_t steps);

const char *tiny_kind_name(enum recipe_kind kind);

/* A trainer with its backend and data. Change the options, then open. */
enum { TINY_LAYERS_MAX = 8 };
struct tiny_run {
    struct model_config model;
    struct recipe_options site[TINY_LAYERS_MAX * GEMM_SITE_COUNT];
    struct recipe recipe;
    struct train_options train;
    struct data_options data_options; /* synthetic, seed 7 */
    struct backend *backend;          /* owned after open; NULL at open: the CPU backend */
    struct data *data;
    struct trainer *trainer;
};

/* The tiny model and run in a recipe of that kind. */
void tiny_run_init(struct tiny_run *run, enum recipe_kind kind, int64_t steps);
/* The same with these options at every site. */
void tiny_run_recipe(struct tiny_run *run, const struct recipe_options *options);
NODISCARD enum status tiny_run_open(struct tiny_run *run, struct err *e);
void tiny_run_close(struct tiny_run *run); /* closes what is open, if anything */

#endif
