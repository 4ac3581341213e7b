/* The energy of a training step and of its operators, for `bench step --energy`. */
#ifndef FP8LAB_RUNNER_BENCH_STEP_ENERGY_H
#define FP8LAB_RUNNER_BENCH_STEP_ENERGY_H

#include "model/train.h"
#include "runner/bench/bench_energy.h"
#include "runner/bench/timed_backend.h"

/* Energy of whole steps as in a run, for three windows: a step is long beside one. */
NODISCARD enum status energy_of_steps(struct trainer *t, const struct energy_meter *m,
                                      struct energy *out, struct err *e);

/* What trainers are created from; all borrowed. */
struct trainer_inputs {
    const struct model_config *model;
    const struct recipe *recipe;
    const struct train_options *train;
    const struct data *data;
};
/* Sets `joules` of the calls in `r`, the record of a step from these inputs. Each kind of call is
 * repeated within a step of its own, with that step's operands, since data change the energy. That
 * spoils the step: values may overflow where an operator adds or works in place. So the trainers
 * are this function's own, and are replaced when they fail. The optimizer's calls come last. Calls
 * of little time are left out. */
NODISCARD enum status energy_of_operators(struct backend *b, const struct trainer_inputs *in,
                                          const struct energy_meter *m, struct timed_record *r,
                                          struct err *e);

#endif
