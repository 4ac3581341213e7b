/* The checkpoints that a run keeps after it is done: runs/<run-id>.ckpt/step-000100/, beside its
 * bundle. run.json names them under "kept": [{"step","as": ["last", "best"],"sha256": of
 * checkpoint.json,"bytes","where": "beside" or "bundle"}]. */
#ifndef FP8LAB_RUNNER_BUNDLE_KEPT_H
#define FP8LAB_RUNNER_BUNDLE_KEPT_H

#include <jansson.h>

#include "runner/base/run_files.h"

/* The folder of kept checkpoints for the run at `path` (its bundle or its directory). A folder that
 * exists under its name until 2026-11-22, <run-id>.checkpoints/, is that folder. */
NODISCARD enum status kept_folder(char out[PATH_CAP], const char *path, struct err *e);

/* Moves the checkpoints that `run` names as kept beside the bundle. They move from
 * data/checkpoints/ of run_dir to that folder. `packed`: the bundle holds the weights as well. Then
 * the weights also stay in the directory (a hard link, or a copy if the file system has no links).
 * No byte is removed before its copy exists. A second call skips what was moved. After ERR_IO every
 * checkpoint is complete in one of the two places. */
NODISCARD enum status kept_move(const char *run_dir, const json_t *run, bool packed,
                                struct err *e);

/* Makes `to` a copy of the checkpoint directory `from`: files are hard links, or copies if the file
 * system has no links. Files that exist already stay. */
NODISCARD enum status kept_share(const char *from, const char *to, struct err *e);

/* Verifies the checkpoint beside the run at `path` that `row` of run.json's "kept" names. *there:
 * it exists. ERR_VERIFY if it is damaged, lacks a file, or is another checkpoint;
 * ERR_IO if it cannot be read. */
NODISCARD enum status kept_verify(const char *path, const json_t *row, bool *there, struct err *e);

/* "step 500 (last, best)". Foreign text, to be printed as PLAIN(). */
void kept_text(const json_t *row, char out[64]);

/* The step of the checkpoint that `run` (run.json) keeps as "last", "best" or "init"; -1: none. */
int64_t kept_step(const json_t *run, const char *as);

#endif
