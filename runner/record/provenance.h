/* Where a run came from: data/source/ and, below data/system/, libraries.json and image.json. */
#ifndef FP8LAB_RUNNER_RECORD_PROVENANCE_H
#define FP8LAB_RUNNER_RECORD_PROVENANCE_H

#include "runner/record/run_dir.h"

/* Writes commit.json (commit and code hash of the build), dirty.patch where the program lies in a
 * git tree with changes, libraries.json, and image.json (image_record.h). git that is missing or
 * refuses (a tree of another owner) is no error: *warning (may be NULL; at least 256 bytes) then
 * says what is not recorded, else "". */
NODISCARD enum status provenance_write(const struct run_dir *dir, char *warning,
                                       size_t warning_size, struct err *e);

#endif
