/* Stop requests as data: SIGINT, SIGTERM, SIGHUP and SIGUSR1 (the one that srun hands on: at the
 * others it kills), and SIGCHLD, are blocked and read from a descriptor, so that there is no
 * handler and no global flag, and the runner works as process 1 of a container. */
#ifndef FP8LAB_RUNNER_SIGNALS_H
#define FP8LAB_RUNNER_SIGNALS_H

#include <signal.h>

#include "kernels/base.h"

struct signals {
    int fd;       /* poll it for reading; -1 when closed */
    sigset_t old; /* the mask before */
};

/* Blocks these signals, ignores SIGPIPE, opens the descriptor. */
NODISCARD enum status signals_open(struct signals *out, struct err *e);
/* The next pending signal, or 0. Never waits. */
int signals_take(struct signals *s);
/* Closes and puts the old mask back: a signal that is pending then has its default effect. */
void signals_close(struct signals *s);

#endif
