/* A histogram as text: "12:3 64:100", the buckets (kernels/histogram.h) that are not empty, in
 * ascending order, each with its count. Text, since an array of numbers takes ten times as long to
 * make. */
#ifndef FP8LAB_RUNNER_RECORD_BUCKET_TEXT_H
#define FP8LAB_RUNNER_RECORD_BUCKET_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/histogram.h"

/* NULL: no memory. Owned by the caller. */
json_t *bucket_text(const int64_t counts[HISTOGRAM_COUNTS]);

/* The next bucket of a text that may be foreign. *at begins at the text, moves on with each call.
 * *bucket is the one before, -1 at first. false: the text ends here, or is not of this form. */
bool bucket_text_next(const char **at, int *bucket, int64_t *count);

#endif
