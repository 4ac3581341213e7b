/* Whether a machine is the one that an experiment asks for: its query and its number of GPUs. */
#ifndef FP8LAB_RUNNER_HARDWARE_HARDWARE_H
#define FP8LAB_RUNNER_HARDWARE_HARDWARE_H

#include "kernels/base.h"

struct json_t;

enum { RANKS_MAX = 64 }; /* processes that a run can have */

/* `config` is the resolved configuration. *mismatch as query_match's: NULL where the machine will
 * do, else an array owned by the caller; too few GPUs for an experiment with a query is a term of
 * it, and so are more GPUs than RANKS_MAX. */
NODISCARD enum status hardware_match(const struct json_t *config, const struct json_t *facts,
                                     struct json_t **mismatch, struct err *e);

/* Adds a term where the experiment has a query, the machine has GPUs, and the run would be on the
 * CPU for a reason (`why`; NULL: it would not be): it is not what was asked for. */
NODISCARD enum status hardware_match_backend(const struct json_t *config,
                                             const struct json_t *facts, const char *why,
                                             struct json_t **mismatch, struct err *e);

/* The query and the explanation, for a terminal; owned by the caller: free(). */
char *hardware_mismatch_text(const struct json_t *config, const struct json_t *mismatch);

#endif
