/* What `rm` and `gc` share: they say what they would remove, ask, and remove it. */
#ifndef FP8LAB_RUNNER_REMOVAL_ASK_H
#define FP8LAB_RUNNER_REMOVAL_ASK_H

#include "runner/base/cli.h"
#include "runner/run/removal.h"

#define REMOVAL_FLAGS                                                                            \
    { "dry-run", NULL, "only say what would be removed", false },                               \
    { "yes", NULL, "remove without asking", false }

/* Prints the items, asks on the terminal unless --yes was given, and removes them. Without a
 * terminal and without --yes nothing is removed: EXIT_USAGE. Returns the exit code. */
int removal_ask(const struct cli *cli, const struct removal *r);

#endif
