/* Paths as text. */
#ifndef FP8LAB_RUNNER_BASE_PATHS_H
#define FP8LAB_RUNNER_BASE_PATHS_H

#include "kernels/base.h"

enum { PATH_CAP = 4096 };

/* out = dir/name. ERR_ARG if it does not fit PATH_CAP. */
NODISCARD enum status path_join(char out[PATH_CAP], const char *dir, const char *name,
                                struct err *e);

/* Whether path exists. Links are followed. */
bool path_exists(const char *path);
bool path_is_directory(const char *path);

/* out = the last component of path, without trailing slashes. */
void path_base(char out[PATH_CAP], const char *path);
/* out = everything before the last component; "." if there is nothing. */
void path_parent(char out[PATH_CAP], const char *path);

#endif
