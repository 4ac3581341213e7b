/* Reads JSON into jansson's values in one pass, several times faster than jansson does. It accepts
 * less: what it does not accept may still be JSON. json_safe.c calls it, nobody else. */
#ifndef FP8LAB_GROUND_JSON_READ_H
#define FP8LAB_GROUND_JSON_READ_H

#include <jansson.h>

#include "kernels/base.h"

/* The object or array that the text is; the caller releases it. It is equal to what jansson 2.14
 * reads with JSON_REJECT_DUPLICATES and JSON_ALLOW_NUL, or without them. NULL: *failed tells a lack
 * of memory from a text that jansson must judge. That is an invalid text, and a valid one with
 * duplicate keys, U+0000, an integer of 19 digits or more, a number of 64 bytes or more, or more
 * than 256 levels. */
NODISCARD json_t *json_read(const char *bytes, size_t n, bool *failed);

#endif
