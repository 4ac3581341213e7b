/* Files that a flag names for output, such as --html FILE. */
#ifndef FP8LAB_RUNNER_BASE_OUTPUT_FILE_H
#define FP8LAB_RUNNER_BASE_OUTPUT_FILE_H

#include "kernels/base.h"

/* What files of one kind have and no others: their first bytes, and a text somewhere in them. With
 * a `mark` of NULL the first bytes suffice, and a file may have any size. */
struct output_kind { const char *name, *begins, *mark; };

/* Whether this program may replace `path`: it does not exist, is empty, or is an earlier file of
 * this kind. With a forgotten name, `--html runs/a.tar.zst` would replace a bundle. A new file may
 * not be called as bundles are. The folder must be there and writable, since file_replace() makes
 * a temporary file in it. ERR_ARG names flag, path and kind; ERR_IO, ERR_MEMORY. */
NODISCARD enum status output_may_replace(const char *flag, const char *path,
                                         const struct output_kind *kind, struct err *e);

#endif
