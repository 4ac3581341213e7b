/* Makes untrusted text safe for a terminal: text of a bundle, a script, a file name, a driver.
 *
 * Such text could control a terminal, or look like our own output. '?' replaces
 *   control characters (C0, DEL, U+0080 to U+009F: ECMA-48)
 *   line and paragraph separators (Unicode 15.1, general categories Zl, Zp)
 *   marks that change the direction of text or are invisible (Bidi_Control, Cf)
 *   bytes that are not UTF-8 */
#ifndef FP8LAB_RUNNER_BASE_PLAIN_TEXT_H
#define FP8LAB_RUNNER_BASE_PLAIN_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text as one line, in place: newlines and tabs are replaced too. Returns text. */
char *plain_text(char *text);
/* The same, but newlines and tabs stay: for our own text that quotes untrusted text. */
char *plain_lines(char *text);

/* plain_text() of a copy in out[size]. A text that is too long is cut between two characters, and
 * "…" is added. Returns out. text may be NULL, which means "". */
const char *plain_copy(char *out, size_t size, const char *text);
/* The same in a buffer that is valid in the enclosing block: an argument for printf. */
enum { PLAIN_CAP = 4096 };
#define PLAIN(text) plain_copy((char[PLAIN_CAP]){ 0 }, PLAIN_CAP, (text))

/* A JSON text of the same value, with \u escapes for all such characters. Owned by the caller
 * (free); NULL: out of memory. `json` must be valid UTF-8. */
char *plain_json(const char *json);

/* A deep copy of a JSON value, with plain_text() applied to each string and key. At most 128
 * levels. Owned by the caller; NULL: out of memory. */
json_t *plain_tree(const json_t *value);

/* Returns the length in bytes of the first character of text (1 if it is not UTF-8). *code is its
 * code point, *plain is false for the characters above. text must not be empty. */
size_t plain_character(const char *text, uint32_t *code, bool *plain);

#endif
