/* Why an attempt ends, and which rank is at fault. The first cause counts, except that a real cause
 * replaces a reported loss (attempt.h). Each function fills watch->out, and asks the ranks to stop
 * where the cause leaves them nothing to do. */
#ifndef FP8LAB_RUNNER_JOB_VERDICT_H
#define FP8LAB_RUNNER_JOB_VERDICT_H

#include "runner/job/watch.h"

/* ---- any host ---------------------------------------------------------------------------------*/

void verdict_settle(struct watch *w, enum attempt_end end); /* does nothing once w->ended */
/* A stop request came to a runner. A launcher signals all tasks of a job: later ones are the same
 * request, and are ignored. */
void verdict_stop_request(struct watch *w, int signo);
void verdict_abandoned(struct watch *w); /* a second stop request came; the caller kills */
/* Files an event of a rank (watch_event). Where it cannot be kept, on a full disk for example, the
 * attempt fails and no rank is at fault. */
void verdict_event(struct watch *w, int64_t rank, const struct json_t *event);
/* No rank has sent an event for silent_ms. */
void verdict_hung(struct watch *w, int64_t silent_ms);
/* Call it when all ranks have exited. Where lost peers are all that is known, the states of all
 * ranks are compared (blame.h). */
void verdict_conclude(struct watch *w);

/* ---- the ranks here ---------------------------------------------------------------------------*/

void verdict_error_event(struct watch *w, int64_t rank, const struct json_t *event);
void verdict_bad_line(struct watch *w, const struct err *why); /* a worker wrote what is no event */
void verdict_done(struct watch *w, const struct json_t *event); /* of rank 0 */
void verdict_death(struct watch *w, int64_t i, int wait_status); /* i: index among the ranks here */
/* Whether a rank here has shown no sign of life for `ticks` ticks. That ends the attempt; the
 * caller kills. */
bool verdict_frozen(struct watch *w, int64_t ticks);

/* ---- other hosts ------------------------------------------------------------------------------*/

/* Takes the end of another runner's part from its message, which may lack any member. */
void verdict_adopt(struct watch *w, const struct peer_connection *c, const struct json_t *ended);
void verdict_lost(struct watch *w, const struct peer_connection *c); /* the runner is lost */
/* The message for the leader: new reference, NULL without memory. */
struct json_t *verdict_message(const struct attempt *attempt);

#endif
