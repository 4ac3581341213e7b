/* What a run's record (run.json) says about another attempt. */
#ifndef FP8LAB_RUNNER_RUN_RUN_STATUS_H
#define FP8LAB_RUNNER_RUN_RUN_STATUS_H

#include <jansson.h>

#include "kernels/base.h"

/* ERR_ARG if the run came to its end: done, or train.time_limit used up. */
NODISCARD enum status run_may_go_on(const json_t *run, struct err *e);

/* Whether the run would probably fail again: it failed, and no lost peer was the cause. */
bool run_fails_again(const json_t *run);

#endif
