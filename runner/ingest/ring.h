/* The batches that are on their way through the threads. One thread fills and writes them in order,
 * the others encode. */
#ifndef FP8LAB_RUNNER_INGEST_RING_H
#define FP8LAB_RUNNER_INGEST_RING_H

#include <pthread.h>

#include "runner/ingest/batch.h"
#include "runner/ingest/progress.h"

struct ring_slot {
    struct batch batch;
    bool encoded;
    struct progress_point point; /* batches 0: nothing is saved behind this batch */
};

struct ring_worker { struct ring *ring; struct encoder *encoder; pthread_t thread; };

/* Batches are numbered as they are read; batch i is slot i % slots. Numbers below `written` are
 * free again, below `taken` have a thread, below `filled` are read. */
struct ring {
    pthread_mutex_t lock;
    pthread_cond_t filled_more, encoded_more;
    struct ring_slot *slot; /* owned */
    int64_t slots, filled, taken, written;
    bool closed;            /* nothing more is read */
    struct batch_options o; /* the caller's */
    struct ring_worker *worker; /* owned */
    int workers;
};

/* Then ring_start(), and at the end ring_stop(), whatever ring_start() answered. The ring must not
 * move. */
void ring_init(struct ring *r);
NODISCARD enum status ring_start(struct ring *r, int threads, struct err *e);
void ring_stop(struct ring *r);

/* The next slot to fill, which must be free; then the workers may have it. */
struct ring_slot *ring_next(struct ring *r);
void ring_hand_over(struct ring *r);

/* The next slot to write: waits for it if more than `left` are unwritten. NULL: there is none, or
 * it is not yet encoded. Behind it: ring_written(). */
struct ring_slot *ring_encoded(struct ring *r, int64_t left);
void ring_written(struct ring *r);

#endif
