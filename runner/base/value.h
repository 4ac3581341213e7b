/* The result of a script as a tree of C values, each with its place in the source. The tree is in a
 * pool; no value is freed alone. Includes no Lua header. */
#ifndef FP8LAB_RUNNER_BASE_VALUE_H
#define FP8LAB_RUNNER_BASE_VALUE_H

#include <jansson.h>

#include "runner/base/canonical.h"
#include "runner/base/pool.h"

/* A place in a source. file NULL: not in a file (see `origin`). column 0: unknown. */
struct place {
    const char *file;   /* as the user named it */
    const char *origin; /* the override that set it, "--set a.b=1", or NULL */
    bool in_matrix;     /* an axis of a suite set it */
    bool in_module;     /* a file that the script requires set it, such as a preset */
    int line, column;   /* from 1; column in bytes */
};

enum value_type {
    VALUE_NULL,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_STRING,
    VALUE_TEXT, /* the text after `--set key=`; the schema gives it a type later */
    VALUE_TABLE,
    VALUE_FUNCTION
};

struct value_member {
    const char *key;
    struct value *value;
    struct place place; /* of the key */
};

struct value {
    enum value_type type;
    struct place place;  /* of the key or item that holds it; of the constructor for a table */
    bool b;
    int64_t i;
    double f;
    const char *string;  /* VALUE_STRING, VALUE_TEXT; NUL-terminated */
    size_t string_bytes; /* may exceed strlen when the script put a NUL into it */
    int function;        /* VALUE_FUNCTION: its reference in the script's registry */
    /* VALUE_TABLE: */
    const char *kind;    /* the constructor that made it ("fp8.delayed"), or NULL */
    struct value_member *members;
    int64_t member_count, member_capacity;
    bool list; /* written as [] even when it is empty; set by the schema, and of JSON */
    struct value **items;
    int64_t item_count, item_capacity;
};

struct value *value_new(struct pool *p, enum value_type type, struct place place);
struct value *value_int(struct pool *p, int64_t i, struct place place);
struct value *value_float(struct pool *p, double f, struct place place);
struct value *value_string(struct pool *p, const char *text, struct place place);

/* The value that JSON means. No real is infinite or NaN, and no string has a NUL. */
struct value *value_from_json(struct pool *p, const json_t *json, struct place place);

/* The member, or NULL. */
struct value *value_get(const struct value *table, const char *key);
struct value_member *value_member(const struct value *table, const char *key);
/* Adds or replaces a member. `key` is borrowed for the pool's life. */
void value_set(struct pool *p, struct value *table, const char *key, struct value *v,
               struct place place);
/* Takes a member out; does nothing if there is none. */
void value_remove(struct value *table, const char *key);
void value_append(struct pool *p, struct value *table, struct value *item);
/* A copy. value_set and value_append on one of the two do not change the other. */
struct value *value_copy(struct pool *p, const struct value *v);

/* Puts the members in bytewise order of their keys. */
void value_sort_members(struct value *table);

/* For trees that the schema has normalised; they assert the type. */
int64_t value_int_at(const struct value *table, const char *key);
const char *value_string_at(const struct value *table, const char *key); /* NULL for null */
bool value_is(const struct value *v, const char *string); /* equal strings; false for NULL */

/* How a message names a value: "the string "two"", "a table", "nil". */
const char *value_describe(struct pool *p, const struct value *v);

/* Appends the canonical JSON of a normalised tree (no VALUE_TEXT, no functions). */
void value_write(struct text *out, struct pool *p, const struct value *v);

#endif
