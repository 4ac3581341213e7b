/* Several commands may run one suite in one folder, at once or one after another, and share its
 * rows. This file has the state of a row, as the folder of runs shows it. It also has the claim:
 * the lock under which a command reads that state and begins the row. */
#ifndef FP8LAB_RUNNER_RUN_SHARING_H
#define FP8LAB_RUNNER_RUN_SHARING_H

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"
#include "runner/record/inputs.h"
#include "runner/record/run_lock.h"

enum row_state_kind {
    ROW_NEW,       /* a new run begins: the row was not run yet (path ""), or the run at `path`
                    * has no checkpoint, or would fail again */
    ROW_RESUMABLE, /* stopped, killed, or failed for a cause outside the training; the directory,
                    * or else the bundle, holds a checkpoint to resume from */
    ROW_RUNNING,   /* another process is running it */
    ROW_ENDED      /* came to its end */
};

/* The state of a row, and the run that shows it. */
struct row_state {
    enum row_state_kind kind;
    bool seen_locked; /* ROW_RUNNING: this host has seen its lock held, so locks work here */
    bool left_open;   /* an open run has no writer; row_state_close_left() closes it */
    bool repeated;    /* ROW_ENDED: the run repeats another one (repro) */
    int64_t checkpoint_step;  /* of the run at `path`; 0: none */
    struct run_writer writer; /* of ROW_RUNNING */
    char path[PATH_CAP], id[160], status[16];
};

/* Adds an earlier run with the row's inputs to the row's state: the newest that ended, but no
 * reproduction where an original ended. A reproduction that did not come to its end does not count:
 * it is what `repro` found, and resuming would replace it. */
void row_state_note(struct row_state *s, const struct run_view *view);

/* Reads the row's state: of the runs in `runs` with the hash of these inputs in their names.
 * `taken`: an object with the paths, as run_stem() makes them, of runs that stand for other repeats
 * of the row, and do not count; or NULL. */
NODISCARD enum status row_state_read(const char *runs, const struct inputs *in,
                                    const json_t *taken, struct row_state *s, struct err *e);

/* Closes this user's open runs of the row that have no writer, on whichever host they ran. The row
 * then resumes from their checkpoints. */
NODISCARD enum status row_state_close_left(const struct cli *cli, const char *runs,
                                          const struct inputs *in, struct err *e);

/* Whether a process still runs a ROW_RUNNING row, as far as this host can see. A process on another
 * host counts as running until its lock, which was seen held before, is free. */
bool row_state_is_running(struct row_state *s);

/* Closes the run of a ROW_RUNNING row whose process died on another host; close_dead_runs() closes
 * only runs of this host. */
NODISCARD enum status row_state_close_dead(struct row_state *s, struct err *e);

/* Between claim_take() and claim_drop() no other command reads the state of a row or begins one in
 * `runs`. Makes `runs` if it is missing. *claim is -1 if `runs` cannot be written: creating the run
 * then reports why. ERR_STATE: another process held the claim for a minute. */
NODISCARD enum status claim_take(const char *runs, int *claim, struct err *e);
void claim_drop(int *claim); /* NULL or -1: nothing */

#endif
