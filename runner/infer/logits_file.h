/* Logits as a file, to compare them with those of another program. */
#ifndef FP8LAB_RUNNER_INFER_LOGITS_FILE_H
#define FP8LAB_RUNNER_INFER_LOGITS_FILE_H

#include "model/train.h"

/* Writes the logits behind each of `count` tokens as a NumPy array, f32 [count, vocab]. The trainer
 * has `batch` sequences of `length`, at least `count`. */
struct logits_sizes { int64_t batch, length, vocab; };
NODISCARD enum status logits_file_write(struct trainer *t, const struct logits_sizes *sizes,
                                        const int32_t *ids, int64_t count, const char *path,
                                        struct err *e);

#endif
