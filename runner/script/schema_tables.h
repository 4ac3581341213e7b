/* The rows of every key, and the names that other programs have for our keys. Data only. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_TABLES_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_TABLES_H

#include "runner/script/schema.h"

extern const struct schema SCHEMA_EXPERIMENT; /* schema_tables.c */

/* schema_recipe.c; NULL-terminated, one schema for each recipe kind. */
extern const struct schema *const SCHEMA_RECIPES[];
/* A recipe within `layers`: the same keys, except those that concern the whole model. */
extern const struct schema *const SCHEMA_LAYER_RECIPES[];

/* schema_others.c: the name of a key in other programs, and its name here. */
extern const struct other_name SCHEMA_OTHERS[];

#endif
