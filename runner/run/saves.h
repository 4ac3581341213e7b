/* How the checkpoints of a run were written: run.json has it under "saves". */
#ifndef FP8LAB_RUNNER_RUN_SAVES_H
#define FP8LAB_RUNNER_RUN_SAVES_H

#include <jansson.h>

#include "kernels/base.h"

/* {"written": checkpoints, "failed": that could not be written, "stall_us_max", "stall_us_sum": how
 * long steps waited for them, "write_us_max": to hash and write one, on rank 0}. */

/* Adds an event of the worker to the record of all attempts, which `run` (run.json) holds. Ignores
 * other events. ERR_MEMORY. */
NODISCARD enum status saves_event(json_t *run, const json_t *event, struct err *e);

/* What to tell the user of the event: a checkpoint that could not be written. "": nothing. */
void saves_text(const json_t *event, char *out, size_t size);

#endif
