/* The run that a user named, for verbs that do not mean every run. */
#ifndef FP8LAB_RUNNER_NAMED_RUN_H
#define FP8LAB_RUNNER_NAMED_RUN_H

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"

/* As run_locate_among() in --runs. Says which run a form such as "last" means, if it would be
 * another one among all runs. */
NODISCARD enum status named_run(const struct cli *cli, const char *text, enum run_counts counts,
                                char out[PATH_CAP], struct err *e);

#endif
