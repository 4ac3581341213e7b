/* repro --patch: builds the program that made a bundle again, from its commit and its uncommitted
 * changes. This runs foreign code, so it happens only if the user asks for it. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_PATCH_H
#define FP8LAB_RUNNER_REPRO_REPRO_PATCH_H

#include "runner/base/cli.h"
#include "runner/repro/repro_source.h"

/* Clones the source tree `tree` at the bundle's commit into a work folder of `source`. There it
 * applies the bundle's patch, builds, and runs the command without --patch. *exit_code is that of
 * the command.
 * ERR_CONFIG: the bundle has no commit, the tree lacks the commit, the patch does not apply, or git
 * or make is missing. ERR_STATE: the build fails. */
NODISCARD enum status repro_patched(const struct cli *cli, const struct repro_source *source,
                                    const char *tree, int *exit_code, struct err *e);

#endif
