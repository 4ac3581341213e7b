/* Commands that run one suite or experiment in one folder, at once or one after another, share its
 * rows: what a folder of runs says about a row, and the claim under which a row is looked for and
 * begun. */
#ifndef FP8LAB_RUNNER_RUN_SHARING_H
#define FP8LAB_RUNNER_RUN_SHARING_H

#include "runner/base/cli.h"
#include "runner/bundle/run_view.h"
#include "runner/record/inputs.h"
#include "runner/record/run_lock.h"

enum row_state_kind {
    ROW_NEW,    /* nobody has run it (path ""), or the run at `path` failed, or stopped before
                       * its first checkpoint: a new run begins */
    ROW_RESUMABLE, /* stopped, killed, or failed for a lost peer, with a checkpoint to go on from
                       * in the directory or, where that is gone, in the bundle */
    ROW_RUNNING,    /* another process is running it */
    ROW_ENDED    /* came to its end */
};

/* How a row stands, and the run that says so. */
struct row_state {
    enum row_state_kind kind;
    bool seen_locked; /* by its process, of ROW_RUNNING: locks reach us from where that is */
    bool left_open;   /* a run of it is nobody's and not closed; row_state_close_left() does that */
    struct run_writer writer; /* of ROW_RUNNING */
    char path[PATH_CAP], id[160], status[16];
};

/* Whether a run that ended as this run.json says would end so again, as far as one can tell: it
 * failed, and not for a lost peer. */
bool run_fails_again(const json_t *run);

/* Takes note of an earlier run that was asked for with the row's inputs. */
void row_state_note(struct row_state *s, const struct run_view *view);

/* Looks for runs that bear the inputs' hash in their names: those of the same command. */
NODISCARD enum status row_state_read(const char *runs, const struct inputs *in, struct row_state *s,
                                    struct err *e);

/* Closes this user's runs of the row that nobody writes any more, whichever host left them: the row
 * is asked for here, and goes on from what they saved. */
NODISCARD enum status row_state_close_left(const struct cli *cli, const char *runs,
                                          const struct inputs *in, struct err *e);

/* Whether a process is still at a row that is ROW_RUNNING, as far as can be told: one on another
 * host is, until its lock, once seen held, is not. */
bool row_state_is_running(struct row_state *s);

/* Closes the run of a ROW_RUNNING row whose process died on another host, which close_dead_runs()
 * cannot know. */
NODISCARD enum status row_state_close_dead(struct row_state *s, struct err *e);

/* Between these two no other command looks for a row or begins one in `runs`, which is made where
 * it is missing. *claim is -1 where nothing can be written there: beginning a run says why.
 * ERR_STATE where another process keeps the claim for a minute. */
NODISCARD enum status claim_take(const char *runs, int *claim, struct err *e);
void claim_drop(int *claim); /* NULL or -1: nothing */

#endif
