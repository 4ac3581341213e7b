/* data/logs/runner.log: what the runner did to a run, one timed line each. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_LOG_H
#define FP8LAB_RUNNER_RECORD_RUN_LOG_H

#include "runner/record/run_dir.h"

#define RUN_LOG_FILE "data/logs/runner.log"

/* Appends "2026-11-21T02:48:23Z text". A log that cannot be written stops nothing. */
void run_log(const struct run_dir *dir, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
