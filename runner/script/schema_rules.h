/* Rules over several keys: defaults that depend on other keys, and rejected combinations, each with
 * the reason and a fix. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_RULES_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_RULES_H

#include "runner/script/schema.h"

/* Completes and checks an experiment that schema_apply has normalised. A key is missing if
 * schema_apply reported an error for it; rules that need the key are then skipped. */
void schema_rules(struct diagnostics *d, struct value *experiment);

/* The same for one recipe; `path` is its path. */
void schema_recipe_rules(struct diagnostics *d, struct value *recipe, const char *path);
/* Checks what a recipe does after some step of the run; `train` is the run's section. */
void schema_recipe_steps(struct diagnostics *d, const struct value *recipe, const char *path,
                         const struct value *train);

#endif
