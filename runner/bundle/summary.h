/* The summary of a run from its columns, and the hash of its results. */
#ifndef FP8LAB_RUNNER_BUNDLE_SUMMARY_H
#define FP8LAB_RUNNER_BUNDLE_SUMMARY_H

#include <jansson.h>

#include "runner/bundle/columns.h"
#include "model/ground/sha256.h"

/* The records of one run by enum stream_id; NULL where the run has none. All owned. */
struct run_columns {
    struct columns *of[STREAM_COUNT];
};
void run_columns_free(struct run_columns *c);

/* Whether no token of a row of "train" has loss: its loss is NaN, or 0 in bundles up to 2026-11-28.
 * Such a step has not diverged. */
bool step_lacks_loss(const struct columns *train, int64_t row);

/* The rows over which speed is measured: all but the first fifth of the run (at least 1 step, at
 * most 50). Allocation, tuning and caches warm up in that fifth. [first, last), may be empty. */
struct window { int64_t first, last; };
struct window steady_window(int64_t rows);

/* Median of a column in rows [first, last), ignoring NaN; NaN if no value is left or t (may be
 * NULL) has no such column. Exact; memory does not grow with the window. ERR_MEMORY only. */
NODISCARD enum status window_median(const struct columns *t, const char *name, struct window w,
                                    double *out, struct err *e);

/* The first largest (sign +1) or smallest (sign -1) value of a column. t may be NULL. Without such
 * a column, or a value in it, row is -1 and value NaN. */
struct extreme {
    int64_t row, label;
    double value;
};
struct extreme column_extreme(const struct columns *t, const char *name, double sign);

/* How many sets the columns of STREAM_EVAL_SETS have losses of; 0 if a name is one that no run
 * has. */
int64_t eval_set_count(const struct columns *sets);
/* The loss of a set in a row; NaN: not finite. */
double eval_set_loss(const struct columns *sets, int64_t row, int64_t set);

/* summary.json ("fp8lab.summary/1"); *out is owned by the caller. Its keys are those of FIGURES
 * (record/streams.h), and
 *   steps, step_first, step_last
 *   steady_from, steady_to    steps of the steady window
 *   gpu_throttle_reasons      of any sample
 *   slowest_rank              the rank that was the slowest most often
 *   ranks_steps_missing       steps of several ranks without a record in the stream "ranks"
 *   eval_sets                 of eval.also, from the last record: {name: {step, loss, loss_bits,
 *                             tokens, loss_tokens}}; absent without one
 * Keys that the run has no numbers for are null. `attempts`: of run.json; steps of an attempt with
 * one rank are not missing. NULL: all steps are of several ranks. */
NODISCARD enum status summary_make(const struct run_columns *c, const json_t *attempts,
                                   json_t **out, struct err *e);

/* results_sha256: SHA-256 over "fp8lab.results/1\n" and then, for each result of the table of
 * streams (struct metric, `result`) that the run has: "<stream> <column> <rows> <width>\n", the
 * steps as i64 and the values, row after row, little-endian; at the end
 * "weights <final_weights_sha256>\n", "-" if the weights are unknown. The values count, not the
 * file that they were read from. Times, and other values that differ between two equal runs, are
 * not covered. */
NODISCARD enum status results_hash(const struct run_columns *c, const char *final_weights_sha256,
                                   char hex[SHA256_HEX], struct err *e);

#endif
