/* The checkpoints of a run: the log line of each saved checkpoint, and the newest checkpoint that
 * is intact and agrees with the log. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_CHECKPOINT_H
#define FP8LAB_RUNNER_RECORD_RUN_CHECKPOINT_H

#include "model/checkpoint.h"
#include "runner/record/run_dir.h"

/* Writes a line to the run's log; `sha256` is the hash of checkpoint.json. */
void run_checkpoint_note(const struct run_dir *dir, int64_t step, const char *sha256);

/* As checkpoint_latest(), compared with the log and the records; out->step is 0 if there is none. A
 * checkpoint without a log line is accepted: a runner may be killed before it writes the line. One
 * without the records before it is not: the run would have a hole. */
NODISCARD enum status run_checkpoint_latest(const struct run_dir *dir, struct checkpoint_info *out,
                                            struct err *e);

#endif
