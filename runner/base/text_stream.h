/* A stdio stream that writes into memory. */
#ifndef FP8LAB_RUNNER_BASE_TEXT_STREAM_H
#define FP8LAB_RUNNER_BASE_TEXT_STREAM_H

#include <stdio.h>

#include "runner/base/canonical.h"

/* Opens a stream that appends to t; t is complete after text_stream_close. NULL: out of memory.
 * (glibc's open_memstream loses text if memory runs out, and neither ferror nor fclose reports
 * it.) */
FILE *text_stream_open(struct text *t);

/* Closes the stream, which may be NULL. Returns whether t has everything that was written. */
bool text_stream_close(FILE *stream, const struct text *t);

#endif
