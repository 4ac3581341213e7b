/* Scalars and lists of the schema: checks, conversions, and the text of the expected type. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_TYPES_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_TYPES_H

#include "runner/script/schema.h"

/* The value converted to the field's type, or NULL after a diagnostic. For every type except
 * FIELD_TABLE, FIELD_TABLES and FIELD_VARIANT. VALUE_TEXT is parsed as the field's type. */
struct value *schema_typed(struct diagnostics *d, const struct field *f, const struct value *v,
                           const char *path);

/* The value of a --set whose key has no type yet: an integer, a number, true, false, or else the
 * text itself. */
struct value *schema_text_scalar(struct pool *p, struct value *text);

/* The list of a --set such as `["a,b.txt", "c.txt"]`, whose items may have commas. NULL: it is no
 * JSON list; then *why has the error of JSON if it begins with '[', else NULL. */
struct value *schema_json_list(struct pool *p, const struct value *text, const char **why);

/* What to write for a --set with several values, for a message; "": the value is another one. */
const char *schema_several(struct pool *p, const struct value *v, const char *path);

/* The expected type of a field, for a message: "an integer from 1 to 64". */
const char *schema_expected(struct pool *p, const struct field *f);

#endif
