/* What a run's record (run.json) says about another attempt. */
#ifndef FP8LAB_RUNNER_RUN_RUN_STATUS_H
#define FP8LAB_RUNNER_RUN_RUN_STATUS_H

#include <jansson.h>

#include "kernels/base.h"

/* ERR_ARG if the run came to its end: done, or train.time_limit used up. */
NODISCARD enum status run_may_go_on(const json_t *run, struct err *e);

/* Whether a failure with this code ("ERR_NUMERIC") comes from the training itself, which would
 * repeat it: a value is not finite, or an audit found a difference. Other causes lie outside: the
 * machine, a disk, another rank. */
bool failure_repeats(const char *code);

/* Whether the run failed, and would fail again at the same step if it were resumed. */
bool run_fails_again(const json_t *run);

#endif
