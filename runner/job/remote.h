/* The part of an attempt that is on other hosts, watched through their runners. */
#ifndef FP8LAB_RUNNER_JOB_REMOTE_H
#define FP8LAB_RUNNER_JOB_REMOTE_H

#include "runner/job/watch.h"

/* Whether the parts of all other hosts have ended. Always true for a follower. */
bool remote_over(const struct watch *w);

/* Handles the messages that have arrived, and lost connections. */
void remote_receive(struct watch *w);
/* Once a tick: sends a heartbeat to each peer, and counts theirs. */
void remote_tick(struct watch *w);
/* Follower: sends the states of its ranks to the leader, before it judges an event. */
void remote_show_ranks(struct watch *w);
/* Follower: tells the leader of a stop request by signal `signo`. */
void remote_request_stop(struct watch *w, int signo);

#endif
