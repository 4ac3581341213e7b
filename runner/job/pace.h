/* How evenly the ranks of a run work: the slowest rank of each step, and how long the others
 * waited.
 *
 * A rank reports its time in collectives, and its idle time: the part of it without arithmetic. The
 * rank with the smallest idle time came last to the collectives, so it is the slowest.
 *
 *   wait = a rank's idle time - the smallest idle time of all ranks */
#ifndef FP8LAB_RUNNER_JOB_PACE_H
#define FP8LAB_RUNNER_JOB_PACE_H

#include "kernels/base.h"
#include "runner/job/events.h"

struct json_t;

/* Capacity: steps that some ranks have reported and others have not. The ranks run within about a
 * step of each other. But a blocked runner later reads the full pipe of one rank before that of the
 * next, and other hosts last. A "pace" event is longer than 64 bytes, so a full pipe holds fewer
 * steps than this; it is 120 s (SUPERVISE_LEADER_S) of steps of 7 ms. The table takes 1 MiB for any
 * number of ranks. */
enum { PACE_STEPS = EVENT_PIPE_BYTES / 64 };

struct pace_step {
    int64_t step, count; /* of ranks that have reported the step; the rest is about these ranks */
    int64_t slowest, exposed_us_least, comm_us_slowest;
    int64_t exposed_us_most, exposed_us_sum, step_us_max;
};

struct pace {
    int64_t world;
    int64_t lost; /* steps overwritten by newer ones before all ranks had reported them */
    struct pace_step recent[PACE_STEPS]; /* step s at s % PACE_STEPS */
};

void pace_begin(struct pace *p, int64_t world);

/* Adds a "pace" event; each rank reports its steps in order. *record is NULL until all ranks have
 * reported the step; then it is the caller's:
 *   {"event":"ranks", "step", "ranks": their number, "slowest_rank",
 *    "wait_share": mean wait of the ranks / step time, "wait_us_max": the longest wait,
 *    "comm_us_least", "exposed_us_least": the slowest rank's time in collectives and idle time,
 *    "exposed_share": mean idle time of the ranks / step time, "step_time_us_max"}
 * ERR_MEMORY. */
NODISCARD enum status pace_put(struct pace *p, int64_t rank, const struct json_t *event,
                               struct json_t **record, struct err *e);

#endif
