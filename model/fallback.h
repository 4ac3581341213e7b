/* fallback = "bf16": a linear layer whose FP8 GEMMs the device would emulate runs in BF16 instead.
 * Decided before layout, and for the whole linear layer, because its three GEMMs share operands.
 * Off unless a recipe asks for it: no precision changes silently. */
#ifndef FP8LAB_MODEL_FALLBACK_H
#define FP8LAB_MODEL_FALLBACK_H

#include "kernels/backend.h"
#include "model/recipe.h"
#include "model/train.h"

/* Sets kind BF16 and fell_back for each site with fall_back whose fprop, dgrad or wgrad the backend
 * would emulate. On the CPU, the reference, no site falls back. */
NODISCARD enum status recipe_fall_back(struct recipe *r, const struct model_config *c,
                                       const struct train_options *o, struct backend *b,
                                       struct err *e);

/* The i-th site that fell back, as "layers.0.ffn_in" or "head"; false after the last. */
bool recipe_fell_back(const struct recipe *r, int64_t i, char name[64]);

#endif
