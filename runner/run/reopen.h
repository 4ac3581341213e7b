/* A run that was closed becomes one that is written again: for `run --resume`. */
#ifndef FP8LAB_RUNNER_RUN_REOPEN_H
#define FP8LAB_RUNNER_RUN_REOPEN_H

#include "runner/record/run_dir.h"

/* Whether going on would still be the same run: its inputs (code, data, configuration) are what
 * they were; the data's paths count from `data_root` (NULL: as they stand). ERR_CONFIG names what
 * changed. */
NODISCARD enum status reopen_check(const struct run_dir *dir, const json_t *resolved,
                                   const char *data_root, struct err *e);

/* Where a closed run has its bundle and its directory, whether the directory still is what was
 * closed: ERR_VERIFY tells how to go on from the bundle. */
NODISCARD enum status reopen_unchanged(const char *run_dir, struct err *e);

/* Columns below run_path become JSON lines again where closing dropped the lines. */
NODISCARD enum status reopen_lines(const char *run_path, struct err *e);

/* Takes back what closing made: columns become JSON lines again where the lines were dropped, bag
 * files and the old bundle go, status is "running" (saved). */
NODISCARD enum status reopen_run(struct run_dir *dir, struct err *e);

#endif
