/* Which parameters are trained, and how fast: frozen parameters, and factors of the learning rate,
 * both by name. */
#ifndef FP8LAB_MODEL_SELECTION_H
#define FP8LAB_MODEL_SELECTION_H

#include "kernels/base.h"

struct params;
struct model_config;

/* One rule. `names` selects every parameter whose name (model/params.h) begins with the same
 * components: "embed", "layers.3.qkv", "layers.3.qkv.weight". A component may be "*", or a range of
 * numbers: "layers.0-3". */
struct selection_rule {
    const char *names; /* borrowed until trainer_create returns */
    bool frozen;       /* not trained at all */
    double lr_scale;   /* if not frozen: what the learning rate is multiplied by */
};
struct selection { const struct selection_rule *rule; int64_t count; };

/* Marks the parameters. ERR_CONFIG names a rule that selects nothing, with the names that exist; a
 * parameter with two factors; factors for frozen parameters only; and a selection that leaves
 * nothing to train. */
NODISCARD enum status selection_apply(struct params *p, const struct selection *s, struct err *e);

/* The elements of a model's trained parameters, unpadded. */
NODISCARD enum status selection_trained(const struct model_config *c, const struct selection *s,
                                        int64_t *elements, struct err *e);

/* The FLOP of one token's forward and backward without what a frozen parameter saves: its wgrad,
 * and all backward below the lowest trained layer. Without rules it is model_flops_per_token. */
NODISCARD enum status selection_flops_per_token(const struct model_config *c,
                                                const struct selection *s, double *flops,
                                                struct err *e);

#endif
