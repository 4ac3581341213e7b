/* Runs the part of an attempt that is on this host, to its end: starts the workers, takes their
 * events, and stops and reaps them. The leader also watches time limit, hangs and the runners of
 * other hosts (remote.h), and judges (verdict.h). A follower reports events and deaths to the
 * leader. Knows processes and events; knows nothing of models, bundles or Lua. */
#ifndef FP8LAB_RUNNER_JOB_SUPERVISE_H
#define FP8LAB_RUNNER_JOB_SUPERVISE_H

#include "runner/job/attempt.h"

/* Runs one attempt to its end. The first stop request (signals.h) asks the workers to save a
 * checkpoint and exit; a second one kills them. SIGKILL does not end a worker that waits in the
 * kernel for a dead disk or a hung driver. It is left behind after SUPERVISE_UNKILLABLE_S.
 *
 * A worker gets its events descriptor as number SUPERVISE_EVENTS_FD. Its output goes to
 * data/logs/worker-<rank>.log. It is killed when the runner dies. OK whatever the workers did; an
 * error only if they could not be started. */
NODISCARD enum status supervise(const struct supervise_options *options, struct attempt *out,
                                struct err *e);

#endif
