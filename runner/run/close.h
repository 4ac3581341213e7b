/* Closing runs whose runner died: they become bundles that say "killed". */
#ifndef FP8LAB_RUNNER_RUN_CLOSE_H
#define FP8LAB_RUNNER_RUN_CLOSE_H

#include "runner/base/cli.h"
#include "runner/base/run_files.h"

/* Closes the run directory at `path` and packs it. ERR_STATE where a process is writing it, or may
 * be on another host, unless that is `presumed_dead`. The directory stays where it holds a
 * checkpoint to go on from. `bundle` takes the path. */
NODISCARD enum status close_run(const char *path, bool presumed_dead, char bundle[PATH_CAP],
                                struct err *e);

/* Closes every directory in `runs` that nobody writes, as far as this host can tell, and that has
 * no bundle yet, and says so. A
 * run that cannot be closed is named and passed over. An absent `runs` is fine. */
void close_dead_runs(const struct cli *cli, const char *runs);

#endif
