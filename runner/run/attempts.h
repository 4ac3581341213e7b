/* The attempts of one run. Each attempt is a set of worker processes (job/supervise.h) that resumes
 * from the newest intact checkpoint. The last attempt decides how the run ends. */
#ifndef FP8LAB_RUNNER_RUN_ATTEMPTS_H
#define FP8LAB_RUNNER_RUN_ATTEMPTS_H

#include "runner/job/attempt.h"
#include "runner/job/run_settings.h"
#include "runner/record/run_dir.h"

/* Checks that the batch divides by the number of ranks, and that the ranks divide over the hosts.
 * Call it before a run directory is created or reopened. mismatch: of the hardware query, or
 * NULL. */
NODISCARD enum status attempts_check(const struct run_settings *settings, const json_t *resolved,
                                     const json_t *mismatch, int64_t *ranks, struct err *e);

/* Moves the attempt that a dead runner left unfinished to the record's list of attempts; `ended` is
 * its end time, `to_step` its last step. Does nothing if no attempt was under way. */
NODISCARD enum status attempts_end_dead(json_t *run, const char *ended, int64_t to_step,
                                        struct err *e);

/* Runs attempts in `dir` until one ends the run; *last is that attempt. Puts attempts, status,
 * error, exit_code, ended and final_weights_sha256 into dir->run (saved). An error means that no
 * attempt could be made. */
NODISCARD enum status attempts_run(const struct run_settings *settings, struct run_dir *dir,
                                   const json_t *resolved, struct attempt *last, struct err *e);

#endif
