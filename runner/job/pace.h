/* How evenly the ranks of a run work: who was the slowest in a step, and how long the others
 * waited.
 *
 * A rank says how long it was in collectives, and how long its arithmetic stood still for them.
 * What it stood still longer than the rank that did so least is waiting: that rank came last, and
 * all others waited for it. */
#ifndef FP8LAB_RUNNER_JOB_PACE_H
#define FP8LAB_RUNNER_JOB_PACE_H

#include "runner/job/supervise.h"

struct json_t;

enum { PACE_STEPS = 4 }; /* ranks are at most so many steps apart */

struct pace_step {
    int64_t step, count; /* ranks that have told of it */
    int64_t step_us[SUPERVISE_RANKS_MAX], comm_us[SUPERVISE_RANKS_MAX];
    int64_t exposed_us[SUPERVISE_RANKS_MAX];
};

struct pace {
    int64_t world;
    struct pace_step recent[PACE_STEPS]; /* step s at s % PACE_STEPS */
};

void pace_begin(struct pace *p, int64_t world);

/* Takes a "pace" event of `rank`. *record is NULL until all ranks have told of the step; then
 *   {"event":"ranks", "step", "ranks": how many, "slowest_rank", "wait_share": of the step time,
 *    mean over ranks, "wait_us_max": the quickest rank's, "comm_us_least" and
 *    "exposed_us_least": of the slowest rank, what communication itself took, and what of that its
 *    arithmetic did not hide, "exposed_share": of the step time, mean over ranks, what of
 *    communication and waiting was not hidden, "step_time_us_max"}
 * and the caller's. ERR_MEMORY. */
NODISCARD enum status pace_put(struct pace *p, int64_t rank, const struct json_t *event,
                               struct json_t **record, struct err *e);

#endif
