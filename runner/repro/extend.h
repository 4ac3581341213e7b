/* run --extend: more steps of a run that came to its end, as a new run that begins at the last
 * checkpoint which that one kept. */
#ifndef FP8LAB_RUNNER_REPRO_EXTEND_H
#define FP8LAB_RUNNER_REPRO_EXTEND_H

#include "runner/base/cli.h"
#include "runner/repro/repro_source.h"
#include "runner/run/run_one.h"

struct extension {
    struct repro_source source;   /* of the run that is extended, the parent */
    struct resolution resolution; /* its script with the new --set, too: one run */
    int64_t steps;                /* train.steps of that run */
    json_t *overrides;            /* the texts of its --set, then of the new ones; owned */
    struct run_beginning beginning;
};

/* Prepares in `runs` what a new run begins with, from `text`, which names the parent as a user
 * does, and from the --set flags of `cli`. ERR_ARG: the parent has not come to its end, a --set would
 * change what was trained, or train.steps is no more than what is done. ERR_CONFIG: its checkpoint
 * is not there, or the script resolves to another configuration here. ERR_VERIFY: bundle or
 * checkpoint are damaged. The parent stays as it is. *out is valid for extension_close() in any
 * case. */
NODISCARD enum status extension_open(const struct cli *cli, const char *text, const char *runs,
                                     struct extension *out, struct err *e);
void extension_close(struct extension *x);

/* Holds the new run's inputs against the parent's: ERR_CONFIG for other data; other sources are
 * said. Then puts the checkpoint among them. */
NODISCARD enum status extension_inputs(const struct extension *x, const struct cli *cli,
                                       struct inputs *in, struct err *e);

/* Says from where the new run goes on, and whether the learning rates that the parent followed are
 * those of the new schedule. */
void extension_say(const struct extension *x, const struct cli *cli);

#endif
