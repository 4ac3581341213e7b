/* What a user sees of a run that has ended: one line of text, or one row of the JSON result. */
#ifndef FP8LAB_RUNNER_RUN_OUTCOME_H
#define FP8LAB_RUNNER_RUN_OUTCOME_H

#include "runner/run/run_one.h"

/* Prints status, last step, losses, speed and bundle in one line. Prints nothing under --json. */
void outcome_print(const struct cli *cli, const struct run_outcome *o);

/* Its last losses; NaN: it has none. */
void outcome_losses(const struct run_outcome *o, double *loss, double *eval_loss);

/* A row of fp8lab.run_result/1. earlier: the run was there before this command. The caller owns
 * the object; NULL: out of memory. */
json_t *outcome_json(const char *name, const struct run_outcome *o, bool earlier);

/* Prints fp8lab.run_result/1. Takes over `rows`, a list of outcome_json(). */
void outcome_print_json(const struct cli *cli, json_t *rows);

#endif
