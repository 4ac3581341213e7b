/* How evenly the ranks of a run work: who was the slowest in a step, and how long the others
 * waited.
 *
 * A rank says how long it was in collectives, and how long its arithmetic stood still for them.
 * What it stood still longer than the rank that did so least is waiting: that rank came last, and
 * all others waited for it. */
#ifndef FP8LAB_RUNNER_JOB_PACE_H
#define FP8LAB_RUNNER_JOB_PACE_H

#include "kernels/base.h"
#include "runner/job/events.h"

struct json_t;

/* Steps that some ranks have told of and others not. The ranks themselves are hardly a step apart,
 * but a runner that was held up reads all that one rank's pipe holds before the next one's, and
 * other hosts last: they are then apart by the steps made meanwhile. So many fill a pipe, a "pace"
 * event being longer than 64 bytes, and last for 120 s (SUPERVISE_LEADER_S) at 7 ms each. They are
 * 1 MiB, however many ranks there are. */
enum { PACE_STEPS = EVENT_PIPE_BYTES / 64 };

struct pace_step {
    int64_t step, count; /* ranks that have told of it; of those: */
    int64_t slowest, exposed_us_least, comm_us_slowest;
    int64_t exposed_us_most, exposed_us_sum, step_us_max;
};

struct pace {
    int64_t world;
    int64_t lost; /* steps whose place newer ones needed before all ranks had told of them */
    struct pace_step recent[PACE_STEPS]; /* step s at s % PACE_STEPS */
};

void pace_begin(struct pace *p, int64_t world);

/* Takes a "pace" event of `rank`, which tells of its steps in order. *record is NULL until all
 * ranks have told of the step; then
 *   {"event":"ranks", "step", "ranks": how many, "slowest_rank", "wait_share": of the step time,
 *    mean over ranks, "wait_us_max": the quickest rank's, "comm_us_least" and
 *    "exposed_us_least": of the slowest rank, what communication itself took, and what of that its
 *    arithmetic did not hide, "exposed_share": of the step time, mean over ranks, what of
 *    communication and waiting was not hidden, "step_time_us_max"}
 * and the caller's. ERR_MEMORY. */
NODISCARD enum status pace_put(struct pace *p, int64_t rank, const struct json_t *event,
                               struct json_t **record, struct err *e);

#endif
