/* The logits of the next token, by the forward pass of training. */
#ifndef FP8LAB_MODEL_LOGITS_H
#define FP8LAB_MODEL_LOGITS_H

#include "model/train.h"

/* out [count, vocab] = the logits behind the rows `row` (b*T + t, in any order) of tokens [B,T], as
 * f32. B is the micro-batch and T the length of a sequence. Each sequence is one document from
 * position 0, so what stands behind a row does not change its logits, except through a scale of the
 * recipe that covers a whole tensor.
 *
 * Allocates nothing and changes no bit of a later step. Every rank calls it with the same tokens
 * and gets all rows. Done on return. ERR_ARG for a token or a row that the trainer lacks; ERR_STATE
 * if a step is pending or after a failure. The values may be non-finite. */
NODISCARD enum status trainer_logits(struct trainer *t, const int32_t *tokens, const int64_t *row,
                                     int64_t count, float *out, struct err *e);

#endif
