/* A worker's events, put into the files of the run directory: one JSON line per record, appended
 * with one write, so that a kill tears at most the last line. */
#ifndef FP8LAB_RUNNER_RUN_RECORDS_H
#define FP8LAB_RUNNER_RUN_RECORDS_H

#include "kernels/base.h"

struct json_t;
struct records;

/* Opens data/metrics/ *.jsonl of the run at `run_path` for appending. What stands there beyond
 * `last_step` (and a torn last line) is cut off first: an attempt that resumes from that step's
 * checkpoint will write it again. last_step 0 for a fresh start. */
NODISCARD enum status records_open(const char *run_path, int64_t last_step, struct records **out,
                                   struct err *e);
void records_close(struct records *r); /* NULL is fine */

/* Files one event: step, eval, fp8, trace, telemetry, ranks go to their .jsonl without the "event"
 * key; slots, tensors and decisions become a .json file. Other events are left to the caller.
 * ERR_IO (a full disk) leaves the file at its last whole record. */
NODISCARD enum status records_put(struct records *r, const struct json_t *event, struct err *e);

#endif
