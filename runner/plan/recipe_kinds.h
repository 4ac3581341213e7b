/* The recipe kinds: one table of what the runner knows of each kind besides its keys, which are
 * the schema's (script/schema_recipe.c). options, compare and doctor read this table. */
#ifndef FP8LAB_RUNNER_PLAN_RECIPE_KINDS_H
#define FP8LAB_RUNNER_PLAN_RECIPE_KINDS_H

#include <jansson.h>

#include "model/recipe.h"
#include "runner/script/schema.h"

enum { RECIPE_KIND_COUNT = RECIPE_MXFP8 + 1 };

struct recipe_kind_row {
    const char *name;                /* "fp8.delayed" */
    enum dtype operand;              /* of the forward GEMM */
    enum scale_kind scale_a, scale_b; /* of its activation and its weight */
    double loss_tolerance;           /* how far above BF16's mean loss it may be, relative */
};

/* Never NULL. */
const struct recipe_kind_row *recipe_kind_row(enum recipe_kind kind);
/* NULL: no kind has the name. */
const struct recipe_kind_row *recipe_kind_find(const char *name);
/* All names in the order of enum recipe_kind, then NULL. */
void recipe_kind_names(const char *out[RECIPE_KIND_COUNT + 1]);

/* The keys of the kind with this name; NULL: there is none. */
const struct schema *recipe_kind_schema(const char *name);

/* The default of a key of `recipe`, as the schema writes it: "hybrid", "false", "none". */
const char *recipe_key_default(const struct field *field, const json_t *recipe);

/* A recipe of this kind with every key at its default, as resolved.json has it. New reference;
 * NULL: no memory. */
json_t *recipe_kind_defaults(enum recipe_kind kind);

#endif
