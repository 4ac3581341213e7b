/* data/choices.txt of a run: the choice table (kernels/choices.h) that its backend made in the
 * first step, or was given. An input of the run: its hash stands in run.json, and every later
 * attempt loads it before step 0. A run on the CPU has none. */
#ifndef FP8LAB_RUNNER_RECORD_CHOICE_FILE_H
#define FP8LAB_RUNNER_RECORD_CHOICE_FILE_H

#include "runner/record/inputs.h"
#include "runner/record/run_dir.h"

/* The table of the run at run_path, whose SHA-256 is `wanted` ("": the run has none); *text is the
 * caller's: free(). ERR_IO: what this host finds there is another, as it may on a shared file
 * system for some seconds after the table was written. */
NODISCARD enum status choice_file_read(const char *run_path, const char *wanted, char **text,
                                       struct err *e);

/* Stores `text` as the run's table and puts its hash into run.json's inputs (saved). */
NODISCARD enum status choice_file_keep(struct run_dir *dir, const char *text, struct err *e);

/* The same with the table in the file `source`; "none" removes the run's table, so that the next
 * attempt chooses again. */
NODISCARD enum status choice_file_take(struct run_dir *dir, const char *source, struct err *e);

/* Whether the table is what run.json says. ERR_CONFIG: changed, missing, or not the run's. */
NODISCARD enum status choice_file_check(const struct run_dir *dir, struct err *e);

/* Puts the table in the file `source` ("none": no table) among the inputs of a run to be. */
NODISCARD enum status choice_file_hash(const char *source, struct inputs *in, struct err *e);

#endif
