/* What `repro` prints: its verdict, as text or as JSON ("fp8lab.repro/1"). */
#ifndef FP8LAB_RUNNER_REPRO_REPORT_H
#define FP8LAB_RUNNER_REPRO_REPORT_H

#include "runner/repro/repro_source.h"
#include "runner/repro/repro_speed.h"
#include "runner/repro/repro_verdict.h"
#include "runner/run/run_one.h"

/* `outcome`: of the new run. `code`: the exit code. */
void repro_report(const struct cli *cli, const struct repro_source *source,
                  const struct run_outcome *outcome, const struct repro_verdict *verdict,
                  const struct repro_speed *speed, int code);

/* Prints why this machine cannot repeat the run, with the verdict "not comparable". The JSON has
 * the keys of any other verdict. Returns the exit code. */
int repro_report_refusal(const struct cli *cli, const struct repro_source *source, const char *why);

#endif
