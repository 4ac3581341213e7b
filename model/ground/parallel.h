/* Independent pieces of work on several threads. */
#ifndef FP8LAB_GROUND_PARALLEL_H
#define FP8LAB_GROUND_PARALLEL_H

#include "kernels/base.h"

enum { PARALLEL_MAX = 16 };

/* The processors that this process may use. */
int parallel_processors(void);

/* Calls one(user, i, ..) for each i below count, on at most `threads` threads; the caller's is one
 * of them. Returns the error of the smallest i that failed; after a failure no new i begins. The
 * threads end before the call returns: a thread that stayed would take signals that the caller
 * blocks later. */
NODISCARD enum status parallel_each(int64_t count, int threads,
                                    enum status (*one)(void *user, int64_t i, struct err *e),
                                    void *user, struct err *e);

#endif
