/* The worker's second thread. It shows that the process runs, and checks the group of ranks for
 * errors while the first thread waits for a device or a peer. */
#ifndef FP8LAB_RUNNER_WORKER_HEARTBEAT_H
#define FP8LAB_RUNNER_WORKER_HEARTBEAT_H

#include "kernels/backend.h"
#include "runner/job/board.h"

struct heartbeat;

/* Starts the thread, which beats on the board every HEARTBEAT_MS. */
NODISCARD enum status heartbeat_start(struct heartbeat **out, struct board *board, struct err *e);
void heartbeat_stop(struct heartbeat *p); /* ends the thread; NULL is fine */

/* From now on the thread writes the operators on b's device to the board, and polls its group of
 * ranks. It aborts a broken group, which ends the first thread's wait. NULL ends this; on return
 * the thread no longer uses the backend. */
void heartbeat_watch(struct heartbeat *p, struct backend *b);

/* Why the group was aborted; false: it was not. */
bool heartbeat_error(struct heartbeat *p, struct err *e);

#endif
