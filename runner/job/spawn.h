/* Starts one worker process. */
#ifndef FP8LAB_RUNNER_JOB_SPAWN_H
#define FP8LAB_RUNNER_JOB_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "kernels/base.h"
#include "runner/base/run_files.h"

struct spawn_options {
    const char *const *argv; /* as execve's; --rank, --world, --device (if world > 1), --board-fd
                              * and --rendezvous-fd are added */
    const char *const *envp;
    char log_path[PATH_CAP];               /* appended to: the worker's stdout and stderr */
    int64_t rank, world;
    int64_t device;           /* of this rank on its host */
    int board_fd;             /* becomes SUPERVISE_BOARD_FD */
    int rendezvous_fd;           /* becomes SUPERVISE_RENDEZVOUS_FD; -1: none */
    int keep_fd;              /* stays open in the worker; -1: none */
    const sigset_t *old_mask; /* the signal mask that the worker starts with */
};

/* The worker runs in its own process group, so that a terminal's Ctrl-C reaches the runner only. It
 * is killed when the runner dies, its stdin is /dev/null, and it writes events to descriptor
 * SUPERVISE_EVENTS_FD. *events is the reading end, owned by the caller. ERR_IO where the program
 * cannot be executed. */
NODISCARD enum status spawn_worker(const struct spawn_options *options, pid_t *pid, int *events,
                                   struct err *e);

#endif
