/* The worker's second thread: shows that the process runs, and looks whether the group still holds
 * while the first thread waits for a device or a peer. */
#ifndef FP8LAB_RUNNER_WORKER_HEARTBEAT_H
#define FP8LAB_RUNNER_WORKER_HEARTBEAT_H

#include "kernels/backend.h"
#include "runner/job/board.h"

struct heartbeat;

/* Beats on the board every PULSE_MS from now on. */
NODISCARD enum status heartbeat_start(struct heartbeat **out, struct board *board, struct err *e);
void heartbeat_stop(struct heartbeat *p); /* NULL is fine; ends the thread */

/* From now on the board says what the device of `b` is in, and its group is polled as well: when it
 * is broken, it is aborted, which ends what the first thread waits for. NULL: not any more; on
 * return the backend is in no other thread. */
void heartbeat_watch(struct heartbeat *p, struct backend *b);

/* Why the group was aborted; false while it was not. */
bool heartbeat_error(struct heartbeat *p, struct err *e);

#endif
