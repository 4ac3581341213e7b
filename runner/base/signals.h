/* Stop requests as data: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD are blocked and read from a
 * descriptor. So there is no global flag, and the runner works as process 1 of a container. SIGUSR1
 * is among them because srun forwards it; SIGTERM makes srun kill its tasks.
 *
 * There is one handler. A library such as a device's driver may start threads that do not block
 * signals. On such a thread the handler forwards the signal to the main thread.
 *
 * One stop may arrive as several signals: GNU timeout signals its child, then the child's group.
 * Schedulers do likewise. So requests within a second of the first count as one. */
#ifndef FP8LAB_RUNNER_BASE_SIGNALS_H
#define FP8LAB_RUNNER_BASE_SIGNALS_H

#include <signal.h>

#include "kernels/base.h"

enum { SIGNALS_ONE_REQUEST_MS = 1000 };

struct signals {
    int fd;       /* poll it for reading; -1 when closed */
    sigset_t old; /* the mask before */
    int64_t first_ms; /* when signals_take_request returned its first request; 0: it did not */
    int stopped_by; /* the caller's: the signal that ended its work early; 0: none */
};

/* Blocks these signals and opens the descriptor. Ignores SIGPIPE and SIGXFSZ: the failed write
 * returns an error instead. Call it and signals_take in the main thread. */
NODISCARD enum status signals_open(struct signals *out, struct err *e);
/* The next pending signal, or 0. Never waits. */
int signals_take(struct signals *s);
/* The next stop request that counts, or 0. Never waits. Skips SIGCHLD, and requests that now_ms
 * (clock.h) shows to be parts of the first. Give the same now_ms until it returns 0: then a pair
 * that is pending counts as one, however slow the process is. */
int signals_take_request(struct signals *s, int64_t now_ms);
/* Waits, if a request was taken, until later ones no longer count as part of it. Takes all. */
void signals_await_parts(struct signals *s);
/* Closes, and restores the old mask. A pending signal then has its default effect, unless it counts
 * as part of the first request. */
void signals_close(struct signals *s);

#endif
