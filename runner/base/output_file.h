/* Files that a flag names for output, such as --html FILE. */
#ifndef FP8LAB_RUNNER_BASE_OUTPUT_FILE_H
#define FP8LAB_RUNNER_BASE_OUTPUT_FILE_H

#include "kernels/base.h"

/* Whether this program may replace `path`: it does not exist, is empty, or holds `mark`, which all
 * files of this kind have. With a forgotten name, `--html runs/a.tar.zst` would replace a bundle.
 * A new file may not be called as
 * bundles are. ERR_ARG names flag, path and `kind`; ERR_IO, ERR_MEMORY. */
NODISCARD enum status output_may_replace(const char *flag, const char *path, const char *mark,
                                         const char *kind, struct err *e);

#endif
