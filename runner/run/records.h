/* A worker's events, put into the files of the run directory: one JSON line per record, appended
 * with one write, so that a kill tears at most the last line. */
#ifndef FP8LAB_RUNNER_RUN_RECORDS_H
#define FP8LAB_RUNNER_RUN_RECORDS_H

#include "runner/record/run_dir.h"

struct records;

/* Whether all data/metrics/ *.jsonl can be gone on with. ERR_FORMAT names a line that is no record
 * and that whole records follow: cutting there would lose them. Changes nothing. */
NODISCARD enum status records_check(const struct run_dir *dir, struct err *e);

/* Opens data/metrics/ *.jsonl for appending; `dir` is borrowed until records_close. What stands
 * there beyond `last_step` (and a torn last line) is cut off first: an attempt that resumes from
 * that step's checkpoint will write it again. last_step 0 for a fresh start. ERR_FORMAT: as
 * records_check() says. */
NODISCARD enum status records_open(const struct run_dir *dir, int64_t last_step,
                                   struct records **out, struct err *e);
void records_close(struct records *r); /* NULL is fine */

/* Files one event: step, eval, fp8, trace, telemetry, ranks go to their .jsonl without the "event"
 * key; slots, tensors and decisions become a .json file. Other events are left to the caller.
 * ERR_IO (a full disk) leaves the file at its last whole record. */
NODISCARD enum status records_put(struct records *r, const json_t *event, struct err *e);

#endif
