/* The provenance of a run: data/source/, data/system/libraries.json and data/system/image.json. */
#ifndef FP8LAB_RUNNER_RECORD_PROVENANCE_H
#define FP8LAB_RUNNER_RECORD_PROVENANCE_H

#include "runner/record/run_dir.h"

/* Writes commit.json (commit and code hash of the build), libraries.json, image.json
 * (image_record.h), and dirty.patch if the program lies in a git tree with changes.
 * If git is missing or fails (a tree of another owner), *warning says what is not recorded.
 * Otherwise *warning is "". `warning` has at least 256 bytes, or is NULL. */
NODISCARD enum status provenance_write(const struct run_dir *dir, char *warning,
                                       size_t warning_size, struct err *e);

#endif
