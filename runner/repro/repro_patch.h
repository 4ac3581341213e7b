/* repro --patch: the program that made a bundle, built again from its commit and its uncommitted
 * changes. That runs what a stranger wrote, so only when the user says so. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_PATCH_H
#define FP8LAB_RUNNER_REPRO_REPRO_PATCH_H

#include "runner/base/cli.h"
#include "runner/repro/repro_source.h"

/* Clones the source tree `tree` at the bundle's commit into a folder of `source`'s, applies the
 * bundle's patch, builds, and hands the command over to what was built, without --patch. The exit
 * code is its own. ERR_CONFIG: the bundle does not know its commit, or the tree does not have it,
 * or the patch does not apply, or git or make is missing. ERR_STATE: it does not build. */
NODISCARD enum status repro_patched(const struct cli *cli, const struct repro_source *source,
                                    const char *tree, int *exit_code, struct err *e);

#endif
