/* What `rm` and `gc` share: they say what they would remove, ask, and remove it. */
#ifndef FP8LAB_RUNNER_REMOVAL_ASK_H
#define FP8LAB_RUNNER_REMOVAL_ASK_H

#include "runner/base/cli.h"
#include "runner/run/removal.h"

#define REMOVAL_FLAGS                                                                            \
    { "dry-run", NULL, "only say what would be removed", false },                               \
    { "yes", NULL, "remove without asking", false }

/* Finds what to remove; `context` is the verb's. */
typedef enum status removal_plan(const void *context, struct removal *out, struct err *e);

/* Prints what the plan has, asks on the terminal unless --yes was given, and removes it. Without a
 * terminal and without --yes nothing is removed: EXIT_USAGE. A user may answer late, so the plan is
 * made again then; if it is another one, nothing is removed. Returns the exit code. */
int removal_ask(const struct cli *cli, removal_plan *plan, const void *context);

#endif
