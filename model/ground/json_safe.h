/* jansson 2.14, safe when memory runs out: failures are sticky, text is whole or absent, and parse
 * errors tell damage from lack of memory. */
#ifndef FP8LAB_GROUND_JSON_SAFE_H
#define FP8LAB_GROUND_JSON_SAFE_H

#include <jansson.h>

#include "kernels/base.h"

/* Both take ownership of the value, as jansson's ..._new functions do. *failed becomes true if the
 * value, the object or the array is NULL (no memory), or if there is no memory to add it. *failed
 * never becomes false, so one check covers many calls. */
void json_put(json_t *object, const char *key, json_t *value, bool *failed);
void json_append(json_t *array, json_t *value, bool *failed);
/* A new object with the same values. jansson's json_copy loses keys if memory runs out. */
json_t *json_copied(const json_t *object, bool *failed);
/* Returns `value`; if `failed`, releases it and returns NULL. */
json_t *json_whole(json_t *value, bool failed);

/* json_dumps with jansson's `flags`; the caller frees the text. NULL: no memory, or a value that
 * JSON cannot represent.
 * jansson's own json_dumps may return a text without some keys: it ignores a failed write of an
 * object's key (dump.c, do_dump). */
char *json_dump_text(const json_t *value, size_t flags);

/* json_loadb for an object or array; the caller releases *out. ERR_FORMAT or ERR_MEMORY, with
 * why->text and why->line.
 * jansson's lexer (load.c, lex_save) ignores a token that cannot grow. It drops the byte, and reads
 * past the end of a string that lost its quote. This function does neither. */
NODISCARD enum status json_parse(json_t **out, const char *bytes, size_t n, size_t flags,
                                 json_error_t *why);

#endif
