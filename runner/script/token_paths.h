/* One spelling for a dataset of Megatron's, which "x", "x.bin" and "x.idx" name. */
#ifndef FP8LAB_RUNNER_SCRIPT_TOKEN_PATHS_H
#define FP8LAB_RUNNER_SCRIPT_TOKEN_PATHS_H

#include <jansson.h>

#include "kernels/base.h"

/* *out: the same configuration, new reference. If its data are Megatron's tokens, their paths have
 * no ".bin" or ".idx": what is left is the prefix that `data tokenise --to` names. So runs on the
 * same files have one configuration. Those recorded before 2026-11-29 have the script's spelling;
 * compare them after this. ERR_MEMORY. */
NODISCARD enum status token_paths_cut(const json_t *config, json_t **out, struct err *e);

#endif
