/* fp8lab data sample of token shards: their documents decoded, and which tokens carry loss. */
#ifndef FP8LAB_RUNNER_DATA_SAMPLE_SHARDS_H
#define FP8LAB_RUNNER_DATA_SAMPLE_SHARDS_H

#include <jansson.h>

#include "runner/base/cli.h"

/* Shows the first *left documents of the shards at `path`, all if it is negative; *left falls with
 * each. With --json they are appended to `documents`. The tokenizer is that of --tokenizer, or the
 * one that the shards were made with. ERR_CONFIG for a tokenizer that is not theirs. *loss is set
 * if the shards have loss. */
NODISCARD enum status data_sample_shards(const struct cli *cli, const char *path, int64_t *left,
                                         json_t *documents, bool *loss, struct err *e);

#endif
