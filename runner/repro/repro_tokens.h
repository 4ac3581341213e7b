/* The tokens of a bundle whose text has a tokenizer: found by content, or made again of it. */
#ifndef FP8LAB_RUNNER_REPRO_REPRO_TOKENS_H
#define FP8LAB_RUNNER_REPRO_REPRO_TOKENS_H

#include "runner/cache/cache.h"
#include "runner/repro/repro_source.h"

/* Looks for the token shards by content in `folder` and at the recorded path, by key in `cache`. If
 * they are not there, looks for the files of the text in the same way, and makes the tokens of them
 * in `cache`, with the bundle's tokenizer. *missing, owned by the caller, lists the files of
 * both if neither is complete. ERR_CONFIG: the text gives other tokens here, and how they differ.
 * ERR_FORMAT: the bundle's record is no such record. */
NODISCARD enum status repro_find_tokens(const struct cli *cli, const struct repro_source *s,
                                        const char *folder, const char *cache,
                                        struct cache_entry *out, char **missing, struct err *e);

#endif
