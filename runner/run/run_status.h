/* What a run's record (run.json) says about another attempt. */
#ifndef FP8LAB_RUNNER_RUN_RUN_STATUS_H
#define FP8LAB_RUNNER_RUN_RUN_STATUS_H

#include <jansson.h>

#include "kernels/base.h"

/* ERR_ARG if the run came to its end: done, or train.time_limit used up. */
NODISCARD enum status run_may_go_on(const json_t *run, struct err *e);

/* Why the attempt of a repetition of the first steps ended (repro --steps). */
#define REASON_AS_ASKED "as many steps as asked for"

/* Whether the run is such a repetition, and had all steps that were asked for. */
bool run_is_beginning(const json_t *run);

/* run_may_go_on(); also ERR_ARG for such a repetition, which has no checkpoint. */
NODISCARD enum status run_may_resume(const json_t *run, struct err *e);

/* Whether a failure with this code ("ERR_NUMERIC") comes from the training itself, which would
 * repeat it: a value is not finite, or an audit found a difference. Other causes lie outside: the
 * machine, a disk, another rank. */
bool failure_repeats(const char *code);

/* Whether the run failed, and would fail again at the same step if it were resumed. */
bool run_fails_again(const json_t *run);

#endif
