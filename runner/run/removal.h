/* Removing runs, and what runs left behind: what would go, and what must stay. */
#ifndef FP8LAB_RUNNER_RUN_REMOVAL_H
#define FP8LAB_RUNNER_RUN_REMOVAL_H

#include "runner/run/removal_list.h"
#include "runner/run/run_needs.h"

/* Adds everything of the run at `path`: bundle, directory, kept checkpoints, tags, seed band.
 * ERR_ARG: it is no run, or a link. ERR_STATE: it is running, or a run that `needs` lists began
 * with it; the text names that run. */
NODISCARD enum status removal_add_run(struct removal *r, const char *path,
                                      const struct run_needs *needs, struct err *e);

/* What runs left in the folder that nothing needs: half-written archives and half-removed runs
 * without a living process; directories of done runs whose bundle was verified and holds the
 * same. */
NODISCARD enum status removal_add_garbage(struct removal *r, const char *runs, struct err *e);

enum removal_checkpoints {
    REMOVAL_OLD, /* kept checkpoints other than a run's last and best */
    REMOVAL_ALL
};
/* Kept checkpoints of done runs, but those that another run needs. If a run cannot be read, or one
 * is being started, none is added: what it needs is not known. */
NODISCARD enum status removal_add_checkpoints(struct removal *r, const char *runs,
                                              enum removal_checkpoints which, struct err *e);

#endif
