/* Bytes as base64 (RFC 4648, with padding), written as they come. */
#ifndef FP8LAB_RUNNER_COMPARE_BASE64_H
#define FP8LAB_RUNNER_COMPARE_BASE64_H

#include <stddef.h>
#include <stdio.h>

struct base64 {
    FILE *out;             /* borrowed */
    unsigned char hold[3]; /* bytes that do not fill a group of four digits yet */
    size_t held;
};

void base64_add(struct base64 *b, const void *bytes, size_t n);
/* Writes the rest with its padding; `b` can be used again. */
void base64_end(struct base64 *b);

#endif
