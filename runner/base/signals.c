#include "runner/base/signals.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runner/base/clock.h"

static const int REQUESTS[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR1 };
enum { REQUEST_COUNT = sizeof REQUESTS / sizeof *REQUESTS };

/* Runs only in a thread that does not block the signal. If that is the main thread, this is a
 * forked child before exec, with the old mask restored: there the signal has its default effect. */
static void forward_to_main(int signo) {
    int saved = errno;
    pid_t process = getpid();
    if (syscall(SYS_gettid) == process) (void)signal(signo, SIG_DFL);
    (void)syscall(SYS_tgkill, process, process, signo);
    errno = saved;
}

/* A signal that the caller ignores (nohup) stays ignored. */
static void replace_handlers(void (*from)(int), void (*to)(int)) {
    struct sigaction now, wanted = { .sa_handler = to, .sa_flags = SA_RESTART };
    for (int i = 0; i < REQUEST_COUNT; i++)
        if (sigaction(REQUESTS[i], NULL, &now) == 0 && now.sa_handler == from)
            (void)sigaction(REQUESTS[i], &wanted, NULL);
}

enum status signals_open(struct signals *out, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < REQUEST_COUNT; i++) sigaddset(&set, REQUESTS[i]);
    sigaddset(&set, SIGCHLD);
    out->fd = -1;
    out->stopped_by = 0;
    out->first_ms = 0;
    if (sigprocmask(SIG_BLOCK, &set, &out->old) != 0)
        return FAIL(e, ERR_IO, "sigprocmask: %s", strerror(errno));
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    out->fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (out->fd < 0) {
        (void)sigprocmask(SIG_SETMASK, &out->old, NULL);
        return FAIL(e, ERR_IO, "signalfd: %s", strerror(errno));
    }
    replace_handlers(SIG_DFL, forward_to_main);
    return OK;
}

int signals_take(struct signals *s) {
    struct signalfd_siginfo info;
    ssize_t n = s->fd >= 0 ? read(s->fd, &info, sizeof info) : 0;
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

static bool is_part_of_first(const struct signals *s, int64_t now_ms) {
    return s->first_ms && now_ms - s->first_ms < SIGNALS_ONE_REQUEST_MS;
}

int signals_take_request(struct signals *s, int64_t now_ms) {
    for (int signo; (signo = signals_take(s)) != 0;) {
        if (signo == SIGCHLD || is_part_of_first(s, now_ms)) continue;
        if (!s->first_ms) s->first_ms = now_ms;
        return signo;
    }
    return 0;
}

void signals_await_parts(struct signals *s) {
    for (int64_t now; now = clock_ms(), is_part_of_first(s, now);)
        (void)poll(NULL, 0, (int)(s->first_ms + SIGNALS_ONE_REQUEST_MS - now));
    while (signals_take(s)) continue;
}

void signals_close(struct signals *s) {
    if (s->fd < 0) return;
    if (is_part_of_first(s, clock_ms()))
        while (signals_take(s)) continue;
    close(s->fd);
    s->fd = -1;
    replace_handlers(forward_to_main, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &s->old, NULL);
}
