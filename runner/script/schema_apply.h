/* Applies the rows of the schema to the values of a script, and reports every value that does not
 * fit. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_APPLY_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_APPLY_H

#include "runner/script/schema.h"

/* The table `v` with every key of the schema: typed, and with its default where v has no value. A
 * key without a default stays absent. A value that does not fit is reported in `d`, and its key is
 * absent from the result. `path` is the path of v ("" for the experiment itself). */
struct value *schema_apply(struct diagnostics *d, const struct schema *schema,
                           const struct value *v, const char *path);
/* The same for a table whose schema depends on its constructor. NULL if it fits no variant. */
struct value *schema_apply_variant(struct diagnostics *d, const struct schema *const *variants,
                                   const struct value *v, const char *path);

/* The full path of a key, which a matrix or an override may abbreviate: "recipe" stays "recipe",
 * "seed" is "train.seed", "ffn" is "model.ffn". An unknown name is returned unchanged. */
const char *schema_expand_path(struct pool *p, const char *path);
/* The full path of the key that a mistyped abbreviation probably means: "train.seed" for "seeds".
 * NULL: none is near. */
const char *schema_near_path(struct pool *p, const char *key);

/* Sets the value at a dotted path of the tree `root`. Missing tables on the way are made. */
void schema_set_path(struct pool *p, struct value *root, const char *path, struct value *v,
                     struct place place);

#endif
