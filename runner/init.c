#include "runner/init.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Gives the child its own process group and the terminal, if there is one. Ctrl-C then reaches the
 * child from the terminal only, not a second time from the parent. */
static void take_terminal(void) {
    (void)setpgid(0, 0);
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC);
    if (terminal < 0) return;
    sigset_t out, old; /* tcsetpgrp() stops a background process by SIGTTOU */
    sigemptyset(&out);
    sigaddset(&out, SIGTTOU);
    (void)sigprocmask(SIG_BLOCK, &out, &old);
    (void)tcsetpgrp(terminal, getpgrp());
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    close(terminal);
}

/* Reaps all processes that have exited. Returns true if the child is among them. */
static bool reap(pid_t child, int *code) {
    bool gone = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != child) continue;
        gone = true;
        *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return gone;
}

/* Forwards signals until the child has exited. The terminal itself sends the child its stop
 * signals. */
static void forward_signals(pid_t child, const sigset_t *all, int *code) {
    while (!reap(child, code)) {
        siginfo_t info;
        int signo = sigwaitinfo(all, &info);
        bool ours = signo == SIGCHLD || signo == SIGTSTP || signo == SIGTTIN || signo == SIGTTOU;
        if (signo > 0 && !ours) (void)kill(child, signo);
    }
}

enum status init_become(bool *ended, int *code, struct err *e) {
    sigset_t all, old;
    *ended = false;
    if (getpid() != 1) return OK;
    sigfillset(&all);
    if (sigprocmask(SIG_BLOCK, &all, &old) != 0)
        return FAIL(e, ERR_IO, "sigprocmask: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) return FAIL(e, ERR_IO, "fork: %s", strerror(errno));
    if (child == 0) {
        take_terminal();
        (void)sigprocmask(SIG_SETMASK, &old, NULL);
        return OK;
    }
    forward_signals(child, &all, code);
    *ended = true;
    return OK;
}
