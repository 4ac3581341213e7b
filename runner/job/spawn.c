#include "runner/job/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/job/attempt.h"

enum { ARGS_MAX = 64, ADDED_MAX = 12, MOVED_FD = 100 };

/* The numbers of its command line. */
struct numbers { char rank[24], world[24], device[24], board[24], rendezvous[24]; };

static void print_numbers(const struct spawn_options *o, struct numbers *text) {
    snprintf(text->rank, sizeof text->rank, "%" PRId64, o->rank);
    snprintf(text->world, sizeof text->world, "%" PRId64, o->world);
    snprintf(text->device, sizeof text->device, "%" PRId64, o->device);
    snprintf(text->board, sizeof text->board, "%d", SUPERVISE_BOARD_FD);
    snprintf(text->rendezvous, sizeof text->rendezvous, "%d", SUPERVISE_RENDEZVOUS_FD);
}

/* A copy of the caller's argv, with the numbers after it. */
static enum status build_argv(const struct spawn_options *o, struct numbers *text,
                              char *argv[ARGS_MAX], struct err *e) {
    int64_t n = 0;
    for (; o->argv[n]; n++) {
        if (n + ADDED_MAX > ARGS_MAX)
            return FAIL(e, ERR_ARG, "the command line of a worker has over %d words",
                        ARGS_MAX - ADDED_MAX);
        argv[n] = (char *)o->argv[n];
    }
    if (o->world > 1) {
        argv[n++] = "--rank";
        argv[n++] = text->rank;
        argv[n++] = "--world";
        argv[n++] = text->world;
        argv[n++] = "--device";
        argv[n++] = text->device;
    }
    argv[n++] = "--board-fd";
    argv[n++] = text->board;
    if (o->rendezvous_fd >= 0) {
        argv[n++] = "--rendezvous-fd";
        argv[n++] = text->rendezvous;
    }
    argv[n] = NULL;
    return OK;
}

/* In the child, between fork and exec: only async-signal-safe calls. Does not return. On a failure
 * writes errno to `report` and exits. */
static void become_worker(const struct spawn_options *o, char *const *argv, int log, int events,
                          int report, pid_t runner) {
    int null = open("/dev/null", O_RDONLY);
    int moved = fcntl(events, F_DUPFD_CLOEXEC, MOVED_FD),
        report_copy = fcntl(report, F_DUPFD_CLOEXEC, MOVED_FD);
    int board = fcntl(o->board_fd, F_DUPFD_CLOEXEC, MOVED_FD);
    int rendezvous = -1;
    if (o->rendezvous_fd >= 0) rendezvous = fcntl(o->rendezvous_fd, F_DUPFD_CLOEXEC, MOVED_FD);
    int kept = o->keep_fd >= 0 ? fcntl(o->keep_fd, F_DUPFD, MOVED_FD) : -1;
    bool ready = null >= 0 && moved >= 0 && report_copy >= 0 && board >= 0 &&
                 (kept >= 0 || o->keep_fd < 0) && (rendezvous >= 0 || o->rendezvous_fd < 0) &&
                 dup2(null, 0) == 0 && dup2(log, 1) == 1 && dup2(log, 2) == 2 &&
                 dup2(moved, SUPERVISE_EVENTS_FD) == SUPERVISE_EVENTS_FD &&
                 dup2(board, SUPERVISE_BOARD_FD) == SUPERVISE_BOARD_FD &&
                 (rendezvous < 0 ||
                  dup2(rendezvous, SUPERVISE_RENDEZVOUS_FD) == SUPERVISE_RENDEZVOUS_FD) &&
                 setpgid(0, 0) == 0 &&
                 prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == runner &&
                 sigprocmask(SIG_SETMASK, o->old_mask, NULL) == 0;
    if (ready) (void)execve(argv[0], argv, (char *const *)o->envp);
    int why = errno;
    ssize_t ignored = write(report_copy >= 0 ? report_copy : report, &why, sizeof why);
    (void)ignored;
    _exit(127);
}

/* Waits until the child has executed the program (the pipe closes) or failed (errno arrives). */
static enum status await_exec(const struct spawn_options *o, int report, pid_t pid, struct err *e) {
    int why = 0;
    ssize_t n;
    do n = read(report, &why, sizeof why);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return OK;
    (void)waitpid(pid, NULL, 0);
    return FAIL(e, ERR_IO, "start worker %s: %s%s", o->argv[0], strerror(why),
                why == EINVAL ? ": raise the limit of open files (ulimit -n)" : "");
}

enum status spawn_worker(const struct spawn_options *o, pid_t *pid, int *events, struct err *e) {
    char *argv[ARGS_MAX];
    struct numbers text;
    print_numbers(o, &text);
    TRY(build_argv(o, &text, argv, e));

    enum status st = OK;
    int event_pipe[2] = { -1, -1 }, report[2] = { -1, -1 };
    int log = open(o->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0) {
        st = FAIL(e, ERR_IO, "open %s: %s", o->log_path, strerror(errno));
        goto done;
    }
    if (pipe2(event_pipe, O_CLOEXEC) != 0 || pipe2(report, O_CLOEXEC) != 0) {
        st = FAIL(e, ERR_IO, "create a pipe for a worker: %s", strerror(errno));
        goto done;
    }
    pid_t runner = getpid(), child = fork();
    if (child == 0) become_worker(o, argv, log, event_pipe[1], report[1], runner);
    if (child < 0) {
        st = FAIL(e, ERR_IO, "start a worker process: %s", strerror(errno));
        goto done;
    }
    close(report[1]);
    report[1] = -1;
    st = await_exec(o, report[0], child, e);
    if (st != OK) goto done;
    *pid = child;
    *events = event_pipe[0];
    event_pipe[0] = -1;
done:
    if (log >= 0) close(log);
    for (int i = 0; i < 2; i++) {
        if (event_pipe[i] >= 0) close(event_pipe[i]);
        if (report[i] >= 0) close(report[i]);
    }
    return st;
}
