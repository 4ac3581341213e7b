/* Starts a launcher and waits for it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runner/launch.h"
#include "runner/signals.h"

static bool in_path(const char *program) {
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

static enum status require_program(const char *program, struct err *e) {
    char others[64] = "";
    if (in_path(program)) return OK;
    for (int i = 0; i < LAUNCHER_COUNT; i++) {
        const char *name = launcher_name((enum launcher)i);
        if (strcmp(name, program) != 0 && in_path(name) && !*others)
            snprintf(others, sizeof others, "; there is %s: --launch %s", name, name);
    }
    return FAIL(e, ERR_CONFIG, "there is no %s in PATH%s", program, others);
}

/* In a process group of its own: a terminal's Ctrl-C reaches us alone, who pass it on once. For the
 * same reason it reads nothing: a background group that reads a terminal is stopped. */
static enum status spawn(const struct words *argv, const sigset_t *mask, pid_t *pid,
                         struct err *e) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setsigmask(&how, mask);
    int rc = posix_spawnp(pid, argv->word[0], &files, &how, argv->word, environ);
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return rc == 0 ? OK : FAIL(e, ERR_IO, "start %s: %s", argv->word[0], strerror(rc));
}

/* Waits for the child, passing stop signals on. */
static enum status await(struct signals *signals, pid_t pid, int *status, struct err *e) {
    for (;;) {
        pid_t done = waitpid(pid, status, WNOHANG);
        if (done == pid) return OK;
        if (done < 0 && errno != EINTR) return FAIL(e, ERR_IO, "wait: %s", strerror(errno));
        struct pollfd p = { .fd = signals->fd, .events = POLLIN };
        (void)poll(&p, 1, 1000); /* a child's end is a signal too; 1 s in case it was merged */
        for (int signo; (signo = signals_take(signals)) != 0;)
            if (signo != SIGCHLD) (void)kill(-pid, signo);
    }
}

/* docker-run(1), podman-run(1), "Exit status". */
static void explain(const struct cli *cli, const struct launch_plan *p, int code) {
    const char *tool = launcher_name(p->launcher);
    bool container = p->launcher == LAUNCH_DOCKER || p->launcher == LAUNCH_PODMAN;
    if (container && code == 125)
        cli_warn(cli, "%s itself failed (exit code 125): what it said stands above", tool);
    if ((container && (code == 126 || code == 127)) || (!container && code == 127))
        cli_warn(cli, "the image %s could not start fp8lab: `make image` builds one that can, and "
                 "--program FOLDER mounts a folder of `make dist` into any other", p->image);
}

enum status launch_start(const struct cli *cli, const struct launch_plan *p,
                         const struct words *argv, int *exit_code, struct err *e) {
    struct signals signals = { .fd = -1 };
    pid_t pid;
    int status = 0;
    TRY(require_program(argv->word[0], e));
    if (p->launcher == LAUNCH_APPTAINER && p->local && !path_exists(p->image))
        return FAIL(e, ERR_CONFIG, "there is no %s here: apptainer build %s containers/fp8lab.def, "
                    "or --image", p->image, p->image);
    TRY(signals_open(&signals, e));
    enum status st = spawn(argv, &signals.old, &pid, e);
    if (st == OK) st = await(&signals, pid, &status, e);
    signals_close(&signals);
    TRY(st);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
    explain(cli, p, code);
    bool of_the_tool = p->launcher <= LAUNCH_PODMAN && code >= 125 && code <= 127;
    *exit_code = of_the_tool || code == 127 ? EXIT_SYSTEM : code;
    return OK;
}
