/* A program that this one waits for: it reads nothing, and is asked to stop when
 * we are. */
#ifndef FP8LAB_RUNNER_BASE_FOREGROUND_H
#define FP8LAB_RUNNER_BASE_FOREGROUND_H

#include "kernels/base.h"

/* Whether `program` is in PATH. */
bool program_in_path(const char *program);

/* Runs argv (ends with NULL; its first word is looked for in PATH) to its end, with our descriptor
 * `out` as its stdout. Each stop signal that reaches us is passed on to it, once, as it came or, if
 * that is not 0, as `stop_as`. *exit_code is its own, or 128 + the signal that ended it, where
 * `stop_as` counts as the signal that came. ERR_IO where it cannot be started. */
NODISCARD enum status foreground_run(char *const *argv, int out, int stop_as, int *exit_code,
                                     struct err *e);

/* Runs a program without a shell and takes what it prints: at most `limit` bytes, owned by the
 * caller, with a NUL behind them. False where it cannot run, fails, or says more. */
bool foreground_capture(const char *const *argv, size_t limit, char **out, size_t *n);

#endif
