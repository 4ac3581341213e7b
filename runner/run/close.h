/* Closing runs whose runner died: they become bundles that say "killed". */
#ifndef FP8LAB_RUNNER_RUN_CLOSE_H
#define FP8LAB_RUNNER_RUN_CLOSE_H

#include "runner/base/cli.h"
#include "runner/bundle/bundle.h"

/* Closes the run directory at `path` and packs it; *out says what became of it. ERR_STATE where a
 * process is writing it, or may be on another host, unless that is `presumed_dead`. ERR_FORMAT
 * where it holds a link or anything else that is no run's; then nothing was changed. The directory
 * stays where it holds a checkpoint to go on from. */
NODISCARD enum status close_run(const char *path, bool presumed_dead, struct bundle_result *out,
                                struct err *e);

/* Closes the directory at `path` if it is this user's, nobody writes it as far as this host can
 * tell, and it has no bundle yet; says so, or why it cannot be closed. */
void close_left_open(const struct cli *cli, const char *path);

/* The same of every directory in `runs` that this host left open, as its lock file says. What
 * another user or another host left takes `fp8lab close`. An absent `runs` is fine. */
void close_dead_runs(const struct cli *cli, const char *runs);

#endif
