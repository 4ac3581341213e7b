/* The parts of messages between `run --side-by-side` and the processes of its slots (slot.h). */
#ifndef FP8LAB_RUNNER_RUN_SLOT_MESSAGES_H
#define FP8LAB_RUNNER_RUN_SLOT_MESSAGES_H

#include "runner/run/run_one.h"
#include "runner/run/sharing.h"

/* New references; NULL: no memory. */
json_t *slot_state_json(const struct row_state *s);
json_t *slot_outcome_json(const struct run_outcome *o);

/* The reverse. `runs`: the folder of runs, before the names. */
NODISCARD enum status slot_state_read(const json_t *message, const char *runs,
                                      struct row_state *out, struct err *e);
NODISCARD enum status slot_outcome_read(const json_t *message, const char *runs,
                                        struct run_outcome *out, struct err *e);

#endif
