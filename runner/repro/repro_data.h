/* Finds the data of a bundle on this machine by content; names and folders may differ. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_DATA_H
#define FP8LAB_RUNNER_REPRO_REPRO_DATA_H

#include "runner/repro/repro_source.h"

/* Looks for each file of `list`, such as the bundle's data, by content in `folder` (and below it),
 * then at the recorded path. Makes links to the files for --data-root: `root` is the folder `name`
 * of the work folder, or lies so deep in it that paths which begin with ".." stay in it. Missing
 * files are not an error: *missing, owned by the caller, lists them ("path, bytes, sha256" lines,
 * behind each a line for a file of that path, or in `folder` of that name, with other content),
 * NULL if none is missing. A file is read at most once, and only if its size is one that the list
 * has. ERR_FORMAT if the list is malformed, or a path of the list or of the configuration has ".."
 * behind a name. Without listed files, root is empty. */
NODISCARD enum status repro_stage_data(const struct repro_source *s, const json_t *list,
                                       const char *name, const char *folder, char root[PATH_CAP],
                                       char **missing, struct err *e);

#endif
