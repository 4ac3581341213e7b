/* Packs a run directory into <name>.tar.zst with the same bytes every time. Order and time are
 * fixed, owners are 0/0 without names, the mode is 0644, and pax is used only where plain ustar
 * does not suffice. The bytes do not depend on the number of threads: zstd's workers cut the stream
 * at the same places for any count. The bytes may depend on the version of zstd, so a bundle is
 * never identified by them. */
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
 * to a temporary name beside out_path, then fsync and rename: out_path is complete or absent.
 * ERR_IO if a file changes its size meanwhile, or if the disk is full; the text then says what to
 * do. *packed (may be NULL) receives the bytes written. */
NODISCARD enum status archive_pack(const char *dir, const struct tree *list, const char *folder,
                                   const char *out_path, const struct archive_options *options,
                                   int64_t *packed, struct err *e);

/* Sorts the files of a run into the order of a bundle: bag files, run.json, summary, crate,
 * experiment, system, source, other JSON files, records, logs, tensorboard, anything else,
 * checkpoints. Checkpoints have up to 100 GB. They are last, so a reader of numbers stops before
 * them. */
void archive_sort(struct tree *list);

/* The stage of an entry, which every reader relies on: 0 the bag's own files, 1 data/run.json, 2
 * data/metrics/summary.json, 3 all other files. */
int archive_stage(const char *path);

/* Folder of a run directory for checkpoints that are not part of its bag (bundle.h). */
#define ARCHIVE_ASIDE "checkpoints"

/* Whether the path is a checkpoint's. show and compare stop reading at the first such entry. */
bool archive_is_checkpoint(const char *path);

#endif
