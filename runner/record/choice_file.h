/* data/choices.txt of a run: the choice table (kernels/choices.h) that the backend made in the
 * first step, or that --choices gave. It is an input of the run: run.json has its hash, and every
 * later attempt loads it before step 0. A run on the CPU has none. */
#ifndef FP8LAB_RUNNER_RECORD_CHOICE_FILE_H
#define FP8LAB_RUNNER_RECORD_CHOICE_FILE_H

#include "runner/record/inputs.h"
#include "runner/record/run_dir.h"

/* Reads the table of the run at run_path, whose SHA-256 must be `wanted` ("": the run has no
 * table). The caller frees *text with free(). ERR_IO: the file is another one, as may happen for
 * some seconds on a shared file system after the table was written. */
NODISCARD enum status choice_file_read(const char *run_path, const char *wanted, char **text,
                                       struct err *e);

/* Reads the table that a user names: a file, a checkpoint that contains one, or "none" (text "").
 * The caller frees *text. An invalid table is rejected here, before anything runs. */
NODISCARD enum status choice_file_source(const char *source, char **text, struct err *e);

/* Stores `text` as the run's table and puts its hash into run.json's inputs (saved). */
NODISCARD enum status choice_file_keep(struct run_dir *dir, const char *text, struct err *e);

/* The same with the table in the file `source`; "none" removes the run's table, so that the next
 * attempt times the algorithms again. */
NODISCARD enum status choice_file_take(struct run_dir *dir, const char *source, struct err *e);

/* Checks the table against run.json. ERR_CONFIG: changed, missing, or not in run.json. */
NODISCARD enum status choice_file_check(const struct run_dir *dir, struct err *e);

/* Adds the table in the file `source` ("none": no table) to the inputs of a new run. */
NODISCARD enum status choice_file_hash(const char *source, struct inputs *in, struct err *e);

#endif
