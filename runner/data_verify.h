/* fp8lab data verify: token shards against the description beside them. */
#ifndef FP8LAB_RUNNER_DATA_VERIFY_H
#define FP8LAB_RUNNER_DATA_VERIFY_H

#include "runner/base/cli.h"

/* Runs the verb; the shards are the arguments behind the word "verify". Returns the exit code. */
int data_verify(const struct cli *cli);

#endif
