/* `run --side-by-side N`: rows of a suite at the same time, N at once, each with GPUs or threads of
 * its own. A process for each slot is the same command with a share of the machine (slot.h).
 * This process gives out the rows, and then goes on as an ordinary command. */
#ifndef FP8LAB_RUNNER_RUN_SIDE_BY_SIDE_H
#define FP8LAB_RUNNER_RUN_SIDE_BY_SIDE_H

#include "runner/run/slot_shares.h"
#include "runner/run/suite.h"

/* Divides this machine among `slots` rows, or as many as there are; 1: *out is zeroed. ERR_ARG:
 * there is one row only. ERR_HARDWARE: the machine is too small. The caller frees *out. */
NODISCARD enum status side_by_side_plan(const struct suite *s, int64_t slots,
                                        struct slot_shares *out, struct err *e);

/* Runs the rows that no earlier run stands for. What is left then, such as the row of a process
 * that died, is for suite_run(). *code: the first row's that is not 0, or 128+N after signal N.
 * *stop: that, or a system error: nothing more is to run. */
NODISCARD enum status side_by_side_run(struct suite *s, const struct slot_shares *shares, int *code,
                                       bool *stop, struct err *e);

#endif
