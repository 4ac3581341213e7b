/* Stop requests as data: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD are blocked and read from a
 * descriptor. So there is no global flag, and the runner works as process 1 of a container. SIGUSR1
 * is among them because srun forwards it; SIGTERM makes srun kill its tasks.
 *
 * There is one handler. A library such as a device's driver may start threads that do not block
 * signals. On such a thread the handler forwards the signal to the main thread. */
#ifndef FP8LAB_RUNNER_BASE_SIGNALS_H
#define FP8LAB_RUNNER_BASE_SIGNALS_H

#include <signal.h>

#include "kernels/base.h"

struct signals {
    int fd;       /* poll it for reading; -1 when closed */
    sigset_t old; /* the mask before */
    int stopped_by; /* the caller's: the signal that ended its work early; 0: none */
};

/* Blocks these signals and opens the descriptor. Ignores SIGPIPE and SIGXFSZ: the failed write
 * returns an error instead. Call it and signals_take in the main thread. */
NODISCARD enum status signals_open(struct signals *out, struct err *e);
/* The next pending signal, or 0. Never waits. */
int signals_take(struct signals *s);
/* Closes, and restores the old mask. A pending signal then has its default effect. */
void signals_close(struct signals *s);

#endif
