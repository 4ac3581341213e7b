/* data/logs/runner.log: the runner's actions on a run, one line with a time each. */
#ifndef FP8LAB_RUNNER_RECORD_RUN_LOG_H
#define FP8LAB_RUNNER_RECORD_RUN_LOG_H

#include "runner/record/run_dir.h"

#define RUN_LOG_FILE "data/logs/runner.log"

/* Appends "2026-11-21T02:48:23.125Z text". Errors are ignored: a run goes on without its log. */
void run_log(const struct run_dir *dir, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
