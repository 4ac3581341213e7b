#include "runner/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum status signals_open(struct signals *out, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    out->fd = -1;
    if (sigprocmask(SIG_BLOCK, &set, &out->old) != 0)
        return FAIL(e, ERR_IO, "sigprocmask: %s", strerror(errno));
    (void)signal(SIGPIPE, SIG_IGN);
    out->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (out->fd >= 0) return OK;
    (void)sigprocmask(SIG_SETMASK, &out->old, NULL);
    return FAIL(e, ERR_IO, "signalfd: %s", strerror(errno));
}

int signals_take(struct signals *s) {
    struct signalfd_siginfo info;
    ssize_t n = s->fd >= 0 ? read(s->fd, &info, sizeof info) : 0;
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

void signals_close(struct signals *s) {
    if (s->fd < 0) return;
    close(s->fd);
    s->fd = -1;
    (void)sigprocmask(SIG_SETMASK, &s->old, NULL);
}
