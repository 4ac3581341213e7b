/* The tokens of a run whose text has a tokenizer. */
#ifndef FP8LAB_RUNNER_RUN_RUN_TOKENS_H
#define FP8LAB_RUNNER_RUN_RUN_TOKENS_H

#include "runner/cache/cache.h"
#include "runner/job/run_settings.h"
#include "runner/record/run_dir.h"

/* Of a run that goes on: finds them by the run's record, or makes them again of the text with the
 * run's own tokenizer. For other data *out stays without a record. */
NODISCARD enum status run_tokens_find(const struct run_settings *s, const struct run_dir *dir,
                                      const json_t *resolved, struct cache_entry *out,
                                      struct err *e);
/* cache_take failed with *e. If text or tokenizer is absent, adds where it may be. */
void run_tokens_hint(const json_t *config, const char *data_root, struct err *e);
/* Records where they are now. */
NODISCARD enum status run_tokens_record(const struct run_dir *dir, const struct cache_entry *x,
                                        struct err *e);

#endif
