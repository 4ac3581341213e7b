/* One attempt of a run on this host: starts the worker processes, files their events and logs, and
 * watches over time limit, signals, hangs and deaths until none is left. Where the run has other
 * hosts, their runners do the same for theirs, and are watched like workers (peer_connection.h). Knows
 * processes and the event protocol; knows nothing of models, bundles or Lua. */
#ifndef FP8LAB_RUNNER_JOB_SUPERVISE_H
#define FP8LAB_RUNNER_JOB_SUPERVISE_H

#include "kernels/base.h"
#include "runner/job/rendezvous.h"

struct peer_connection;
struct json_t;
struct rendezvous;
struct signals;

enum {
    SUPERVISE_RANKS_MAX = 64,
    SUPERVISE_EVENTS_FD = 3,  /* a worker's: its events */
    SUPERVISE_BOARD_FD = 4,   /* memory that it shares with the runner (board.h) */
    SUPERVISE_RENDEZVOUS_FD = 5, /* rank 0's, if there are several: where the others call */
    SUPERVISE_FROZEN_S = 20,  /* a process without a sign of life for so long stands still */
    /* One that SIGKILL has not ended for so long is left behind; to give back a hundred GiB of
     * locked memory takes one some seconds. */
    SUPERVISE_UNKILLABLE_S = 30,
    SUPERVISE_LEADER_S = 120, /* the same of the runner that leads, which also writes files */
    ATTEMPT_OPERATION_CAP = 384,
    ATTEMPT_UNKILLABLE_CAP = 256
};

/* Why the attempt ended. */
enum attempt_end {
    ATTEMPT_DONE,       /* every worker said done */
    ATTEMPT_TIME_LIMIT, /* stopped in good order: the time was over */
    ATTEMPT_SIGNAL,     /* stopped in good order: SIGINT or SIGTERM */
    ATTEMPT_FAILED,     /* a worker reported an error and left */
    ATTEMPT_CRASHED,    /* a worker ended without a word: exit status or signal in the text; or the
                         * runner of another host did, or its connection was lost */
    ATTEMPT_HUNG,       /* no event for too long, or a process that stood still; killed */
    ATTEMPT_ABANDONED   /* a second signal: workers were killed at once */
};
enum { ATTEMPT_ENDS = ATTEMPT_ABANDONED + 1 };

/* What the word of a rank that misses a peer is worth, where no peer failed by itself; it gives way
 * to more. */
enum reported_loss {
    REPORTED_LOSS_NONE,   /* it is none: a cause */
    REPORTED_LOSS_LINK,   /* a link was lost */
    REPORTED_LOSS_RENDEZVOUS /* ranks did not come together: those that had then lost their links */
};

struct supervise_options {
    const char *const *argv; /* argv[0] is the program's path; NULL-terminated */
    const char *const *envp; /* the whole environment of a worker; NULL-terminated */
    const char *run_path;    /* for logs: data/logs/worker-<rank>.log */
    struct signals *signals; /* open; shared by all attempts of a command */
    int lock_fd;   /* of the run directory, or -1: workers inherit it, so that the run stays
                    * locked until the last of them is gone, even if the runner is killed */
    /* The ranks of this host, from first_rank on; each gets --rank, --world and --device after
     * argv where world > 1. */
    int64_t ranks, first_rank, world;
    const int64_t *device;         /* [ranks] */
    const struct rendezvous *rendezvous; /* of the ranks; NULL where there is one only */
    int rendezvous_fd;                /* where rank 0, if it is here, is called; -1 */
    struct peer_connection *peer;   /* [peers] the other runners: all of them for the one that
                                    * leads, which has rank 0; the leader for another */
    int64_t peers;
    int64_t time_limit_s;    /* 0: none. Counted from the start of the attempt */
    int64_t hang_s;          /* 0: automatic (run/README.md); else also of a frozen process */
    int64_t stop_grace_s;    /* a worker asked to stop has this long; then it is killed */
    int64_t signal_grace_s;  /* the same where a signal asks */
    /* Called for every event of rank 0, and for log, error, telemetry and pace events of others. An
     * error stops the attempt: the workers are asked to leave. */
    enum status (*on_event)(void *user, int64_t rank, const struct json_t *event, struct err *e);
    /* Called about twice a second, and with `what` when something is worth saying. */
    void (*on_tick)(void *user, const char *what);
    void *user;
};

struct attempt {
    enum attempt_end end;
    int signal;             /* the signal that stopped it, for ATTEMPT_SIGNAL and ABANDONED */
    int64_t signal_ms;      /* when it came (clock.h) */
    bool asked;             /* a stop request came to a runner, and not to a worker alone */
    bool signalled;         /* and that to this process */
    int64_t longest_gap_ms; /* the longest silence between two events, after the first step */
    int64_t last_step;      /* of the last "step" event */
    int64_t checkpoint_step; /* of the last "checkpoint" event, 0 if there was none */
    int worker_signal;       /* that killed the worker, for ATTEMPT_CRASHED; 0: it left by itself */
    bool unresponsive; /* asked to stop, did not, was killed: steps since the checkpoint are lost */
    char unkillable[ATTEMPT_UNKILLABLE_CAP]; /* which process SIGKILL did not end, in words; "": none */
    enum reported_loss reported_loss; /* whether the error is no more than that */
    struct err error;  /* code, text and where: FAILED, CRASHED, HUNG, and on_event's failures */
    int64_t error_step;     /* step of the worker's error event, or -1 */
    int64_t rank;           /* whose error it is, or -1 */
    char host[HOST_NAME_CAP]; /* where that rank was; "" where it is not known */
    char operation[ATTEMPT_OPERATION_CAP]; /* what it was at; "" if nobody knows */
};

/* Runs one attempt to its end. The first stop request (signals.h) asks the workers to stop (they
 * checkpoint and say done); a second one kills them. One that the kill does not end (it waits in
 * the kernel, for a dead disk or a hung driver) is left behind after SUPERVISE_UNKILLABLE_S. A worker
 * gets its events descriptor as number SUPERVISE_EVENTS_FD, its output goes to
 * data/logs/worker-<rank>.log, and it dies with the runner. OK whatever the workers did; an error
 * only where nothing could be started. */
NODISCARD enum status supervise(const struct supervise_options *options, struct attempt *out,
                                struct err *e);

/* "done", "crashed": for logs and run.json. */
const char *attempt_end_name(enum attempt_end end);

#endif
