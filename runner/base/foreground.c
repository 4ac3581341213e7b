#include "runner/base/foreground.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/base/cli.h"
#include "runner/base/clock.h"
#include "runner/base/run_files.h"
#include "runner/base/signals.h"

bool program_in_path(const char *program) {
    const char *path = getenv("PATH");
    char file[PATH_CAP];
    for (const char *at = path ? path : ""; *at;) {
        int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, at, program);
        if (access(file, X_OK) == 0 && !path_is_directory(file)) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* The child has a process group of its own, so a terminal's Ctrl-C reaches only us, and we forward
 * it once. Its stdin is /dev/null, because the kernel stops a background group that reads the
 * terminal. Signals go to the child, not to its group: apptainer's container is in that group, and
 * apptainer forwards them. */
static enum status spawn(char *const *argv, int out, const sigset_t *mask, pid_t *pid,
                         struct err *e) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setsigmask(&how, mask);
    int rc = posix_spawnp(pid, argv[0], &files, &how, argv, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return rc == 0 ? OK : FAIL(e, ERR_IO, "start %s: %s", argv[0], strerror(rc));
}

static enum status await(struct signals *signals, pid_t pid, int stop_as, int *stopped, int *status,
                         struct err *e) {
    for (;;) {
        pid_t done = waitpid(pid, status, WNOHANG);
        if (done == pid) return OK;
        if (done < 0 && errno != EINTR) return FAIL(e, ERR_IO, "wait: %s", strerror(errno));
        struct pollfd p = { .fd = signals->fd, .events = POLLIN };
        (void)poll(&p, 1, 1000); /* SIGCHLD wakes us too; 1 s in case it was merged */
        int64_t now = clock_ms();
        for (int signo; (signo = signals_take_request(signals, now)) != 0;) {
            (void)kill(pid, stop_as ? stop_as : signo);
            *stopped = signo;
        }
    }
}

enum status foreground_run(char *const *argv, int out, int stop_as, int *exit_code, struct err *e) {
    struct signals signals = { .fd = -1 };
    pid_t pid;
    int status = 0, stopped = 0;
    TRY(signals_open(&signals, e));
    enum status st = spawn(argv, out, &signals.old, &pid, e);
    if (st == OK) st = await(&signals, pid, stop_as, &stopped, &status, e);
    signals_close(&signals);
    TRY(st);
    *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
    if (stopped && stop_as && *exit_code == EXIT_SIGNAL + stop_as)
        *exit_code = EXIT_SIGNAL + stopped;
    return OK;
}

bool foreground_capture(const char *const *argv, size_t limit, char **out, size_t *n) {
    int fds[2];
    *out = NULL;
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid;
    int rc = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    char *bytes = rc == 0 ? malloc(limit + 1) : NULL;
    size_t used = 0;
    while (bytes && used < limit) {
        ssize_t got = read(fds[0], bytes + used, limit - used);
        if (got == 0 || (got < 0 && errno != EINTR)) break;
        if (got > 0) used += (size_t)got;
    }
    close(fds[0]); /* a program that prints more gets SIGPIPE, and counts as failed */
    int status = -1;
    if (rc == 0) (void)waitpid(pid, &status, 0);
    bool good = bytes && status == 0;
    if (good) bytes[used] = '\0';
    else free(bytes);
    *out = good ? bytes : NULL;
    *n = used;
    return good;
}
