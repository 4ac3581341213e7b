/* The worker's second thread: shows that the process runs, and looks whether the group still holds
 * while the first thread waits for a device or a peer. */
#ifndef FP8LAB_RUNNER_WORKER_PULSE_H
#define FP8LAB_RUNNER_WORKER_PULSE_H

#include "kernels/backend.h"
#include "runner/job/board.h"

struct pulse;

/* Beats on the board every PULSE_MS from now on. */
NODISCARD enum status pulse_start(struct pulse **out, struct board *board, struct err *e);
void pulse_stop(struct pulse *p); /* NULL is fine; ends the thread */

/* From now on the board says what the device of `b` is in, and its group is polled as well: when it
 * is broken, it is aborted, which ends what the first thread waits for. NULL: not any more; on
 * return the backend is in no other thread. */
void pulse_watch(struct pulse *p, struct backend *b);

/* Why the group was aborted; false while it was not. */
bool pulse_error(struct pulse *p, struct err *e);

#endif
