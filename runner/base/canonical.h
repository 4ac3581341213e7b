/* Canonical JSON: a value has the same bytes on every machine.
 *
 * Keys are in bytewise order, without spaces. UTF-8 is not escaped, except '"', '\\' and control
 * characters. A double is the shortest decimal that reads back to the same bits, with an exponent
 * below 1e-4 and from 1e16 on. It always has a '.' or an exponent, so 1 and 1.0 differ. NaN and
 * infinities have no JSON form and are rejected. */
#ifndef FP8LAB_RUNNER_BASE_CANONICAL_H
#define FP8LAB_RUNNER_BASE_CANONICAL_H

#include <jansson.h>

#include "kernels/base.h"
#include "model/ground/sha256.h"

/* A growing text. Zero-initialise it. `bytes` is owned, and NUL-terminated after the first
 * addition. After a failed allocation `failed` stays set and further text is ignored. */
struct text {
    char *bytes;
    size_t size, capacity;
    bool failed;
};
void text_add(struct text *t, const char *bytes, size_t n);
void text_puts(struct text *t, const char *string);
void text_free(struct text *t);

/* Append the canonical form of one scalar. Invalid UTF-8 becomes U+FFFD. d must be finite. */
void canonical_add_string(struct text *t, const char *bytes, size_t n);
void canonical_add_int(struct text *t, int64_t i);
void canonical_add_double(struct text *t, double d);

/* The length in bytes (1 to 4) of the first character of text, which has n > 0 bytes; 0 if it is
 * invalid: NUL, an overlong form, a surrogate, or beyond U+10FFFF (RFC 3629). */
size_t utf8_character(const char *text, size_t n);

/* The number of leading bytes of s that are valid UTF-8 (n when all are). NUL counts as invalid. */
size_t utf8_valid_prefix(const char *s, size_t n);

/* A JSON string of a text that may not be UTF-8, such as a file name: each invalid byte becomes
 * U+FFFD. New reference; NULL: out of memory. */
json_t *json_from_text(const char *text);

/* *out = the canonical form of v: *n bytes and a NUL; owned by the caller (free).
 * ERR_ARG for a value without a canonical form, ERR_MEMORY. */
NODISCARD enum status json_canonical(const json_t *v, char **out, size_t *n, struct err *e);

/* hex <- the SHA-256 of the value's canonical form. */
NODISCARD enum status canonical_hash(const json_t *value, char hex[SHA256_HEX], struct err *e);

#endif
