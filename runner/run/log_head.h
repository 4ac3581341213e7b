/* The first lines of a run's log: what runs, and on what. */
#ifndef FP8LAB_RUNNER_RUN_LOG_HEAD_H
#define FP8LAB_RUNNER_RUN_LOG_HEAD_H

#include "runner/job/run_settings.h"
#include "runner/record/run_dir.h"
#include "runner/script/resolve.h"

/* Writes them for a new run: program, command, script, recipe, model, tokens, data, machine. Errors
 * are ignored, as in run_log(). */
void log_head(const struct run_dir *dir, const struct resolution *script,
              const struct resolved_run *run, const struct run_settings *s);

/* Writes which program goes on with a run, and where. */
void log_resume(const struct run_dir *dir, const struct run_settings *s);

#endif
