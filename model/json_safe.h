/* jansson 2.14 for what must not lose a member when memory runs out: failures that stick, text that
 * is whole or absent, and parse errors that tell damage from want of memory. */
#ifndef FP8LAB_MODEL_JSON_SAFE_H
#define FP8LAB_MODEL_JSON_SAFE_H

#include <jansson.h>

#include "kernels/base.h"

/* Take the value over, as jansson's ..._new functions do. *failed becomes true if it is NULL (there
 * was no memory to make it) or finds no place; it never becomes false, so that a row of calls is
 * checked once. A NULL object or array counts as a failure too. */
void json_put(json_t *object, const char *key, json_t *value, bool *failed);
void json_append(json_t *array, json_t *value, bool *failed);
/* `value`, or NULL, letting go of it, if something in it failed. */
json_t *json_whole(json_t *value, bool failed);

/* json_dumps with jansson's `flags`, owned by the caller (free); NULL without memory, or for a
 * value that JSON cannot hold. jansson does not look whether the key of an object could be written
 * (dump.c, do_dump): its json_dumps may leave keys out of a text that could not grow, and return
 * it. */
char *json_dump_text(const json_t *value, size_t flags);

/* json_loadb for an object or array: *out is the caller's. ERR_FORMAT, or ERR_MEMORY; why->text and
 * why->line say what and where. Safe where jansson is not: its lexer (load.c, lex_save) does not
 * look whether a token could grow, drops the byte, and runs past the end of a string that lost its
 * quote. */
NODISCARD enum status json_parse(json_t **out, const char *bytes, size_t n, size_t flags,
                                 json_error_t *why);

#endif
