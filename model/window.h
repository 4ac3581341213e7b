/* A sliding window: each query sees its own key and the window - 1 before it. */
#ifndef FP8LAB_MODEL_WINDOW_H
#define FP8LAB_MODEL_WINDOW_H

#include "kernels/backend.h"

/* Fills first_key [B,T] i32, as attention takes it (kernels/arguments.h). Done on return.
 * ERR_MEMORY if the host has no room for a copy. */
NODISCARD enum status window_upload(struct backend *b, const struct tensor *first_key,
                                    int64_t window, struct err *e);

#endif
