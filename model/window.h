/* What each query sees: of its own document, if documents are masked, and of a sliding window, its
 * own key and the window - 1 before it. And where in its document each token is. */
#ifndef FP8LAB_MODEL_WINDOW_H
#define FP8LAB_MODEL_WINDOW_H

#include "kernels/backend.h"

/* out [rows] = the first key that each row sees, for sequences of `length` rows whose documents
 * begin at starts [rows] (data_batch). starts NULL: no documents. window 0: no window. */
void window_first_keys(int32_t *out, const int32_t *starts, int64_t rows, int64_t length,
                       int64_t window);

/* out [rows] = the position of each row in its document. */
void window_positions(int32_t *out, const int32_t *starts, int64_t rows, int64_t length);

/* Fills first_key [B,T] i32, as attention takes it (kernels/arguments.h). Done on return.
 * ERR_MEMORY if the host has no room for a copy. */
NODISCARD enum status window_upload(struct backend *b, const struct tensor *first_key,
                                    int64_t window, struct err *e);

#endif
