/* Whether the machines of a job are what an experiment asks for. */
#ifndef FP8LAB_RUNNER_JOB_JOB_MATCH_H
#define FP8LAB_RUNNER_JOB_JOB_MATCH_H

#include "kernels/base.h"

struct job_members;
struct json_t;

/* hardware_match of this machine's facts, and, where `members` is not NULL, of those of every other
 * host, whose terms begin with its name. gpu.count is that of all hosts together, taken to have as
 * many for each of their tasks as the one that is asked. */
NODISCARD enum status job_match(const struct json_t *config, const struct json_t *facts,
                                const struct job_members *members, struct json_t **mismatch, struct err *e);

/* ERR_CONFIG where two tasks of one host would take the same GPU, since the launcher tells no task
 * its place there, nor shows it GPUs of its own. */
NODISCARD enum status job_places(const struct json_t *facts, const struct job_members *members,
                                 struct err *e);

/* The facts of this machine as what all ranks take is compared with them (plan/fit.h): where CPU
 * and GPU do not share it, memory.total is that of all hosts together, taken to have as much for
 * each of their tasks. Without a members *out is `facts`. A new reference. */
NODISCARD enum status job_memory(const struct json_t *facts, const struct job_members *members,
                                 struct json_t **out, struct err *e);

#endif
