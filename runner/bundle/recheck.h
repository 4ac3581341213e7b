/* Computes the numbers of a bundle again from its records. A manifest only proves which bytes were
 * packed: the packed summary may contradict the packed records. */
#ifndef FP8LAB_RUNNER_BUNDLE_RECHECK_H
#define FP8LAB_RUNNER_BUNDLE_RECHECK_H

#include <jansson.h>

#include "runner/bundle/summary.h"

/* What a run says of itself, borrowed. Only `run` and `summary` must be there. */
struct statements {
    const json_t *run, *resolved, *argv, *summary;
};

/* Checks that
 *
 *   the hashes of the inputs and the seed in `run`, run.json, are right (inputs_check())
 *   a run that is `done` has the record of its last step, unless records were lost
 *   a command with --smoke made a smoke run
 *   each loss and gradient norm is the number of its bits
 *   the keys of `summary` have the values that summary_make() gives
 *   results_sha256 of `run` is that of results_hash(); programs of every format wrote it
 *
 * guess_loss is not checked: it would take the data.
 * ERR_VERIFY names the first contradiction. */
NODISCARD enum status recheck_numbers(const struct run_columns *c, const struct statements *s,
                                      struct err *e);

/* ---- of a bundle that is read as a stream ---------------------------------------------------
 * Wide streams may be larger than memory. So the needed files are kept in a file without a name. It
 * is in $TMPDIR, else in /tmp, or in memory if neither can be written. */
struct recheck;

NODISCARD enum status recheck_create(struct recheck **out, struct err *e);
void recheck_destroy(struct recheck *r); /* r may be NULL. */

/* Begins a file of the bundle; its bytes follow. Files that are not needed are not stored. */
NODISCARD enum status recheck_begin(struct recheck *r, const char *path, struct err *e);
NODISCARD enum status recheck_add(struct recheck *r, const void *bytes, size_t n, struct err *e);

/* Checks all files that were added: recheck_numbers(), and in format 1 each record of train.jsonl
 * and of eval.jsonl with its row of the columns. ERR_VERIFY also if run.json or summary.json is
 * missing, ERR_FORMAT if a file does not parse. */
NODISCARD enum status recheck_finish(struct recheck *r, struct err *e);

#endif
