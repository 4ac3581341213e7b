/* What the worker says of the audit (model/audit.h): a record for each audited step; and of a
 * difference the GPU, and a file with everything that the value was computed from. */
#ifndef FP8LAB_RUNNER_WORKER_AUDIT_REPORT_H
#define FP8LAB_RUNNER_WORKER_AUDIT_REPORT_H

#include "model/train.h"
#include "runner/job/events.h"

/* Emits the records of the audited steps whose comparison has ended. */
NODISCARD enum status audit_report(struct event_writer *w, struct trainer *t, int64_t rank,
                                   struct err *e);
/* Waits for the comparison that runs, then the same. */
NODISCARD enum status audit_finish(struct event_writer *w, struct trainer *t, int64_t rank,
                                   struct err *e);
/* If *why is the difference that an audit found: puts the GPU before its text and writes
 * data/audit_fault.json, or audit_fault_rankN.json of another rank than 0. Otherwise does
 * nothing. */
struct audit_place {
    int64_t device, rank;
    const char *run_path; /* of the run directory */
};
void audit_explain(const struct audit_place *o, struct backend *b, const struct trainer *t,
                   struct err *why);

#endif
