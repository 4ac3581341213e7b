/* One runner's part of an attempt. The leader makes it for each task (deploy.h), as an "attempt"
 * message, and each runner starts its workers from it:
 *   {"run": the run directory, "args": a worker's command line as far as it is the same on all
 *    hosts, "threads" (0: an equal share of the host's processors for each worker), "world", "each":
 *    slots of a task, "slots": of this task's ranks, "first_rank", "port" and "timeout_s" of the
 *    rendezvous, "nonce"}
 * The secret of the rendezvous is not sent: the follower derives it from "nonce" (secret.h). */
#ifndef FP8LAB_RUNNER_JOB_PART_H
#define FP8LAB_RUNNER_JOB_PART_H

#include "runner/job/attempt.h"
#include "runner/job/task.h"

struct json_t;

/* supervise() with the workers of `part`. The caller fills *options except for the command line,
 * the ranks, their devices and run_path, which come from the part. */
NODISCARD enum status part_supervise(const struct json_t *part, const struct task *task,
                                     struct supervise_options *options, struct attempt *out,
                                     struct err *e);

#endif
