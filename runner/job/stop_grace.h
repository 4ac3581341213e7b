/* What is done of "checkpoint, bundle, leave" in the time that a stop request leaves. Whoever stops
 * a container kills it after a grace (docker: 10 s, --stop-timeout) that the container cannot ask
 * for; FP8LAB_STOP_GRACE tells it. The worker gets the larger part, closing the bundle the rest. */
#ifndef FP8LAB_RUNNER_JOB_STOP_GRACE_H
#define FP8LAB_RUNNER_JOB_STOP_GRACE_H

#include "kernels/base.h"
#include "runner/job/supervise.h"

/* A worker's time where nobody kills us. */
enum { STOP_GRACE_WORKER_S = 120 };

/* Seconds from SIGTERM to SIGKILL, by FP8LAB_STOP_GRACE; 0 where it is not set. ERR_CONFIG unless
 * it is a whole number from 1 to 86400. */
NODISCARD enum status stop_grace_read(int64_t *grace_s, struct err *e);

/* How long a worker that was asked to stop has for its step and its checkpoint. */
int64_t stop_grace_worker_s(int64_t grace_s);

/* Whether a bundle with so many bytes of checkpoints can be closed before the end, `since_ms` after
 * the stop request. Always where grace_s is 0. */
bool stop_grace_packs(int64_t grace_s, int64_t since_ms, int64_t bytes);

/* Of an attempt whose worker did not stop in time: what that means, and the grace that
 * it would have needed. */
void stop_grace_explain(int64_t grace_s, const struct attempt *attempt, char *out, size_t size);

#endif
