/* Closing a run: turns the directory of a run into a bundle, however the run ended. */
#ifndef FP8LAB_RUNNER_BUNDLE_BUNDLE_H
#define FP8LAB_RUNNER_BUNDLE_BUNDLE_H

#include "kernels/base.h"
#include "runner/base/run_files.h"
#include "model/ground/sha256.h"

/* Which files of data/checkpoints/ go into the bundle. The others are moved beside the bundle if
 * run.json's "kept" names them (kept.h), and removed if not. So directory and bundle stay the same
 * bag. */
enum bundle_checkpoints {
    BUNDLE_CHECKPOINTS_NONE,
    BUNDLE_CHECKPOINTS_WEIGHTS, /* model.safetensors and checkpoint.json */
    BUNDLE_CHECKPOINTS_FULL,    /* also the optimizer state, which a resume needs */
    BUNDLE_CHECKPOINTS_ASIDE    /* none; they stay in the directory beside data/, outside the bag */
};

struct bundle_options {
    enum bundle_checkpoints checkpoints;
    bool keep_directory; /* false: removed after the bundle was verified, unless `stays` */
    int64_t threads;     /* zstd workers, >= 1 */
};

/* The policy for a run that is done is the experiment's "archive" ("none", "weights", "full";
 * resolved.json). A run that ended in any other way keeps everything, so that it can be resumed or
 * examined. */
enum bundle_checkpoints bundle_policy(const char *archive, const char *status);

struct bundle_result {
    char path[PATH_CAP];             /* the bundle file */
    char identity[SHA256_HEX];       /* of the bundle */
    char results_sha256[SHA256_HEX]; /* as written into run.json */
    int64_t payload_bytes, packed_bytes;
    char problem[512];               /* the first of summary.json's "problems"; "": there is none */
    char stays[512];                 /* why the directory was not removed, as a line; "": it was, or
                                        keep_directory */
};

/* Closes run_dir (runs/<run-id>) into <run_dir>.tar.zst. Writes results_sha256 into run.json, then
 * summary, crate, bag and archive, and verifies the whole archive. data/run.json must say how the
 * run ended: ERR_STATE if it still says "running". Memory does not depend on the size of
 * checkpoints and wide streams; it has 8 bytes for each number of the other streams. A stream that
 * is damaged stays as it is, and summary.json names it ("problems"). After a failure (a full disk,
 * say) a second call does the remaining parts. A finished directory gives the same bytes again. */
NODISCARD enum status bundle_finish(const char *run_dir, const struct bundle_options *options,
                                    struct bundle_result *result, struct err *e);

/* Moves checkpoints that stand outside the bag back to data/checkpoints. Does nothing if there are
 * none. */
NODISCARD enum status bundle_checkpoints_back(const char *run_dir, struct err *e);

#endif
