/* Draws the next training batches in a thread of its own, so that a step does not wait for files.
 * Long before it draws a batch, it asks the system to read it: a disk serves many requests at
 * once faster than one after the other.
 *
 * Results do not depend on it: a batch is a function of its position. The thread draws the position
 * that data_ahead_begin names and those behind it, each one stride further. After another position
 * p was taken, it draws p + stride, p + 2 stride, and so on. While all places are drawn, it makes
 * ready what the next epoch needs. */
#ifndef FP8LAB_MODEL_DATA_AHEAD_H
#define FP8LAB_MODEL_DATA_AHEAD_H

#include "model/data.h"

/* Drawn; asked for and not drawn; asked for at most before the next one is drawn, so that the first
 * batch does not wait for the question about later ones. */
enum { BATCHES_AHEAD = 8, BATCHES_ASKED = 32, BATCHES_ASKED_AT_ONCE = 4 };

struct data_ahead; /* opaque */

/* What a rank draws: batches of `count` sequences of seq_len tokens. A step takes `batches` of
 * them, `stride` positions apart; its first is `offset` behind the first sequence of all ranks. */
struct ahead_plan { int64_t count, seq_len, stride, batches, offset; };

/* A batch, [count, T] each. */
struct ahead_batch {
    int32_t *tokens, *targets;
    int32_t *starts; /* NULL unless data_documents has one of its two */
    int64_t counted; /* first batch of a step: data_count of the sequences of all ranks; else 0 */
};

/* Starts the thread, which blocks all signals and draws nothing yet. `data` is borrowed.
 * ERR_MEMORY. */
NODISCARD enum status data_ahead_create(struct data_ahead **out, const struct data *data,
                                        const struct ahead_plan *plan, struct err *e);
/* Ends the thread after the batch that it is drawing. NULL is fine. */
void data_ahead_destroy(struct data_ahead *a);

/* The thread begins to draw: `position`, where a step begins, and what follows. What it has drawn
 * is discarded. The caller does not wait. NULL is fine. */
void data_ahead_begin(struct data_ahead *a, int64_t position);

/* The batch at `position`: fills the caller's buffers, and `counted`. Waits for the thread if it is
 * drawing this batch or the ones before. Any other position is drawn at once as the first batch of
 * a step, and the thread continues behind it. The error is the one of this batch. Called by one
 * thread. */
NODISCARD enum status data_ahead_take(struct data_ahead *a, int64_t position,
                                      struct ahead_batch *out, struct err *e);

#endif
