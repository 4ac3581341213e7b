/* The tokenizer of `sample` where the data have none of their own: sample.tokenizer, or the one
 * that `data tokenise` made the shards with. The run keeps a copy, which its worker reads. */
#ifndef FP8LAB_RUNNER_RUN_SAMPLE_TOKENIZER_H
#define FP8LAB_RUNNER_RUN_SAMPLE_TOKENIZER_H

#include "runner/record/run_dir.h"

/* `root`: of relative paths, as of data; NULL: here. `kept`: the folder that an earlier run's copy
 * lies in, which takes precedence; NULL: none. Without text to read or write it does nothing.
 * ERR_CONFIG: a prompt is text, and there is no tokenizer; or its file is not the one that made the
 * shards. */
NODISCARD enum status sample_tokenizer_keep(const struct run_dir *dir, const json_t *config,
                                            const char *root, const char *kept, struct err *e);

#endif
