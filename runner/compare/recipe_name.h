/* The name of a recipe: its kind, and each option that differs from the kind's default. Of a run
 * also the keys outside the recipe that make something else FP8. */
#ifndef FP8LAB_RUNNER_COMPARE_RECIPE_NAME_H
#define FP8LAB_RUNNER_COMPARE_RECIPE_NAME_H

#include <jansson.h>

/* The options of a resolved recipe that differ from the defaults of its kind, in the schema's
 * order: an array of {"key": "first_bf16", "value": "1"}, both strings. A key of a nested table is
 * "accumulate.dgrad". `layers` names the GEMMs with a recipe of their own. A key that the
 * schema does not know is an option too. A recipe of an unknown kind has none. New reference;
 * NULL: no memory. */
json_t *recipe_options(const json_t *recipe);

/* What it means that a recipe lacks a key, such as "recipe.accumulate.dgrad": the default of its
 * kind. `flat`: the keys of a resolved configuration (json_flat.h). New reference; NULL: the kind
 * has no such key, its default is none, or no memory. */
json_t *recipe_default(const json_t *flat, const char *key);

/* "fp8.tensorwise first_bf16=1 last_bf16=1"; "?" without a kind. Owned by the caller (free); NULL:
 * no memory. */
char *recipe_text(const json_t *recipe);

/* The same of a run, from its resolved configuration (NULL: "?"), with attention and gradients if
 * they are FP8: "fp8.delayed attention.precision=fp8 train.grad_dtype=fp8". */
char *recipe_text_of_run(const json_t *resolved);

/* `layers` of a resolved recipe, [{layer, gemm, recipe}], in words: layers and GEMMs by recipe,
 * "0-1:bf16,2-29.ffn_out:fp8.rowwise(pow2=false)". Owned by the caller (free); NULL: no memory. */
char *recipe_layers(const json_t *list);

/* A scalar as text without quotes ("none" for null), any other value as compact JSON. Text of more
 * than `width` bytes is cut at a whole character and gets "…". Owned by the caller (free); NULL: no
 * memory. */
char *value_words(const json_t *value, size_t width);

#endif
