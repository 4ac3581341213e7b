/* Protocol buffers, as far as TensorBoard's events need them: fields appended to a growing buffer.
 * A buffer that could not grow is `failed`, and stays so; whoever writes it to a file checks. */
#ifndef FP8LAB_RUNNER_TENSORBOARD_MESSAGE_H
#define FP8LAB_RUNNER_TENSORBOARD_MESSAGE_H

#include "kernels/base.h"
#include "runner/base/canonical.h"

void message_int(struct text *m, int field, int64_t value); /* int64, enum, bool */
void message_double(struct text *m, int field, double value);
void message_float(struct text *m, int field, float value);
void message_bytes(struct text *m, int field, const void *bytes, size_t n);
void message_text(struct text *m, int field, const char *text);

/* A message in a message: what is appended between the two calls is the inner one. */
size_t message_open(struct text *m, int field);
void message_close(struct text *m, size_t opened);

#endif
