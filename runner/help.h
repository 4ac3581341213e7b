/* The help texts: the first screen, the verb table, each verb's --help. */
#ifndef FP8LAB_RUNNER_HELP_H
#define FP8LAB_RUNNER_HELP_H

#include "runner/base/cli.h"

/* `fp8lab` without arguments: the first steps. */
void help_welcome(const struct cli *cli, const struct verb *const *verbs, int64_t count);
/* `fp8lab --help`: the verb table, global flags and exit codes. */
void help_all(const struct cli *cli, const struct verb *const *verbs, int64_t count);
/* `fp8lab help checkpoints`: the tiers (plan/tiers.h). */
void help_checkpoints(const struct cli *cli);
/* `fp8lab VERB --help`. */
void help_verb(const struct cli *cli, const struct verb *verb);

#endif
