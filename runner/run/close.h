/* Closes runs whose runner died: packs them into bundles with status "killed". */
#ifndef FP8LAB_RUNNER_RUN_CLOSE_H
#define FP8LAB_RUNNER_RUN_CLOSE_H

#include "runner/base/cli.h"
#include "runner/bundle/bundle.h"

/* Closes the run directory at `path` and packs it into the bundle *out. ERR_STATE: a process writes
 * it, or one on another host may; `presumed_dead` ignores the latter. ERR_FORMAT: it holds a link,
 * or another file that no run has; nothing was changed. The directory stays if it holds a
 * checkpoint to resume from. */
NODISCARD enum status close_run(const char *path, bool presumed_dead, struct bundle_result *out,
                                struct err *e);

/* Closes the directory at `path` if this user owns it, no process writes it as far as this host can
 * see, and it has no bundle yet. Tells the user, also if it cannot be closed. */
void close_left_open(const struct cli *cli, const char *path);

/* The same for every directory in `runs` that this host left open, as its lock file says. Runs of
 * other users or hosts are closed by `fp8lab close`. A missing `runs` is fine. */
void close_dead_runs(const struct cli *cli, const char *runs);

#endif
