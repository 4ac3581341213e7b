/* Packs a run directory into <name>.tar.zst, the same bytes every time: fixed order, owners 0/0
 * without names, mode 0644, one fixed time, pax only where plain ustar does not suffice. The bytes
 * do not depend on the number of threads (zstd's workers cut the stream alike for any count), but
 * may on the version of zstd, which is why a bundle is never identified by them. */
#ifndef FP8LAB_RUNNER_BUNDLE_ARCHIVE_H
#define FP8LAB_RUNNER_BUNDLE_ARCHIVE_H

#include "kernels/base.h"
#include "runner/base/run_files.h"

struct archive_options {
    int64_t time;    /* modification time of every entry, seconds since 1970 */
    int64_t threads; /* zstd workers, >= 1 */
    int64_t level;   /* zstd's compression level */
};

/* Packs the files of `list` (paths relative to dir) as <folder>/<path>, in the list's order. Writes
 * to a temporary name beside out_path, then fsync and rename: out_path is whole or absent. A file
 * that changes its size meanwhile is ERR_IO, and so is a full disk, with what to do about it.
 * *packed (may be NULL) receives the bytes written. */
NODISCARD enum status archive_pack(const char *dir, const struct tree *list, const char *folder,
                                   const char *out_path, const struct archive_options *options,
                                   int64_t *packed, struct err *e);

/* Sorts the files of a run into the order in which a bundle holds them: bag files, run.json,
 * summary, crate, experiment, system, source and decisions, columns (which compare reads), JSON
 * lines, logs, tensorboard, anything else, and checkpoints last, so that whoever wants numbers
 * never reads 100 GB. */
void archive_sort(struct tree *list);

/* How far into a bundle an entry stands, as every reader counts on: 0 the bag's own files, 1
 * data/run.json, 2 data/metrics/summary.json, 3 all else. */
int archive_stage(const char *path);

/* Where a run directory keeps checkpoints that its bag does not hold (bundle.h). */
#define ARCHIVE_ASIDE "checkpoints"

/* Whether path lies among the checkpoints: the first such entry ends what show and compare read. */
bool archive_is_checkpoint(const char *path);

#endif
