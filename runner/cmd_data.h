/* What `fp8lab data` does besides describing files. */
#ifndef FP8LAB_RUNNER_CMD_DATA_H
#define FP8LAB_RUNNER_CMD_DATA_H

#include "runner/base/cli.h"

/* data tokenise: cli->args[0] is the word "tokenise", the others are files. Returns the exit
 * code. */
int cmd_data_tokenise(const struct cli *cli);

#endif
