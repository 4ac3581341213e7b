/* One attempt of a run: what it starts, and how it ended. */
#ifndef FP8LAB_RUNNER_JOB_ATTEMPT_H
#define FP8LAB_RUNNER_JOB_ATTEMPT_H

#include "runner/job/rendezvous.h"

struct json_t;
struct peer_connection;
struct signals;

enum {
    SUPERVISE_RANKS_MAX = 64,
    SUPERVISE_EVENTS_FD = 3,     /* a worker's descriptor for its events */
    SUPERVISE_BOARD_FD = 4,      /* memory shared with the runner (board.h) */
    SUPERVISE_RENDEZVOUS_FD = 5, /* rank 0 of several: the listening socket for the other ranks */
    SUPERVISE_FROZEN_S = 20,     /* a process with no sign of life for this long is frozen */
    /* A process that is still there this long after SIGKILL is unkillable, and is left behind.
     * Releasing a hundred GiB of locked memory takes some seconds. */
    SUPERVISE_UNKILLABLE_S = 30,
    SUPERVISE_LEADER_S = 120, /* as SUPERVISE_FROZEN_S, for the leading runner: it may wait for a
                               * slow disk */
    ATTEMPT_OPERATION_CAP = 384,
    ATTEMPT_UNKILLABLE_CAP = 256
};

/* Why the attempt ended. */
enum attempt_end {
    ATTEMPT_DONE,       /* every worker reported "done" */
    ATTEMPT_TIME_LIMIT, /* the time limit passed; the workers saved a checkpoint */
    ATTEMPT_SIGNAL,     /* a stop request came; the workers saved a checkpoint */
    ATTEMPT_FAILED,     /* a worker reported an error and exited */
    ATTEMPT_CRASHED,    /* a worker died without reporting an error (the text has its exit status
                         * or signal), or another host's runner died or was lost */
    ATTEMPT_HUNG,       /* no event for too long, or a frozen process; all were killed */
    ATTEMPT_ABANDONED   /* a second stop request: the workers were killed at once */
};

/* "done", "crashed": for logs and run.json. */
const char *attempt_end_name(enum attempt_end end);

/* How much a rank's report of a lost peer explains. A greater value replaces a smaller one, and any
 * real cause replaces them all. */
enum reported_loss {
    REPORTED_LOSS_NONE,      /* the error is a real cause */
    REPORTED_LOSS_LINK,      /* a connection between two ranks broke */
    REPORTED_LOSS_RENDEZVOUS /* the ranks did not all connect; connected ranks then lose links */
};

struct supervise_options {
    const char *const *argv; /* argv[0] is the program's path; NULL-terminated */
    const char *const *envp; /* the whole environment of a worker; NULL-terminated */
    const char *run_path;    /* for logs: data/logs/worker-<rank>.log */
    struct signals *signals; /* open; shared by all attempts of a command */
    int lock_fd; /* of the run directory, or -1. Workers inherit it: the run stays locked until the
                  * last worker has exited, even if the runner is killed */
    /* The ranks of this host, from first_rank on. Each gets --rank, --world and --device after argv
     * where world > 1. */
    int64_t ranks, first_rank, world;
    const int64_t *device;               /* [ranks] */
    const struct rendezvous *rendezvous; /* of the ranks; NULL if there is only one */
    int rendezvous_fd;                   /* the listening socket of rank 0, if it is here; or -1 */
    struct peer_connection *peer; /* [peers] the leader has all other runners here, a follower has
                                   * the leader */
    int64_t peers;
    /* Of the leader; a follower needs stop_grace_s only, for an event that it cannot send. */
    int64_t time_limit_s;   /* from the start of the attempt; 0: none */
    int64_t hang_s;         /* 0: automatic (run/README.md); otherwise also SUPERVISE_FROZEN_S */
    int64_t stop_grace_s;   /* time from a stop request to SIGKILL */
    int64_t signal_grace_s; /* the same, if a signal requested the stop */
    /* Called for every event of rank 0, and for log, error, telemetry and pace events of other
     * ranks; in a follower also for their deaths ("exit"). On an error the workers are asked to
     * stop, and later events are discarded. */
    enum status (*on_event)(void *user, int64_t rank, const struct json_t *event, struct err *e);
    /* Called about twice a second with NULL, and with a message for the user. */
    void (*on_tick)(void *user, const char *what);
    void *user;
};

struct attempt {
    enum attempt_end end;
    int signal;              /* that stopped it, for ATTEMPT_SIGNAL and ATTEMPT_ABANDONED */
    int64_t signal_ms;       /* when the signal came (clock.h) */
    bool stop_requested;              /* a runner got a stop request, and not a worker alone */
    bool signalled;          /* this process got that stop request */
    int64_t longest_gap_ms;  /* longest silence between two events, after the first step */
    int64_t last_step;       /* of the last "step" event */
    int64_t checkpoint_step; /* of the last "checkpoint" event; 0: there was none */
    int worker_signal;       /* that killed the worker, for ATTEMPT_CRASHED; 0: it exited */
    bool unresponsive;       /* a worker ignored the stop request and was killed: steps since the
                              * last checkpoint are lost */
    char unkillable[ATTEMPT_UNKILLABLE_CAP]; /* which process SIGKILL did not end; "": none */
    enum reported_loss reported_loss;        /* whether `error` is only a report of a lost peer */
    struct err error;       /* code, text and place, for FAILED, CRASHED, HUNG and on_event */
    int64_t error_step;     /* step of the worker's error event; -1: unknown */
    int64_t rank;           /* the failed rank; -1: unknown */
    char host[HOST_NAME_CAP]; /* where that rank was; "": unknown */
    char operation[ATTEMPT_OPERATION_CAP]; /* the operation that the rank was in; "": unknown */
};

#endif
