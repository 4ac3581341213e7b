/* Closing a run: the directory a run wrote becomes a bundle, however the run ended. */
#ifndef FP8LAB_RUNNER_BUNDLE_BUNDLE_H
#define FP8LAB_RUNNER_BUNDLE_BUNDLE_H

#include "kernels/base.h"
#include "runner/base/run_files.h"
#include "model/sha256.h"

/* What of data/checkpoints/ goes into the bundle. What does not is moved beside the bundle where
 * run.json's "kept" names it (kept.h), and else removed, so that directory and bundle stay the same
 * bag. */
enum bundle_checkpoints {
    BUNDLE_CHECKPOINTS_NONE,
    BUNDLE_CHECKPOINTS_WEIGHTS, /* model.safetensors and checkpoint.json */
    BUNDLE_CHECKPOINTS_FULL,    /* optimizer state too: what a resume needs */
    BUNDLE_CHECKPOINTS_ASIDE    /* none, and they stay: beside data/, which is no part of the bag */
};

struct bundle_options {
    enum bundle_checkpoints checkpoints;
    bool keep_directory; /* otherwise it is removed once the bundle has been verified */
    int64_t threads;     /* zstd workers, >= 1 */
};

/* By the experiment's "archive" ("none", "weights", "full"; resolved.json) for a run that is done.
 * A run that ended in any other way keeps everything: someone may want to go on or to look. */
enum bundle_checkpoints bundle_policy(const char *archive, const char *status);

struct bundle_result {
    char path[PATH_CAP];             /* the bundle file */
    char identity[SHA256_HEX];       /* of the bundle */
    char results_sha256[SHA256_HEX]; /* as written into run.json */
    int64_t payload_bytes, packed_bytes;
    char problem[512];               /* the first of summary.json's "problems"; "": there is none */
};

/* Closes run_dir (runs/<run-id>), whose data/run.json must say how the run ended, into
 * <run_dir>.tar.zst: metrics to columns, results_sha256 into run.json, summary.json, crate, bag,
 * archive, and a full verification of what was written. Memory stays flat for any size.
 * Metrics that cannot be converted stay as JSON lines, and summary.json names them ("problems").
 * Calling it again after a failure, a full disk say, does what was left; a finished directory gives
 * the same bytes again. ERR_STATE when run.json still says "running". */
NODISCARD enum status bundle_finish(const char *run_dir, const struct bundle_options *options,
                                    struct bundle_result *result, struct err *e);

/* Puts checkpoints that were left aside back to where a run looks for them. Nothing where there are
 * none. */
NODISCARD enum status bundle_checkpoints_back(const char *run_dir, struct err *e);

#endif
