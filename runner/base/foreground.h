/* Running another program and waiting for it. Its stdin is empty. Stop signals are forwarded. */
#ifndef FP8LAB_RUNNER_BASE_FOREGROUND_H
#define FP8LAB_RUNNER_BASE_FOREGROUND_H

#include "kernels/base.h"

/* Whether `program` is in PATH. */
bool program_in_path(const char *program);

/* Runs argv (NULL-terminated; the first word is searched in PATH) until it exits. Its stdout is our
 * descriptor `out`. Each stop request that we receive (signals.h) is forwarded once: as `stop_as`,
 * or unchanged if `stop_as` is 0. *exit_code is the program's, or 128 + the signal that ended it.
 * If `stop_as` ended it, *exit_code is 128 + the signal that we received. ERR_IO: it cannot be
 * started. */
NODISCARD enum status foreground_run(char *const *argv, int out, int stop_as, int *exit_code,
                                     struct err *e);

/* Runs a program without a shell and captures its stdout: at most `limit` bytes and a NUL, owned by
 * the caller. False if the program cannot be started, fails, or prints more. */
bool foreground_capture(const char *const *argv, size_t limit, char **out, size_t *n);

#endif
