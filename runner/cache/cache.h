/* The tokens of an experiment's text and of the sets of eval.also: each is made, kept and found as
 * cache_one.h says. */
#ifndef FP8LAB_RUNNER_CACHE_CACHE_H
#define FP8LAB_RUNNER_CACHE_CACHE_H

#include "runner/cache/cache_one.h"

/* Finds the tokens, also those of the sets, or makes them: then says so, shows progress, and waits
 * for another process that makes the same ones. ERR_CONFIG: the user must change script, files or
 * folder; ERR_IO: writing failed, and nothing is left under a final name. */
NODISCARD enum status cache_take(const struct cache_request *q, struct cache_entry *out,
                                 struct err *e);
/* The tokens that a run's record describes, without its text: where the record says, or in `folder`
 * by their key. All their bytes are hashed. *out has no record if they are not there; damaged ones
 * in `folder` are removed after a warning. `own`: the folder that has the run's `kept` files. */
NODISCARD enum status cache_find_recorded(const struct cli *cli, const json_t *record,
                                          const char *folder, const char *own,
                                          struct cache_entry *out, struct err *e);
/* The files of text of a record and then of its sets, each of these with its `set`, in one list.
 * New reference; NULL: no memory. */
json_t *cache_record_sources(const json_t *record);
/* A copy of the record whose shards, and those of its sets, are below `root` now. NULL: no memory,
 * or a path that is too long. */
json_t *cache_record_moved(const json_t *record, const char *root);

/* Whether the shards hold what was written, by the hashes in `files`, the list of inputs_hash();
 * NULL, where that failed: reads them. If not, warns and removes them, so that cache_take() makes
 * them. */
NODISCARD enum status cache_check(const struct cli *cli, const struct cache_entry *x,
                                  const json_t *files, bool *intact, struct err *e);

#endif
