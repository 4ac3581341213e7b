/* Writes the events of workers to the files of the run directory, by the table of streams. Each
 * record is appended with one write, so a kill can tear only the last one. */
#ifndef FP8LAB_RUNNER_RECORD_RECORDS_H
#define FP8LAB_RUNNER_RECORD_RECORDS_H

#include "runner/record/run_dir.h"

struct records;

/* Checks that the file of each stream can be appended to. Changes nothing. ERR_FORMAT names a file
 * whose header is damaged, or a line that is not a record although whole records follow it. Cutting
 * the file at that line would lose them. */
NODISCARD enum status records_check(const struct run_dir *dir, struct err *e);

/* Opens the files for appending; `dir` is borrowed until records_close(). First cuts off the
 * records after `last_step`, and an incomplete last record. The attempt that resumes from that step
 * writes them again. last_step is 0 for a new run. ERR_FORMAT as records_check(). */
NODISCARD enum status records_open(const struct run_dir *dir, int64_t last_step,
                                   struct records **out, struct err *e);
void records_close(struct records *r); /* NULL is fine */

/* The step of the last whole record of training; 0: there is none. */
NODISCARD enum status records_last_step(const struct run_dir *dir, int64_t *step, struct err *e);

/* Writes one event: a record to the file of its stream, without its "event" key; labels and
 * decisions to a JSON file, decisions of a device with the counts of its certificates. Ignores
 * other events. The event of a wide stream has "row", the bytes of its row as hexadecimal digits.
 * After ERR_IO (a full disk) the file ends with its last whole record. */
NODISCARD enum status records_put(struct records *r, const json_t *event, struct err *e);

/* Returns once all records so far are on the disk. After a checkpoint, so that a power loss leaves
 * the records before it. */
NODISCARD enum status records_sync(const struct records *r, struct err *e);

/* Whether a record of training says that no token of its step has loss: its loss is null. */
bool record_lacks_loss(const json_t *record);

/* The row in the event of a wide stream: *n bytes, owned by the caller. ERR_FORMAT if the event has
 * none. */
NODISCARD enum status record_row(const json_t *event, char **out, size_t *n, struct err *e);

#endif
