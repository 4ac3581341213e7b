/* Process 1 of a container. The kernel gives it no default for signals (SIGTERM would be ignored)
 * and every orphan of the container for a child. So the program that is started as process 1 goes
 * on in a child, and what stays passes signals on and reaps. */
#ifndef FP8LAB_RUNNER_INIT_H
#define FP8LAB_RUNNER_INIT_H

#include "kernels/base.h"

/* Returns at once, with *ended false, in any process but number 1; in that one, *ended is false in
 * the child, which goes on as the program, and true in the parent once the child is gone: *code is
 * then the child's exit code, 128+N where signal N killed it. Call it before anything else. */
NODISCARD enum status init_become(bool *ended, int *code, struct err *e);

#endif
