/* Whether the machines of a job match the hardware that an experiment requires. */
#ifndef FP8LAB_RUNNER_JOB_JOB_MATCH_H
#define FP8LAB_RUNNER_JOB_JOB_MATCH_H

#include "kernels/base.h"

struct job_members;
struct json_t;

/* hardware_match of this machine's facts and, if `members` is not NULL, of every other host's. The
 * terms of another host begin with its name. gpu.count is for the whole job. It assumes that all
 * hosts have as many GPUs for each task as the matched host. */
NODISCARD enum status job_match(const struct json_t *config, const struct json_t *facts,
                                const struct job_members *members, struct json_t **mismatch,
                                 struct err *e);

/* ERR_CONFIG if two tasks of one host would use the same GPU, since the launcher sets neither
 * their local index nor CUDA_VISIBLE_DEVICES. */
NODISCARD enum status job_places(const struct json_t *facts, const struct job_members *members,
                                 struct err *e);

/* The facts of this machine, for a comparison with the memory of all ranks (plan/fit.h). Where CPU
 * and GPU have separate memory, memory.total is for the whole job: it assumes that all hosts have
 * as much for each task. Without `members` *out is `facts`. A new reference. */
NODISCARD enum status job_memory(const struct json_t *facts, const struct job_members *members,
                                 struct json_t **out, struct err *e);

#endif
