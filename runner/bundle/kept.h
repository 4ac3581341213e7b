/* The checkpoints that outlive a run that is done: runs/<run-id>.checkpoints/step-000100/, beside
 * its bundle. run.json names them under "kept":
 * [{"step","as": ["last", "best"],"sha256": of checkpoint.json,"bytes","where": "beside" or
 * "bundle"}]. */
#ifndef FP8LAB_RUNNER_BUNDLE_KEPT_H
#define FP8LAB_RUNNER_BUNDLE_KEPT_H

#include <jansson.h>

#include "runner/base/run_files.h"

/* Where the checkpoints of the run at `path` (its bundle or its directory) are beside it. */
NODISCARD enum status kept_folder(char out[PATH_CAP], const char *path, struct err *e);

/* Moves what `run` names as kept beside from data/checkpoints/ of run_dir to that folder. `packed`:
 * the weights go into the bundle as well, so those stay in the directory, too (a hard link, or a
 * copy where there are none). No byte is removed before it stands there. What was moved earlier is
 * left alone. ERR_IO leaves every checkpoint in one of the two places. */
NODISCARD enum status kept_move(const char *run_dir, const json_t *run, bool packed,
                                struct err *e);

/* The checkpoint directory `from` once more as `to`: files are hard links, or copies where the file
 * system has none. Files that are there already stay. */
NODISCARD enum status kept_share(const char *from, const char *to, struct err *e);

/* The checkpoint that `row` of run.json's "kept" names, beside the run at `path`: whether it is
 * there (*there), and whole, and the one that was named. ERR_VERIFY where it is not. */
NODISCARD enum status kept_verify(const char *path, const json_t *row, bool *there, struct err *e);

/* "step 500 (last, best)" */
void kept_text(const json_t *row, char out[64]);

#endif
