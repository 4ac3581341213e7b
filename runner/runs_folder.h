/* The folder of runs of a verb that takes it as [DIR], or as --runs DIR as the other verbs do. */
#ifndef FP8LAB_RUNNER_RUNS_FOLDER_H
#define FP8LAB_RUNNER_RUNS_FOLDER_H

#include "runner/base/cli.h"

#define RUNS_FLAG { "runs", "DIR", "the same as DIR behind the verb", false }

static inline bool runs_folder_is_given(const struct cli *cli) {
    return cli->arg_count > 0 || cli_has(cli, "runs");
}

/* *out: borrowed. ERR_ARG: it is given twice. */
static inline enum status runs_folder(const struct cli *cli, const char **out, struct err *e) {
    const char *flag = cli_value(cli, "runs");
    *out = cli->arg_count > 0 ? cli->args[0] : flag ? flag : "runs";
    if (!cli->arg_count || !flag) return OK;
    return FAIL(e, ERR_ARG, "two folders of runs: %.200s and --runs %.200s; give one", *out, flag);
}

#endif
