/* Whether the machines of a job are what an experiment asks for. */
#ifndef FP8LAB_RUNNER_JOB_JOB_MATCH_H
#define FP8LAB_RUNNER_JOB_JOB_MATCH_H

#include "kernels/base.h"

struct crew;
struct json_t;

/* hardware_match of this machine's facts, and, where `crew` is not NULL, of those of every other
 * host, whose terms begin with its name. gpu.count is that of all hosts together, taken to have as
 * many as the one that is asked. */
NODISCARD enum status job_match(const struct json_t *config, const struct json_t *facts,
                                const struct crew *crew, struct json_t **mismatch, struct err *e);

#endif
