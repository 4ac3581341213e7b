/* RO-Crate 1.1 metadata for a run, by the Process Run Crate profile, version 0.5 (pinned: later
 * versions move to another RO-Crate). The crate is data/: bag outside, crate inside. */
#ifndef FP8LAB_RUNNER_BUNDLE_CRATE_H
#define FP8LAB_RUNNER_BUNDLE_CRATE_H

#include <jansson.h>

#include "kernels/base.h"
#include "runner/base/run_files.h"

/* Writes <dir>/data/ro-crate-metadata.json from run.json's content and the files of data/. The run
 * is one CreateAction: fp8lab is its instrument, script and resolved configuration are its objects,
 * metrics, logs and checkpoints its results. A run that failed or was killed has FailedActionStatus
 * and the reason in `error`. `files` are the paths of the bag ("data/..."). */
NODISCARD enum status crate_write(const char *dir, const json_t *run, const struct tree *files,
                                  struct err *e);

#endif
