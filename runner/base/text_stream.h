/* A stdio stream that ends up in memory, for text that fprintf writes best. */
#ifndef FP8LAB_RUNNER_BASE_TEXT_STREAM_H
#define FP8LAB_RUNNER_BASE_TEXT_STREAM_H

#include <stdio.h>

#include "runner/base/canonical.h"

/* Appends to t, which holds everything once text_stream_close is done; NULL without memory.
 * (glibc's open_memstream drops what finds no memory, and neither ferror nor fclose says so.) */
FILE *text_stream_open(struct text *t);

/* Closes the stream (NULL is fine). Whether t holds all that was written. */
bool text_stream_close(FILE *stream, const struct text *t);

#endif
