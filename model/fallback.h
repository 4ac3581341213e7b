/* fallback = "bf16": what a device cannot multiply in FP8 as it is goes in BF16 instead of being
 * emulated. Decided before anything is laid out, for a whole linear layer: its three GEMMs share
 * operands. Off unless a recipe asks for it: nothing changes precision silently. */
#ifndef FP8LAB_MODEL_FALLBACK_H
#define FP8LAB_MODEL_FALLBACK_H

#include "kernels/backend.h"
#include "model/recipe.h"
#include "model/train.h"

/* Turns the sites that ask for it, and of which the backend would emulate fprop, dgrad or wgrad,
 * into BF16 (fell_back). The CPU, which is the reference, never has one. */
NODISCARD enum status recipe_fall_back(struct recipe *r, const struct model_config *c,
                                       const struct train_options *o, struct backend *b,
                                       struct err *e);

/* The i-th site that fell back, as "layers.0.ffn_in" or "head"; false after the last. */
bool recipe_fell_back(const struct recipe *r, int64_t i, char name[64]);

#endif
