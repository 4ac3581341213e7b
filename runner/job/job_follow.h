/* A task of a job that follows the leader (job_members.h). */
#ifndef FP8LAB_RUNNER_JOB_JOB_FOLLOW_H
#define FP8LAB_RUNNER_JOB_JOB_FOLLOW_H

#include "runner/base/cli.h"
#include "runner/job/task.h"

struct json_t;

/* Connects to the leader within wait_s, and runs its part of each attempt until the leader ends the
 * job. `facts` are of this machine. Returns the exit code. */
int job_follow(const struct cli *cli, const struct task *task, const char *runs, int64_t wait_s,
               const struct json_t *facts);

#endif
