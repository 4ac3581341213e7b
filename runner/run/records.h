/* Writes worker events to files of the run directory: one JSON line per record, appended with one
 * write, so that a kill can tear only the last line. */
#ifndef FP8LAB_RUNNER_RUN_RECORDS_H
#define FP8LAB_RUNNER_RUN_RECORDS_H

#include "runner/record/run_dir.h"

struct records;

/* Checks that all data/metrics/ *.jsonl can be appended to. ERR_FORMAT names a line that is not a
 * record although whole records follow it: cutting the file there would lose them. Changes
 * nothing. */
NODISCARD enum status records_check(const struct run_dir *dir, struct err *e);

/* Opens data/metrics/ *.jsonl for appending; `dir` is borrowed until records_close(). First cuts
 * off the records after `last_step` and a torn last line: the attempt that resumes from that step
 * writes them again. last_step is 0 for a new run. ERR_FORMAT as records_check(). */
NODISCARD enum status records_open(const struct run_dir *dir, int64_t last_step,
                                   struct records **out, struct err *e);
void records_close(struct records *r); /* NULL is fine */

/* Writes one event, without its "event" key: step, eval, fp8, trace, telemetry and ranks to their
 * .jsonl; slots, tensors and decisions to a .json file. Ignores other events. After ERR_IO (a full
 * disk) the file ends with its last whole record. */
NODISCARD enum status records_put(struct records *r, const json_t *event, struct err *e);

#endif
