/* How the time after a stop request is divided. A container is killed some time after SIGTERM
 * (docker: 10 s, --stop-timeout). It cannot query that time, so FP8LAB_STOP_GRACE states it. The
 * worker gets most of it for its step and checkpoint; closing the bundle gets the rest. */
#ifndef FP8LAB_RUNNER_JOB_STOP_GRACE_H
#define FP8LAB_RUNNER_JOB_STOP_GRACE_H

#include "kernels/base.h"
#include "runner/job/attempt.h"

/* A worker's time if FP8LAB_STOP_GRACE is not set. */
enum { STOP_GRACE_WORKER_S = 120 };

/* Seconds from SIGTERM to SIGKILL, from FP8LAB_STOP_GRACE; 0 if it is not set. ERR_CONFIG unless
 * it is a whole number from 1 to 86400. */
NODISCARD enum status stop_grace_read(int64_t *grace_s, struct err *e);

/* The seconds that a worker has for its step and its checkpoint. */
int64_t stop_grace_worker_s(int64_t grace_s);

/* Whether a bundle with `bytes` of checkpoints can still be closed, `since_ms` after the stop
 * request. Always true if grace_s is 0. */
bool stop_grace_packs(int64_t grace_s, int64_t since_ms, int64_t bytes);

/* For an attempt whose worker did not stop in time: what is lost, and the grace time that it would
 * have needed. */
void stop_grace_explain(int64_t grace_s, const struct attempt *attempt, char *out, size_t size);

#endif
