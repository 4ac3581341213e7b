/* One line of a JSON lines file: the text of one of its fields. */
#ifndef FP8LAB_RUNNER_INGEST_JSON_LINE_H
#define FP8LAB_RUNNER_INGEST_JSON_LINE_H

#include "runner/ingest/unicode.h"

/* Appends the text of the member `field` of the object line[0..n-1]. The whole line is checked.
 * Half of a surrogate pair becomes U+FFFD; NaN and Infinity are numbers, as in Python. ERR_FORMAT
 * with the byte in the line, ERR_MEMORY. */
NODISCARD enum status json_line_text(const char *line, size_t n, const char *field,
                                     struct bytes *out, struct err *e);

/* Puts the key of a script for the flag that such an error may name. */
void json_line_name_key(char *error);

#endif
