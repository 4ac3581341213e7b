/* Process 1 of a container. The kernel does not apply default signal actions to it (SIGTERM is
 * ignored), and makes it the parent of all orphans. So if fp8lab is started as process 1, it
 * continues in a child process; the parent forwards signals and reaps children. */
#ifndef FP8LAB_RUNNER_INIT_H
#define FP8LAB_RUNNER_INIT_H

#include "kernels/base.h"

/* Does nothing unless this is process 1. In process 1 it forks: the child returns with *ended false
 * and continues as the program. The parent returns after the child has exited, with *ended true and
 * the child's exit code in *code, 128+N if signal N killed it. Call it before anything else. */
NODISCARD enum status init_become(bool *ended, int *code, struct err *e);

#endif
