/* Canonical JSON: one value, one sequence of bytes, on every machine.
 *
 * Keys in bytewise order, no spaces, UTF-8 as it is (only '"', '\\' and control characters are
 * escaped), integers as integers, doubles as the shortest decimal that reads back to the same bits,
 * with an exponent below 1e-4 and from 1e16 on, and always with a '.' or an exponent, so that 1 and
 * 1.0 stay apart. NaN and infinities have no
 * JSON form and are refused. */
#ifndef FP8LAB_RUNNER_BASE_CANONICAL_H
#define FP8LAB_RUNNER_BASE_CANONICAL_H

#include <jansson.h>

#include "kernels/base.h"

/* A growing text. Zero-initialise; `bytes` is owned and NUL-terminated once anything was added.
 * After a failed allocation `failed` stays set and further text is dropped. */
struct text {
    char *bytes;
    size_t size, capacity;
    bool failed;
};
void text_add(struct text *t, const char *bytes, size_t n);
void text_puts(struct text *t, const char *string);
void text_free(struct text *t);

/* The canonical form of one scalar, appended. Invalid UTF-8 becomes U+FFFD. d must be finite. */
void canonical_add_string(struct text *t, const char *bytes, size_t n);
void canonical_add_int(struct text *t, int64_t i);
void canonical_add_double(struct text *t, double d);

/* The bytes of the character at text (1 to 4), or 0 where the n > 0 bytes there begin none. NUL,
 * overlong forms, surrogates and code points beyond U+10FFFF are invalid (RFC 3629). */
size_t utf8_character(const char *text, size_t n);

/* The number of leading bytes of s that are valid UTF-8 (n when all are). NUL counts as invalid. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* A JSON string of text that need not be UTF-8, such as a file's name: each byte that is none
 * becomes U+FFFD. New reference; NULL: no memory. */
json_t *json_from_text(const char *text);

/* *out: the canonical bytes of v, NUL-terminated, *n of them; owned by the caller (free).
 * ERR_ARG for a value without a canonical form, ERR_MEMORY. */
NODISCARD enum status json_canonical(const json_t *v, char **out, size_t *n, struct err *e);

#endif
