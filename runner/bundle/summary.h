/* The summary of a run from its columns, and the hash of its results. */
#ifndef FP8LAB_RUNNER_BUNDLE_SUMMARY_H
#define FP8LAB_RUNNER_BUNDLE_SUMMARY_H

#include <jansson.h>

#include "runner/bundle/columns.h"
#include "model/ground/sha256.h"

/* The columns of one run; any may be NULL. All owned. */
struct run_columns {
    struct columns *train, *eval, *telemetry, *ranks, *fp8, *trace;
};
void run_columns_free(struct run_columns *c);

/* The slot for that file of a bundle ("data/trace.cols"); NULL: not a file of columns. */
struct columns **run_columns_slot(struct run_columns *c, const char *path);

/* The rows over which speed is measured: all but the first fifth of the run (at least 1 step, at
 * most 50, in which allocation, tuning and caches warm up). [first, last), may be empty. */
struct window { int64_t first, last; };
struct window steady_window(int64_t rows);

/* Median of a column in rows [first, last), ignoring NaN; NaN if no value is left or t (may be
 * NULL) has no such column. Exact; memory does not grow with the window. ERR_MEMORY only. */
NODISCARD enum status window_median(const struct columns *t, const char *name, struct window w,
                                    double *out, struct err *e);

/* The index (as for column_value()) of the first largest (sign +1) or smallest (sign -1) value of a
 * column. -1 if t (may be NULL) has no such column or the column no value. */
int64_t column_extreme(const struct columns *t, const char *name, double sign);

/* summary.json ("fp8lab.summary/1"); *out is owned by the caller. Keys that the run has no numbers
 * for are null: steps, step_first, step_last, loss_final(_bits), eval_loss_final(_bits),
 * eval_loss_best, step_time_us_median, tokens_per_s_median, steady_from, steady_to (steps), tokens,
 * rss_bytes_peak, device_bytes_peak, saturated_max, underflow_max; of a GPU model_tflops_median,
 * mfu_peak_median, mfu_gemm_median (mfu.h), gpu_clock_sm_mhz_median, gpu_power_w_median,
 * gpu_temperature_c_max, gpu_processes_other_max, gpu_throttle_reasons; of several ranks
 * wait_share_median, exposed_share_median, slowest_rank (the one that was it most often) and
 * ranks_steps_missing (steps of which not all ranks were heard; ranks.cols). `attempts`: of
 * run.json; what one rank made alone is not missing. NULL: several made all. */
NODISCARD enum status summary_make(const struct run_columns *c, const json_t *attempts,
                                   json_t **out, struct err *e);

/* results_sha256: SHA-256 over "fp8lab.results/1\n" and then, for train (loss_bits,
 * grad_norm_bits), eval (loss_bits), fp8 (amax, scale) and trace (fingerprints), as far as the run
 * has them: "<stream> <column> <rows> <width>\n", the steps as i64 and the values, little-endian;
 * at the end "weights <final_weights_sha256>\n", "-" standing for unknown. Neither times nor
 * anything else that differs between two equal runs is in it. */
NODISCARD enum status results_hash(const struct run_columns *c, const char *final_weights_sha256,
                                   char hex[SHA256_HEX], struct err *e);

#endif
