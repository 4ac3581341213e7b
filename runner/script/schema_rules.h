/* What no single row can say: defaults that follow from other keys, and combinations that are
 * refused, each with the reason and a way out. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_RULES_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_RULES_H

#include "runner/script/schema.h"

/* Completes and checks an experiment that schema_apply has normalised. Keys may be missing where
 * schema_apply complained; a rule that needs one then stays silent. */
void schema_rules(struct diagnostics *d, struct value *experiment);

/* The same for one recipe; `path` is its path. */
void schema_recipe_rules(struct diagnostics *d, struct value *recipe, const char *path);

#endif
