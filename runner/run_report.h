/* What `run` prints when its rows have ended. */
#ifndef FP8LAB_RUNNER_RUN_REPORT_H
#define FP8LAB_RUNNER_RUN_REPORT_H

#include "runner/run/suite.h"

/* The rows that ended: as JSON (--json), or the comparison of a suite, or the next command. Returns
 * `code`, the exit code of the rows. */
int run_report_suite(const struct cli *cli, const struct suite *suite, int code);

/* Prints the next command for a run: to resume it, to close it, or to show it. */
void run_report_next(const struct cli *cli, const struct run_outcome *o);

#endif
