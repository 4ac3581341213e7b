/* The rows of one `fp8lab run`: an experiment has one row, a suite several. Each row is run,
 * resumed, taken from an earlier run, or left to another process that runs it already. */
#ifndef FP8LAB_RUNNER_RUN_SUITE_H
#define FP8LAB_RUNNER_RUN_SUITE_H

#include "runner/run/run_one.h"
#include "runner/run/sharing.h"

struct suite_row {
    struct inputs inputs;
    json_t *mismatch;   /* owned; NULL: the machine matches the hardware query, or there is none */
    json_t *data_files; /* owned; as inputs_hash() lists them */
    struct cache_entry tokens;  /* of text with a tokenizer; without a record for other data */
    json_t *init;       /* owned; of the initial weights (run/init_from.h), or NULL */
    struct run_outcome outcome; /* valid if `ended` */
    struct row_state state;     /* of the row in the folder of runs */
    bool too_big; /* the row needs more memory than this machine has */
    double loss, eval_loss; /* the last ones of a row of a suite that ended; NaN: none */
    bool earlier; /* the outcome is that of an earlier run with the same inputs */
    bool ended;
};

struct suite {
    const struct run_settings *settings; /* borrowed, with its signals, claim and members */
    const struct resolution *resolution; /* borrowed */
    struct suite_row *rows;              /* [resolution->run_count]; owned */
    struct known_data known_data;        /* rows read the same files, which are hashed once */
    const json_t *overrides;             /* borrowed: the texts of --set */
    const char *parent;                  /* borrowed: identity of the run extended, or NULL */
    const struct run_beginning *beginning; /* borrowed: where an extended run begins, or NULL */
    bool again;    /* earlier runs are ignored, and runs of other processes too */
    int64_t repeat; /* how often each row is run; the resolution has the repeats, in turns
                     * (script/repeat.h). Each earlier run stands for one of them */
    int64_t ended; /* rows that have an outcome */
};

/* Fills suite->rows with empty rows; settings and resolution must be set. */
NODISCARD enum status suite_init(struct suite *s, struct err *e);
void suite_free(struct suite *s); /* fine after a failed suite_init(), and on a zeroed suite */

/* Looks in the folder of runs for earlier runs of each row. Needs the rows' inputs. A run that came
 * to its end is not run again. One that was stopped, was killed, or failed for a cause outside the
 * training goes on from its checkpoint. */
NODISCARD enum status suite_find_earlier(struct suite *s, struct err *e);

/* The beginning of a row's turn: reads its state again under the claim. *runs: the caller runs it
 * now, and drops the claim when the run has its directory. Otherwise the row was taken from an
 * earlier run, or is left to another process. */
NODISCARD enum status suite_open_row(struct suite *s, int64_t i, bool *runs, struct err *e);

/* Runs the row in this process, as its state says: a new run, or one that goes on from its
 * checkpoint. rows: suite_rows_json(). */
NODISCARD enum status suite_run_here(struct suite *s, int64_t i, const json_t *rows, struct err *e);

/* Counts a row whose outcome is known. */
void suite_note_end(struct suite *s, int64_t i);

/* suite.json of the row that is about to run, for those who watch it: { "schema":
 * "fp8lab.suite/1", "name", "row": from 1, "rows": their number, "ended": [{ "row", "name": without
 * the suite's, "status", "loss", "eval_loss": null where there is none }] }. New reference; NULL:
 * no memory, or an experiment alone. */
json_t *suite_rows_json(const struct suite *s, int64_t row);

/* The first exit code of a row that is not 0. */
int suite_exit_code(const struct suite *s);

/* Runs the rows in order. Rows that another process runs come last: suite_run() waits for that
 * process, and takes the row over if the process dies. An experiment alone is refused instead
 * (ERR_STATE). A row that fails does not stop the others; a signal or a system error does. *code is
 * the first exit code that is not 0. */
NODISCARD enum status suite_run(struct suite *s, int *code, struct err *e);

#endif
