/* A run as TensorBoard sees it: the worker's events become scalars, text and hyperparameters in an
 * event file of their own for each attempt. README.md has the tags and what is left out. */
#ifndef FP8LAB_RUNNER_TENSORBOARD_TENSORBOARD_H
#define FP8LAB_RUNNER_TENSORBOARD_TENSORBOARD_H

#include "runner/record/run_dir.h"
#include "runner/tensorboard/event_values.h"

struct tensorboard;

/* Begins the file of an attempt that goes on after `from_step` (0: at the beginning) in a run of
 * `steps`. Readers then drop what earlier files have of later steps. `config` is the resolved
 * configuration, read now. */
NODISCARD enum status tensorboard_open(const struct run_dir *dir, const json_t *config,
                                       int64_t steps, int64_t from_step, struct tensorboard **out,
                                       struct err *e);

/* Writes what an event has to show; ignores other events. The record is in the file on return.
 * After ERR_IO (a full disk) the file is whole, and only tensorboard_close() may follow. */
NODISCARD enum status tensorboard_put(struct tensorboard *t, const json_t *event, struct err *e);

/* Says that the run has ended and does not go on. */
NODISCARD enum status tensorboard_end(struct tensorboard *t, enum event_end how, struct err *e);

void tensorboard_close(struct tensorboard *t); /* NULL is fine */

#endif
