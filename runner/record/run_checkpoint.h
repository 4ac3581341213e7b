/* The checkpoints of a run: what its log notes of each when it is saved, and the newest one that is
 * whole and is what the log says. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_CHECKPOINT_H
#define FP8LAB_RUNNER_RECORD_RUN_CHECKPOINT_H

#include "model/checkpoint.h"
#include "runner/record/run_dir.h"

/* A line in the run's log; `sha256` is that of checkpoint.json. */
void run_checkpoint_note(const struct run_dir *dir, int64_t step, const char *sha256);

/* As checkpoint_latest(), compared with the log; out->step is 0 where there is none. A checkpoint
 * that the log does not know counts: a runner may be killed before it notes one. */
NODISCARD enum status run_checkpoint_latest(const struct run_dir *dir, struct checkpoint_info *out,
                                            struct err *e);

#endif
