/* One runner's part of an attempt. The leader makes it for each task, as a message, and each runner
 * starts its workers from it. */
#ifndef FP8LAB_RUNNER_JOB_PART_H
#define FP8LAB_RUNNER_JOB_PART_H

#include "runner/job/attempt.h"
#include "runner/job/rank_layout.h"
#include "runner/job/task.h"

/* The part of task `t`, as an "attempt" message: new reference, NULL without memory.
 * orders: the members that are the same for all tasks:
 *   {"run": the run directory, "backend", "threads" (0: an equal share of the host's processors for
 *    each worker), "caps" or null, "data_root" or null, "choose_anew", "from": the step to resume
 *    from, "choices": SHA-256 of the run's table or null, "stop_after": 0 for none, "hang_s",
 *    "grace_s", "signal_grace_s"}
 * The secret of the rendezvous is not sent: the follower derives it from `nonce` (secret.h). */
struct json_t *part_make(const struct json_t *orders, const struct rank_layout *layout, int64_t t,
                         const struct rendezvous *rendezvous, const char *nonce);

/* supervise() with the workers of `part`. The caller fills *options except for the command line,
 * the ranks, their devices, run_path, hang_s and the grace times, which come from the part. */
NODISCARD enum status part_supervise(const struct json_t *part, const struct task *task,
                                     struct supervise_options *options, struct attempt *out,
                                     struct err *e);

#endif
