/* The one way of foreign text to a terminal: text of a bundle, a script, a file name, a driver.
 *
 * Such text could steer a terminal, or pass for output of ours. So each character that does more
 * than show itself is replaced by '?': control characters (C0, DEL, U+0080 to U+009F), separators
 * of lines and paragraphs, marks that turn the direction of text or are not visible, and bytes that
 * are not UTF-8. Sources: ECMA-48 for controls; Unicode 15.1, Bidi_Control and general categories
 * Zl, Zp, Cf for the rest. */
#ifndef FP8LAB_RUNNER_BASE_PLAIN_TEXT_H
#define FP8LAB_RUNNER_BASE_PLAIN_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The text as one line, in place: newlines and tabs are replaced too. Returns text. */
char *plain_text(char *text);
/* The same, but newlines and tabs stay: for a text of ours that quotes foreign words. */
char *plain_lines(char *text);

/* plain_text() of a copy in out[size], cut between two characters ("…" says so). Returns out.
 * text may be NULL, which is "". */
const char *plain_copy(char *out, size_t size, const char *text);
/* The same in a buffer that lives as long as the enclosing block: an argument for printf. */
enum { PLAIN_CAP = 4096 };
#define PLAIN(text) plain_copy((char[PLAIN_CAP]){ 0 }, PLAIN_CAP, (text))

/* A JSON text with \u escapes in the place of all such characters: the same value. Owned by the
 * caller (free); NULL without memory. `json` is valid UTF-8. */
char *plain_json(const char *json);

/* A deep copy of a JSON value, each string and key as plain_text(); the caller's, NULL without
 * memory. At most 128 levels deep. */
json_t *plain_tree(const json_t *value);

/* The bytes of the first character of text (1 where it is not UTF-8), its code point, and whether a
 * terminal shows it as it is. text is not empty. */
size_t plain_character(const char *text, uint32_t *code, bool *plain);

#endif
