/* Reopens a closed run directory so that `run --resume` can write to it again. */
#ifndef FP8LAB_RUNNER_RUN_REOPEN_H
#define FP8LAB_RUNNER_RUN_REOPEN_H

#include "runner/cache/cache.h"
#include "runner/record/run_dir.h"

/* Checks that code, data and configuration are unchanged, so that the resumed run is still the same
 * run. `data_root` as for inputs_hash(); `tokens` of text, else zeroed. ERR_CONFIG names what
 * changed; ERR_IO a file of data that is absent. */
NODISCARD enum status reopen_check(const struct run_dir *dir, const json_t *resolved,
                                   const char *data_root, const struct cache_entry *tokens,
                                   struct err *e);

/* For a run with both bundle and directory: checks that the directory is unchanged since it was
 * closed. ERR_VERIFY says how to resume from the bundle instead. */
NODISCARD enum status reopen_unchanged(const char *run_dir, struct err *e);

/* Undoes what closing did: deletes the bag files and the old bundle, brings the records of an older
 * program to this format (bundle/format.h), sets the status to "running" (saved). First checks the
 * directory as reopen_unchanged() does, but accepts a changed checkpoint if another one is intact.
 * The first attempt reports a damaged checkpoint that it skips. *changed reports one that it does
 * not see (older, or gone); its code is OK if there is none. */
NODISCARD enum status reopen_run(struct run_dir *dir, struct err *changed, struct err *e);

#endif
