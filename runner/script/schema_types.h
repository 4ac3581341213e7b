/* Scalars and lists of the schema: checking, converting, and saying what was expected. */
#ifndef FP8LAB_RUNNER_SCRIPT_SCHEMA_TYPES_H
#define FP8LAB_RUNNER_SCRIPT_SCHEMA_TYPES_H

#include "runner/script/schema.h"

/* The value as the field's type has it, or NULL after a diagnostic. Every type but FIELD_TABLE and
 * FIELD_VARIANT. VALUE_TEXT is read by the field's type. */
struct value *schema_typed(struct diagnostics *d, const struct field *f, const struct value *v,
                           const char *path);

/* The text of a --set whose key says nothing of its type: an integer, a number, true or false, else
 * the text itself. */
struct value *schema_text_scalar(struct pool *p, struct value *text);

/* "an integer from 1 to 64": what a message says a field takes. */
const char *schema_expected(struct pool *p, const struct field *f);

#endif
