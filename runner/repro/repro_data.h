/* The data of a bundle on this machine: the same bytes, wherever they lie and however they are
 * called. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_DATA_H
#define FP8LAB_RUNNER_REPRO_REPRO_DATA_H

#include "runner/repro/repro_source.h"

/* Looks for each file of the bundle's data in `folder` (and all below it) by its content, else at
 * the path that the bundle records, and lays links to them out below `root`, for --data-root. Not
 * found is no error: *missing, owned by the caller, lists the files ("path, bytes, sha256" lines),
 * NULL where there is none. A file is read only if its size is one that the bundle lists, and once.
 * ERR_FORMAT where the bundle's list is malformed, or a path of it or of the configuration climbs.
 * Where the bundle lists no file, root is empty. */
NODISCARD enum status repro_stage_data(const struct repro_source *s, const char *folder,
                                       char root[PATH_CAP], char **missing, struct err *e);

#endif
