/* The worker processes of an attempt on this host: starting them with their boards, signalling
 * them, and reading what a failed one left. */
#ifndef FP8LAB_RUNNER_JOB_RANKS_H
#define FP8LAB_RUNNER_JOB_RANKS_H

#include <sys/types.h>

#include "runner/job/attempt.h"
#include "runner/job/board.h"

struct event_reader;

struct rank {
    pid_t pid; /* 0: reaped, or never started */
    struct event_reader *events;
    struct board *board;
    bool open, done, failed; /* its events are open; it reported "done"; it reported an error */
    bool unkillable; /* SIGKILL did not end it; ranks_exited ignores it */
    int64_t beats, silent_ticks; /* of the board, at the last ranks_check_heartbeats */
};

struct ranks {
    const struct supervise_options *options;
    struct rank rank[SUPERVISE_RANKS_MAX];
    int64_t started;
    char host[HOST_NAME_CAP];
};

/* Starts all ranks. The command line of a worker is options->argv, then --rank, --world, --device
 * (if world > 1), --board-fd, and --rendezvous-fd for rank 0. Each has a process group of its own,
 * so that a terminal's Ctrl-C reaches the runner only. It is killed when the runner dies. Its stdin
 * is /dev/null, and it writes events to descriptor SUPERVISE_EVENTS_FD. ERR_IO if the program
 * cannot be executed. On an error *out holds those that were started. In either case ranks_close
 * releases it, once they have exited. */
NODISCARD enum status ranks_start(const struct supervise_options *options, struct ranks *out,
                                  struct err *e);
void ranks_close(struct ranks *r);

void ranks_signal(const struct ranks *r, int signo); /* to all that run */
bool ranks_exited(const struct ranks *r); /* all have exited or are unkillable */
bool ranks_done(const struct ranks *r); /* all reported "done" */

/* Reads the boards; call it once a tick. A tick in which this process did not run does not
 * count. */
void ranks_check_heartbeats(struct ranks *r);
/* "; last line of its log: ..." of the i-th rank here, or "". */
void ranks_last_log_line(const struct ranks *r, int64_t i, char *out, size_t size);

#endif
