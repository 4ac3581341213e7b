/* The operators of one training step of a configuration, counted without running them: what `bench
 * step` would measure on a device, with the same shapes, bytes and calls. */
#ifndef FP8LAB_RUNNER_ADVISE_CENSUS_H
#define FP8LAB_RUNNER_ADVISE_CENSUS_H

#include "runner/bench/step_work.h"

struct json_t;

/* A step of n micro-steps costs `shorter` plus (n - short_steps) times what `longer`, a step of one
 * micro-step more, adds. Up to CENSUS_MICRO_STEPS the count is exact: `longer` is then empty. */
enum { CENSUS_MICRO_STEPS = 2 };
struct census {
    struct timed_record shorter, longer; /* without times; owned */
    int64_t micro_steps, short_steps;
    int64_t tokens;    /* of a step, all ranks */
    double comm_bytes; /* of this rank's collectives in a whole step */
    int ranks;
};

/* config: resolved. native: what the device answers for the recipe's GEMMs; it matters only with
 * the recipe's fallback. ranks: at least 1. Errors are the trainer's own. */
NODISCARD enum status census_take(const struct json_t *config, int ranks, bool native,
                                  struct census *out, struct err *e);
void census_free(struct census *c);

/* The operators of the whole step, equal ones together. The caller frees the list. */
NODISCARD enum status census_works(const struct census *c, struct step_works *out, struct err *e);

#endif
