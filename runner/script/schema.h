/* The typed schema of an experiment: what keys there are, what each may hold, what it is when it is
 * left out. One row a key (schema_tables.c); this module applies rows to a script's values and
 * reports everything that does not fit. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_H

#include "runner/base/diagnostics.h"
#include "runner/base/nearest.h"

enum field_type {
    FIELD_INT,      /* an integer in [min, max]; 8.0 is 8 */
    FIELD_FLOAT,    /* a finite number in [min, max]; 1 is 1.0 */
    FIELD_BOOL,
    FIELD_STRING,   /* UTF-8 without control characters, [min, max] bytes */
    FIELD_NAME,     /* letters, digits, '.', '_', '-': part of file names */
    FIELD_WORD,     /* one of `words` */
    FIELD_DURATION, /* seconds, "1h56m", "1.5h" or "01:56:00"; becomes an integer of seconds */
    FIELD_TABLE,    /* `schema` */
    FIELD_VARIANT,  /* one of `variants`, told apart by the constructor that made it */
    FIELD_FLOATS,   /* [min, max] bounds each; exactly `length` of them */
    FIELD_STRINGS,  /* at least one */
    FIELD_ENV,      /* environment variables: schema_env.h */
    FIELD_FUNCTION  /* kept as it is; resolved later */
};

enum { FIELD_REQUIRED = 1, FIELD_NULLABLE = 2 /* `false` in a script, `null` in an override */,
       FIELD_ABOVE_MIN = 4 /* (min, max] */, FIELD_BELOW_MAX = 8 /* [min, max) */ };

struct field {
    const char *key;
    enum field_type type;
    unsigned flags;
    double min, max;
    const char *initial;       /* as an override would write it; NULL: absent, null or derived */
    const char *const *words;  /* NULL-terminated */
    const struct other_name *refused; /* FIELD_WORD: words of others, and why not here; or NULL */
    const struct schema *schema;          /* FIELD_TABLE */
    const struct schema *const *variants; /* FIELD_VARIANT; NULL-terminated */
    int64_t length;            /* FIELD_FLOATS */
};

struct schema {
    const char *name;           /* the kind, for a variant: "fp8.delayed" */
    const struct field *fields; /* ended by a row without a key */
    const char *items_key;      /* the key that positional items stand for, or NULL */
};

/* schema_tables.c, schema_recipe.c */
extern const struct schema SCHEMA_EXPERIMENT;
extern const struct schema *const SCHEMA_RECIPES[];
/* A recipe within `layers`: the same keys, without those that concern the whole model. */
extern const struct schema *const SCHEMA_LAYER_RECIPES[];

/* What other programs call a key (schema_others.c). */
extern const struct other_name SCHEMA_OTHERS[];

/* The table `v` with every key of the schema, typed, defaults filled in; keys without a default
 * stay absent. Whatever does not fit is in `d`, and its key absent from the result. `path` is the
 * path of v ("" for the whole). */
struct value *schema_apply(struct diagnostics *d, const struct schema *schema,
                           const struct value *v, const char *path);
/* The same for a table told apart by its constructor. NULL when it is none of them. */
struct value *schema_apply_variant(struct diagnostics *d, const struct schema *const *variants,
                                   const struct value *v, const char *path);

const struct field *schema_field(const struct schema *schema, const char *key);

/* The full path of a key as it may be abbreviated in a matrix or an override: "recipe" stays,
 * "seed" is "train.seed", "ffn" is "model.ffn". Unknown names come back as they are. */
const char *schema_expand_path(struct pool *p, const char *path);

/* Lays `v` at a dotted path of the tree `root`, making tables on the way. */
void schema_set_path(struct pool *p, struct value *root, const char *path, struct value *v,
                     struct place place);

/* "a.b", or "b" when a is "". */
const char *schema_path(struct pool *p, const char *path, const char *key);

#endif
