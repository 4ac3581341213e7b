/* One file of a bundle. */
#ifndef FP8LAB_RUNNER_BUNDLE_MEMBER_H
#define FP8LAB_RUNNER_BUNDLE_MEMBER_H

#include "kernels/base.h"

/* The file `name` ("data/logs/runner.log") of the bundle at `path`, checked against its manifest:
 * *n bytes and a NUL, owned by the caller; NULL: the bundle has no such file. ERR_FORMAT,
 * ERR_VERIFY, ERR_IO as in bundle_reader.h; the text names the path. */
NODISCARD enum status bundle_member(const char *path, const char *name, int64_t limit, char **out,
                                    size_t *n, struct err *e);

#endif
