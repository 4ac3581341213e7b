/* The optimizer's state of one of our checkpoints, for a new run (model/checkpoint_adopt.h). */
#ifndef FP8LAB_RUNNER_WEIGHTS_STATE_SOURCE_H
#define FP8LAB_RUNNER_WEIGHTS_STATE_SOURCE_H

#include "model/checkpoint_adopt.h"
#include "runner/weights/tensor_files.h"

/* The functions of a source that reads `state`, an open state.safetensors; borrows it. The caller
 * sets the rest. */
struct state_source state_source_of(struct tensor_files *state);

#endif
