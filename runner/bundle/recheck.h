/* What a bundle says of its numbers, made again from its columns. A manifest only tells that bytes
 * are those which were signed: a summary may be signed that is not of the columns beside it. */
#ifndef FP8LAB_RUNNER_BUNDLE_RECHECK_H
#define FP8LAB_RUNNER_BUNDLE_RECHECK_H

#include <jansson.h>

#include "runner/bundle/summary.h"

/* ERR_VERIFY, naming the first that is not so: each loss and gradient norm is the number that its
 * bits are; `summary` has the values that summary_make() gives now, as far as it has the keys; and
 * `run` (run.json), where it has a results_sha256, that of results_hash(). */
NODISCARD enum status recheck_numbers(const struct run_columns *c, const json_t *run,
                                      const json_t *summary, struct err *e);

/* ---- of a bundle that streams by ------------------------------------------------------------
 * The files that are needed are kept in a file without a name ($TMPDIR, else /tmp; in memory where
 * neither can be written), since columns may be larger than memory. */
struct recheck;

NODISCARD enum status recheck_create(struct recheck **out, struct err *e);
void recheck_destroy(struct recheck *r); /* NULL is fine */

/* Begins a file of the bundle; its bytes follow. Files that are not needed are not kept. */
NODISCARD enum status recheck_begin(struct recheck *r, const char *path, struct err *e);
NODISCARD enum status recheck_add(struct recheck *r, const void *bytes, size_t n, struct err *e);

/* Judges all that was added. ERR_VERIFY also where run.json or summary.json never came, ERR_FORMAT
 * where a file is not of its format. */
NODISCARD enum status recheck_finish(struct recheck *r, struct err *e);

#endif
