/* The kind of a file by its first bytes, if it is not text: an archive, or compressed. */
#ifndef FP8LAB_GROUND_INPUT_KIND_H
#define FP8LAB_GROUND_INPUT_KIND_H

#include <stddef.h>

enum { INPUT_KIND_HEAD = 263 }; /* so many bytes tell every kind */

/* "a gzip file", ...; NULL: none of these kinds. `n` first bytes; fewer than INPUT_KIND_HEAD only
 * of a file that has no more. */
const char *input_kind(const void *head, size_t n);

#endif
