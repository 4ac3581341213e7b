/* Stop requests as data: SIGINT, SIGTERM, SIGHUP and SIGUSR1 (the one that srun hands on: at the
 * others it kills), and SIGCHLD, are blocked and read from a descriptor, so that there is no
 * global flag, and the runner works as process 1 of a container. The one handler is for threads of
 * others' libraries that block nothing (a device's driver may start such): it hands what they are
 * given to the main thread, which reads it. */
#ifndef FP8LAB_RUNNER_BASE_SIGNALS_H
#define FP8LAB_RUNNER_BASE_SIGNALS_H

#include <signal.h>

#include "kernels/base.h"

struct signals {
    int fd;       /* poll it for reading; -1 when closed */
    sigset_t old; /* the mask before */
};

/* Blocks these signals, ignores SIGPIPE and SIGXFSZ (a pipe without a reader and a file beyond its
 * limit are errors of whoever writes), opens the descriptor. Call it and signals_take in the main
 * thread. */
NODISCARD enum status signals_open(struct signals *out, struct err *e);
/* The next pending signal, or 0. Never waits. */
int signals_take(struct signals *s);
/* Closes and puts the old mask back: a signal that is pending then has its default effect. */
void signals_close(struct signals *s);

#endif
