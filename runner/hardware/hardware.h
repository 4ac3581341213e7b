/* Whether a machine fits an experiment: its query and its number of GPUs. */
#ifndef FP8LAB_RUNNER_HARDWARE_HARDWARE_H
#define FP8LAB_RUNNER_HARDWARE_HARDWARE_H

#include "kernels/base.h"

struct json_t;

enum { RANKS_MAX = 64 }; /* processes that a run can have */

/* `config` is the resolved configuration. *mismatch as in query_match(): NULL if the machine fits,
 * else an array owned by the caller. Too few GPUs for an experiment with a query, or more than
 * RANKS_MAX, are terms of it too. */
NODISCARD enum status hardware_match(const struct json_t *config, const struct json_t *facts,
                                     struct json_t **mismatch, struct err *e);

/* Adds a term if the experiment has a query and the machine has GPUs, but the run would use the
 * CPU. `why` is the reason for the CPU; NULL: the run uses a GPU. */
NODISCARD enum status hardware_match_backend(const struct json_t *config,
                                             const struct json_t *facts, const char *why,
                                             struct json_t **mismatch, struct err *e);

/* The query and the explanation, for a terminal; owned by the caller: free(). */
char *hardware_mismatch_text(const struct json_t *config, const struct json_t *mismatch);

#endif
