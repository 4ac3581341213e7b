/* Why an attempt ends, and which rank is at fault; only the leader judges. The first cause counts,
 * except that a real cause replaces a reported loss (attempt.h). Each function fills watch->out. It
 * asks the ranks to stop if the cause leaves them nothing to do. */
#ifndef FP8LAB_RUNNER_JOB_VERDICT_H
#define FP8LAB_RUNNER_JOB_VERDICT_H

#include "runner/job/watch.h"

void verdict_settle(struct watch *w, enum attempt_end end); /* does nothing once w->ended */
/* A stop request came to a runner. A launcher signals all tasks of a job: later ones are the same
 * request, and are ignored. */
void verdict_stop_request(struct watch *w, int signo);
void verdict_abandoned(struct watch *w); /* a second stop request came; the caller kills */
/* An event of a rank of any host: takes "error", "done" and "exit" into account, and files it
 * (watch_event). If it cannot be filed, on a full disk for example, the attempt fails and no
 * rank is at fault. A follower only files it, which sends it to the leader. */
void verdict_event(struct watch *w, int64_t rank, const struct json_t *event);
void verdict_no_memory(struct watch *w); /* for an event: the attempt fails likewise */
/* No rank has sent an event for silent_ms. */
void verdict_hung(struct watch *w, int64_t silent_ms);
/* Whether a rank has shown no sign of life for `ticks` ticks. That ends the attempt; the caller
 * kills. */
bool verdict_frozen(struct watch *w, int64_t ticks);
/* Another runner is lost, or its part ended before the attempt did and no rank of it reported. */
void verdict_lost(struct watch *w, const struct peer_connection *c);
void verdict_unexplained(struct watch *w, const struct peer_connection *c);
/* Call it when all ranks have exited. If lost peers are all that is known, the states of all
 * ranks are compared (blame.h). */
void verdict_conclude(struct watch *w);

#endif
