/* The attempts of one run: each is a set of worker processes (job/supervise.h), resumed from the
 * newest whole checkpoint; how the last one ended is how the run ended. */
#ifndef FP8LAB_RUNNER_RUN_ATTEMPTS_H
#define FP8LAB_RUNNER_RUN_ATTEMPTS_H

#include "runner/job/supervise.h"
#include "runner/run/run_one.h"

/* Whether the ranks that the flags and the launcher ask for can share the run's batch and be shared
 * among the hosts: to be asked before anything of a run is made, or taken apart to go on with it.
 * mismatch: of the hardware query, or NULL. */
NODISCARD enum status attempts_check(const struct run_settings *settings, const json_t *resolved,
                                     const json_t *mismatch, struct err *e);

/* The attempt that a runner was making when it died becomes one of the record's attempts, with
 * `ended` as its end and `to_step` as its last step. Nothing where none was under way. */
NODISCARD enum status attempts_end_dead(json_t *run, const char *ended, int64_t to_step,
                                        struct err *e);

/* Runs attempts in `dir` until one ends the run, and puts attempts, status, error, exit_code, ended
 * and final_weights_sha256 into dir->run (saved). *last is that attempt. An error is what kept
 * attempts from being made. */
NODISCARD enum status attempts_run(const struct run_settings *settings, struct run_dir *dir,
                                   const json_t *resolved, struct attempt *last, struct err *e);

#endif
