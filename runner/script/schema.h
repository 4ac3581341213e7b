/* The row of a key in an experiment's typed schema: its name, its type, its range, its default. The
 * rows are in schema_tables.c; schema_apply.c applies them to the values of a script. */
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
    FIELD_WORD,     /* one of `words`; or, if there is one, a table of `schema` */
    FIELD_DURATION, /* seconds, "1h56m", "1.5h" or "01:56:00"; becomes an integer of seconds */
    FIELD_TABLE,    /* `schema` */
    FIELD_TABLES,   /* a list of tables of `schema`, at least one */
    FIELD_VARIANT,  /* one of `variants`, chosen by the constructor */
    FIELD_FLOATS,   /* [min, max] bounds each; exactly `length` of them */
    FIELD_INTS,     /* [min, max] bounds each; at least one */
    FIELD_STRINGS,  /* at least one */
    FIELD_PROMPTS,  /* the same; an item may also be a list of token ids */
    FIELD_NAMES,    /* the same: names of parameters (model/selection.h) */
    FIELD_FACTORS,  /* a number in [min, max] for each name of parameters; at least one */
    FIELD_SETS,     /* sets of held-out data: files for each name; at least one */
    FIELD_ENV,      /* environment variables: schema_env.h */
    FIELD_FUNCTION  /* unchanged; resolved later */
};

enum { FIELD_REQUIRED = 1, FIELD_NULLABLE = 2 /* `false` in a script, `null` in an override */,
       FIELD_ABOVE_MIN = 4 /* (min, max] */, FIELD_BELOW_MAX = 8 /* [min, max) */,
       FIELD_SHORT = 16 /* FIELD_TABLE: absent unless set; a string stands for its first key */,
       FIELD_ABSENT = 32 /* absent unless set */,
       FIELD_SWITCH = 64 /* FIELD_TABLE: `true` is a table with its defaults */ };

struct field {
    const char *key;
    enum field_type type;
    unsigned flags;
    double min, max;
    const char *initial;       /* the default, written as in --set; NULL: absent, null or derived */
    const char *const *words;  /* NULL-terminated */
    const struct other_name *refused; /* FIELD_WORD: rejected words with reasons; or NULL */
    const struct schema *schema;          /* FIELD_TABLE, FIELD_WORD */
    const struct schema *const *variants; /* FIELD_VARIANT; NULL-terminated */
    int64_t length;            /* FIELD_FLOATS */
};

struct schema {
    const char *name;           /* the kind, for a variant: "fp8.delayed" */
    const struct field *fields; /* terminated by a row without a key */
    const char *items_key;      /* the key for positional items, or NULL */
};

/* The row of a key, or NULL. */
const struct field *schema_field(const struct schema *schema, const char *key);

/* "a.b", or "b" if path is "". */
const char *schema_path(struct pool *p, const char *path, const char *key);

#endif
