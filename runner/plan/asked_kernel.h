/* Whether a machine runs what a configuration names: recipe.kind, attention.backend = "cudnn". */
#ifndef FP8LAB_RUNNER_PLAN_ASKED_KERNEL_H
#define FP8LAB_RUNNER_PLAN_ASKED_KERNEL_H

#include "kernels/base.h"

struct json_t;

/* What is known of the machine; NULL: nothing. */
struct asked_machine {
    const char *backend;        /* "cpu", "cuda", "auto" */
    const char *caps;           /* the architecture that the GPU simulates */
    const struct json_t *facts; /* of hw --json */
};

/* ERR_HARDWARE if its GPU runs no recipe of that kind (recipe_table.h), ERR_CONFIG if it lacks the
 * kernel: what was found, what to do. What is not known refuses nothing.
 * The model's shape is checked with the script (script/schema_rules.c). */
NODISCARD enum status asked_kernel_check(const struct json_t *config,
                                         const struct asked_machine *machine, struct err *e);

#endif
