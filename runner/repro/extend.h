/* run --extend: more steps of a finished run, as a new run that begins with the last checkpoint
 * that the finished run kept. */
#ifndef FP8LAB_RUNNER_REPRO_EXTEND_H
#define FP8LAB_RUNNER_REPRO_EXTEND_H

#include "runner/base/cli.h"
#include "runner/repro/repro_source.h"
#include "runner/run/run_one.h"

struct extension {
    struct repro_source source;   /* of the parent: the run that is extended */
    struct resolution resolution; /* the parent's script with the new --set too: one run */
    int64_t steps;                /* train.steps of the new run */
    json_t *overrides;            /* texts of the parent's --set, then of the new ones; owned */
    struct run_beginning beginning;
};

/* Prepares the beginning of a new run in `runs`, from the parent named by `text` and the --set
 * flags of `cli`. The parent is not changed. ERR_ARG: the parent is not finished, a --set would
 * change the finished steps, or train.steps is not larger than the steps done. ERR_CONFIG: the
 * checkpoint is missing, or the script resolves to another configuration here. ERR_VERIFY: bundle
 * or checkpoint are damaged. *out is valid for extension_close() in any case. */
NODISCARD enum status extension_open(const struct cli *cli, const char *text, const char *runs,
                                     struct extension *out, struct err *e);
void extension_close(struct extension *x);

/* Compares the new run's inputs with the parent's: ERR_CONFIG for other data, a warning for other
 * sources. Then adds the checkpoint's hash to the inputs. */
NODISCARD enum status extension_inputs(const struct extension *x, const struct cli *cli,
                                       struct inputs *in, struct err *e);

/* Prints the first step of the new run, and whether the parent's learning rates are those of the
 * new schedule. */
void extension_say(const struct extension *x, const struct cli *cli);

#endif
