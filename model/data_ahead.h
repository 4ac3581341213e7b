/* Draws the next training batches in a thread of its own, so that a step does not wait for files.
 *
 * Results do not depend on it: a batch is a function of its position. After position p was taken,
 * the thread draws positions p + stride, p + 2 stride, and so on. */
#ifndef FP8LAB_MODEL_DATA_AHEAD_H
#define FP8LAB_MODEL_DATA_AHEAD_H

#include "model/data.h"

enum { BATCHES_AHEAD = 4 };

struct data_ahead; /* opaque */

/* Starts the thread, which blocks all signals and draws nothing yet. `data` is borrowed. A batch
 * has `count` sequences of T tokens. ERR_MEMORY. */
NODISCARD enum status data_ahead_create(struct data_ahead **out, const struct data *data,
                                        int64_t count, int64_t seq_len, int64_t stride,
                                        struct err *e);
/* Ends the thread after the batch that it is drawing. NULL is fine. */
void data_ahead_destroy(struct data_ahead *a);

/* The batch at `position`, as data_batch: tokens and targets [count, T]. Waits for the thread if it
 * is drawing this batch or the ones before; any other position is drawn at once, and the thread
 * continues behind it. The error is the one of this batch. Called by one thread. */
NODISCARD enum status data_ahead_take(struct data_ahead *a, int64_t position, int32_t *tokens,
                                      int32_t *targets, struct err *e);

#endif
